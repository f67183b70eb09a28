//! A database that does not answer, in simulated time: every caller gets an error within a bound, and the error says
//! correctly whether the write may have been committed.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::STATEMENTS;
use super::super::actor::{MOST_LOCKED, PATIENCE, Step};
use super::super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use super::super::schema::VERSION;
use super::*;
use crate::BoxFuture;
use crate::clock::{Clock, MachineTime};
use crate::error::Delivery;

/// The behaviour of a scripted database. Statements are named by their first word, a new connection by `connect`.
#[derive(Default)]
pub(super) struct Script {
    /// Statements that get no answer.
    stalls: HashSet<&'static str>,
    /// Statements at which the connection breaks.
    pub(super) breaks: HashSet<&'static str>,
    /// Statements that fail as on a full disk.
    pub(super) full: HashSet<&'static str>,
    /// Statements that fail only the first time that they are run.
    pub(super) once: HashSet<&'static str>,
    /// Statements that fail as on a full disk after a statement of `once` has failed.
    full_after_once: HashSet<&'static str>,
    /// Whether it answers as PostgreSQL, which alone has locks of rows.
    is_postgres: bool,
    /// Whether the transaction waits for a lock for a moment only.
    is_brief: bool,
    /// How many statements have waited for a lock.
    locked: usize,
    connections: usize,
    pub(super) begun: usize,
    pub(super) committed: usize,
    /// How long each statement takes.
    pub(super) takes: Duration,
    /// The most statements of one transaction so far, `BEGIN` and `COMMIT` included.
    pub(super) most_statements: usize,
    /// How often the backlog was counted.
    pub(super) counts: usize,
    /// How many transactions have read requests that earlier processes sent.
    pub(super) usage_reads: usize,
}

#[derive(Clone, Default)]
pub(super) struct Scripted(pub(super) Arc<Mutex<Script>>);

impl Scripted {
    pub(super) fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock());
    }

    async fn at(&self, word: &'static str) -> Result<(), DbError> {
        let (stalls, breaks, is_full) = {
            let mut script = self.0.lock();
            let (stalls, breaks) = (script.stalls.contains(word), script.breaks.contains(word));
            let is_full = script.full.contains(word);
            if script.once.remove(word) {
                script.stalls.remove(word);
                script.breaks.remove(word);
                script.full.remove(word);
                let full = std::mem::take(&mut script.full_after_once);
                script.full.extend(full);
            }
            (stalls, breaks, is_full)
        };
        match (stalls, breaks, is_full) {
            (true, ..) => std::future::pending().await,
            (_, true, _) => Err(DbError::new(DbKind::Unreachable, "the connection broke")),
            (.., true) => Err(DbError::new(DbKind::Storage, "the disk is full")),
            _ => Ok(()),
        }
    }
}

impl Scripted {
    /// A statement that needs a row which another program keeps locked.
    async fn locked(&self) -> Result<u64, DbError> {
        let is_brief = {
            let mut script = self.0.lock();
            script.locked += 1;
            script.is_brief
        };
        tokio::time::sleep(Duration::from_millis(if is_brief { 100 } else { 2_000 })).await;
        Err(DbError::new(DbKind::Locked, "another program keeps the row locked"))
    }
}

impl Connect for Scripted {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            self.at("connect").await?;
            self.0.lock().connections += 1;
            Ok(Box::new(Connection { script: self.clone(), statements: 0, reads_usage: false }) as Box<dyn Driver>)
        })
    }
}

struct Connection {
    script: Scripted,
    /// The statements of the transaction so far.
    statements: usize,
    /// Whether one of them was a read of usage.
    reads_usage: bool,
}

impl Connection {
    /// Counts a statement, and lets its time pass.
    async fn pass(&mut self, word: &str) {
        self.statements = if word == "BEGIN" { 1 } else { self.statements + 1 };
        self.reads_usage &= word != "BEGIN";
        let takes = {
            let mut script = self.script.0.lock();
            script.most_statements = script.most_statements.max(self.statements);
            script.takes
        };
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
    }
}

impl Driver for Connection {
    fn dialect(&self) -> Dialect {
        match self.script.0.lock().is_postgres {
            true => Dialect::Postgres,
            false => Dialect::Sqlite,
        }
    }

    fn execute<'a>(&'a mut self, sql: &'static str, _: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let word = sql.split(' ').next().unwrap_or(sql);
            self.pass(word).await;
            match word {
                // The server commits, and only its reply is lost.
                "COMMIT" => self.script.set(|script| script.committed += 1),
                "BEGIN" => self.script.set(|script| {
                    script.is_brief = false;
                    script.begun += 1;
                }),
                "SET" => self.script.set(|script| script.is_brief = true),
                "LOCKED" => return self.script.locked().await,
                _ => {}
            }
            self.script.at(word).await.map(|()| 1)
        })
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, _: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move {
            self.pass("SELECT").await;
            self.script.set(|script| script.counts += usize::from(sql.contains("FROM ic_job LIMIT")));
            if sql.contains("FROM ic_spent WHERE tenant") && !std::mem::replace(&mut self.reads_usage, true) {
                self.script.set(|script| script.usage_reads += 1);
            }
            // All tables but that of the schema's version are empty.
            let is_version = sql.contains("ic_schema");
            Ok(is_version.then(|| Row::new(vec![Value::Int(VERSION)])).into_iter().collect())
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(std::future::ready(Ok(1)))
    }

    fn machine(&self) -> MachineTime {
        MachineTime { wall_ms: 1, boot: None, steady_ms: 1 }
    }
}

/// A store on a scripted database.
pub(super) fn scripted_store() -> (Scripted, Store) {
    let script = Scripted::default();
    let mut store = Store::sqlite(folder().join("unused.db"));
    let connect = script.clone();
    store.wrap = Some(Arc::new(move |_| Arc::new(connect.clone())));
    (script, store)
}

/// An open store on a scripted database.
pub(super) async fn scripted() -> (Scripted, Arc<Opened>) {
    let (script, store) = scripted_store();
    (script, Arc::new(open(&store).await))
}

const WORK: Step<(), u64> = |(), db, _| db.execute("WORK", Vec::new());
/// A write of a row that another program keeps locked.
const LOCKED: Step<(), u64> = |(), db, _| db.execute("LOCKED", Vec::new());

/// The longest that a caller waits for a database that does not answer.
const BOUND: Duration = Duration::from_secs(15);

/// The error of a write, and how long the write took.
async fn failing_write(store: &Opened) -> (crate::Error, Duration) {
    let (clock, began) = (Clock::system(), Clock::system().now());
    let error = store.write((), WORK).await.expect_err("it must fail");
    (error, clock.now().since(began))
}

#[tokio::test(start_paused = true)]
async fn stalled_database_fails_writes_within_a_bound() {
    for word in ["connect", "BEGIN", "WORK"] {
        let (script, store) = scripted().await;
        script.set(|script| script.stalls = HashSet::from([word, "connect"]));
        if word == "connect" {
            script.set(|script| script.breaks = HashSet::from(["BEGIN"]));
        }
        let writes = (0..600).map(|_| {
            let store = store.clone();
            #[expect(clippy::disallowed_methods, reason = "a test's own")]
            tokio::spawn(async move { failing_write(&store).await })
        });
        for write in writes.collect::<Vec<_>>() {
            let (error, took) = write.await.unwrap();
            assert!(took <= BOUND, "{word}: {took:?}");
            assert_eq!(error.delivery(), Delivery::NotSent, "{word}: {error}");
        }
        assert!(store.problems.now().is_some(), "{word}");
        script.set(|script| (script.stalls, script.breaks) = Default::default());
        store.write((), WORK).await.unwrap();
        assert_eq!(store.problems.now(), None, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_connection_is_replaced() {
    for word in ["BEGIN", "WORK", "COMMIT"] {
        let (script, store) = scripted().await;
        let before = script.0.lock().connections;
        script.set(|script| (script.stalls, script.once) = (HashSet::from([word]), HashSet::from([word])));
        store.write((), WORK).await.unwrap();
        assert_eq!(script.0.lock().connections, before + 1, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_commit_reply_is_ambiguous() {
    for stalls in [true, false] {
        let (script, store) = scripted().await;
        script.set(|script| {
            match stalls {
                true => script.stalls.insert("COMMIT"),
                false => script.breaks.insert("COMMIT"),
            };
            // The tries after the first fail before their commit.
            script.breaks.insert("connect");
        });
        let (error, took) = failing_write(&store).await;
        assert_eq!(error.delivery(), Delivery::Ambiguous, "stalls: {stalls}: {error}");
        assert!(took <= BOUND, "{took:?}");
        // The next write was certainly not committed.
        let (error, _) = failing_write(&store).await;
        assert_eq!(error.delivery(), Delivery::NotSent, "stalls: {stalls}: {error}");
    }
}

/// What was read may be a request that was accepted.
#[tokio::test(start_paused = true)]
async fn failed_read_says_nothing_of_writes() {
    for word in ["BEGIN", "WORK", "COMMIT"] {
        let (script, store) = scripted().await;
        script.set(|script| script.full = HashSet::from([word]));
        let error = store.read((), WORK).await.unwrap_err();
        assert_eq!((error.delivery(), &*error.to_string()), (Delivery::NotSent, "store: the disk is full"), "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn claim_is_retried_only_if_uncommitted() {
    let (script, store) = scripted().await;
    script.set(|script| (script.breaks, script.once) = (HashSet::from(["WORK"]), HashSet::from(["WORK"])));
    store.write_once((), WORK).await.unwrap();
    assert_eq!(script.0.lock().committed, 2, "one at opening, one of the claim");
    script.set(|script| (script.breaks, script.once) = (HashSet::from(["COMMIT"]), HashSet::from(["COMMIT"])));
    let error = store.write_once((), WORK).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Ambiguous);
    assert_eq!(script.0.lock().committed, 3, "it was not run again");
}

#[tokio::test(start_paused = true)]
async fn lost_reply_of_claim_fails_no_waiting_write() {
    let (script, store) = scripted().await;
    script.set(|script| (script.breaks, script.once) = (HashSet::from(["COMMIT"]), HashSet::from(["COMMIT"])));
    // The insert is larger than a group, so that it waits behind the claim.
    let insert = store.insert(NewJob { request: vec![b'x'; 20 << 20], ..job("a") });
    let (claim, insert) = tokio::join!(store.write_once((), WORK), insert);
    assert_eq!(claim.unwrap_err().delivery(), Delivery::Ambiguous);
    insert.unwrap();
    assert_eq!(script.0.lock().committed, 3, "one at opening, one of the claim and one of the insert");
}

/// The deliveries of the errors of two writes in one group.
async fn failing_group(store: &Opened) -> [Delivery; 2] {
    let (first, second) = tokio::join!(store.write((), WORK), store.write((), WORK));
    [first, second].map(|result| result.expect_err("it must fail").delivery())
}

#[tokio::test(start_paused = true)]
async fn doubt_remains_when_a_group_is_split() {
    let (script, store) = scripted().await;
    script.set(|script| {
        (script.breaks, script.once) = (HashSet::from(["COMMIT"]), HashSet::from(["COMMIT"]));
        script.full_after_once = HashSet::from(["WORK"]);
    });
    // The group is committed and the reply lost. The disk is full when the group is tried again.
    assert_eq!(failing_group(&store).await, [Delivery::Ambiguous; 2]);
    assert_eq!(script.0.lock().committed, 2, "one at opening, one of the group");
    assert_eq!(failing_group(&store).await, [Delivery::NotSent; 2], "the doubt is about the first group only");
}

#[tokio::test(start_paused = true)]
async fn doubt_about_one_write_concerns_no_other() {
    let (script, store) = scripted().await;
    script.set(|script| {
        // The group fails, and each write is tried by itself. The reply to the first one's commit is lost, and no
        // connection can be made then.
        (script.full, script.once) = (HashSet::from(["WORK"]), HashSet::from(["WORK"]));
        script.breaks = HashSet::from(["COMMIT", "connect"]);
    });
    assert_eq!(failing_group(&store).await, [Delivery::Ambiguous, Delivery::NotSent]);
}

#[tokio::test(start_paused = true)]
async fn group_ends_at_its_bytes() {
    let (script, store) = scripted().await;
    let insert = |mib: usize| store.insert(NewJob { request: vec![b'x'; mib << 20], ..job("a") });
    // All are handed over before the first is written: 3 and 3, 3, 20 alone, 1 and 1 MiB.
    let (a, b, c, d, e, f) = tokio::join!(insert(3), insert(3), insert(3), insert(20), insert(1), insert(1));
    for accepted in [a, b, c, d, e, f] {
        assert_eq!(accepted.unwrap(), jobs::Accepted::New);
    }
    assert_eq!(script.0.lock().committed, 1 + 4, "one at opening");
    // Work that waits for the next group fails with the store as all other work does.
    script.set(|script| script.breaks = HashSet::from(["BEGIN", "connect"]));
    let (clock, began) = (Clock::system(), Clock::system().now());
    let (a, b) = tokio::join!(insert(5), insert(5));
    assert_eq!([a, b].map(|result| result.unwrap_err().delivery()), [Delivery::NotSent; 2]);
    let took = clock.now().since(began);
    assert!(took <= PATIENCE, "the second is not tried by itself: {took:?}");
}

/// Hands over the steps together. Returns how many of them were written, and how long all took.
async fn written_of(store: &Arc<Opened>, steps: Vec<Step<(), u64>>) -> (usize, Duration) {
    let (clock, began) = (Clock::system(), Clock::system().now());
    let mut writes = tokio::task::JoinSet::new();
    for step in steps {
        let store = store.clone();
        writes.spawn(async move { store.write((), step).await });
    }
    let written = writes.join_all().await.iter().filter(|result| result.is_ok()).count();
    (written, clock.now().since(began))
}

#[tokio::test(start_paused = true)]
async fn locks_after_another_error_are_bounded() {
    let (script, store) = scripted().await;
    script.set(|script| {
        script.is_postgres = true;
        (script.full, script.once) = (HashSet::from(["WORK"]), HashSet::from(["WORK"]));
    });
    // The group fails with a full disk, before any of it has met a lock.
    let (written, took) = written_of(&store, [vec![WORK], vec![LOCKED; 6], vec![WORK]].concat()).await;
    assert_eq!(written, 2);
    assert!(took < Duration::from_secs(4), "only the first waits for long: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn locked_works_of_a_group_are_bounded() {
    let (script, store) = scripted().await;
    script.set(|script| script.is_postgres = true);
    let (written, took) = written_of(&store, [WORK, LOCKED].repeat(100)).await;
    assert_eq!((script.0.lock().locked, written), (1 + MOST_LOCKED, MOST_LOCKED), "the group once, then each alone");
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn locked_group_fails_no_work_behind_it() {
    let (script, store) = scripted().await;
    script.set(|script| script.is_postgres = true);
    // A group holds 200 statements: the last ones are behind it.
    let (written, _) = written_of(&store, [vec![LOCKED; STATEMENTS], vec![WORK; 20]].concat()).await;
    assert_eq!((script.0.lock().locked, written), (1 + 8, 20));
}
