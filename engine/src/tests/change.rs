//! Limits that change under load, lanes that come and go.

use std::time::Duration;

use super::*;
use crate::limit::Calendar;
use crate::throttle::Wait;

#[test]
fn raised_limit_credits_nothing() {
    let (mut bench, lane) = Bench::with(plan(vec![bucket("requests", 10, 10.0)]));
    let start = bench.now;
    for _ in 0..10 {
        let _ = bench.submit_granted(lane, ask(Tier::High));
    }
    for _ in 0..100 {
        let _ = bench.submit_waiting(lane, ask(Tier::High));
    }
    bench.lane("acme", "acme", &Arc::new(plan(vec![bucket("requests", 100, 100.0)])));
    assert!(bench.engine.is_quiet(), "nothing is credited");
    assert_eq!(bench.serve(start + Duration::from_millis(500), 0).len(), 50);
}

#[test]
fn lowered_limit_holds_at_once() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 100)]));
    for _ in 0..50 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.finished(bench.now, permit);
    }
    bench.lane("acme", "acme", &Arc::new(plan(vec![per_second("requests", 40)])));
    let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert!(until.not_before() > bench.now + Duration::from_secs(1), "{until:?}: 50 went inside a window of 40");
}

#[test]
fn older_permit_counts_in_new_slots() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("old", 3)]));
    let old = [bench.submit_granted(lane, ask(Tier::High)), bench.submit_granted(lane, ask(Tier::High))];
    bench.lane("acme", "acme", &Arc::new(plan(vec![slots("old", 3), slots("new", 2)])));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.finished(bench.now, old[0]);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    let Claim::Started(new, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    bench.submit_waiting(lane, ask(Tier::High));
    assert!(bench.engine.is_quiet(), "both slots of `new` are taken");
    bench.engine.finished(bench.now, new);
    assert!(!bench.engine.is_quiet());
}

#[test]
fn older_permit_ends_in_no_newer_rate() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("old", 3)]));
    let old = bench.submit_granted(lane, ask(Tier::High));
    bench.lane("acme", "acme", &Arc::new(plan(vec![slots("old", 3), per_second("new", 10)])));
    let new = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.not_sent(bench.now, old);
    assert_eq!(bench.engine.headroom(bench.now, lane, NO_ENDPOINT), Some((2, 3)));
    assert_eq!(bench.engine.lanes[lane].own.as_mut()[1].remaining(&per_second("new", 10), bench.now), (9, 10));
    bench.engine.finished(bench.now, new);
    bench.assert_clean();
}

/// A limit of requests at once becomes a rate while a request probes its pause. That request does not end in the rate.
#[test]
fn limit_of_another_kind_is_probed_by_the_next_request() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("x", 1)]));
    let refused = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(refused, Feedback::Refused(Wait::Stated(SECOND), None));
    bench.advance_to(ms(1_000));
    let before = bench.submit_granted(lane, ask(Tier::High));
    bench.lane("acme", "acme", &Arc::new(plan(vec![per_second("x", 10)])));
    let probe = bench.submit_granted(lane, ask(Tier::High));
    let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
    bench.on_response(before, Feedback::Passed(None));
    assert!(bench.start_granted(&mut waiters).is_empty(), "the probe is under way");
    bench.on_response(probe, Feedback::Passed(None));
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
}

#[test]
fn vanished_endpoint_refuses_its_waiters() {
    let old = with_endpoint(plan(vec![bucket("requests", 10, 10.0)]), "search", bucket("search", 1, 1.0));
    let (mut bench, lane) = Bench::with(old);
    bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    let waiter = bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) }).0;
    bench.lane("acme", "acme", &Arc::new(plan(vec![bucket("requests", 10, 10.0)])));
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Refused(Refusal::UnknownEndpoint)));
}

#[test]
fn lane_is_evicted_only_at_rest() {
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(vec![per_second("requests", 10)]) });
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.finished(bench.now, permit);
    bench.sweep(bench.now + Duration::from_millis(500), true);
    assert_eq!(bench.engine.lane_count(), 1, "its window is not over");
    bench.sweep(bench.now + Duration::from_millis(1200), true);
    assert_eq!(bench.engine.lane_count(), 0);
    assert!(matches!(bench.submit(lane, ask(Tier::High)), Answer::Refused(Refusal::NoLane)));
}

/// A bucket that starts empty would be emptied by each eviction.
#[test]
fn lane_that_starts_spent_stays() {
    let spent = LimitSpec { starts_spent: true, ..per_second("requests", 10) };
    let (mut bench, _) = Bench::with(Plan { has_slots: false, ..plan(vec![spent]) });
    bench.sweep(bench.now + Duration::from_secs(3600), true);
    assert_eq!(bench.engine.lane_count(), 1);
}

#[test]
fn account_that_starts_spent_stays_without_its_lanes() {
    let spec = LimitSpec { starts_spent: true, ..per_second("account", 10) };
    let account = [SharedSpec { spec, endpoint: None }].into_iter().collect();
    let (mut bench, _) = Bench::with(Plan { has_slots: false, account, ..plan(vec![]) });
    for seconds in [3600, 3700] {
        bench.sweep(bench.now + Duration::from_secs(seconds), true);
    }
    assert_eq!((bench.engine.lane_count(), bench.engine.is_empty()), (0, false));
}

/// The account's own limit rests later than its lanes, which have none.
#[test]
fn shared_limit_is_freed_after_its_lanes() {
    let shared = SharedSpec { spec: per_second("account", 10), endpoint: None };
    let (mut bench, lane) =
        Bench::with(Plan { has_slots: false, account: [shared].into_iter().collect(), ..plan(vec![]) });
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.finished(bench.now, permit);
    bench.sweep(bench.now + Duration::from_millis(100), true);
    assert_eq!((bench.engine.lane_count(), bench.engine.is_empty()), (0, false), "its window is not over");
    bench.sweep(bench.now + Duration::from_millis(1200), true);
    assert!(bench.engine.is_empty());
}

#[test]
fn retired_lane_drains_or_refuses() {
    for refuse in [false, true] {
        let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
        let permit = bench.submit_granted(lane, ask(Tier::High));
        let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
        bench.engine.retire(bench.now, lane, refuse);
        assert!(matches!(bench.submit(lane, ask(Tier::High)), Answer::Refused(Refusal::Retired)));
        bench.engine.finished(bench.now, permit);
        match bench.engine.claim(bench.now, waiter) {
            Claim::Started(permit, _) if !refuse => bench.engine.finished(bench.now, permit),
            Claim::Refused(Refusal::Retired) if refuse => {}
            other => panic!("{other:?}"),
        }
        bench.sweep(bench.now, false);
        assert_eq!(bench.engine.lane_count(), 0);
    }
}

/// A configuration may lack a tenant by mistake.
#[test]
fn operators_pause_outlasts_its_tenant_by_a_day() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    bench.engine.pause(bench.now, lane);
    bench.engine.retire(bench.now, lane, false);
    let (start, day) = (bench.now, Duration::from_secs(86_400));
    bench.sweep(start + (day - Duration::from_secs(1)), false);
    assert!(bench.engine.is_held(lane));
    bench.sweep(start + day, false);
    assert_eq!(bench.engine.lane_count(), 0);
}

/// The pause is in force if the tenant comes back before its end.
#[test]
fn removed_tenants_lane_stays_while_vendor_pauses_it() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("slots", 1)]));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let feedback = Feedback::Refused(Wait::Stated(86_400 * SECOND), None);
    bench.engine.answered_with(bench.now, permit, feedback, &[], true);
    bench.engine.retire(bench.now, lane, false);
    let (start, day) = (bench.now, Duration::from_secs(86_400));
    bench.sweep(start + (day - Duration::from_secs(1)), false);
    assert!(bench.engine.has(lane));
    bench.sweep(start + 2 * day, false);
    assert_eq!(bench.engine.lane_count(), 0);
}

#[test]
fn moved_lane_keeps_its_history() {
    let (mut bench, lane) = Bench::with(plan(vec![per_second("requests", 10), slots("slots", 4)]));
    for _ in 0..4 {
        let _ = bench.submit_granted(lane, ask(Tier::High));
    }
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    let moved = bench.engine.move_out(bench.now, lane).expect("the lane exists");
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Refused(Refusal::NoLane)));
    let mut other = Bench { engine: Engine::new(Bound::new(100), Default::default()), now: bench.now };
    let wide = with_shared(plan(vec![per_second("requests", 10), slots("slots", 4)]), vec![], vec![slots("all", 50)]);
    let lane = other.lane("acme", "acme", &Arc::new(wide));
    other.engine.move_in(other.now, lane, moved);
    let (_, until) = other.submit_waiting(lane, ask(Tier::High));
    assert!(matches!(until, Until::OnSettle(_)), "{until:?}");
    other.now = other.now + Duration::from_secs(31);
    other.engine.poll(other.now);
    other.submit_granted(lane, ask(Tier::High));
}

/// A change took all waiters out and put them in again; each time, the account gained the lane's weight once more, and
/// with it turns among accounts.
#[test]
fn account_weighs_as_its_waiting_lanes() {
    let with = |limit| Arc::new(with_shared(plan(vec![slots("own", limit)]), vec![slots("a", 9)], vec![slots("v", 9)]));
    let mut bench = Bench::new();
    let lane = bench.lane("acme", "acme", &with(1));
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    let weights = |bench: &Bench| {
        let shared = bench.engine.lanes.holders();
        shared.flat_map(|shared| &shared.branches).map(|branch| branch.weight).sum::<u32>()
    };
    assert_eq!(weights(&bench), 1);
    bench.engine.upsert(bench.now, "acme", "acme", &with(1), None);
    assert_eq!(weights(&bench), 1);
    bench.engine.cancel(bench.now, waiter);
    assert_eq!(weights(&bench), 0);
    bench.engine.finished(bench.now, permit);
    bench.assert_clean();
}

#[test]
fn slower_of_two_limits_is_stricter() {
    // The larger bucket of the two refills more slowly.
    let (fast, slow) = (bucket("requests", 10, 8.0), bucket("requests", 100, 0.5));
    for (one, other) in [(&fast, &slow), (&slow, &fast), (&slow, &slow)] {
        assert_eq!(one.stricter(other), slow);
    }
    let (few, many) = (slots("at once", 2), slots("at once", 3));
    assert_eq!((few.stricter(&many), many.stricter(&few)), (few.clone(), few));
    let rates = [BucketSpec::new(1, 8.0, SECOND, 0), BucketSpec::new(5, 30.0, 60 * SECOND, 0)];
    assert!(rates.map(|rate| rate.per_second()).iter().zip([8.0, 0.5]).all(|(rate, all)| (rate - all).abs() < 1e-6));
}

#[test]
fn smaller_quota_is_stricter_with_any_calendar() {
    let day = 86_400 * SECOND;
    let quota = |limit: u32, is_daily: bool| {
        let refill = if is_daily { f64::INFINITY } else { f64::from(limit) };
        let kind = LimitKind::Rate {
            bucket: BucketSpec::new(limit, refill, day, 0),
            guard: GuardSpec::Log(LogSpec::new(limit, 0, day, TRANSIT).fixed()),
        };
        let pace = Pace { unit_ns: day / u64::from(limit), limit: limit.into(), window_ns: day, ..Pace::default() };
        let calendar = is_daily.then(|| Calendar::new(vec![ms(0).plus_nanos(day)], day));
        LimitSpec { kind, pace, calendar, ..per_second("quota", limit) }
    };
    for (is_daily, other_is) in [(true, false), (false, true), (true, true)] {
        let (few, many) = (quota(1_000, is_daily), quota(50_000, other_is));
        assert_eq!((few.stricter(&many), many.stricter(&few)), (few.clone(), few));
    }
}

#[test]
fn lane_takes_at_most_128_bytes() {
    // A million of them rest.
    assert!(size_of::<lane::Lane>() <= 128, "{}", size_of::<lane::Lane>());
}
