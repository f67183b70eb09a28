//! The clock of a SQLite file: steps of the wall clock and starts of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use super::super::actor::Step;
use super::super::clock;
use super::super::faults::{Fault, Moment, Watch};
use super::*;
use crate::clock::MachineTime;

#[derive(Default)]
struct Machine {
    wall_step_ms: AtomicI64,
    starts: AtomicU64,
    ran_ms: AtomicI64,
}

impl Watch for Machine {
    fn at(&self, _: &'static str, _: Moment) -> Fault {
        Fault::None
    }

    fn wall_step_ms(&self) -> i64 {
        self.wall_step_ms.load(Relaxed)
    }

    fn restarted(&self) -> Option<(u64, i64)> {
        Some((self.starts.load(Relaxed), self.ran_ms.load(Relaxed)))
    }
}

const HOUR: i64 = 3_600_000;

async fn time(store: &Opened) -> i64 {
    let now: Step<(), i64> = |(), _, now| Box::pin(std::future::ready(Ok(now)));
    store.read((), now).await.unwrap()
}

async fn note(store: &Opened) {
    let note: Step<(), ()> = |(), db, now| Box::pin(clock::note(db, now));
    store.write((), note).await.unwrap();
}

#[tokio::test]
async fn store_clock_ignores_wall_clock_steps() {
    let machine = Arc::new(Machine::default());
    let store = Store::sqlite(folder().join("store.db")).watched_by(machine.clone());
    machine.ran_ms.store(1_000, Relaxed);
    let opened = open(&store).await;
    let began = time(&opened).await;
    assert!((began - MachineTime::read().wall_ms).abs() < 60_000, "it begins as the wall clock");
    for step in [HOUR, -HOUR, 24 * HOUR, -24 * HOUR] {
        machine.wall_step_ms.store(step, Relaxed);
        assert_eq!(time(&opened).await, began, "under way");
        assert_eq!(time(&open(&store).await).await, began, "for another process that starts");
    }
    machine.wall_step_ms.store(0, Relaxed);
    machine.ran_ms.store(61_000, Relaxed);
    assert_eq!(time(&opened).await, began + 60_000);
    note(&opened).await;
    // The machine boots again with a wall clock that is behind: the store's time continues.
    machine.starts.store(1, Relaxed);
    machine.ran_ms.store(5, Relaxed);
    machine.wall_step_ms.store(-24 * HOUR, Relaxed);
    assert_eq!(time(&open(&store).await).await, began + 60_000);
    machine.ran_ms.store(1_005, Relaxed);
    assert_eq!(time(&open(&store).await).await, began + 61_000);
    // After a night without power the store's time follows the wall clock.
    machine.starts.store(2, Relaxed);
    machine.wall_step_ms.store(8 * HOUR, Relaxed);
    let later = time(&open(&store).await).await - began;
    assert!((8 * HOUR - 60_000..8 * HOUR + 60_000).contains(&later), "{later}");
}

#[test]
fn machine_time_does_not_go_back() {
    let mut before = MachineTime::read();
    for _ in 0..1_000 {
        let now = MachineTime::read();
        assert!(now.steady_ms >= before.steady_ms && now.boot == before.boot, "{before:?} {now:?}");
        before = now;
    }
}

#[test]
fn ledgers_count_by_a_common_clock() {
    let boot = Some("start 1".into());
    assert_eq!(clock::of_ledgers(&MachineTime { wall_ms: 9, boot, steady_ms: 5 }, 7), 7);
    // The wall clock was stepped between the starts of two processes, so that the file has another time for each.
    let own = |steady_ms| MachineTime { wall_ms: 9, boot: None, steady_ms };
    assert_eq!((clock::of_ledgers(&own(5), 5), clock::of_ledgers(&own(1_005), 1_005)), (9, 9));
}
