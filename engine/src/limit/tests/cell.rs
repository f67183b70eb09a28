//! A limit as lanes hold it: a shape and a guard, or slots.

use super::*;
use crate::cost::{Cost, Measure, PointKind};
use crate::limit::free::Free;
use crate::limit::token_bucket::BucketSpec;
use crate::limit::{BlockedBy, Cell, LimitKind, LimitSpec, Room, Take};
use crate::tier::Tier;

fn spec(kind: LimitKind) -> LimitSpec {
    LimitSpec {
        name: "requests".into(),
        kind,
        measure: Measure::Points(PointKind::POINTS),
        starts_spent: false,
        pace: Default::default(),
        calendar: None,
        pooled: None,
    }
}

fn slots(limit: u32) -> LimitSpec {
    spec(LimitKind::Slots { limit })
}

/// A shape of so many that come back as often a second, under a guard.
fn rate(capacity: u32, guard: GuardSpec) -> LimitSpec {
    spec(LimitKind::Rate { bucket: BucketSpec::new(capacity, capacity.into(), SECOND, 0), guard })
}

/// A guard that counts by a log, of so many a second, and so many of them for the high tier.
fn log_guard(limit: u32, reserve: u32) -> GuardSpec {
    GuardSpec::Log(LogSpec::new(limit, reserve, SECOND, TRANSIT))
}

fn take(granted: Time, units: u32, high: bool) -> Take {
    Take { cost: units.into(), tier: if high { Tier::High } else { Tier::Normal }, granted }
}

/// Takes so many low units at a moment, and ends them there and then.
fn cell_with_used(spec: &LimitSpec, at: Time, units: u32) -> Cell {
    let mut cell = Cell::new(spec, at, 0);
    cell.take(spec, take(at, units, false), at);
    cell.answer(spec, take(at, units, false), at);
    cell
}

/// How many units the low and the high tier find room for; whoever asks for reasons is told the same.
fn units_that_fit(cell: &mut Cell, spec: &LimitSpec, now: Time) -> [u32; 2] {
    [false, true].map(|high| {
        let most = spec.largest(high);
        let fits = (1..=most).rev().find(|units| cell.has_room(spec, now, (*units).into(), high)).unwrap_or(0);
        for units in 1..=most {
            assert_eq!(cell.room(spec, now, units.into(), high) == Room::Yes, units <= fits, "{units}");
        }
        fits
    })
}

#[test]
fn limit_states_its_largest_request() {
    for (spec, low, high) in [
        (rate(8, log_guard(10, 2)), 8, 8),
        (rate(10, log_guard(10, 3)), 7, 10),
        (rate(10, log_guard(10, 10)), 0, 10),
        (rate(10, GuardSpec::Off), 10, 10),
        (slots(3), 3, 3),
    ] {
        assert_eq!((spec.largest(false), spec.largest(true)), (low, high), "{spec:?}");
        assert!(!spec.counts_windows_of(10), "{spec:?}");
    }
    let fixed = rate(10, GuardSpec::Log(LogSpec::new(10, 2, SECOND, TRANSIT).fixed()));
    assert!(fixed.counts_windows_of(10) && !fixed.counts_windows_of(8));
    assert_eq!((slots(2).stricter(&slots(3)), slots(3).stricter(&slots(2))), (slots(2), slots(2)));
    // Of two that are equally fast the first holds: it is the newer.
    let one = rate(8, log_guard(10, 2));
    let other = LimitSpec { measure: Measure::Requests, ..one.clone() };
    assert_eq!((one.stricter(&other), other.stricter(&one)), (one, other));
}

/// What stands in the way of one unit, and until when: of the shape and the guard whichever lasts longer.
#[test]
fn later_of_shape_and_guard_decides() {
    let gone = SECOND + SECOND / 10_000 + MS;
    let exact = |capacity, window, guard| {
        spec(LimitKind::Rate { bucket: BucketSpec::new(capacity, capacity.into(), window, 0), guard })
    };
    let until = |at: u64, lack| Room::No { free: Free::At(ms(0).plus_nanos(at)), lack };
    for (spec, used, at, low, high) in [
        // The shape alone: it has two a second, and the guard room for ten.
        (rate(2, log_guard(10, 0)), 2, 0, until(SECOND / 2, BlockedBy::Budget), until(SECOND / 2, BlockedBy::Budget)),
        // The guard alone.
        (rate(10, log_guard(2, 0)), 2, 500, until(gone, BlockedBy::Window), until(gone, BlockedBy::Window)),
        // Both, and the guard for longer; then the shape, and then both as long.
        (rate(2, log_guard(2, 0)), 2, 0, until(gone, BlockedBy::Window), until(gone, BlockedBy::Window)),
        (
            exact(1, 3 * SECOND, log_guard(1, 0)),
            1,
            0,
            until(3 * SECOND, BlockedBy::Budget),
            until(3 * SECOND, BlockedBy::Budget),
        ),
        (exact(1, gone, log_guard(1, 0)), 1, 0, until(gone, BlockedBy::Window), until(gone, BlockedBy::Window)),
        // The reserve: it blocks lower tiers only, and is no reason while the shape has nothing either.
        (rate(8, log_guard(3, 1)), 2, 500, until(gone, BlockedBy::Reserve), Room::Yes),
        (rate(2, log_guard(3, 1)), 2, 100, until(gone, BlockedBy::Budget), until(SECOND / 2, BlockedBy::Budget)),
        (rate(2, log_guard(3, 1)), 2, 500, until(gone, BlockedBy::Reserve), Room::Yes),
        (rate(8, log_guard(3, 1)), 3, 500, until(gone, BlockedBy::Window), until(gone, BlockedBy::Window)),
    ] {
        let mut cell = cell_with_used(&spec, ms(0), used);
        let what = format!("{used} of {spec:?} at {at}");
        assert_eq!(cell.room(&spec, ms(at), 1.into(), false), low, "{what}");
        assert_eq!(cell.room(&spec, ms(at), 1.into(), true), high, "{what}");
        let rooms = [false, true].map(|high| cell.has_room(&spec, ms(at), 1.into(), high));
        assert_eq!(rooms, [low == Room::Yes, high == Room::Yes], "{what}");
    }
}

/// Six units were taken, and a response that is read for longer than the transit time states that two were used.
#[test]
fn late_cost_frees_bucket_and_guard() {
    for guard in guards() {
        let spec = rate(10, guard);
        let mut cell = Cell::new(&spec, ms(0), 0);
        cell.take(&spec, take(ms(0), 6, true), ms(0));
        assert!(!cell.has_room(&spec, ms(175), 8.into(), true), "{spec:?}");
        assert_eq!(cell.correct(&spec, take(ms(0), 6, true), 2.into(), ms(175)), 0);
        assert_eq!(cell.remaining(&spec, ms(175)), (8, 10), "{spec:?}");
        assert!(cell.has_room(&spec, ms(175), 8.into(), true), "{spec:?}");
        // Nothing is given back twice.
        cell.give_back(&spec, take(ms(0), 2, true), ms(176));
        assert!(!cell.has_room(&spec, ms(176), 10.into(), true), "{spec:?}");
    }
}

#[test]
fn pending_unit_bounds_the_latest_release() {
    let lost = |cell: &mut Cell, spec: &LimitSpec| cell.room(spec, ms(0), 1.into(), true);
    for (window, latest) in [(SECOND, 10 * MS + TRANSIT + SECOND + SECOND / 10_000 + MS), (9 * SECOND, 9 * SECOND)] {
        let bucket = BucketSpec::new(1, 1.0, window, 0);
        let spec = spec(LimitKind::Rate { bucket, guard: log_guard(1, 0) });
        let mut cell = Cell::new(&spec, ms(0), 0);
        cell.take(&spec, take(ms(0), 1, true), ms(0));
        let free = Free::OnSettle(ms(0).plus_nanos(latest));
        assert_eq!(lost(&mut cell, &spec), Room::No { free, lack: BlockedBy::Window });
    }
}

#[test]
fn slots_return_one_by_one() {
    let spec = slots(2);
    let mut cell = Cell::new(&spec, ms(0), 0);
    let full = Room::No { free: Free::OnSettle(Time::MAX), lack: BlockedBy::Slots };
    for (left, room) in [(2, Room::Yes), (1, Room::Yes), (0, full)] {
        assert_eq!((cell.room(&spec, ms(0), 1.into(), true), cell.remaining(&spec, ms(0))), (room, (left, 2)));
        assert_eq!((cell.has_room(&spec, ms(0), 1.into(), true), cell.rest(&spec, ms(0))), (left > 0, left == 2));
        cell.take(&spec, take(ms(0), 7, true), ms(0));
    }
    cell.answer(&spec, take(ms(0), 7, true), ms(0));
    cell.start(&spec, take(ms(0), 7, true), ms(0));
    cell.correct(&spec, take(ms(0), 7, true), 9.into(), ms(0));
    assert!(!cell.has_room(&spec, ms(0), 1.into(), true), "until it is finished");
    cell.finish();
    assert!(!cell.has_room(&spec, ms(0), 1.into(), true), "three were taken");
    cell.give_back(&spec, take(ms(0), 7, true), ms(0));
    assert_eq!((cell.remaining(&spec, ms(0)), cell.used(&spec, ms(0), ms(0))), ((1, 2), None));
    cell.finish();
    assert!(cell.rest(&spec, ms(0)));
}

#[test]
fn rate_cell_rests_after_use() {
    let spec = rate(8, log_guard(10, 2));
    let mut cell = Cell::new(&spec, ms(0), 0);
    assert_eq!((cell.used(&spec, ms(0), ms(0)), cell.remaining(&spec, ms(0))), (Some((0, 0)), (10, 10)));
    assert!(cell.rest(&spec, ms(0)));
    cell.take(&spec, take(ms(0), 3, false), ms(0));
    cell.take(&spec, take(ms(20), 2, true), ms(20));
    assert_eq!((cell.used(&spec, ms(20), ms(0)), cell.remaining(&spec, ms(20))), (Some((5, 5)), (5, 10)));
    cell.give_back(&spec, take(ms(20), 2, true), ms(20));
    assert_eq!(units_that_fit(&mut cell, &spec, ms(20)), [5, 5]);
    cell.finish();
    cell.answer(&spec, take(ms(0), 3, false), ms(40));
    assert_eq!(cell.used(&spec, ms(50), ms(45)), Some((3, 0)));
    // The shape is full again before the guard has forgotten.
    assert!(!cell.rest(&spec, ms(1_000)) && cell.rest(&spec, ms(1_042)));
    assert!(cell.is_untouched());
    let spent = LimitSpec { starts_spent: true, ..spec.clone() };
    let mut cell = Cell::new(&spent, ms(0), 0);
    assert!(!cell.rest(&spent, ms(990)) && cell.rest(&spent, ms(1_000)), "the shape is not full yet");
}

/// A timer woke late: what has come back since counts from when it was due.
#[test]
fn late_timer_counts_from_its_due_time() {
    let spec = rate(1, log_guard(100, 0));
    for (due, next) in [(1_000, 2_000), (1_050, 2_050), (900, 2_000), (1_100, 2_100), (5_000, 2_100)] {
        let mut cell = cell_with_used(&spec, ms(0), 1);
        cell.take(&spec, take(ms(1_100), 1, false), ms(due));
        let free = Free::At(ms(next));
        assert_eq!(cell.room(&spec, ms(1_100), 1.into(), true), Room::No { free, lack: BlockedBy::Budget }, "{due}");
    }
}

#[test]
fn late_start_counts_after_its_grant_expired() {
    let spec = rate(8, log_guard(10, 2));
    let mut cell = Cell::new(&spec, ms(0), 0);
    cell.take(&spec, take(ms(0), 3, false), ms(0));
    cell.start(&spec, take(ms(0), 3, false), ms(100));
    assert_eq!(cell.used(&spec, ms(1_250), ms(0)), Some((3, 3)), "without that it would have been gone");
    assert!(cell.rest(&spec, ms(1_300)));
    cell.start(&spec, take(ms(0), 3, false), ms(1_300));
    assert_eq!(cell.remaining(&spec, ms(1_300)), (7, 10));
}

#[test]
fn actual_cost_replaces_the_expected_cost() {
    for (actual, left) in [(3, [5, 5]), (5, [3, 3]), (1, [7, 7]), (0, [8, 8]), (8, [0, 0]), (1_000, [0, 0])] {
        let spec = rate(8, log_guard(10, 2));
        let mut cell = Cell::new(&spec, ms(0), 0);
        cell.take(&spec, take(ms(0), 3, false), ms(0));
        cell.correct(&spec, take(ms(0), 3, false), actual.into(), ms(0));
        assert_eq!(units_that_fit(&mut cell, &spec, ms(0)), left, "{actual}");
        assert_eq!(cell.remaining(&spec, ms(0)).0, 10 - actual.min(8), "{actual}");
    }
    // What was granted before this guard was made is owed all the same.
    let spec = rate(8, log_guard(10, 2));
    let mut cell = Cell::new(&spec, ms(0), 0);
    cell.correct(&spec, take(ms(0), 1, false), 4.into(), ms(0));
    assert_eq!((units_that_fit(&mut cell, &spec, ms(0)), cell.remaining(&spec, ms(0))), ([5, 5], (7, 10)));
}

#[test]
fn ended_window_frees_its_units() {
    let spec = rate(10, GuardSpec::Log(LogSpec::new(10, 0, SECOND, TRANSIT).fixed()));
    let mut cell = cell_with_used(&spec, ms(0), 10);
    cell.window_ends(&spec, ms(0), ms(500), ms(501));
    assert_eq!(cell.remaining(&spec, ms(500)), (0, 10));
    assert_eq!(cell.remaining(&spec, ms(501)), (10, 10));
}

#[test]
fn changed_cell_keeps_its_use() {
    let (small, large) = (rate(8, log_guard(10, 0)), rate(16, log_guard(20, 0)));
    let bucket = rate(16, GuardSpec::Bucket(VendorBucketSpec::new(20, 0, 20.0, SECOND, TRANSIT)));
    for (from, to, used, left) in [
        (&small, &large, 6, 2),
        (&small, &bucket, 6, 2),
        (&small, &small, 6, 2),
        (&small, &large, 0, 16),
        (&large, &small, 6, 2),
        (&large, &small, 12, 0),
        (&slots(4), &slots(9), 3, 6),
        (&slots(9), &slots(4), 6, 0),
        // One that counts otherwise starts anew.
        (&slots(4), &small, 4, 8),
        (&small, &slots(4), 6, 4),
    ] {
        let mut cell = Cell::new(from, ms(0), 0);
        match from.kind {
            LimitKind::Slots { .. } => (0..used).for_each(|_| cell.take(from, take(ms(0), 1, false), ms(0))),
            LimitKind::Rate { .. } if used > 0 => cell = cell_with_used(from, ms(0), used),
            LimitKind::Rate { .. } => {}
        }
        cell.change(from, to, ms(0), 7);
        let kept = matches!(from.kind, LimitKind::Slots { .. }) == matches!(to.kind, LimitKind::Slots { .. });
        // Slots hold what is older than they are.
        let starts_anew = !kept && matches!(to.kind, LimitKind::Rate { .. });
        assert_eq!(cell.since, if starts_anew { 7 } else { 0 });
        let room = match to.kind {
            LimitKind::Rate { .. } => units_that_fit(&mut cell, to, ms(0))[1],
            LimitKind::Slots { .. } => cell.remaining(to, ms(0)).0,
        };
        assert_eq!(room, left, "{used} of {from:?} to {to:?}");
        if let (LimitKind::Rate { .. }, true) = (&to.kind, kept) {
            let (left, limit) = cell.remaining(to, ms(0));
            assert_eq!(limit - left, used.min(limit));
        }
    }
}

#[test]
fn limit_counts_its_own_measure_only() {
    let cost = Cost::from(2).with_bytes(30, 0);
    for (measure, units) in
        [(Measure::Requests, 1), (Measure::Points(PointKind::POINTS), 2), (Measure::Sent, 30), (Measure::Received, 1)]
    {
        assert_eq!(LimitSpec { measure, ..slots(1) }.units(cost), units);
    }
}
