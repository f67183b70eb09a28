//! How many units the processes that hold some may keep while another goes without.

use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line, Loss, State};

const S: u64 = 1_000_000;
const FIVE: Figures = Figures { units: 5, again_us: 60 * S, transit_us: 2 * S, takes_used: false };

/// A ledger and the store's clock.
struct Bench {
    ledger: Ledger,
    clock: u64,
    seqs: [u64; 5],
}

impl Bench {
    fn new(figures: &Figures, loss: Option<Loss>) -> Bench {
        let clock = 1_000 * S;
        Bench { ledger: Ledger::new(figures, Floor::default(), clock, loss), clock, seqs: [0; 5] }
    }

    fn caller(&mut self, process: usize) -> Caller {
        self.seqs[process] += 1;
        let seq = self.seqs[process];
        Caller {
            process: process as u64,
            seq,
            known_seq: seq - 1,
            lease_us: 10 * S,
            expected_us: Some(self.clock),
            waited_us: 0,
        }
    }

    fn call(&mut self, process: usize, line: &Line) -> Got {
        let caller = self.caller(process);
        self.ledger.exchange(self.clock, &caller, line)
    }

    /// A process that wants two units holds `claim`.
    fn holding(&mut self, process: usize, claim: u32) -> Got {
        self.call(process, &Line::of(FIVE, claim, 2))
    }

    /// Processes 1 and 2 hold two units each. One unit is not free for a minute, and process 3 has none.
    fn with_unfree_unit() -> Bench {
        let mut bench = Bench::new(&FIVE, None);
        assert_eq!(units(&bench.call(4, &Line::of(FIVE, 0, 1))), 1);
        let caller = bench.caller(4);
        let line = Line { returned: vec![(60 * S, 1)], ..Line::of(FIVE, 0, 0) };
        bench.ledger.leave(bench.clock, &caller, &line);
        assert_eq!([1, 2, 3].map(|process| units(&bench.holding(process, 0))), [2, 2, 0]);
        bench
    }
}

fn units(got: &Got) -> u32 {
    got.units.iter().map(|(_, units)| units).sum()
}

#[test]
fn only_oldest_holder_gives_way() {
    let mut bench = Bench::with_unfree_unit();
    bench.clock += 6 * S;
    assert_eq!([(1, 2), (2, 2), (3, 0)].map(|(process, claim)| bench.holding(process, claim).keep), [1, 2, 2]);
    bench.call(1, &Line { returned: vec![(0, 1)], ..Line::of(FIVE, 1, 2) });
    assert_eq!(units(&bench.holding(3, 0)), 1);
}

#[test]
fn long_use_does_not_stop_turns() {
    let mut bench = Bench::with_unfree_unit();
    // The first process cannot give anything up.
    for second in (3..=24).step_by(3) {
        bench.clock += 3 * S;
        assert_eq!(bench.holding(1, 2).keep, 1, "{second}");
        assert_eq!(units(&bench.holding(3, 0)), 0, "{second}");
        assert_eq!(bench.holding(2, 2).keep, if second < 22 { 2 } else { 1 }, "{second}");
    }
}

/// Three processes with low requests hold one unit each, and a fourth lacks one of its share.
#[test]
fn unused_unit_without_need_goes_back() {
    let figures = Figures { takes_used: true, ..FIVE };
    let low = |claim, need| Line { want: [0, 0, 1], need, ..Line::of(figures, claim, 0) };
    for (need, keep) in [(1, 1), (0, 0)] {
        let mut bench = Bench::new(&figures, None);
        assert_eq!([1, 2, 3].map(|process| units(&bench.call(process, &low(0, 1)))), [1, 1, 1]);
        assert_eq!(units(&bench.call(4, &Line::of(figures, 0, 9))), 2);
        assert_eq!(bench.call(3, &low(1, need)).keep, keep, "{need}");
    }
}

/// A request needs all units. Its process gathers them, unless another one keeps some as its floor: then no turn helps.
#[test]
fn turn_for_all_units_leaves_none() {
    let figures = Figures { units: 100, takes_used: true, ..FIVE };
    for (each, keeps) in [(0, [100, 0]), (5, [50, 50])] {
        let mut bench = Bench::new(&figures, None);
        let floor = Floor { each, all: 20 };
        let line = |claim, need| Line { need, floor, ..Line::of(figures, claim, 100) };
        assert_eq!(units(&bench.call(2, &line(0, 1))), 100);
        let got = bench.call(1, &line(0, 100));
        assert_eq!([got.keep, bench.call(2, &line(100, 1)).keep], keeps, "{each}");
        assert_eq!(got.reach, 100 - each);
    }
}

/// A process with a lower figure lets no other have more.
#[test]
fn lower_figure_bounds_reach() {
    let mut bench = Bench::new(&FIVE, None);
    assert_eq!(bench.call(1, &Line::of(FIVE, 0, 5)).reach, 5);
    let lower = Figures { units: 3, ..FIVE };
    bench.call(2, &Line::of(lower, 0, 1));
    assert_eq!(bench.call(1, &Line::of(FIVE, 5, 5)).reach, 3);
}

#[test]
fn learning_process_keeps_its_units() {
    for takes_used in [false, true] {
        let figures = Figures { takes_used, ..FIVE };
        let loss = Loss { leases_until: 1_011 * S, floors_until: 1_601 * S };
        let mut bench = Bench::new(&figures, Some(loss));
        let line = |claim| Line::of(figures, claim, 5);
        for (process, claim) in [(1, 4), (2, 0), (1, 4)] {
            let got = bench.call(process, &line(claim));
            assert_eq!((got.state, got.keep, got.travels), (State::Learning, claim, false), "{takes_used}");
        }
    }
}
