//! Units of a process whose lease has ended, as by an outage of the store: until the process says when each of them is
//! free, nobody gets them before all of them must be.

use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line, Loss, State};

const S: u64 = 1_000_000;
const HOUR: u64 = 3_600 * S;
const DAY: Figures = Figures { units: 100, again_us: 24 * HOUR, transit_us: 2 * S, takes_used: false };
const WEEK: Figures = Figures { again_us: 7 * 24 * HOUR, ..DAY };

/// A ledger and the store's clock. Of each process, the number of its last call and that of the last answered one.
struct Bench {
    ledger: Ledger,
    clock: u64,
    seqs: [u64; 3],
    known: [u64; 3],
}

impl Bench {
    fn new() -> Bench {
        let ledger = Ledger::new(&DAY, Floor::default(), 1_000 * S, None);
        Bench { ledger, clock: 1_000 * S, seqs: [0; 3], known: [0; 3] }
    }

    fn caller(&self, process: usize) -> Caller {
        let (seq, known_seq) = (self.seqs[process], self.known[process]);
        Caller {
            process: process as u64,
            seq,
            known_seq,
            lease_us: 10 * S,
            expected_us: Some(self.clock),
            waited_us: 0,
        }
    }

    fn call(&mut self, process: usize, line: &Line) -> Got {
        let got = self.call_unanswered(process, line);
        self.known[process] = self.seqs[process];
        got
    }

    /// A call whose answer gets lost.
    fn call_unanswered(&mut self, process: usize, line: &Line) -> Got {
        self.seqs[process] += 1;
        let caller = self.caller(process);
        self.ledger.exchange(self.clock, &caller, line)
    }

    fn held_free_occupied(&self) -> (u32, u32, u32) {
        let standing = self.ledger.standing();
        (standing.holders.iter().map(|(_, held, _)| held).sum(), standing.free, standing.occupied)
    }
}

/// Process 1 holds the whole limit when an outage of half a minute begins.
fn after_outage() -> Bench {
    let mut bench = Bench::new();
    assert_eq!(units(&bench.call(1, &line(0, 100))), 100);
    bench.clock += 30 * S;
    bench
}

fn line(claim: u32, want: u32) -> Line {
    Line::of(DAY, claim, want)
}

/// After the end of its lease a process returns all that it held: 60 units are free, and 40 count for an hour.
fn comes_back(want: u32) -> Line {
    Line { returned: vec![(0, 60), (HOUR, 40)], ..line(0, want) }
}

fn units(got: &Got) -> u32 {
    got.units.iter().map(|(_, units)| units).sum()
}

#[test]
fn returning_process_frees_unused_units() {
    let mut bench = after_outage();
    let got = bench.call(1, &comes_back(100));
    assert_eq!((got.state, units(&got), got.free), (State::Lost, 0, 60));
    assert_eq!(bench.held_free_occupied(), (0, 60, 40));
    assert_eq!(bench.call(1, &line(0, 100)).units, [(0, 60)]);
    // The hour and its slack.
    for (more, free) in [(HOUR, 0), (S, 40)] {
        bench.clock += more;
        assert_eq!(units(&bench.call(2, &line(0, 40))), free, "{more}");
    }
}

#[test]
fn silent_process_keeps_units_for_window() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    // The lease and its slack, the longest transit, a window, and 200 millionths of all, less the second of the lease.
    for (after, free) in [(30, 0), (86_429, 0), (86_430, 100)] {
        bench.clock = (1_000 + after) * S;
        bench.call(2, &line(0, 0));
        assert_eq!(bench.held_free_occupied(), (0, free, 100 - free), "{after}");
    }
}

#[test]
fn others_wait_for_the_returning_process() {
    let mut bench = after_outage();
    assert_eq!(units(&bench.call(2, &line(0, 100))), 0);
    bench.call(1, &comes_back(0));
    assert_eq!(units(&bench.call(2, &line(0, 100))), 60);
    assert_eq!(bench.held_free_occupied(), (60, 0, 40));
}

#[test]
fn successor_returns_no_units_of_another() {
    let mut bench = after_outage();
    assert_eq!(units(&bench.call(2, &comes_back(100))), 0);
    assert_eq!(bench.held_free_occupied(), (0, 0, 100));
}

#[test]
fn repeated_return_frees_nothing_twice() {
    let mut bench = after_outage();
    bench.call_unanswered(1, &comes_back(100));
    let before = bench.ledger.standing();
    let again = bench.caller(1);
    bench.ledger.exchange(bench.clock, &again, &comes_back(100));
    assert_eq!(bench.ledger.standing(), before);
    for _ in 0..3 {
        bench.call_unanswered(1, &comes_back(100));
        let (held, free, occupied) = bench.held_free_occupied();
        assert!(held + free <= 60 && held + free + occupied == 100, "{held} {free} {occupied}");
    }
}

/// The last call before the outage has reached the store, and its answer got lost.
#[test]
fn unexplained_units_count_for_window() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 60));
    assert_eq!(units(&bench.call_unanswered(1, &line(60, 100))), 40);
    bench.clock += 30 * S;
    bench.call(1, &Line { returned: vec![(0, 60)], ..line(0, 0) });
    assert_eq!(bench.held_free_occupied(), (0, 60, 40));
    bench.clock = (1_000 + 86_430) * S;
    bench.call(2, &line(0, 0));
    assert_eq!(bench.held_free_occupied(), (0, 100, 0));
}

/// Calls from before the outage that wait for a store arrive after the lease that they claim under.
#[test]
fn late_claim_leaves_units_to_be_returned() {
    let mut bench = after_outage();
    for _ in 0..2 {
        assert_eq!(bench.call_unanswered(1, &line(100, 100)).state, State::Lost);
        assert_eq!(bench.held_free_occupied(), (0, 0, 100));
    }
    bench.call(1, &comes_back(0));
    assert_eq!(bench.held_free_occupied(), (0, 60, 40));
    // A process that receives the answer to such a claim forgets its units, and can say nothing of them.
    let mut bench = after_outage();
    bench.call(1, &line(100, 100));
    bench.call(1, &line(0, 0));
    assert_eq!(bench.held_free_occupied(), (0, 0, 100));
}

#[test]
fn process_on_its_floor_returns_the_rest() {
    let floor = Floor { each: 5, all: 20 };
    let begin = || {
        let mut bench = Bench::new();
        let got = bench.call(1, &Line { floor, ..line(0, 100) });
        assert_eq!((units(&got), got.floor), (100, 5));
        bench.clock += 30 * S;
        bench.call(2, &line(0, 0));
        assert_eq!(bench.held_free_occupied(), (5, 0, 95));
        bench
    };
    let mut bench = begin();
    let got = bench.call(1, &Line { returned: vec![(0, 55), (HOUR, 40)], floor, ..line(5, 5) });
    assert_eq!((got.state, got.floor), (State::Kept, 5));
    assert_eq!(bench.held_free_occupied(), (5, 55, 40));
    // After the floor's own lease.
    let mut bench = begin();
    bench.clock += 670 * S;
    bench.call(2, &line(0, 0));
    assert_eq!(bench.held_free_occupied(), (0, 0, 100));
    bench.call(1, &Line { floor, ..comes_back(0) });
    assert_eq!(bench.held_free_occupied(), (0, 60, 40));
}

#[test]
fn leaving_process_returns_units_of_ended_lease() {
    let mut bench = after_outage();
    bench.seqs[1] += 1;
    let caller = bench.caller(1);
    bench.ledger.leave(bench.clock, &caller, &comes_back(0));
    assert_eq!(bench.held_free_occupied(), (0, 60, 40));
}

/// What the process says was true of the figures that were in force.
#[test]
fn changed_figures_outlast_what_is_returned() {
    for (figures, all) in [(Figures { units: 60, ..DAY }, 60), (WEEK, 100)] {
        let mut bench = after_outage();
        bench.call(2, &Line { figures, ..line(0, 0) });
        assert_eq!(bench.held_free_occupied(), (0, 0, all), "{figures:?}");
        bench.call(1, &comes_back(0));
        assert_eq!(bench.held_free_occupied(), (0, 0, all), "{figures:?}");
    }
}

/// A process counted by the shorter of two windows, and has the longer one when it comes back.
#[test]
fn returned_times_are_of_the_earlier_figures() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 60));
    bench.call(2, &Line { figures: WEEK, ..line(0, 0) });
    bench.call(1, &line(60, 0));
    bench.clock += 30 * S;
    bench.call(1, &Line { figures: WEEK, returned: vec![(0, 60)], ..line(0, 0) });
    assert_eq!(bench.held_free_occupied(), (0, 0, 100));
}

/// The process may have returned the units to the ledger that was lost, and others may have used them since.
#[test]
fn ledger_made_after_loss_believes_no_return() {
    let mut bench = Bench::new();
    let loss = Loss { leases_until: bench.clock + 11 * S, floors_until: bench.clock + 601 * S };
    bench.ledger = Ledger::new(&DAY, Floor::default(), bench.clock, Some(loss));
    assert_eq!(bench.call(1, &line(60, 60)).state, State::Learning);
    bench.clock += 30 * S;
    bench.call(1, &Line { returned: vec![(0, 60)], ..line(0, 0) });
    assert_eq!(bench.held_free_occupied(), (0, 0, 100));
}

/// A process of an earlier version refuses a ledger with a field that it does not know.
#[test]
fn ended_lease_adds_no_field() {
    let mut bench = after_outage();
    let fields = |ledger: &Ledger| {
        let ledger = serde_json::to_value(ledger).unwrap();
        let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        [fields(&ledger), fields(&ledger["h"]["1"])]
    };
    let before = fields(&bench.ledger);
    bench.call(2, &line(0, 0));
    assert_eq!(fields(&bench.ledger), before);
    let text = serde_json::to_string(&bench.ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), bench.ledger);
}
