//! What a process says in its next call, after a call of which some lines were answered.

use std::time::Duration;

use crate::capacity::call::{Answer, Call, Reading};
use crate::capacity::ledger::{All, Caller, Got, Ledger, Line, State};
use crate::capacity::process::Process;
use crate::clock::Time;
use crate::engine::limit::{Figures, Wish};

const SECOND: u64 = 1_000_000_000;

fn wish(returned: Vec<(u64, u32)>) -> Wish {
    Wish {
        claim: 4,
        returned,
        want: [0, 4, 0],
        need: 1,
        figures: Figures { units: 10, again_ns: 60 * SECOND, transit_ns: SECOND, travels: false },
        ..Wish::default()
    }
}

fn got() -> Got {
    Got {
        units: vec![(0, 2)],
        keep: 10,
        weights: [60, 30, 10],
        travels: false,
        floor: 0,
        reach: 10,
        free: 0,
        state: State::Kept,
        paused_us: 0,
        all: All::default(),
        is_stale: false,
    }
}

/// The answer to a call with one line.
fn answer_of(clock_us: u64, got: Got) -> Answer {
    Answer { clock_us, read_at: None, got: vec![Ok(Some(got))] }
}

#[test]
fn failed_line_counts_as_unanswered() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let wishes = |returned: &[(u64, u32)]| ["a", "b"].map(|name| (name.to_owned(), wish(returned.to_vec()))).to_vec();
    let mut process = Process::new(1, Duration::from_secs(10));
    let call = process.call(at(100), wishes(&[(5 * SECOND, 3)]), false);
    let answer =
        Answer { clock_us: 7_000_000, read_at: None, got: vec![Err("the disk fails".to_owned()), Ok(Some(got()))] };
    let received = process.answered(at(100), at(101), &call, &answer);
    let units: Vec<_> = received.into_iter().map(|got| got.map(|got| got.units)).collect();
    assert_eq!(units, [None, Some(vec![(0, 2)])]);
    let next = process.call(at(102), wishes(&[]), false);
    let [failed, answered] = &next.lines[..] else { panic!("two lines") };
    assert_eq!((failed.known_seq, failed.expected_us), (0, None));
    assert_eq!(failed.line.returned, [(3_000_000, 3)], "with the time that is left");
    assert_eq!((answered.known_seq, answered.expected_us), (1, Some(8_000_000)));
    assert!(answered.line.returned.is_empty());
}

/// Of the ten units of the limit, as this process is configured.
#[test]
fn units_beyond_reach_are_told() {
    for (reach, out_of_reach) in [(10, 0), (6, 4)] {
        let mut process = Process::new(1, Duration::from_secs(10));
        let now = Time::from_nanos(100 * SECOND);
        let call = process.call(now, vec![("a".to_owned(), wish(Vec::new()))], false);
        let answer = Answer { clock_us: 7_000_000, read_at: None, got: vec![Ok(Some(Got { reach, ..got() }))] };
        let received = process.answered(now, now, &call, &answer);
        assert_eq!(received[0].as_ref().map(|got| got.out_of_reach), Some(out_of_reach));
    }
}

#[test]
fn unheld_grant_is_free_at_once() {
    let day = Figures { units: 50, again_ns: 86_400 * SECOND, transit_ns: SECOND, travels: true };
    let wishes = |want: u32| {
        let wish = Wish { claim: 0, want: [0, want, 0], need: want.min(1), figures: day, ..wish(Vec::new()) };
        vec![("a".to_owned(), wish)]
    };
    // Units of an answer that the process may have received count as used until its next call, and then for a day.
    for (is_held, expected) in [(true, (0, 50)), (false, (50, 0))] {
        let mut process = Process::new(1, Duration::from_secs(10));
        let mut ledger = None;
        for (second, want) in [(100, 50), (101, 0)] {
            let (at, clock_us) = (Time::from_nanos(second * SECOND), second * 1_000_000);
            let call = process.call(at, wishes(want), false);
            let (got, after) = call.exchange(&call.lines[0], ledger, None, Reading::of(clock_us));
            let received = process.answered(at, at, &call, &Answer { clock_us, read_at: None, got: vec![Ok(got)] });
            let granted: u32 = received.iter().flatten().flat_map(|got| &got.units).map(|(_, units)| units).sum();
            assert_eq!(granted, want);
            if !is_held {
                process.not_held(&call.lines[0]);
            }
            ledger = Some(after);
        }
        let standing = ledger.expect("a ledger").standing();
        assert_eq!((standing.free, standing.occupied), expected);
    }
}

/// The lane is gone, so no wish names the limit any more.
#[test]
fn unheld_grant_is_told_without_wish() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let mut process = Process::new(1, Duration::from_secs(10));
    let call = process.call(at(100), vec![("a".to_owned(), Wish { claim: 0, ..wish(Vec::new()) })], false);
    process.answered(at(100), at(101), &call, &answer_of(7_000_000, got()));
    process.not_held(&call.lines[0]);
    assert!(process.owes(at(102)));
    let call = process.call(at(102), Vec::new(), false);
    let [entry] = &call.lines[..] else { panic!("one line") };
    assert_eq!((entry.limit.as_str(), entry.line.claim, entry.line.want, entry.known_seq), ("a", 0, [0; 3], 0));
    let nothing = Got { units: Vec::new(), keep: 0, ..got() };
    process.answered(at(102), at(103), &call, &answer_of(9_000_000, nothing));
    assert!(!process.owes(at(103)));
}

#[test]
fn returned_units_are_told_without_wish() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let mut process = Process::new(1, Duration::from_secs(10));
    let returns_all = Wish { claim: 0, want: [0; 3], need: 0, paused_ns: 9 * SECOND, ..wish(vec![(5 * SECOND, 3)]) };
    // The process still holds units of the second limit, so the next wish tells of those that it has returned.
    let wishes = vec![("a".to_owned(), returns_all), ("b".to_owned(), wish(vec![(5 * SECOND, 3)]))];
    process.call(at(100), wishes, false);
    assert!(process.owes(at(102)));
    for leaves in [false, true] {
        let call = process.call(at(102), Vec::new(), leaves);
        assert_eq!(call.lines.len(), if leaves { 2 } else { 1 });
        let entry = call.lines.iter().find(|entry| entry.limit == "a").expect("its line");
        assert_eq!((entry.line.claim, entry.line.want), (0, [0; 3]));
        assert_eq!((entry.line.returned.clone(), entry.line.paused_us), (vec![(3_000_000, 3)], 7_000_000));
    }
    assert!(!process.owes(at(181)), "two leases, the transit and a window later nobody counts them");
    let call = process.call(at(103), Vec::new(), false);
    process.answered(at(103), at(103), &call, &answer_of(7_000_000, got()));
    assert!(process.call(at(104), Vec::new(), false).lines.is_empty());
}

/// An idle process gives its slots back while the store is away. The ledger keeps them in the record of the process
/// until an attempt that began under the lease must have ended.
#[test]
fn unused_slots_are_told_for_an_attempt() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let figures = Figures { units: 10, again_ns: 0, transit_ns: 600 * SECOND, travels: false };
    let mut process = Process::new(1, Duration::from_secs(10));
    let wants = Wish { claim: 0, figures, ..wish(Vec::new()) };
    let call = process.call(at(100), vec![("slots".to_owned(), wants)], false);
    process.answered(at(100), at(101), &call, &answer_of(7_000_000, got()));
    let returns_all = Wish { claim: 0, want: [0; 3], need: 0, figures, ..wish(vec![(0, 2)]) };
    process.call(at(102), vec![("slots".to_owned(), returns_all)], false);
    assert!(process.owes(at(162)));
    let call = process.call(at(162), Vec::new(), false);
    let [entry] = &call.lines[..] else { panic!("one line") };
    assert_eq!((entry.limit.as_str(), entry.line.claim, entry.line.returned.clone()), ("slots", 0, vec![(0, 2)]));
    assert!(!process.owes(at(722)), "two leases and an attempt later the ledger has freed them");
}

/// Until the lease ends, the store counts a process without units among those that want some.
#[test]
fn leaving_process_names_limits_without_units() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let wants = || vec![("a".to_owned(), Wish { claim: 0, want: [0, 1, 0], ..wish(Vec::new()) })];
    let nothing = || Got { units: Vec::new(), keep: 0, ..got() };
    for is_answered in [false, true] {
        let mut process = Process::new(1, Duration::from_secs(10));
        let call = process.call(at(100), wants(), false);
        if is_answered {
            process.answered(at(100), at(101), &call, &answer_of(7_000_000, nothing()));
        }
        assert!(!process.owes(at(102)), "a process that stays says no more");
        let named = |call: Call| call.lines.into_iter().map(|entry| (entry.limit, entry.line.want)).collect::<Vec<_>>();
        assert_eq!(named(process.call(at(102), Vec::new(), true)), [("a".to_owned(), [0; 3])]);
        assert!(process.call(at(122), Vec::new(), true).lines.is_empty(), "two leases later there is no lease");
    }
}

/// What an operator has ended stays ended if the first call that says so gets lost.
#[test]
fn end_of_pause_is_told_until_answered() {
    let at = |second: u64| Time::from_nanos(second * SECOND);
    let ends = Wish { claim: 0, want: [0; 3], need: 0, ends_pause: true, ..wish(Vec::new()) };
    let mut process = Process::new(1, Duration::from_secs(10));
    let told = |call: &Call| call.lines.iter().map(|entry| entry.line.ends_pause).collect::<Vec<_>>();
    assert_eq!(told(&process.call(at(100), vec![("a".to_owned(), ends)], false)), [true]);
    assert!(process.owes(at(101)));
    let call = process.call(at(101), Vec::new(), false);
    assert_eq!(told(&call), [true]);
    process.answered(at(101), at(101), &call, &answer_of(7_000_000, got()));
    assert_eq!(told(&process.call(at(102), vec![("a".to_owned(), wish(Vec::new()))], false)), [false]);
    assert!(!process.owes(at(102)));
}

/// The store answers a claim after the lease under which it was made has ended.
#[test]
fn units_lost_by_age_are_returned() {
    let day = Figures { units: 50, again_ns: 86_400 * SECOND, transit_ns: SECOND, travels: false };
    let mut process = Process::new(1, Duration::from_secs(10));
    let mut ledger: Option<Ledger> = None;
    let mut exchange = |began: u64, came: u64, wish: Wish| {
        let ([began, now], clock_us) = ([began, came].map(|it| Time::from_nanos(it * SECOND)), came * 1_000_000);
        let call = process.call(began, vec![("a".to_owned(), Wish { figures: day, ..wish })], false);
        if let Some(ledger) = ledger.as_mut().filter(|_| began < now) {
            // Another process has called meanwhile, so the ledger is sure of the time.
            let line = Line { claim: 0, want: [0; 3], need: 0, ..call.lines[0].line.clone() };
            let expected_us = Some(clock_us);
            let other = Caller { process: 2, seq: 1, known_seq: 0, lease_us: 10_000_000, expected_us, waited_us: 0 };
            ledger.exchange(clock_us, &other, &line);
        }
        let (got, after) = call.exchange(&call.lines[0], ledger.take(), None, Reading::of(clock_us));
        let standing = after.standing();
        ledger = Some(after);
        let received =
            process.answered(began, now, &call, &Answer { clock_us, read_at: None, got: vec![Ok(got)] }).remove(0);
        (received, standing.free, standing.occupied)
    };
    let first = exchange(100, 100, Wish { claim: 0, want: [0, 50, 0], ..wish(Vec::new()) });
    assert_eq!(first.0.map(|got| got.units), Some(vec![(0, 50)]));
    for second in 101..=105 {
        let renewed = exchange(second, second, Wish { claim: 50, want: [0, 50, 0], ..wish(Vec::new()) });
        assert_eq!(renewed.0.map(|got| got.is_lost), Some(false));
    }
    let late = exchange(110, 120, Wish { claim: 50, want: [0, 50, 0], ..wish(Vec::new()) });
    assert_eq!((late.1, late.2), (0, 50));
    assert_eq!(late.0, None, "the engine keeps the units until its lease ends, and then returns them");
    let used = vec![(0, 30), (3_600 * SECOND, 20)];
    let returns_all = exchange(121, 121, Wish { claim: 0, want: [0; 3], need: 0, ..wish(used) });
    assert_eq!((returns_all.1, returns_all.2), (30, 20));
}

/// A call to a distant database. The process knows when the round trip began and ended in which the store's clock was
/// read; the trips before and after it take no time from the ledger.
#[test]
fn slow_calls_do_not_slow_ledger_time() {
    let at = |ms: u64| Time::from_nanos(ms * SECOND / 1_000);
    let mut processes = [1, 2].map(|id| Process::new(id, Duration::from_secs(10)));
    let mut ledger: Option<Ledger> = None;
    let mut times = Vec::new();
    // One of the two calls each half second for a minute.
    for turn in 0..=120u64 {
        let made = 100_000 + 500 * turn;
        let process = &mut processes[(turn % 2) as usize];
        let call = process.call(at(made), vec![("a".to_owned(), Wish { claim: 0, ..wish(Vec::new()) })], false);
        let reading = Reading { clock_us: (made + 200) * 1_000, waited_us: 160_000 };
        let (got, after) = call.exchange(&call.lines[0], ledger.take(), None, reading);
        times.push(after.standing().now);
        ledger = Some(after);
        let answer = Answer { clock_us: reading.clock_us, read_at: Some(at(made + 240)), got: vec![Ok(got)] };
        process.answered(at(made), at(made + 400), &call, &answer);
    }
    let passed = times[120] - times[0];
    assert!((55_000_000..=60_000_000).contains(&passed), "{passed} us of a minute");
}
