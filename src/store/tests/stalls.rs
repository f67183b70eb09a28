//! A database that does not answer, in simulated time: every caller is told within a bound, and truly.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::Step;
use super::super::driver::{Arg, Connect, DbError, DbKind, Dialect, Driver, Row, Value};
use super::super::schema::VERSION;
use super::*;
use crate::BoxFuture;
use crate::clock::{Clock, MachineTime};
use crate::error::Delivery;

/// What a scripted database does. Statements are named by their first word, and a new connection by `connect`.
#[derive(Default)]
struct Script {
    /// Not answered.
    stalls: HashSet<&'static str>,
    /// Answered by a connection that breaks.
    breaks: HashSet<&'static str>,
    /// Each is taken off with the connection that it happens to.
    once: HashSet<&'static str>,
    connections: usize,
    committed: usize,
}

#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock());
    }

    async fn at(&self, word: &'static str) -> Result<(), DbError> {
        let (stalls, breaks) = {
            let mut script = self.0.lock();
            let (stalls, breaks) = (script.stalls.contains(word), script.breaks.contains(word));
            if script.once.remove(word) {
                script.stalls.remove(word);
                script.breaks.remove(word);
            }
            (stalls, breaks)
        };
        match (stalls, breaks) {
            (true, _) => std::future::pending().await,
            (_, true) => Err(DbError::new(DbKind::Unreachable, "the connection broke")),
            _ => Ok(()),
        }
    }
}

impl Connect for Scripted {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            self.at("connect").await?;
            self.0.lock().connections += 1;
            Ok(Box::new(Connection(self.clone())) as Box<dyn Driver>)
        })
    }
}

struct Connection(Scripted);

impl Driver for Connection {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn execute<'a>(&'a mut self, sql: &'static str, _: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let word = sql.split(' ').next().unwrap_or(sql);
            if word == "COMMIT" {
                // The server commits, and only its word is lost.
                self.0.0.lock().committed += 1;
            }
            self.0.at(word).await.map(|()| 1)
        })
    }

    fn fetch<'a>(&'a mut self, _: &'static str, _: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        Box::pin(async move { Ok(vec![Row::new(vec![Value::Int(VERSION)])]) })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(std::future::ready(Ok(1)))
    }

    fn machine(&self) -> MachineTime {
        MachineTime { wall_ms: 1, boot: None, steady_ms: 1 }
    }
}

/// A store on a scripted database.
async fn scripted() -> (Scripted, Arc<Opened>) {
    let script = Scripted::default();
    let mut store = Store::sqlite(folder().join("unused.db"));
    let connect = script.clone();
    store.wrap = Some(Arc::new(move |_| Arc::new(connect.clone())));
    (script, Arc::new(open(&store).await))
}

const WORK: Step<(), u64> = |(), db, _| db.execute("WORK", Vec::new());

/// The longest that a caller waits for a database that does not answer.
const BOUND: Duration = Duration::from_secs(15);

/// The error of a write, and what it took.
async fn failing_write(store: &Opened) -> (crate::Error, Duration) {
    let (clock, began) = (Clock::system(), Clock::system().now());
    let error = store.write((), WORK).await.expect_err("it must fail");
    (error, clock.now().since(began))
}

#[tokio::test(start_paused = true)]
async fn stalled_database_fails_every_write_within_a_bound() {
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
async fn stalled_connection_is_closed_and_the_write_succeeds_on_a_new_one() {
    for word in ["BEGIN", "WORK", "COMMIT"] {
        let (script, store) = scripted().await;
        let before = script.0.lock().connections;
        script.set(|script| (script.stalls, script.once) = (HashSet::from([word]), HashSet::from([word])));
        store.write((), WORK).await.unwrap();
        assert_eq!(script.0.lock().connections, before + 1, "{word}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_word_of_a_commit_is_ambiguous_whatever_fails_afterwards() {
    for stalls in [true, false] {
        let (script, store) = scripted().await;
        script.set(|script| {
            match stalls {
                true => script.stalls.insert("COMMIT"),
                false => script.breaks.insert("COMMIT"),
            };
            // The tries that follow do not come as far.
            script.breaks.insert("connect");
        });
        let (error, took) = failing_write(&store).await;
        assert_eq!(error.delivery(), Delivery::Ambiguous, "stalls: {stalls}: {error}");
        assert!(took <= BOUND, "{took:?}");
        // What comes next was certainly not written.
        let (error, _) = failing_write(&store).await;
        assert_eq!(error.delivery(), Delivery::NotSent, "stalls: {stalls}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn claim_is_repeated_exactly_where_it_cannot_have_been_committed() {
    let (script, store) = scripted().await;
    script.set(|script| (script.breaks, script.once) = (HashSet::from(["WORK"]), HashSet::from(["WORK"])));
    store.write_once((), WORK).await.unwrap();
    assert_eq!(script.0.lock().committed, 2, "one at opening, one of the claim");
    script.set(|script| (script.breaks, script.once) = (HashSet::from(["COMMIT"]), HashSet::from(["COMMIT"])));
    let error = store.write_once((), WORK).await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Ambiguous);
    assert_eq!(script.0.lock().committed, 3, "it was not run again");
}
