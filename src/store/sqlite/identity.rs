//! Detects whether the files of a SQLite store are still those that were opened.
//!
//! SQLite continues to write to a file that was deleted or replaced, and reports success; the data is gone when the
//! last process closes the file. So a writer compares the files at the path with those that it has open, before a
//! transaction and before it acknowledges a commit. That costs three `stat` calls, a few microseconds beside a sync to
//! the disk.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sqlx::sqlite::SqliteConnection;

use super::super::driver::{Arg, DbError, DbKind, Dialect, Driver, Row};
use crate::BoxFuture;

/// The device and inode number of a file.
type Number = (u64, u64);

/// The identity of a store's files, for all its connections.
#[derive(Default)]
pub(super) struct First {
    /// The database. Another database at the same path is another store.
    database: OnceLock<Number>,
    /// Set when the log or its index was lost: a new connection would create new ones, which older connections do not
    /// see.
    lost: OnceLock<DbError>,
}

impl First {
    /// Fails if a connection to `path` would not lead to the store that was opened.
    pub(super) fn check(&self, path: &Path) -> Result<(), DbError> {
        match (self.lost.get(), self.database.get()) {
            (Some(lost), _) => Err(lost.clone()),
            (None, Some(database)) if number(path) != Some(*database) => Err(replaced()),
            _ => Ok(()),
        }
    }
}

/// A database, its write-ahead log and the index of the log, as a connection found them.
pub(super) struct Files {
    first: Arc<First>,
    paths: [PathBuf; 3],
    numbers: [Option<Number>; 3],
}

fn number(path: &Path) -> Option<Number> {
    // Links are followed: what counts is the file that SQLite would open.
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Files {
    /// The files at `path` now. Fails if the database is not the one that the store was opened with.
    pub(super) fn found(path: &Path, first: &Arc<First>) -> Result<Files, DbError> {
        // SQLite names its other files after the file that a link leads to.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = |end: &str| {
            let mut name = real.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let paths = [path.to_owned(), beside("-wal"), beside("-shm")];
        let numbers = [number(&paths[0]), number(&paths[1]), number(&paths[2])];
        let Some(database) = numbers[0] else { return Err(replaced()) };
        if *first.database.get_or_init(|| database) != database {
            return Err(replaced());
        }
        Ok(Files { first: first.clone(), paths, numbers })
    }

    /// Fails if one of the files was deleted or replaced.
    fn check(&mut self) -> Result<(), DbError> {
        if number(&self.paths[0]) != self.numbers[0] {
            return Err(replaced());
        }
        let mut changed = None;
        for (place, end) in [(1, "-wal"), (2, "-shm")] {
            let found = number(&self.paths[place]);
            // A file that did not exist when it was first looked for may have been created since.
            if self.numbers[place].is_some() && found != self.numbers[place] {
                changed = changed.or(Some(end));
            } else {
                self.numbers[place] = found;
            }
        }
        let Some(end) = changed else { return self.first.lost.get().map_or(Ok(()), |lost| Err(lost.clone())) };
        let message = format!(
            "SQLite: the file's {end} was deleted or replaced while it was in use; nothing more is accepted. Stop every process \
             that uses the file in an orderly way, which saves what was written, and start them again"
        );
        Err(self.first.lost.get_or_init(|| DbError::new(DbKind::Storage, message)).clone())
    }

    /// Whether only the log is missing. Then a process that still has the log open can save the log's content.
    fn log_is_missing(&self) -> bool {
        number(&self.paths[0]) == self.numbers[0] && number(&self.paths[1]).is_none() && self.numbers[1].is_some()
    }
}

fn replaced() -> DbError {
    DbError::new(
        DbKind::Storage,
        "SQLite: the file was deleted or replaced while it was in use; nothing more is accepted. Move it back, or stop every \
         process that uses it and start them again",
    )
}

/// A connection that neither begins nor acknowledges a write if the files at the path are not those that it has open.
pub(super) struct Watched {
    pub(super) connection: SqliteConnection,
    pub(super) files: Files,
    /// Whether the open transaction writes. Reads are not checked: acknowledged data can still be read.
    pub(super) writes: bool,
    /// Whether the transaction was refused before it began, or after it ended, so that there is none to roll back.
    pub(super) refused: bool,
}

impl Watched {
    async fn check(&mut self) -> Result<(), DbError> {
        let checked = self.files.check();
        if checked.is_err() && self.files.log_is_missing() {
            // Moves the log into the database before the log is lost with its last descriptor. No other process can
            // have opened the database since: it would have created a new log.
            let _ = self.connection.execute("PRAGMA wal_checkpoint(FULL)", Vec::new()).await;
        }
        checked
    }
}

impl Driver for Watched {
    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            if sql == "ROLLBACK" && std::mem::take(&mut self.refused) {
                return Ok(0);
            }
            if sql.starts_with("BEGIN") {
                self.writes = sql == "BEGIN IMMEDIATE";
                if self.writes {
                    // The connection is kept: it may be the last that has the written data.
                    self.check().await.inspect_err(|_| self.refused = true)?;
                    self.refused = false;
                }
            }
            let done = Driver::execute(&mut self.connection, sql, args).await?;
            if sql == "COMMIT" && self.writes {
                self.check().await.inspect_err(|_| self.refused = true)?;
            }
            Ok(done)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Driver::fetch(&mut self.connection, sql, args)
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        self.connection.now()
    }
}
