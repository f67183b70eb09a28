//! Fault injection for tests: statements that fail, and points at which the process ends. Not part of the API.
//!
//! A watcher is called before and after each statement. It is told what the statement does, not the statement's text,
//! so that a test can fail every write in turn, or end the process between a commit and its reply.

use std::sync::Arc;

use super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row};
use super::{Store, clock};
use crate::BoxFuture;
use crate::clock::MachineTime;

/// A point in the run of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the statement runs.
    Before,
    /// After the statement ran and before its caller learns of it; the transaction is open.
    After,
    /// After the statement's transaction was committed and before the caller learns of it.
    Committed,
}

/// What happens to a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The statement runs normally.
    None,
    /// The statement fails as on a full disk.
    Full,
    /// The connection breaks, before the statement or before its reply.
    Broken,
    /// The statement fails with an error that does not say whether the store or the data is the cause.
    Refused,
    /// This SQL runs first, on the same connection.
    First(&'static str),
}

/// Decides what happens to statements.
pub trait Watch: Send + Sync + 'static {
    /// Called with `what` the statement does: one of [`WHAT`], or `connect`, `begin`, `commit`, `rollback`, `read` or
    /// `other`.
    fn at(&self, what: &'static str, moment: Moment) -> Fault;

    /// The number of milliseconds by which the machine's wall clock was stepped.
    fn wall_step_ms(&self) -> i64 {
        0
    }

    /// How often the machine was booted, and for how many milliseconds it has run since the last boot.
    fn restarted(&self) -> Option<(u64, i64)> {
        None
    }
}

/// The kinds of writes, recognised by a piece of the statement's text. The first match counts.
pub const WHAT: [&str; 10] =
    ["accept", "claim", "start", "spent", "done", "dead", "later", "renew", "recover", "forget"];
const PIECES: [(&str, usize); 13] = [
    ("INSERT INTO ic_job", 0),
    ("SET state = 1", 1),
    ("SET started", 2),
    ("INTO ic_spent", 3),
    ("INTO ic_done", 4),
    ("INTO ic_dead", 5),
    ("SET state = 0, run_at", 6),
    ("SET beat", 7),
    ("SET state = 0, claims", 8),
    ("SET state = 0, owner", 8),
    ("DELETE FROM", 9),
    ("INTO ic_key", 0),
    ("INTO ic_seen", 0),
];

fn what(sql: &str) -> &'static str {
    let begins = |word: &str| sql.starts_with(word);
    match PIECES.iter().find(|(piece, _)| sql.contains(piece)) {
        Some((_, number)) => WHAT[*number],
        None if begins("BEGIN") => "begin",
        None if begins("COMMIT") => "commit",
        None if begins("ROLLBACK") => "rollback",
        None if begins("SELECT") || begins("WITH") => "read",
        None => "other",
    }
}

impl Store {
    /// Shows every statement of the client's own connections to `watch`.
    pub fn watched_by(mut self, watch: Arc<dyn Watch>) -> Store {
        self.wrap = Some(Arc::new(move |connect| Arc::new(Watched { connect, watch: watch.clone() })));
        self
    }
}

struct Watched {
    connect: Arc<dyn Connect>,
    watch: Arc<dyn Watch>,
}

impl Connect for Watched {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            fault(self.watch.at("connect", Moment::Before))?;
            let driver = self.connect.connect().await?;
            Ok(Box::new(WatchedConnection { driver, watch: self.watch.clone(), written: Vec::new() })
                as Box<dyn Driver>)
        })
    }
}

fn fault(fault: Fault) -> Result<(), DbError> {
    match fault {
        Fault::None | Fault::First(_) => Ok(()),
        Fault::Full => Err(DbError::new(DbKind::Storage, "a test: the disk is full")),
        Fault::Broken => Err(DbError::new(DbKind::Unreachable, "a test: the connection broke")),
        Fault::Refused => Err(DbError::new(DbKind::Other, "a test: the statement was refused")),
    }
}

/// A connection whose statements are shown to the watcher.
struct WatchedConnection {
    driver: Box<dyn Driver>,
    watch: Arc<dyn Watch>,
    /// The kinds of writes in the open transaction.
    written: Vec<&'static str>,
}

impl WatchedConnection {
    async fn before(&mut self, what: &'static str) -> Result<(), DbError> {
        let decided = self.watch.at(what, Moment::Before);
        if let Fault::First(sql) = decided {
            self.driver.fetch(sql, Vec::new()).await?;
        }
        fault(decided)
    }

    fn after(&mut self, what: &'static str) -> Result<(), DbError> {
        match what {
            "begin" | "rollback" => self.written.clear(),
            "commit" => {
                for what in std::mem::take(&mut self.written) {
                    fault(self.watch.at(what, Moment::Committed))?;
                }
            }
            _ if self.written.contains(&what) || what == "read" => {}
            _ => self.written.push(what),
        }
        fault(self.watch.at(what, Moment::After))
    }
}

impl Driver for WatchedConnection {
    fn dialect(&self) -> Dialect {
        self.driver.dialect()
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let what = what(sql);
            self.before(what).await?;
            let done = self.driver.execute(sql, args).await?;
            self.after(what)?;
            Ok(done)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            let what = what(sql);
            self.before(what).await?;
            let rows = self.driver.fetch(sql, args).await?;
            self.after(what)?;
            Ok(rows)
        })
    }

    fn begin(&mut self, writes: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            self.before("begin").await?;
            let mut now = self.driver.begin(writes).await?;
            if self.dialect() == Dialect::Sqlite {
                now = self.now().await?;
            }
            self.after("begin")?;
            Ok(now)
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        match self.dialect() {
            Dialect::Sqlite => Box::pin(clock::of_file(self)),
            Dialect::Postgres => self.driver.now(),
        }
    }

    fn machine(&self) -> MachineTime {
        let mut machine = self.driver.machine();
        machine.wall_ms = machine.wall_ms.saturating_add(self.watch.wall_step_ms());
        if let Some((times, ran_ms)) = self.watch.restarted() {
            (machine.boot, machine.steady_ms) = (Some(format!("start {times}").into()), ran_ms);
        }
        machine
    }
}
