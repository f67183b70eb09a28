//! Windows that end by a calendar.

use super::*;
use crate::cost::{Cost, Measure};
use crate::limit::free::Free;
use crate::limit::token_bucket::BucketSpec;
use crate::limit::{BlockedBy, Calendar, Cell, LimitKind, LimitSpec, PriorUse, Room, Take};
use crate::tier::Tier;

const HOUR: u64 = 3_600 * SECOND;

fn at(hours: u64) -> Time {
    Time::from_nanos(hours * HOUR)
}

/// Ten in a window, of which two are the high tier's. Windows end after 24, 47 and 72 hours: the second day has 23 hours.
fn spec() -> LimitSpec {
    let guard = GuardSpec::Log(LogSpec::new(10, 2, 25 * HOUR, TRANSIT).fixed());
    LimitSpec {
        name: "day".into(),
        kind: LimitKind::Rate { bucket: BucketSpec::new(10, f64::INFINITY, 24 * HOUR, 0), guard },
        measure: Measure::Requests,
        starts_spent: false,
        pace: Default::default(),
        calendar: Some(Calendar::new([72, 24, 47].map(at).to_vec(), 0)),
        pooled: None,
    }
}

fn send(cell: &mut Cell, spec: &LimitSpec, at: Time, tier: Tier) -> bool {
    if !cell.has_room(spec, at, 1.into(), tier.is_high()) {
        return false;
    }
    let take = Take { cost: 1.into(), tier, granted: at };
    cell.take(spec, take, at);
    cell.answer(spec, take, at);
    true
}

/// Sends until nothing fits: how many went.
fn send_all(cell: &mut Cell, spec: &LimitSpec, at: Time, tier: Tier) -> usize {
    (0..100).take_while(|_| send(cell, spec, at, tier)).count()
}

#[test]
fn window_ends_follow_calendar_then_interval() {
    let calendar = Calendar::new(vec![at(24), at(47)], HOUR);
    let next = |hours| calendar.next(at(hours)).map(Time::as_nanos);
    assert_eq!([0, 23, 24, 46].map(next), [24, 24, 47, 47].map(|hours| Some(hours * HOUR)));
    assert_eq!([47, 48, 100].map(next), [48, 49, 101].map(|hours| Some(hours * HOUR)));
    assert_eq!(calendar.next(at(47).minus_nanos(1)), Some(at(47)));
    let once = Calendar::new(vec![at(24)], 0);
    assert_eq!((once.next(at(23)), once.next(at(24))), (Some(at(24)), None));
    assert_eq!(Calendar::new(Vec::new(), HOUR).next(at(1)), None);
    for (sent, now, over) in
        [(23, 25, true), (24, 25, false), (23, 24, false), (46, 48, true), (47, 99, true), (99, 99, false)]
    {
        assert_eq!(calendar.is_over(at(sent), at(now)), over, "sent at {sent}, seen at {now}");
    }
}

#[test]
fn quota_resets_at_the_window_end() {
    let (spec, mut cell) = (spec(), Cell::new(&spec(), at(1), 0));
    assert_eq!(send_all(&mut cell, &spec, at(20), Tier::Normal), 8, "the safety share, without a pace");
    assert_eq!(send_all(&mut cell, &spec, at(20), Tier::High), 2);
    let free = Free::At(at(24).plus_nanos(SECOND));
    assert_eq!(cell.room(&spec, at(20), 1.into(), true), Room::No { free, lack: BlockedBy::Window });
    assert_eq!(cell.room(&spec, at(24), 1.into(), true), Room::No { free, lack: BlockedBy::Window });
    assert_eq!(cell.resets_at(&spec, at(20)), Some(at(24)));
    // All of it at once, and no part of it before.
    let anew = at(24).plus_nanos(SECOND);
    assert_eq!(send_all(&mut cell, &spec, anew.minus_nanos(1), Tier::High), 0);
    assert_eq!(send_all(&mut cell, &spec, anew, Tier::High), 10);
    // The second day ends an hour earlier.
    assert_eq!(cell.full_at(&spec, at(30)), Some(at(47).plus_nanos(SECOND)));
    assert_eq!(send_all(&mut cell, &spec, at(48), Tier::Normal), 8);
    // No end is known after the third: what is sent then counts for the longest window.
    assert_eq!(send_all(&mut cell, &spec, at(73), Tier::High), 10);
    assert_eq!(send_all(&mut cell, &spec, at(97), Tier::High), 0);
    assert_eq!(send_all(&mut cell, &spec, at(99), Tier::High), 10);
}

#[test]
fn request_in_flight_counts_in_next_window() {
    let (spec, mut cell) = (spec(), Cell::new(&spec(), at(1), 0));
    let before = at(24).minus_nanos(30 * MS);
    let take = Take { cost: 1.into(), tier: Tier::Normal, granted: before };
    (0..3).for_each(|_| cell.take(&spec, take, before));
    (0..3).for_each(|_| cell.answer(&spec, take, at(24).plus_nanos(30 * MS)));
    assert_eq!(cell.remaining(&spec, at(25)), (7, 10), "it may have arrived on either side");
}

#[test]
fn prior_use_counts_in_current_window_only() {
    let (spec, mut cell) = (spec(), Cell::new(&spec(), at(26), 0));
    let prior = |at| PriorUse { requests: 3, cost: Cost::from(3), high: false, at };
    cell.replay(&spec, &prior(at(23)), at(26));
    assert_eq!(cell.remaining(&spec, at(26)), (10, 10));
    cell.replay(&spec, &prior(at(25)), at(26));
    assert_eq!(cell.remaining(&spec, at(26)), (7, 10));
    assert_eq!(cell.full_at(&spec, at(26)), Some(at(47).plus_nanos(SECOND)));
    assert_eq!(cell.remaining(&spec, at(48)), (10, 10));
}

#[test]
fn vendor_that_states_another_end_is_believed() {
    let (spec, mut cell) = (spec(), Cell::new(&spec(), at(1), 0));
    assert_eq!(send_all(&mut cell, &spec, at(20), Tier::High), 10);
    cell.window_ends(&spec, at(20), at(22), at(22).plus_nanos(SECOND));
    assert_eq!(cell.resets_at(&spec, at(21)), Some(at(22).plus_nanos(SECOND)));
    assert_eq!(send_all(&mut cell, &spec, at(23), Tier::High), 10, "earlier than the calendar");
    cell.window_ends(&spec, at(23), at(30), at(30).plus_nanos(SECOND));
    assert_eq!(send_all(&mut cell, &spec, at(25), Tier::High), 0, "later than the calendar");
    assert_eq!(send_all(&mut cell, &spec, at(31), Tier::High), 10);
}

#[test]
fn next_end_stated_while_one_passes_keeps_that_end() {
    let (spec, mut cell) = (spec(), Cell::new(&spec(), at(1), 0));
    assert_eq!(send_all(&mut cell, &spec, at(20), Tier::High), 10);
    let now = at(24).plus_nanos(50 * MS);
    cell.window_ends(&spec, now, at(47).minus_nanos(10 * SECOND), at(47).plus_nanos(10 * SECOND));
    assert_eq!(send_all(&mut cell, &spec, at(24).plus_nanos(SECOND), Tier::High), 10);
}

#[test]
fn changed_calendar_replaces_the_known_end() {
    let (old, mut cell) = (spec(), Cell::new(&spec(), at(1), 0));
    assert_eq!(send_all(&mut cell, &old, at(20), Tier::High), 10);
    let new = LimitSpec { calendar: Some(Calendar::new(vec![at(28)], 0)), ..old.clone() };
    cell.change(&old, &new, at(20), 1);
    assert_eq!(cell.full_at(&new, at(20)), Some(at(28).plus_nanos(SECOND)));
    let rolling = LimitSpec { calendar: None, ..old.clone() };
    cell.change(&new, &rolling, at(20), 2);
    assert!(cell.full_at(&rolling, at(20)) > Some(at(45)));
}

/// A long window's log merges ends into slots: none spans the end of a window.
#[test]
fn merged_slots_never_span_a_window_end() {
    let mut spec = spec();
    let guard = GuardSpec::Log(LogSpec::new(10_000, 0, 25 * HOUR, TRANSIT).fixed());
    spec.kind = LimitKind::Rate { bucket: BucketSpec::new(10_000, f64::INFINITY, 24 * HOUR, 0), guard };
    let mut cell = Cell::new(&spec, at(0), 1);
    let end = at(24);
    for _ in 0..100 {
        assert!(send(&mut cell, &spec, end.minus_nanos(60 * SECOND), Tier::High));
    }
    let late = Take { cost: 1.into(), tier: Tier::High, granted: end.minus_nanos(SECOND / 10) };
    assert!(cell.has_room(&spec, late.granted, 1.into(), true));
    cell.take(&spec, late, late.granted);
    cell.answer(&spec, late, end.plus_nanos(SECOND / 10));
    assert_eq!(cell.remaining(&spec, end.plus_nanos(2 * SECOND)).0, 9_999, "what was under way at the end may count");
}
