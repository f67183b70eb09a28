//! SQL stores keep the ledgers of windows of an hour and more in another table than those of shorter ones. Here two processes
//! state windows on both sides of an hour for one limit, and the limit must have one ledger. On PostgreSQL a process may
//! also stand still between the begin of its transaction and its locks.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;

use crate::capacity::call::{Answer, Call, Entry};
use crate::capacity::ledger::{Figures, Floor, Got, Line, State};
use crate::store::{Actor, Store, capacity};

const S: u64 = 1_000_000;
const UNITS: u32 = 100;
/// Half an hour, and two hours.
const WINDOWS: [u64; 2] = [1_800 * S, 7_200 * S];

/// A process with a connection of its own.
struct Process {
    store: Actor,
    number: u64,
    seq: u64,
    again_us: u64,
    held: HashMap<String, u32>,
}

impl Process {
    async fn open(store: &Store, number: u64, again_us: u64) -> Process {
        let (actor, task) = store.open_capacity().await.unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        tokio::spawn(task);
        Process { store: actor, number, seq: 0, again_us, held: HashMap::new() }
    }

    /// The next call, which asks for all units of each limit.
    fn next_call(&mut self, limits: &[&str], expected_us: Option<u64>) -> Call {
        self.seq += 1;
        let figures = Figures { units: UNITS, again_us: self.again_us, transit_us: S, takes_used: false };
        let lines = limits.iter().map(|limit| {
            let claim = self.held.get(*limit).copied().unwrap_or_default();
            let line = Line {
                figures,
                claim,
                returned: Vec::new(),
                want: [0, UNITS, 0],
                need: 1,
                paused_us: 0,
                ends_pause: false,
                floor: Floor::default(),
            };
            Entry { limit: (*limit).to_owned(), known_seq: self.seq - 1, expected_us, line }
        });
        let lines = lines.collect();
        Call { process: self.number, seq: self.seq, lease_us: 60 * S, leaves: false, witness: None, lines }
    }

    /// Asks for all units of each limit, and keeps what it gets.
    async fn ask(&mut self, limits: &[&str]) -> Vec<Got> {
        let call = self.next_call(limits, None);
        let answer: Answer = self.store.call(call, capacity::exchange, false).await.unwrap();
        let got: Vec<Got> = answer.got.into_iter().map(|got| got.unwrap().unwrap()).collect();
        for (limit, got) in limits.iter().zip(&got) {
            assert_ne!(got.state, State::Lost, "{limit}");
            *self.held.entry((*limit).to_owned()).or_default() += got.units.iter().map(|(_, units)| units).sum::<u32>();
        }
        got
    }

    fn held(&self, limit: &str) -> u32 {
        self.held.get(limit).copied().unwrap_or_default()
    }
}

/// Whichever process calls first, the ledger names both, and together they hold no more units than the limit has.
async fn share_one_ledger(store: Store) {
    let mut processes = Vec::new();
    for (number, again_us) in (1..).zip(WINDOWS) {
        processes.push(Process::open(&store, number, again_us).await);
    }
    for (limit, order) in [("short first", [0, 1, 0, 1]), ("long first", [1, 0, 1, 0])] {
        let mut last = Vec::new();
        for process in order {
            last = processes[process].ask(&[limit]).await;
        }
        let held = processes.iter().map(|process| process.held(limit)).sum::<u32>();
        assert_eq!(held, UNITS, "{limit}");
        let all = last[0].all;
        assert_eq!((all.processes, all.units, all.held), (2, UNITS, held), "{limit}");
        assert!(all.differs, "{limit}");
        assert_eq!((all.again_us, all.transit_us), (WINDOWS[1], S), "{limit}");
    }
}

/// Pairs of processes call for new limits at the same moment.
async fn make_one_ledger_at_once(store: Store) {
    let [mut short, mut long] =
        [Process::open(&store, 1, WINDOWS[0]).await, Process::open(&store, 2, WINDOWS[1]).await];
    for round in 0..20 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let both = [a.as_str(), b.as_str()];
        for _ in 0..2 {
            let _ = tokio::join!(short.ask(&both), long.ask(&both));
        }
        for limit in both {
            assert_eq!(short.held(limit) + long.held(limit), UNITS, "{limit}");
        }
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_keeps_one_ledger_across_windows() {
    let store = || Store::sqlite(crate::store::tests::folder().join("capacity.db"));
    share_one_ledger(store()).await;
    make_one_ledger_at_once(store()).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn postgres_keeps_one_ledger_across_windows() {
    share_one_ledger(Store::postgres(crate::store::tests::database().await)).await;
    make_one_ledger_at_once(Store::postgres(crate::store::tests::database().await)).await;
}

#[cfg(feature = "postgres")]
mod stalls {
    use std::time::Duration;

    use super::*;
    use crate::BoxFuture;
    use crate::capacity::ledger::Ledger;
    use crate::clock::{Clock, Time};
    use crate::store::driver::{Db, DbError, args};

    const LIMIT: &str = "stalled";
    /// How long a transaction stands still before it locks the ledger's row.
    const STALL: Duration = Duration::from_millis(2_500);

    fn late<'a>(call: &'a Call, db: Db<'a>, now_ms: i64) -> BoxFuture<'a, Result<Answer, DbError>> {
        Box::pin(async move {
            tokio::time::sleep(STALL).await;
            capacity::exchange(call, db, now_ms).await
        })
    }

    /// The ledger's time after the last call.
    fn ledger_time<'a>(_: &'a (), db: Db<'a>, _now_ms: i64) -> BoxFuture<'a, Result<u64, DbError>> {
        Box::pin(async move {
            let mut rows = db.fetch("SELECT state FROM ic_capacity WHERE name = $1", args![LIMIT]).await?;
            let text = rows.first_mut().unwrap().text()?;
            Ok(serde_json::from_str::<Ledger>(&text).unwrap().standing().now)
        })
    }

    fn micros(duration: Duration) -> u64 {
        u64::try_from(duration.as_micros()).unwrap()
    }

    /// A process calls several times a second, and knows the store's clock. Meanwhile another process has begun its
    /// transaction, and locks the ledger's row seconds later.
    #[tokio::test]
    async fn stalled_transaction_does_not_hasten_ledger_time() {
        let store = Store::postgres(crate::store::tests::database().await);
        let mut busy = Process::open(&store, 1, WINDOWS[0]).await;
        let mut stalled = Process::open(&store, 2, WINDOWS[0]).await;
        let clock = Clock::system();
        let began = clock.now();
        busy.ask(&[LIMIT]).await;
        let first_us = busy.store.call((), ledger_time, false).await.unwrap();
        let call = stalled.next_call(&[LIMIT], None);
        let calls = async {
            let mut last: Option<(u64, Time)> = None;
            while clock.now().since(began) < STALL + Duration::from_secs(1) {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let expected_us = last.map(|(clock_us, at)| clock_us + micros(clock.now().since(at)));
                let call = busy.next_call(&[LIMIT], expected_us);
                let answer = busy.store.call(call, capacity::exchange, false).await.unwrap();
                last = Some((answer.clock_us, clock.now()));
            }
        };
        let (answer, ()) = tokio::join!(stalled.store.call(call, late, false), calls);
        assert_eq!(answer.unwrap().got.len(), 1);
        let passed_us = busy.store.call((), ledger_time, false).await.unwrap() - first_us;
        let true_us = micros(clock.now().since(began));
        let most_us = true_us + (true_us / 10).clamp(100_000, 1_000_000);
        println!("ledger_us={passed_us} true_us={true_us}");
        assert!(passed_us > true_us / 2 && passed_us <= most_us, "{passed_us} of {true_us} us");
    }
}
