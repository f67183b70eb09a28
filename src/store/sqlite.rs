//! The SQLite driver: one file in WAL mode, synced to the disk at every commit.

#[cfg(unix)]
mod identity;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Row as _, Sqlite, TypeInfo, ValueRef};

use super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use super::path_text::path_text;
use crate::BoxFuture;
use crate::clock::MachineTime;
use crate::error::Error;

/// How long one process waits for another that is writing. A commit takes milliseconds.
const BUSY: Duration = Duration::from_secs(5);

/// The size of the page cache, in KiB; SQLite takes KiB as a negative number. The pages that a claim of 200 jobs from a
/// full outbox changes do not fit into the usual 2 MiB.
const CACHE: &str = "-8192";

/// The number of pages in the log at which they are copied into the file. Most pages of a queue change in one
/// transaction after another, and are copied once however often they changed. With SQLite's default of 1,000 they are
/// copied four times as often.
const CHECKPOINT: &str = "4000";

/// Where SQLite keeps the former contents of pages, with which it undoes a statement that fails in the middle. By
/// default that is a file, which is written anew for every statement that changes more than 64 KiB; it took more bytes
/// than the log itself. With this setting sorts are in memory too. The largest sort is for the index that an upgrade
/// builds, and takes some tens of bytes for each waiting job.
const UNDO: &str = "MEMORY";

/// The number of rows that sqlx's thread hands over before it waits for the reader. If a claim returns more rows than
/// that (sqlx's default is 50), thread and reader wake each other in turn, several times for each claim.
const ROWS: usize = 2_048;

struct SqliteFile {
    path: PathBuf,
    /// The identity of the file that was first found at the path.
    #[cfg(unix)]
    file: Arc<identity::First>,
}

/// A connector to the file at `path`, which is created if it does not exist.
pub(super) fn open(path: &Path) -> Result<Arc<dyn Connect>, Error> {
    let shown = path_text(path);
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            let folder = path_text(folder);
            return Err(Error::config(format!("store {shown}: the folder {folder} does not exist; create it first")));
        }
        _ => {}
    }
    if path.is_dir() {
        return Err(Error::config(format!("store {shown}: it is a folder; name a file in it")));
    }
    if let Some(kind) = super::mounts::network(path) {
        let message = format!(
            "store {shown}: it is on a network file system ({kind}), where SQLite's locks do not hold and a crash may damage \
             the file; use a disk of this machine, or PostgreSQL"
        );
        return Err(Error::config(message));
    }
    #[cfg(unix)]
    if let Some(bytes) = real_bytes(path).filter(|bytes| *bytes > LONGEST) {
        return Err(Error::config(format!(
            "store {shown}: from the root on, and without symbolic links, its path has {bytes} bytes, and SQLite opens no path \
             of more than {LONGEST}; use a folder with a shorter path"
        )));
    }
    if let Err(error) = made_and_writable(path) {
        let why = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                "the file must be readable and writable by this process, and so must its folder"
            }
            _ => "it cannot be opened or created",
        };
        return Err(Error::config(format!("store {shown}: {why}: {error}")).with_source(error));
    }
    if let Some(why) = second_name(path) {
        return Err(Error::config(format!("store {shown}: {why}")));
    }
    Ok(Arc::new(SqliteFile {
        path: path.to_owned(),
        #[cfg(unix)]
        file: Arc::default(),
    }))
}

/// The most bytes of the path that SQLite opens: its own bound is 512 with the end `-journal`.
#[cfg(unix)]
const LONGEST: usize = 504;

/// The length of the absolute path without symbolic links, which SQLite opens. The file may not exist yet. `None` if the
/// path cannot be resolved.
#[cfg(unix)]
fn real_bytes(path: &Path) -> Option<usize> {
    let in_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_folder).map(|real| real.as_os_str().len())
}

/// Creates the file if it does not exist, and checks that it can be read and written. An existing file is not opened:
/// SQLite uses POSIX locks, and this process would lose those it holds when it closes any descriptor of the file.
fn made_and_writable(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        other => return other.map(drop),
    }
    #[cfg(unix)]
    rustix::fs::access(path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// Says why the file may be in use by a second name, if it may. SQLite's log and its index, and our lock, lie beside the
/// name by which a process opens the file: two processes with two names would not see each other's, damage the file and
/// send its jobs twice.
///
/// A second name that a file in use gets later does no harm: the next process is refused by either name.
fn second_name(path: &Path) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let links = std::fs::metadata(path).map_or(1, |file| file.nlink());
        if links > 1 {
            return Some(format!(
                "the file has {links} names (hard links), and SQLite keeps a log of its own beside each: processes that open \
                 it by different names would damage it. Stop those that use it and remove the other names (`find FOLDER \
                 -samefile FILE` lists them), but keep the one with a -wal beside it; or use a copy of both"
            ));
        }
    }
    super::mounts::is_mount_point(path).then(|| {
        "the file is mounted by itself (a bind mount of a single file), and SQLite's log beside it is not: processes that \
         open the file elsewhere would not see the log and damage the file, and a container's end would delete the log with \
         accepted jobs. Mount the folder of the file instead"
            .to_owned()
    })
}

/// The exclusive right to work on the jobs of a file. The operating system releases it when the process ends, however
/// it ends.
pub(super) struct WorkLock {
    _file: File,
    /// The boot of the machine and the identity of the lock file: two processes that hold the same lock, one after the
    /// other, see the same identity.
    pub(super) identity: String,
}

/// Takes the right to work on the file at `path`. Fails if another process has it.
///
/// The lock is a separate file, because a process loses SQLite's own POSIX locks when it closes any descriptor of the
/// database. It lies beside the file that `path` resolves to, so that all symbolic links to the database lead to one
/// lock.
pub(super) fn lock(path: &Path) -> Result<WorkLock, Error> {
    let shown = path_text(path);
    let real = path.canonicalize().map_err(|error| {
        Error::config(format!("store {shown}: the path cannot be resolved: {error}")).with_source(error)
    })?;
    let mut name = real.into_os_string();
    name.push(".work");
    let lock = PathBuf::from(name);
    let failed = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                "; the file's folder must be writable by this process"
            }
            _ => "",
        };
        let message = format!("store {shown}: the lock {} cannot be created: {error}{hint}", path_text(&lock));
        Error::config(message).with_source(error)
    };
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&lock).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(works_elsewhere(path)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    #[cfg(unix)]
    let number = {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().map_err(failed)?;
        format!("{}:{}", metadata.dev(), metadata.ino())
    };
    // An open file cannot be replaced on these systems.
    #[cfg(not(unix))]
    let number = "0";
    let boot = MachineTime::read().boot.unwrap_or_default();
    Ok(WorkLock { _file: file, identity: format!("{boot}/{number}") })
}

/// The error for a second process that wants to work on the file.
pub(super) fn works_elsewhere(path: &Path) -> Error {
    let shown = path_text(path);
    Error::store_in_use(format!(
        "store {shown}: another process works on this file; one may work, any number may enqueue and read. \
         Leave `work` out here, or use PostgreSQL for several working processes"
    ))
}

impl Connect for SqliteFile {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            #[cfg(unix)]
            self.file.check(&self.path)?;
            let mut options = SqliteConnectOptions::new()
                .filename(&self.path)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full)
                .busy_timeout(BUSY)
                .pragma("cache_size", CACHE)
                .pragma("wal_autocheckpoint", CHECKPOINT)
                .pragma("temp_store", UNDO)
                .row_buffer_size(ROWS)
                .disable_statement_logging();
            // Lets `purge.rs` give free pages back. The setting takes effect in a new file only, and in any other it waits
            // for the lock of a process that writes.
            if std::fs::metadata(&self.path).is_ok_and(|file| file.len() == 0) {
                options = options.auto_vacuum(SqliteAutoVacuum::Incremental);
            }
            #[cfg_attr(not(unix), expect(unused_mut, reason = "only the unix branch changes it"))]
            let mut connection = options.connect().await.map_err(error)?;
            #[cfg(unix)]
            {
                // A first read creates the -wal file.
                connection.fetch("SELECT count(*) FROM sqlite_master", Vec::new()).await?;
                let files = identity::Files::found(&self.path, &self.file)?;
                Ok(Box::new(identity::Watched { connection, files, writes: false, refused: false }) as Box<dyn Driver>)
            }
            #[cfg(not(unix))]
            Ok(Box::new(connection) as Box<dyn Driver>)
        })
    }
}

fn bound<'q>(sql: &'static str, args: Vec<Arg<'q>>) -> sqlx::query::Query<'q, Sqlite, sqlx::sqlite::SqliteArguments> {
    let mut query = sqlx::query::<Sqlite>(sql);
    for arg in args {
        query = match arg {
            Arg::Int(value) => query.bind(value),
            Arg::Text(value) => query.bind(value.map(str::to_owned)),
            Arg::Bytes(value) => query.bind(value.map(<[u8]>::to_vec)),
            Arg::Json(value) => query.bind(value),
            // No statement for SQLite has array parameters.
            Arg::Ints(_) | Arg::MaybeInts(_) | Arg::Texts(_) | Arg::Blobs(_) => query.bind(None::<i64>),
        };
    }
    query
}

impl Driver for SqliteConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let done = bound(sql, args).execute(self).await.map_err(error)?;
            Ok(done.rows_affected())
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let rows = bound(sql, args).fetch_all(self).await.map_err(error)?;
            rows.iter().map(read).collect()
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(super::clock::of_file(self))
    }
}

fn read(row: &sqlx::sqlite::SqliteRow) -> Result<Row, DbError> {
    let mut values = Vec::with_capacity(row.len());
    for column in 0..row.len() {
        let raw = row.try_get_raw(column).map_err(error)?;
        let kind = raw.type_info();
        values.push(match kind.name() {
            _ if raw.is_null() => Value::Null,
            "INTEGER" | "BOOLEAN" | "INT8" => Value::Int(row.try_get_unchecked(column).map_err(error)?),
            "TEXT" => Value::Text(row.try_get_unchecked(column).map_err(error)?),
            "BLOB" => Value::Bytes(row.try_get_unchecked(column).map_err(error)?),
            _ => Value::Other,
        });
    }
    Ok(Row::new(values))
}

fn error(error: sqlx::Error) -> DbError {
    let sqlx::Error::Database(database) = &error else {
        let kind = match &error {
            sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => DbKind::Nonsense,
            sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => DbKind::Unreachable,
            _ => DbKind::Other,
        };
        return DbError::new(kind, format!("SQLite: {error}"));
    };
    // The primary code is the low byte of the extended one.
    let code = database.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default() & 0xff;
    let (kind, hint) = match code {
        5 | 6 => (DbKind::Again, "; another process has kept it locked for long"),
        7 => (DbKind::Storage, "; this process has no memory left"),
        8 => (DbKind::Storage, "; make the file and its folder writable for this process"),
        // Also where a file would grow above a quota or the process's limit.
        10 => (DbKind::Storage, "; the disk fails, or the file must not grow further (`ulimit -f`, a quota)"),
        11 => (
            DbKind::Damaged,
            "; the file is damaged: restore it from a copy, or save what `sqlite3 FILE .recover` finds",
        ),
        13 => (DbKind::Storage, "; the disk is full"),
        14 => (DbKind::Storage, "; does its folder exist, and may this process write there?"),
        // The locks of processes that began at the same moment were in each other's way.
        15 => (DbKind::Again, ""),
        26 => (DbKind::Storage, "; name another file, or move this one away"),
        _ => (DbKind::Other, ""),
    };
    DbError::new(kind, format!("SQLite: {}{hint}", database.message()))
}
