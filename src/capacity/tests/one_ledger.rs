//! SQL stores keep the ledgers of windows of an hour and more in another table than those of shorter ones. Here two processes
//! state windows on both sides of an hour for one limit, and the limit must have one ledger.

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

    /// Asks for all units of each limit, and keeps what it gets.
    async fn ask(&mut self, limits: &[&str]) -> Vec<Got> {
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
                floor: Floor::default(),
            };
            Entry { limit: (*limit).to_owned(), known_seq: self.seq - 1, expected_us: None, line }
        });
        let lines = lines.collect();
        let call = Call { process: self.number, seq: self.seq, lease_us: 60 * S, leaves: false, lines };
        let answer: Answer = self.store.call(call, capacity::exchange, false).await.unwrap();
        let got: Vec<Got> = answer.got.into_iter().map(Option::unwrap).collect();
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
