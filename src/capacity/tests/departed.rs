//! What the ledger keeps of processes that have ended, and of those that hold nothing.

use std::time::Duration;

use super::ledger::{Bench, FIGURES, S, line, units};
use crate::capacity::call::{Answer, Reading};
use crate::capacity::ledger::{Caller, Figures, Floor, Got, Ledger, Line, State};
use crate::capacity::process::Process;
use crate::clock::Time;
use crate::engine::limit::{self, Wish};

const MONTH_S: u64 = 31 * 86_400;
const MONTH: Figures = Figures { units: 10, again_us: MONTH_S * S, transit_us: 2 * S, takes_used: false };
/// A day's quota that is large enough for many processes.
const DAY: Figures = Figures { units: 10_000, again_us: 86_400 * S, ..MONTH };

/// A call of a process that knows the clock and the answers to all of its earlier calls.
fn call(ledger: &mut Ledger, (process, seq): (u64, u64), clock: u64, line: &Line) -> Got {
    let caller = Caller { process, seq, known_seq: seq - 1, lease_us: 10 * S, expected_us: Some(clock), waited_us: 0 };
    ledger.exchange(clock, &caller, line)
}

/// A month's quota, of which process 1 has used `used` units.
fn month(used: u32) -> Bench {
    let mut bench = Bench::new();
    bench.ledger = Ledger::new(&MONTH, Floor::default(), bench.clock, None);
    assert_eq!(units(&bench.call(1, &Line::of(MONTH, 0, used))), used);
    bench.call(1, &Line { returned: vec![(MONTH.again_us, used)], ..Line::of(MONTH, 0, 0) });
    bench
}

fn has_record(bench: &Bench, process: u64) -> bool {
    serde_json::to_value(&bench.ledger).unwrap()["h"].get(process.to_string()).is_some()
}

#[test]
fn records_of_departed_processes_are_dropped() {
    let day = Figures { again_us: 86_400 * S, ..FIGURES };
    let mut ledger = Ledger::new(&day, Floor::default(), 1_000 * S, None);
    for second in 0..1_000 {
        let clock = (1_000 + second) * S;
        let caller = |seq| Caller {
            process: 10 + second,
            seq,
            known_seq: seq - 1,
            lease_us: 10 * S,
            expected_us: Some(clock),
            waited_us: 0,
        };
        ledger.exchange(clock, &caller(1), &Line::of(day, 0, 1));
        ledger.leave(clock, &caller(2), &Line { returned: vec![(0, 1)], ..Line::of(day, 0, 0) });
    }
    let text = serde_json::to_string(&ledger).unwrap();
    assert!(text.len() < 20_000, "{}", text.len());
}

/// Cron starts a job again and again while a month's quota is used up. The runs end by `shutdown`, or are killed.
#[test]
fn short_runs_without_units_leave_small_ledger() {
    let wish = || {
        let figures = limit::Figures {
            units: MONTH.units,
            again_ns: MONTH.again_us * 1_000,
            transit_ns: MONTH.transit_us * 1_000,
            travels: false,
        };
        Wish { want: [0, 1, 0], need: 1, figures, ..Wish::default() }
    };
    for leaves in [true, false] {
        let mut bench = month(10);
        for run in 0..1_000 {
            bench.clock += S / 10;
            let now = Time::from_nanos(bench.clock * 1_000);
            let mut process = Process::new(100 + run, Duration::from_secs(10));
            let call = process.call(now, vec![("quota".to_owned(), wish())], false);
            let (got, ledger) =
                call.exchange(&call.lines[0], Some(bench.ledger.clone()), None, Reading::of(bench.clock));
            assert_eq!(got.as_ref().map(units), Some(0));
            process.answered(now, now, &call, &Answer { clock_us: bench.clock, read_at: None, got: vec![Ok(got)] });
            bench.ledger = ledger;
            if leaves {
                let call = process.call(now, Vec::new(), true);
                let (_, ledger) =
                    call.exchange(&call.lines[0], Some(bench.ledger.clone()), None, Reading::of(bench.clock));
                bench.ledger = ledger;
            }
        }
        // Who has left is not counted among those that want units.
        assert_eq!(bench.ledger.standing().holders.is_empty(), leaves);
        bench.clock += 120 * S;
        bench.call(2, &Line::of(MONTH, 0, 0));
        let text = serde_json::to_string(&bench.ledger).unwrap();
        assert!(text.len() < 1_000, "{leaves}: {}", text.len());
    }
}

/// Cron starts a job every minute. Each run is granted a unit, and is killed.
#[test]
fn killed_runs_with_units_leave_small_ledger() {
    let at = |run: u64| (1_000 + 60 * run) * S;
    let mut ledger = Ledger::new(&DAY, Floor::default(), at(0), None);
    for run in 0..1_000 {
        assert_eq!(units(&call(&mut ledger, (100 + run, 1), at(run), &Line::of(DAY, 0, 1))), 1);
        let text = serde_json::to_string(&ledger).unwrap();
        assert!(text.len() < 20_000, "{run}: {}", text.len());
    }
    assert_eq!(ledger.standing().free, 9_000);
    // What one of the first says of its unit no longer counts.
    call(&mut ledger, (100, 2), at(1_000), &Line { returned: vec![(0, 1)], ..Line::of(DAY, 0, 0) });
    assert_eq!(ledger.standing().free, 9_000);
    // A run may use its unit until the end of its lease, and the request may be under way for two seconds.
    for run in 0..1_000 {
        let clock = at(run) + DAY.again_us + 12 * S - 1;
        call(&mut ledger, (9, 1 + run), clock, &Line::of(DAY, 0, 0));
        let (free, ended) = (u64::from(ledger.standing().free), 9_000 + run);
        assert!(free <= ended, "no unit is free before its window has ended: {run}: {free}");
        assert!(free + 50 >= ended, "none is delayed by more than a thirty-second of it: {run}: {free}");
    }
    call(&mut ledger, (9, 1_001), at(1_050) + DAY.again_us, &Line::of(DAY, 0, 0));
    assert_eq!(ledger.standing().free, 10_000);
}

#[test]
fn outage_of_many_processes_takes_no_unused_units() {
    let mut ledger = Ledger::new(&DAY, Floor::default(), 1_000 * S, None);
    for process in 1..=40 {
        assert_eq!(units(&call(&mut ledger, (process, 1), (1_000 + process) * S, &Line::of(DAY, 0, 100))), 100);
    }
    // The leases ended within a minute, and the store answers after an hour.
    for process in 1..=40 {
        call(&mut ledger, (process, 2), 4_600 * S, &Line { returned: vec![(0, 100)], ..Line::of(DAY, 0, 0) });
    }
    assert_eq!(ledger.standing().free, 10_000);
}

/// The call makes a record with an old number, which looks like that of a restored backup.
#[test]
fn late_call_without_record_is_harmless() {
    let mut bench = month(10);
    let wants_one = Line::of(MONTH, 0, 1);
    bench.call(3, &wants_one);
    bench.call(3, &wants_one);
    let late = bench.caller(3);
    bench.call(3, &wants_one);
    // The lease and its slack, and a minute.
    for (after, is_kept) in [(70, true), (72, false)] {
        bench.clock = (1_000 + after) * S;
        bench.call(2, &Line::of(MONTH, 0, 0));
        assert_eq!(has_record(&bench, 3), is_kept, "{after}");
    }
    assert!(!bench.ledger.exchange(bench.clock, &late, &wants_one).is_stale);
    assert!(has_record(&bench, 3));
    assert!(!bench.call(3, &wants_one).is_stale);
}

#[test]
fn late_claim_without_record_is_lost() {
    let mut bench = month(0);
    assert_eq!(units(&bench.call(3, &Line::of(MONTH, 0, 5))), 5);
    bench.call(3, &Line::of(MONTH, 5, 5));
    let caller = Caller { seq: 3, known_seq: 2, ..bench.caller(3) };
    // The units of the lease that has ended go to the pool, because the limit is reduced.
    let reduced = Line { figures: Figures { units: 6, ..MONTH }, ..Line::of(MONTH, 0, 0) };
    for after in [30, 90] {
        bench.clock = (1_000 + after) * S;
        bench.call(2, &reduced);
    }
    assert!(!has_record(&bench, 3));
    let claim = Line::of(MONTH, 5, 5);
    let got = bench.ledger.clone().exchange(bench.clock, &caller, &claim);
    assert_eq!((got.state, got.is_stale), (State::Lost, false), "made 90 s ago");
    let caller = Caller { expected_us: Some(bench.clock), ..caller };
    assert!(bench.ledger.exchange(bench.clock, &caller, &claim).is_stale, "of now: the store went back");
}

#[test]
fn operator_ends_pause_of_departed_process() {
    let mut bench = Bench::new();
    bench.call(1, &Line { paused_us: 30 * S, ..line(0, 10) });
    bench.seqs[1] += 1;
    let caller = bench.caller(1);
    bench.ledger.leave(bench.clock, &caller, &Line { returned: vec![(0, 10)], ..line(0, 0) });
    assert_eq!(bench.call(2, &line(0, 10)).paused_us, 30 * S);
    assert_eq!(bench.call(2, &Line { ends_pause: true, ..line(10, 10) }).paused_us, 0);
    assert_eq!(bench.call(3, &line(0, 10)).paused_us, 0);
    // The vendor has asked for another wait since.
    bench.call(3, &Line { paused_us: 5 * S, ends_pause: true, ..line(10, 10) });
    assert_eq!(bench.call(2, &line(10, 10)).paused_us, 5 * S);
}

/// The vendor may have told that process to wait because of another tenant, of which the operator knows nothing.
#[test]
fn operator_ends_no_pause_of_living_process() {
    let mut bench = Bench::new();
    let calls = |bench: &mut Bench| bench.call(1, &Line { paused_us: 30 * S, ..line(0, 10) });
    calls(&mut bench);
    for second in 1..=3 {
        bench.clock = (1_000 + second) * S;
        calls(&mut bench);
        bench.call(2, &Line { ends_pause: true, ..line(0, 10) });
        assert_eq!(bench.call(3, &line(0, 10)).paused_us, 30 * S);
    }
    // It has been silent for more than a third of its lease.
    bench.clock += 5 * S;
    bench.call(2, &Line { ends_pause: true, ..line(0, 10) });
    assert_eq!(bench.call(3, &line(0, 10)).paused_us, 0);
}
