//! A store's clock that runs fast, by as much as the promise allows, beside a window of a day: no unit is free early.

use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line, Loss};

const S: u64 = 1_000_000;
const MINUTE: u64 = 60 * S;
const FIGURES: Figures = Figures { units: 10, again_us: 1_440 * MINUTE, transit_us: 2 * S, takes_used: false };

/// What the store's clock shows at a true time.
fn shown(at: u64) -> u64 {
    1_000 * S + at + at / 5_000
}

struct Bench {
    ledger: Ledger,
    seqs: [u64; 3],
    /// The true time of each process's last call.
    called: [Option<u64>; 3],
}

impl Bench {
    fn new(loss: Option<Loss>) -> Bench {
        Bench { ledger: Ledger::new(&FIGURES, Floor::default(), shown(0), loss), seqs: [0; 3], called: [None; 3] }
    }

    /// A process whose own clock is right calls at a true time.
    fn call(&mut self, at: u64, process: usize, line: &Line) -> Got {
        self.seqs[process] += 1;
        let (seq, before) = (self.seqs[process], self.called[process].replace(at));
        let expected_us = before.map(|then| shown(then) + (at - then));
        let caller =
            Caller { process: process as u64, seq, known_seq: seq - 1, lease_us: 10 * S, expected_us, waited_us: 0 };
        self.ledger.exchange(shown(at), &caller, line)
    }

    /// The minute in which process 2, which asks for units every minute, gets all of them.
    fn minute_of_grant(&mut self) -> Option<u64> {
        (0..=1_450).find(|minute| {
            let got = self.call(minute * MINUTE, 2, &Line::of(FIGURES, 0, 10));
            got.units.iter().map(|(_, units)| units).sum::<u32>() == 10
        })
    }
}

/// No unit is free in the 1,440th minute: the way of the last request is not over.
#[test]
fn fast_clock_frees_no_unit_early() {
    let all = Line::of(FIGURES, 0, 10);
    // A process is killed: its lease, the longest way and the window follow.
    let mut killed = Bench::new(None);
    killed.call(0, 1, &all);
    assert_eq!(killed.minute_of_grant(), Some(1_441));
    // A process returns units of requests that are on their way.
    let mut returned = Bench::new(None);
    returned.call(0, 1, &all);
    returned.call(0, 2, &Line::of(FIGURES, 0, 0));
    let line = Line { returned: vec![(FIGURES.again_us + 2 * S, 10)], ..Line::of(FIGURES, 0, 0) };
    returned.call(0, 1, &line);
    assert_eq!(returned.minute_of_grant(), Some(1_441));
    // The ledger is lost: the leases from before the loss, the longest way and the window follow.
    let loss = Loss { leases_until: shown(0) + 11 * S, floors_until: shown(0) + 601 * S };
    assert_eq!(Bench::new(Some(loss)).minute_of_grant(), Some(1_441));
}
