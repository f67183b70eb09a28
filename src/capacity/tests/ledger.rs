//! The rules of a ledger, each tested by itself.

use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line, Loss, State};

pub(super) const S: u64 = 1_000_000;
pub(super) const FIGURES: Figures = Figures { units: 100, again_us: S, transit_us: 2 * S, takes_used: true };

/// A ledger and the store's clock.
pub(super) struct Bench {
    pub(super) ledger: Ledger,
    pub(super) clock: u64,
    pub(super) seqs: [u64; 10],
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench { ledger: Ledger::new(&FIGURES, Floor::default(), 1_000 * S, None), clock: 1_000 * S, seqs: [0; 10] }
    }

    pub(super) fn caller(&self, process: usize) -> Caller {
        let (seq, expected_us) = (self.seqs[process], Some(self.clock));
        Caller { process: process as u64, seq, known_seq: seq - 1, lease_us: 10 * S, expected_us, waited_us: 0 }
    }

    pub(super) fn call(&mut self, process: usize, line: &Line) -> Got {
        self.seqs[process] += 1;
        let caller = self.caller(process);
        self.ledger.exchange(self.clock, &caller, line)
    }

    pub(super) fn held_free_occupied(&self) -> (u32, u32, u32) {
        let standing = self.ledger.standing();
        (standing.holders.iter().map(|(_, held, _)| held).sum(), standing.free, standing.occupied)
    }
}

/// A loss that is noticed at `clock`, with leases of 10 s.
fn loss(clock: u64) -> Option<Loss> {
    Some(Loss { leases_until: clock + 11 * S, floors_until: clock + 601 * S })
}

pub(super) fn line(claim: u32, want: u32) -> Line {
    Line::of(FIGURES, claim, want)
}

pub(super) fn units(got: &Got) -> u32 {
    got.units.iter().map(|(_, units)| units).sum()
}

#[test]
fn first_call_gets_all_it_wants() {
    let mut bench = Bench::new();
    let got = bench.call(1, &line(0, 80));
    assert_eq!((units(&got), got.keep, got.state), (80, 80, State::Kept));
    let got = bench.call(2, &line(0, 80));
    assert_eq!((units(&got), got.keep), (20, 50));
    assert_eq!(bench.call(1, &line(80, 80)).keep, 50, "the first is told to give back");
    assert_eq!(bench.held_free_occupied(), (100, 0, 0));
}

#[test]
fn returned_units_count_until_free() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    bench.clock += S / 2;
    let back = Line { returned: vec![(0, 10), (600_000, 40)], ..line(50, 50) };
    bench.call(1, &back);
    assert_eq!(bench.held_free_occupied(), (50, 10, 40));
    let got = bench.call(2, &line(0, 50));
    assert_eq!(got.units, [(0, 10), (700_000, 40)], "with the slack of a tenth of a second");
}

/// A process counts a used unit for one window at most.
#[test]
fn used_units_move_within_one_window_of_free() {
    let mut bench = Bench::new();
    let short = Figures { again_us: S / 5, ..FIGURES };
    bench.ledger = Ledger::new(&short, Floor::default(), bench.clock, None);
    bench.call(1, &Line::of(short, 0, 100));
    bench.call(1, &Line { returned: vec![(800_000, 100)], ..Line::of(short, 0, 0) });
    // With the slack they are free after 900 ms.
    for (after, units) in [(0, vec![]), (699_000, vec![]), (700_000, vec![(200_000, 1)])] {
        bench.clock = 1_000 * S + after;
        assert_eq!(bench.call(2, &Line::of(short, 0, 1)).units, units, "{after}");
    }
}

#[test]
fn repeated_call_changes_nothing() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 60));
    let before = bench.ledger.standing();
    let again = bench.caller(1);
    let got = bench.ledger.exchange(bench.clock + 50_000, &again, &line(0, 60));
    assert_eq!(units(&got), 60, "the answer may have been lost");
    assert_eq!(bench.ledger.standing(), before);
}

#[test]
fn lost_answer_is_granted_again() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 60));
    bench.seqs[1] += 1;
    let caller = Caller { known_seq: 0, ..bench.caller(1) };
    let got = bench.ledger.exchange(bench.clock, &caller, &line(0, 60));
    assert_eq!(units(&got), 60);
    assert_eq!(bench.held_free_occupied(), (60, 40, 0));
}

#[test]
fn units_named_twice_count_until_later() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 60));
    // The first call has not reached the store, so the next one names the units returned by both.
    let back = Line { returned: vec![(200_000, 20), (900_000, 20)], ..line(40, 0) };
    bench.call(1, &back);
    bench.clock += 400_000;
    bench.call(2, &line(0, 1));
    assert_eq!(bench.held_free_occupied(), (41, 39, 20));
}

#[test]
fn expired_lease_frees_units_after_transit() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    // The lease and its slack, the longest transit, and a window.
    for (after, free) in [(10 * S, 0), (11 * S + 1, 0), (13 * S, 0), (14 * S + 1, 100)] {
        bench.clock = 1_000 * S + after;
        bench.call(2, &line(0, 0));
        assert_eq!(bench.held_free_occupied().1, free, "{after}");
    }
    bench.seqs[1] += 1;
    // The process's clock would show that its claim is old, so the call comes without it.
    let caller = Caller { expected_us: None, ..bench.caller(1) };
    let got = bench.ledger.exchange(bench.clock, &caller, &line(100, 100));
    assert_eq!((got.state, units(&got)), (State::Lost, 0));
    assert_eq!(units(&bench.call(1, &line(0, 100))), 100);
}

#[test]
fn lost_ledger_is_learnt_from_holders() {
    let mut bench = Bench::new();
    bench.ledger = Ledger::new(&FIGURES, Floor::default(), bench.clock, loss(bench.clock));
    let got = bench.call(1, &line(40, 100));
    assert_eq!((got.state, units(&got)), (State::Learning, 0));
    bench.clock += 5 * S;
    assert_eq!(bench.call(2, &line(80, 0)).state, State::Lost, "there are no more than a hundred");
    bench.clock += 4 * S;
    bench.call(1, &line(40, 100));
    bench.clock += 3 * S;
    bench.call(1, &line(40, 100));
    assert_eq!(bench.held_free_occupied(), (40, 0, 60), "may be in use by somebody who has said nothing");
    bench.clock += 3 * S;
    assert_eq!(units(&bench.call(1, &line(40, 100))), 60);
}

#[test]
fn units_returned_while_learning_are_not_free() {
    let mut bench = Bench::new();
    bench.ledger = Ledger::new(&FIGURES, Floor::default(), bench.clock, loss(bench.clock));
    let returns_ten = |claim| Line { returned: vec![(0, 10)], ..line(claim, 0) };
    // The lost ledger had been given the ten units, and had granted them to the second process. Its answer to the first
    // process was lost too.
    bench.call(1, &returns_ten(30));
    assert_eq!(bench.call(2, &line(70, 100)).state, State::Learning);
    assert_eq!(bench.held_free_occupied(), (100, 0, 0));
    bench.clock += S;
    bench.call(2, &returns_ten(60));
    assert_eq!(bench.held_free_occupied(), (90, 0, 10));
}

#[test]
fn few_units_circulate_evenly() {
    let mut bench = Bench::new();
    let few = Figures { units: 10, ..FIGURES };
    bench.ledger = Ledger::new(&few, Floor::default(), bench.clock, None);
    let mut used = [0u32; 10];
    for round in 0..400 {
        for (process, used) in used.iter_mut().enumerate().skip(1).take(8) {
            bench.clock += 37_000;
            // Each process has used all units of its last grant at once, and returns them with the time until they are
            // free.
            let held = bench.ledger.standing().holders.iter().find(|it| it.0 == process as u64).map_or(0, |it| it.1);
            let returned = if held > 0 { vec![(900_000, held)] } else { Vec::new() };
            let got = bench.call(process, &Line { figures: few, returned, ..line(0, 5) });
            assert!(got.travels || round == 0);
            *used += units(&got);
        }
    }
    let (sum, squares) = used[1..9].iter().fold((0.0, 0.0), |(s, q), n| (s + f64::from(*n), q + f64::from(*n).powi(2)));
    assert!(sum * sum / (8.0 * squares) >= 0.98, "{used:?}");
}

#[test]
fn big_request_gets_its_turn() {
    let mut bench = Bench::new();
    let mut held = [0u32; 10];
    let mut went = false;
    for round in 0..40 {
        bench.clock += 100_000;
        for process in 1..=4 {
            // The fourth process has a waiting request of 60 units, more than its quarter of the limit.
            let need = if process == 4 { 60 } else { 1 };
            let keep = held[process];
            let got = bench.call(process, &Line { need, ..line(keep, 100) });
            held[process] = keep + units(&got);
            if held[process] > got.keep {
                let back = held[process] - got.keep;
                held[process] = got.keep;
                bench.call(process, &Line { returned: vec![(0, back)], need, ..line(got.keep, 100) });
            }
            went |= process == 4 && held[4] >= 60;
        }
        assert!(round < 30 || went, "{held:?}");
    }
}

#[test]
fn stricter_of_different_figures_holds() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    let strict = Figures { units: 60, ..FIGURES };
    let got = bench.call(2, &Line { figures: strict, ..line(0, 30) });
    assert_eq!(units(&got), 0);
    assert_eq!(bench.ledger.standing().differing.len(), 1);
    let keep = bench.call(1, &line(100, 100)).keep;
    assert_eq!(keep, 30);
    bench.call(1, &Line { returned: vec![(0, 70)], ..line(30, 100) });
    assert_eq!(units(&bench.call(2, &Line { figures: strict, ..line(0, 30) })), 30);
    assert_eq!(bench.held_free_occupied(), (60, 0, 0));
}

#[test]
fn raised_limit_is_free_at_once() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    let raised = Figures { units: 160, ..FIGURES };
    assert_eq!(bench.call(1, &Line { figures: raised, ..line(100, 160) }).units, [(0, 60)]);
    assert_eq!(bench.held_free_occupied(), (160, 0, 0));
}

const FEW: Figures = Figures { units: 10, takes_used: false, ..FIGURES };
const MINUTE: Figures = Figures { units: 600, again_us: 60 * S, ..FEW };

/// From a concurrency limit, and from a rate. The vendor counts all uses of a unit within the longer window.
#[test]
fn limit_raised_to_longer_window_waits_for_it() {
    for again_us in [0, S] {
        let mut bench = Bench::new();
        let few = Figures { again_us, ..FEW };
        bench.ledger = Ledger::new(&few, Floor::default(), bench.clock, None);
        assert_eq!(units(&bench.call(1, &Line { figures: few, ..line(0, 10) })), 10);
        // The longest way, the longer window and their slack.
        for after in 0..=63 {
            bench.clock = (1_000 + after) * S;
            let free = units(&bench.call(1, &Line { figures: MINUTE, ..line(10, 600) }));
            let stored = serde_json::to_value(&bench.ledger).unwrap()["u"].as_u64();
            assert_eq!((free, stored), if after < 63 { (0, Some(1_063 * S)) } else { (590, None) }, "{after}");
        }
    }
}

#[test]
fn process_with_shorter_window_is_waited_for() {
    let mut bench = Bench::new();
    bench.ledger = Ledger::new(&FEW, Floor::default(), bench.clock, None);
    assert_eq!([1, 2].map(|process| units(&bench.call(process, &Line { figures: FEW, ..line(0, 5) }))), [5, 5]);
    // Process 2 goes on with the shorter window for 30 s after process 1 has the longer one.
    for after in 1..=103 {
        bench.clock = (1_000 + after) * S;
        for (process, reloaded) in [(1, 10), (2, 40)] {
            let figures = if after < reloaded { FEW } else { MINUTE };
            let got = bench.call(process, &Line { figures, ..line(5, figures.units / 2) });
            assert_eq!(units(&got), if after < 103 { 0 } else { 295 }, "{after}");
        }
    }
}

#[test]
fn dropped_units_come_back_no_earlier_than_free() {
    let mut bench = Bench::new();
    let whole = Figures { takes_used: false, ..FIGURES };
    let reduced = Figures { units: 60, ..whole };
    bench.call(1, &Line { figures: whole, ..line(0, 100) });
    // The reduction drops 40 units that count for two seconds and their slack.
    bench.call(1, &Line { figures: reduced, returned: vec![(2 * S, 40)], ..line(60, 60) });
    assert_eq!(bench.held_free_occupied(), (60, 0, 0));
    let text = serde_json::to_string(&bench.ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), bench.ledger);
    for (after, free) in [(0, 0), (2_199_999, 0), (2_200_000, 40)] {
        bench.clock = 1_000 * S + after;
        assert_eq!(units(&bench.call(1, &Line { figures: whole, ..line(60, 100) })), free, "{after}");
    }
}

#[test]
fn ledger_matters_until_dropped_units_are_free() {
    let mut bench = Bench::new();
    bench.clock = 1_000_000 * S;
    let day = Figures { again_us: 86_400 * S, ..FIGURES };
    let reduced = Figures { units: 60, ..day };
    bench.ledger = Ledger::new(&day, Floor::default(), bench.clock, None);
    bench.call(1, &Line { figures: day, ..line(0, 100) });
    bench.call(1, &Line { figures: reduced, returned: vec![(3_600 * S, 40)], ..line(60, 0) });
    bench.seqs[1] += 1;
    let caller = bench.caller(1);
    bench.ledger.leave(bench.clock, &caller, &Line { figures: reduced, returned: vec![(0, 60)], ..line(0, 0) });
    assert_eq!(bench.ledger.matters_for_us(), 3_601 * S);
}

/// Before the loss a process may have held more units than the limit has by the figures of the first caller after it.
#[test]
fn limit_raised_after_loss_waits_one_window() {
    let mut bench = Bench::new();
    let minute = Figures { again_us: 60 * S, takes_used: false, ..FIGURES };
    let reduced = Figures { units: 60, ..minute };
    bench.ledger = Ledger::new(&reduced, Floor::default(), bench.clock, loss(bench.clock));
    // The leases end after 11 s. The longest way, a window and their slack follow.
    let calls = [(0, reduced, 0), (12, reduced, 0), (13, minute, 0), (73, minute, 0), (74, minute, 100)];
    for (after, figures, free) in calls {
        bench.clock = (1_000 + after) * S;
        assert_eq!(units(&bench.call(1, &Line { figures, ..line(0, 100) })), free, "{after}");
    }
}

#[test]
fn leaving_process_returns_all_units() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    bench.seqs[1] += 1;
    let caller = bench.caller(1);
    bench.ledger.leave(bench.clock, &caller, &Line { returned: vec![(0, 70), (500_000, 30)], ..line(0, 0) });
    assert_eq!(bench.held_free_occupied(), (0, 70, 30));
    assert!(bench.ledger.standing().holders.is_empty());
}

#[test]
fn late_call_after_leaving_changes_nothing() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 100));
    bench.call(1, &line(100, 100));
    let earlier = bench.caller(1);
    bench.seqs[1] += 1;
    let last = bench.caller(1);
    bench.ledger.leave(bench.clock, &last, &Line { returned: vec![(0, 100)], ..line(0, 0) });
    let got = bench.ledger.exchange(bench.clock + 1_000, &earlier, &line(100, 100));
    assert!(!got.is_stale && got.units.is_empty(), "{got:?}");
    assert_eq!(bench.held_free_occupied(), (0, 100, 0));
}

#[test]
fn restored_older_state_is_recognised() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 10));
    let before = bench.ledger.clone();
    bench.call(1, &line(10, 50));
    bench.ledger = before;
    assert!(bench.call(1, &line(50, 50)).is_stale);
}

#[test]
fn late_call_of_forgotten_process_is_harmless() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 10));
    let first = bench.caller(1);
    bench.call(1, &line(10, 10));
    let late = bench.caller(1);
    bench.call(1, &Line { returned: vec![(0, 10)], ..line(0, 0) });
    bench.clock += 60 * S;
    // A call of process 2 ends the record of process 1, which its own late calls make anew.
    bench.call(2, &line(0, 10));
    bench.clock += S;
    bench.call(2, &line(10, 10));
    for late in [first, late] {
        let made = Some(bench.clock - 60 * S);
        bench.ledger.exchange(bench.clock, &Caller { expected_us: made, ..late }, &line(0, 0));
    }
    let before = bench.ledger.clone();
    // A claim from before it was forgotten is lost; a claim of now would show that the store went back.
    bench.seqs[1] += 1;
    let old = Caller { expected_us: Some(bench.clock - 60 * S), ..bench.caller(1) };
    assert_eq!(bench.ledger.exchange(bench.clock, &old, &line(10, 10)).state, State::Lost);
    bench.ledger = before.clone();
    assert!(bench.ledger.exchange(bench.clock, &bench.caller(1), &line(10, 10)).is_stale);
    bench.ledger = before;
    assert!(!bench.ledger.exchange(bench.clock, &bench.caller(1), &line(0, 10)).is_stale);
}

#[test]
fn pause_of_one_process_holds_all() {
    let mut bench = Bench::new();
    bench.call(1, &line(0, 10));
    assert_eq!(bench.call(2, &line(0, 10)).paused_us, 0);
    let refused = Line { paused_us: 30 * S, ..line(10, 10) };
    assert_eq!(bench.call(1, &refused).paused_us, 0, "it knows by itself");
    bench.clock += S;
    assert_eq!(bench.call(2, &line(10, 10)).paused_us, 29 * S);
    // Process 3 reports a shorter pause. Neither this nor the silence of process 1 ends the pause of process 1.
    bench.call(3, &Line { paused_us: 2 * S, ..line(0, 1) });
    assert_eq!(bench.call(2, &line(10, 10)).paused_us, 29 * S);
    // Process 1 itself ends its pause, once one of its requests has shown that the pause is over.
    bench.call(1, &line(10, 10));
    assert_eq!(bench.call(2, &line(10, 10)).paused_us, 0);
}

/// A process that keeps a floor of up to `each` units, while all floors together have 20.
fn line_with_floor(claim: u32, want: u32, each: u32) -> Line {
    Line { floor: Floor { each, all: 20 }, ..line(claim, want) }
}

#[test]
fn floor_is_freed_after_its_own_lease() {
    let mut bench = Bench::new();
    let got = bench.call(1, &line_with_floor(0, 100, 5));
    assert_eq!((units(&got), got.floor), (100, 5));
    // The lease, the longest transit and a window. The floor of process 1 stays its own.
    bench.clock += 14 * S + 100_000;
    assert_eq!(units(&bench.call(2, &line(0, 100))), 95);
    for _ in 0..117 {
        bench.clock += 5 * S;
        bench.call(2, &line(95, 100));
    }
    assert_eq!(bench.held_free_occupied(), (100, 0, 0));
    // Ten minutes and their slack since the last call of process 1, the longest transit and a window.
    bench.clock += 5 * S;
    assert_eq!(units(&bench.call(2, &line(95, 100))), 5);
}

/// Calls that waited for a store that stood still arrive after the lease that they claim under.
#[test]
fn late_calls_end_no_floor() {
    let mut bench = Bench::new();
    bench.call(1, &line_with_floor(0, 50, 5));
    bench.clock += 30 * S;
    for _ in 0..3 {
        let got = bench.call(1, &line_with_floor(50, 50, 5));
        assert_eq!((got.state, units(&got)), (State::Lost, 0));
    }
    let got = bench.call(1, &line_with_floor(5, 50, 5));
    assert_eq!((got.state, units(&got), got.floor), (State::Kept, 45, 5));
    assert_eq!(bench.held_free_occupied(), (50, 50, 0));
}

#[test]
fn returning_process_keeps_its_floor() {
    let mut bench = Bench::new();
    bench.call(1, &line_with_floor(0, 50, 5));
    bench.clock += 100 * S;
    bench.call(2, &line(0, 50));
    let got = bench.call(1, &line_with_floor(5, 50, 5));
    assert_eq!((got.state, units(&got), got.floor), (State::Kept, 45, 5));
}

#[test]
fn sum_of_floors_is_bounded() {
    let mut bench = Bench::new();
    let floors = (1..=4).map(|process| bench.call(process, &line_with_floor(0, 25, 8)).floor);
    assert_eq!(floors.collect::<Vec<_>>(), [8, 8, 4, 0]);
    // A process may not have received the answer with its floor before it wants a smaller one, so only what it states
    // makes it smaller.
    assert_eq!(bench.call(1, &line_with_floor(25, 25, 3)).floor, 3);
    assert_eq!(bench.call(4, &line_with_floor(25, 25, 8)).floor, 5);
    assert_eq!(bench.call(1, &line_with_floor(25, 25, 8)).floor, 3);
}

#[test]
fn lost_ledger_reserves_possible_floors() {
    let mut bench = Bench::new();
    let floor = Floor { each: 5, all: 20 };
    bench.ledger = Ledger::new(&FIGURES, floor, bench.clock, loss(bench.clock));
    for _ in 0..20 {
        bench.clock += S;
        bench.call(1, &line_with_floor(60, 60, 5));
    }
    assert_eq!(bench.held_free_occupied(), (60, 20, 20), "learnt, and somebody may go on with 20");
    for (calls, occupied) in [(115, 20), (2, 0)] {
        for _ in 0..calls {
            bench.clock += 5 * S;
            bench.call(1, &line_with_floor(60, 60, 5));
        }
        assert_eq!(bench.held_free_occupied().2, occupied);
    }
}

/// A process that used a unit shortly before the loss, and calls no more, may have used it in the window that has not
/// ended yet.
#[test]
fn ledger_made_after_loss_waits_one_window() {
    let mut bench = Bench::new();
    let minute = Figures { again_us: 60 * S, ..FIGURES };
    let lost = loss(bench.clock);
    bench.clock += 20 * S;
    bench.ledger = Ledger::new(&minute, Floor::default(), bench.clock, lost);
    let ask = Line { figures: minute, ..line(0, 100) };
    assert_eq!(units(&bench.call(1, &ask)), 0);
    bench.clock += 52 * S;
    assert_eq!(units(&bench.call(1, &ask)), 0, "11 s, the longest way and a window have not passed");
    bench.clock += 3 * S;
    assert_eq!(units(&bench.call(1, &ask)), 100);
}
