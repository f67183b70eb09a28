//! A quota of a day, of which processes use one unit after the other. They return each while it counts for nearly a day
//! more, so each would be an entry of the pool.

use fastrand::Rng;

use super::ledger::{S, units};
use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line};

const DAY: Figures = Figures { units: 5_000, again_us: 86_400 * S, transit_us: 2 * S, takes_used: false };
/// A twentieth of the day, and the slack of a day.
const LATE_US: u64 = DAY.again_us / 20 + 20 * S;

struct Bench {
    ledger: Ledger,
    clock: u64,
    seqs: [u64; 4],
    /// When each unit was used.
    used: Vec<u64>,
}

impl Bench {
    fn new() -> Bench {
        let clock = 1_000 * S;
        Bench { ledger: Ledger::new(&DAY, Floor::default(), clock, None), clock, seqs: [0; 4], used: Vec::new() }
    }

    fn call(&mut self, process: usize, line: &Line) -> Got {
        self.seqs[process] += 1;
        let caller = Caller {
            process: process as u64 + 1,
            seq: self.seqs[process],
            known_seq: self.seqs[process] - 1,
            lease_us: 10 * S,
            expected_us: Some(self.clock),
            waited_us: 0,
        };
        self.ledger.exchange(self.clock, &caller, line)
    }

    /// A process uses a unit, and returns it some seconds later.
    fn use_one(&mut self, process: usize, seconds: u64) {
        assert_eq!(units(&self.call(process, &Line::of(DAY, 0, 1))), 1, "after {} units", self.used.len());
        self.used.push(self.clock);
        self.clock += seconds * S;
        let returned = vec![(DAY.again_us - seconds * S, 1)];
        self.call(process, &Line { returned, ..Line::of(DAY, 0, 0) });
    }

    fn check(&self) {
        let count = |counts_us: u64| self.used.iter().filter(|at| **at + counts_us > self.clock).count();
        let free = self.ledger.standing().free as usize;
        let (least, most) = (5_000 - count(DAY.again_us + LATE_US), 5_000 - count(DAY.again_us));
        assert!((least..=most).contains(&free), "{free} of {least} to {most} after {} units", self.used.len());
    }
}

#[test]
fn steady_use_leaves_no_unit_late() {
    let mut bench = Bench::new();
    while bench.clock < 3 * DAY.again_us {
        bench.use_one(0, 5);
        bench.clock += 17 * S;
        if bench.used.len().is_multiple_of(50) {
            bench.check();
        }
    }
    assert!(serde_json::to_string(&bench.ledger).unwrap().len() < 4_000);
}

#[test]
fn random_use_of_several_processes_leaves_no_unit_late() {
    let (mut bench, mut random) = (Bench::new(), Rng::with_seed(1));
    while bench.clock < 3 * DAY.again_us {
        bench.use_one(random.usize(0..4), random.u64(1..9));
        bench.clock += random.u64(0..36 * S);
        // Another one calls without a need.
        bench.call(random.usize(0..4), &Line::of(DAY, 0, 0));
        if bench.used.len().is_multiple_of(50) {
            bench.check();
        }
    }
}
