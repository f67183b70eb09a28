//! The same laws for every guard.

use super::*;
use crate::limit::free::Free;
use crate::limit::guard::{Guard, Taken};

fn taken(granted: Time, units: u32, high: bool) -> Taken {
    Taken { granted, units, high }
}

/// A guard of which so many low units were taken at 0.
fn guard_with_used(spec: &GuardSpec, units: u32) -> Guard {
    let mut guard = Guard::new(spec).unwrap();
    guard.take(spec, taken(ms(0), units, false));
    guard
}

/// The most units that fit, for the low and for the high tier.
fn units_that_fit(guard: &mut Guard, spec: &GuardSpec, now: Time) -> [u32; 2] {
    [false, true].map(|high| {
        let fits = (1..=30).rev().find(|units| guard.has_room(spec, now, *units, high)).unwrap_or(0);
        for units in 1..=30 {
            assert_eq!(guard.clone().free(spec, now, units, high) == Free::Now, units <= fits, "{spec:?} {units}");
        }
        fits
    })
}

#[test]
fn guard_spec_states_limit_and_reserve() {
    for (spec, counts_windows) in guards().into_iter().zip([vec![], vec![10], vec![12], vec![]]) {
        assert_eq!((spec.limit(), spec.reserve()), (10, 2), "{spec:?}");
        let counted: Vec<u64> = (0..100).filter(|units| spec.counts_windows_of(*units)).collect();
        assert_eq!(counted, counts_windows, "{spec:?}");
    }
    assert_eq!((GuardSpec::Off.limit(), GuardSpec::Off.reserve()), (u32::MAX, 0));
    assert!(Guard::new(&GuardSpec::Off).is_none() && !GuardSpec::Off.counts_windows_of(u32::MAX.into()));
}

#[test]
fn taken_units_leave_room_and_reserve() {
    for spec in guards() {
        let mut guard = Guard::new(&spec).unwrap();
        assert!(guard.rests(&spec, ms(0)));
        assert_eq!((units_that_fit(&mut guard, &spec, ms(0)), guard.units(&spec, ms(0))), ([8, 10], 0), "{spec:?}");
        guard.take(&spec, taken(ms(0), 3, false));
        assert_eq!((units_that_fit(&mut guard, &spec, ms(0)), guard.units(&spec, ms(0))), ([5, 7], 3), "{spec:?}");
        let lacking: Vec<u32> = (6..12).filter(|units| guard.only_reserve_lacks(&spec, ms(0), *units)).collect();
        assert_eq!(lacking, [6, 7], "{spec:?}");
        guard.take(&spec, taken(ms(0), 2, true));
        assert_eq!(units_that_fit(&mut guard, &spec, ms(0)), [5, 5], "{spec:?}: the reserve is used");
        assert!(!guard.rests(&spec, ms(0)));
    }
}

#[test]
fn returned_grant_leaves_no_trace() {
    for spec in guards() {
        let mut guard = guard_with_used(&spec, 3);
        guard.take(&spec, taken(ms(0), 2, true));
        guard.give_back(&spec, ms(0), taken(ms(0), 3, false));
        assert_eq!((units_that_fit(&mut guard, &spec, ms(0)), guard.units(&spec, ms(0))), ([8, 8], 2), "{spec:?}");
        guard.give_back(&spec, ms(5), taken(ms(0), 2, true));
        assert_eq!(guard.units(&spec, ms(5)), 0, "{spec:?}");
        // Once it ran into its transit time it counts, whatever is said later.
        let mut guard = guard_with_used(&spec, 3);
        guard.give_back(&spec, ms(175), taken(ms(0), 3, false));
        assert_eq!(guard.units(&spec, ms(175)), 3, "{spec:?}");
    }
}

/// Of six units that were lost after 170 ms, the vendor has counted two.
#[test]
fn lower_cost_is_refunded_after_transit() {
    for spec in guards() {
        for high in [false, true] {
            let mut guard = Guard::new(&spec).unwrap();
            guard.take(&spec, taken(ms(0), 6, high));
            assert!(guard.units(&spec, ms(175)) >= 5, "{spec:?}");
            guard.refund(&spec, ms(175), taken(ms(0), 4, high));
            assert_eq!(guard.units(&spec, ms(175)), 2, "{spec:?}");
            guard.refund(&spec, ms(176), taken(ms(0), 3, high));
            assert!(guard.units(&spec, ms(176)) >= 1, "{spec:?}: no more than was taken");
            guard.end(&spec, ms(177), taken(ms(0), 2, high));
            assert!(guard.rests(&spec, ms(2_300)), "{spec:?}");
        }
    }
}

#[test]
fn refund_touches_no_later_units() {
    for spec in guards() {
        let mut guard = guard_with_used(&spec, 6);
        assert!(guard.units(&spec, ms(175)) >= 5, "{spec:?}");
        // What was lost counts nowhere any more.
        guard.take(&spec, taken(ms(2_300), 5, false));
        guard.end(&spec, ms(2_300), taken(ms(2_300), 5, false));
        guard.refund(&spec, ms(2_301), taken(ms(0), 4, false));
        assert_eq!(guard.units(&spec, ms(2_301)), 5, "{spec:?}");
    }
    // The same after the known end of a window, and after a change of the transit time.
    let [log, fixed, ..] = guards();
    let mut guard = guard_with_used(&fixed, 6);
    guard.window_ends(&fixed, ms(200), ms(300), ms(310));
    guard.take(&fixed, taken(ms(320), 5, false));
    guard.end(&fixed, ms(320), taken(ms(320), 5, false));
    guard.refund(&fixed, ms(321), taken(ms(0), 4, false));
    assert_eq!(guard.units(&fixed, ms(321)), 5);
    let mut guard = guard_with_used(&log, 6);
    assert!(guard.change(&log, &GuardSpec::Log(LogSpec::new(10, 2, SECOND, 2 * TRANSIT)), ms(200)).is_none());
    guard.refund(&log, ms(201), taken(ms(0), 4, false));
    assert_eq!(guard.units(&log, ms(201)), 6);
}

/// What was answered, and until when it counts; what has started late, and until when that may be under way; and what
/// was lost.
#[test]
fn units_return_and_never_too_early() {
    // From the end on: a window; two, for the older one is weighed; three tenths of a second for three of ten.
    for (spec, last) in guards().into_iter().zip([1_001, 1_001, 2_002, 300]) {
        let ends = |guard: &Guard, at: u64| {
            let mut guard = guard.clone();
            assert!(!guard.clone().rests(&spec, ms(at + last - 5)), "{spec:?}");
            assert!(guard.units(&spec, ms(at + last - 5)) > 0, "{spec:?}");
            assert!(guard.rests(&spec, ms(at + last + 20)), "{spec:?}");
            assert_eq!(guard.units(&spec, ms(at + last + 20)), 0, "{spec:?}");
        };
        let mut guard = guard_with_used(&spec, 3);
        ends(&guard, 170);
        guard.end(&spec, ms(50), taken(ms(0), 3, false));
        ends(&guard, 50);
        let mut guard = guard_with_used(&spec, 3);
        guard.restart(&spec, ms(5), taken(ms(0), 3, false));
        ends(&guard, 170);
        guard.restart(&spec, ms(100), taken(ms(0), 3, false));
        assert_eq!(guard.units(&spec, ms(100)), 3, "{spec:?}");
        ends(&guard, 270);
        guard.end(&spec, ms(120), taken(ms(100), 3, false));
        ends(&guard, 120);
    }
}

#[test]
fn restart_after_transit_counts_again() {
    for spec in guards() {
        let mut guard = guard_with_used(&spec, 3);
        guard.restart(&spec, ms(200), taken(ms(0), 3, false));
        assert_eq!(units_that_fit(&mut guard, &spec, ms(200)), [2, 4], "{spec:?}");
    }
}

#[test]
fn owed_units_count_as_used() {
    for spec in guards() {
        let mut guard = guard_with_used(&spec, 3);
        guard.owe(&spec, ms(0), 4);
        assert_eq!((units_that_fit(&mut guard, &spec, ms(0)), guard.units(&spec, ms(0))), ([1, 3], 7), "{spec:?}");
        guard.owe(&spec, ms(0), 9);
        assert_eq!(units_that_fit(&mut guard, &spec, ms(0)), [0, 0], "{spec:?}");
    }
}

#[test]
fn units_since_counts_pending_and_ended() {
    for (spec, known) in guards().into_iter().zip([true, true, true, false]) {
        let mut guard = guard_with_used(&spec, 3);
        guard.take(&spec, taken(ms(20), 2, true));
        guard.end(&spec, ms(40), taken(ms(0), 3, false));
        let since = [30, 50].map(|since| guard.units_since(ms(since)));
        assert_eq!(since, if known { [Some(5), Some(2)] } else { [None, None] }, "{spec:?}");
    }
}

#[test]
fn window_end_frees_window_guards_only() {
    // All was used at 0, and the window ends at half a second: how much fits a little later, where it would not yet.
    for (spec, fits) in guards().into_iter().zip([0, 10, 1, 5]) {
        let mut guard = guard_with_used(&spec, 10);
        guard.end(&spec, ms(0), taken(ms(0), 10, false));
        guard.window_ends(&spec, ms(0), ms(499), ms(500));
        let (at, silent) = (ms(if fits == 1 { 610 } else { 510 }), [0, 0, 0, 5]);
        assert_eq!(units_that_fit(&mut guard, &spec, at)[1], fits, "{spec:?}");
        let mut guard = guard_with_used(&spec, 10);
        guard.end(&spec, ms(0), taken(ms(0), 10, false));
        let expected = guards().iter().position(|other| *other == spec).map(|kind| silent[kind]).unwrap();
        assert_eq!(units_that_fit(&mut guard, &spec, at)[1], expected, "{spec:?}");
    }
}

/// Twice as much a second, with none held back.
fn larger_guards() -> [GuardSpec; 4] {
    let log = LogSpec::new(20, 0, SECOND, TRANSIT / 10);
    [
        GuardSpec::Log(log),
        GuardSpec::Log(log.fixed()),
        GuardSpec::Counter(CounterSpec::new(20, 20, 0, SECOND, TRANSIT / 10)),
        GuardSpec::Bucket(VendorBucketSpec::new(20, 0, 20.0, SECOND, TRANSIT / 10)),
    ]
}

#[test]
fn changed_guard_keeps_its_use() {
    for (number, old) in guards().iter().enumerate() {
        for (other, new) in larger_guards().iter().enumerate() {
            let mut guard = guard_with_used(old, 5);
            // Of these, two were answered, and all are known to fit.
            guard.take(old, taken(ms(0), 2, false));
            guard.end(old, ms(0), taken(ms(0), 2, false));
            assert!(guard.has_room(old, ms(0), 1, false));
            let replaced = guard.change(old, new, ms(0));
            let same_kind = number == other || number < 2 && other < 2;
            assert_eq!(replaced.is_none(), same_kind, "{old:?} {new:?}");
            let mut guard = replaced.unwrap_or(guard);
            assert_eq!(
                (units_that_fit(&mut guard, new, ms(0)), guard.units(new, ms(0))),
                ([13, 13], 7),
                "{old:?} {new:?}"
            );
            // What is under way is lost after the new transit time, in the slots of the old guard if that went on.
            let [before, after] = [[1_015, 1_030], [1_015, 1_030], [2_015, 2_035], [345, 375]][other];
            assert!(!guard.clone().rests(new, ms(before)), "{old:?} {new:?}");
            assert!(guard.rests(new, ms(after)), "{old:?} {new:?}");
            // Back again: what fitted before does not any more.
            let mut guard = Guard::new(new).unwrap();
            guard.take(new, taken(ms(0), 9, false));
            assert!(guard.has_room(new, ms(0), 11, false));
            let mut guard = guard.change(new, old, ms(0)).unwrap_or(guard);
            assert_eq!(units_that_fit(&mut guard, old, ms(0)), [0, 1], "{old:?} {new:?}");
        }
        assert!(guard_with_used(old, 5).change(old, &GuardSpec::Off, ms(0)).is_none());
    }
}
