//! Processes that share a limit through a SQLite file on a machine that does not report its boot. The file has another
//! time for each of them, because the wall clock was stepped between their starts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use super::super::driver::{Arg, Connect, Db, DbError, Dialect, Driver, Row, args};
use super::super::{Actor, capacity, clock};
use super::*;
use crate::BoxFuture;
use crate::capacity::call::{Answer, Call, Entry};
use crate::capacity::ledger::{Figures, Ledger, Line};
use crate::clock::MachineTime;

const S: u64 = 1_000_000;
const LIMIT: &str = "shared";
const FIGURES: Figures = Figures { units: 100, again_us: 10 * S, transit_us: S, takes_used: false };
/// What the wall clock shows when the test begins.
const BEGAN_MS: i64 = 1_800_000_000_000;

/// Connections of a process whose own clock is `ahead_ms` ahead of the wall clock.
struct OfProcess {
    connect: Arc<dyn Connect>,
    passed_ms: Arc<AtomicI64>,
    ahead_ms: i64,
}

impl Connect for OfProcess {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Driver>, DbError>> {
        Box::pin(async move {
            let driver = self.connect.connect().await?;
            let connection = Connection { driver, passed_ms: self.passed_ms.clone(), ahead_ms: self.ahead_ms };
            Ok(Box::new(connection) as Box<dyn Driver>)
        })
    }
}

struct Connection {
    driver: Box<dyn Driver>,
    passed_ms: Arc<AtomicI64>,
    ahead_ms: i64,
}

impl Driver for Connection {
    fn dialect(&self) -> Dialect {
        self.driver.dialect()
    }

    fn execute<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<u64, DbError>> {
        self.driver.execute(sql, args)
    }

    fn fetch<'a>(&'a mut self, sql: &'static str, args: Vec<Arg<'a>>) -> BoxFuture<'a, Result<Vec<Row>, DbError>> {
        self.driver.fetch(sql, args)
    }

    fn begin(&mut self, writes: bool) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(async move {
            self.driver.begin(writes).await?;
            self.now().await
        })
    }

    fn now(&mut self) -> BoxFuture<'_, Result<i64, DbError>> {
        Box::pin(clock::of_file(self))
    }

    fn machine(&self) -> MachineTime {
        let wall_ms = BEGAN_MS + self.passed_ms.load(Relaxed);
        MachineTime { wall_ms, boot: None, steady_ms: wall_ms + self.ahead_ms }
    }
}

async fn process(path: &Path, passed_ms: &Arc<AtomicI64>, ahead_ms: i64) -> Actor {
    let mut store = Store::sqlite(path);
    let passed_ms = passed_ms.clone();
    store.wrap = Some(Arc::new(move |connect| Arc::new(OfProcess { connect, passed_ms: passed_ms.clone(), ahead_ms })));
    let (actor, task) = store.open_capacity().await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test's own")]
    tokio::spawn(task);
    actor
}

/// The ledger's time after the last call.
fn ledger_time<'a>(_: &'a (), db: Db<'a>, _now_ms: i64) -> BoxFuture<'a, Result<u64, DbError>> {
    Box::pin(async move {
        let mut rows = db.fetch("SELECT state FROM ic_capacity WHERE name = $1", args![LIMIT]).await?;
        let text = rows.first_mut().unwrap().text()?;
        Ok(serde_json::from_str::<Ledger>(&text).unwrap().standing().now)
    })
}

#[tokio::test]
async fn clocks_of_processes_do_not_hasten_ledger_time() {
    let path = folder().join("capacity.db");
    let passed_ms = Arc::new(AtomicI64::new(0));
    let processes = [process(&path, &passed_ms, 0).await, process(&path, &passed_ms, 1_000).await];
    // The store's time in the last answer, and when it came.
    let mut last: [Option<(u64, u64)>; 2] = [None; 2];
    let mut first_us = None;
    for half_second in 0..=120u64 {
        passed_ms.store(500 * i64::try_from(half_second).unwrap(), Relaxed);
        let now_us = half_second * S / 2;
        let (number, seq) = ((half_second % 2) as usize, half_second / 2 + 1);
        let expected_us = last[number].map(|(clock_us, at_us)| clock_us + now_us - at_us);
        let line = Line::of(FIGURES, 0, 0);
        let lines = vec![Entry { limit: LIMIT.to_owned(), known_seq: seq - 1, expected_us, line }];
        let call = Call { process: 1 + number as u64, seq, lease_us: 10 * S, leaves: false, witness: None, lines };
        let answer: Answer = processes[number].call(call, capacity::exchange, false).await.unwrap();
        last[number] = Some((answer.clock_us, now_us));
        if first_us.is_none() {
            first_us = Some(processes[number].call((), ledger_time, false).await.unwrap());
        }
    }
    let counted_us = processes[0].call((), ledger_time, false).await.unwrap() - first_us.unwrap();
    assert!((59 * S..=60 * S + 100_000).contains(&counted_us), "{counted_us} us of a minute");
}
