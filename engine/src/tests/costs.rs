//! What an answer says that a request cost, where it is not true or not usual.

use std::time::Duration;

use super::*;
use crate::throttle::{About, Mode, Report};

fn two_lanes(limit: LimitSpec) -> (Bench, LaneKey, LaneKey) {
    let mut bench = Bench::new();
    let plan = Arc::new(with_shared(plan(vec![]), vec![limit], vec![]));
    let lanes = ["dear", "other"].map(|tenant| bench.lane(tenant, "account", &plan));
    (bench, lanes[0], lanes[1])
}

fn answer_with_cost(bench: &mut Bench, permit: PermitKey, cost: u32) {
    bench.settle(permit, cost);
    bench.engine.finished(bench.now, permit);
}

#[test]
fn overdraft_is_at_most_one_capacity() {
    for limit in [bucket("points", 100, 100.0), per_second("points", 100)] {
        let (mut bench, dear, other) = two_lanes(limit);
        let permits: Vec<PermitKey> = (0..20).map(|_| bench.submit_granted(dear, ask(Tier::Low))).collect();
        permits.into_iter().for_each(|permit| answer_with_cost(&mut bench, permit, u32::MAX));
        let start = bench.now;
        bench.submit_waiting(other, ask(Tier::High));
        let grants = bench.serve(start + Duration::from_secs(60), 0);
        let after = grants[0].0.since(start);
        assert!(after <= Duration::from_millis(2_200), "twenty wrong answers stop the others for {after:?}");
    }
}

#[test]
fn overdrawing_lane_goes_after_the_others() {
    let (mut bench, dear, other) = two_lanes(bucket("points", 100, 100.0));
    // Of a hundred points 51 are taken, and then one of them turns out to have cost a hundred: half a second's points are
    // lacking.
    let permits: Vec<PermitKey> = (0..51).map(|_| bench.submit_granted(dear, ask(Tier::High))).collect();
    let start = bench.now;
    answer_with_cost(&mut bench, permits[0], 100);
    let first = bench.submit_waiting(dear, ask(Tier::High)).0;
    let others: Vec<WaiterKey> = (0..45).map(|_| bench.submit_waiting(other, ask(Tier::Low)).0).collect();
    let grants: Vec<WaiterKey> =
        bench.serve(start + Duration::from_secs(3), 0).into_iter().map(|(_, key)| key).collect();
    let place = grants.iter().position(|key| *key == first);
    assert_eq!((grants.len(), place.is_some_and(|place| place >= 45)), (46, true), "{place:?}");
    assert!(others.iter().all(|key| grants.contains(key)));
}

#[test]
fn operator_ends_the_wait_of_an_overdrawing_lane() {
    let (mut bench, dear, _) = two_lanes(bucket("points", 100, 100.0));
    let permits: Vec<PermitKey> = (0..51).map(|_| bench.submit_granted(dear, ask(Tier::High))).collect();
    answer_with_cost(&mut bench, permits[0], 100);
    // Half a second's points were lacking, so the others may go again, and the lane only half a second later.
    bench.now = bench.now + Duration::from_millis(600);
    let (waiter, _) = bench.submit_waiting(dear, ask(Tier::High));
    bench.engine.resume(bench.now, dear);
    assert_eq!(bench.run(bench.now), [(bench.now, waiter)]);
}

#[test]
fn stated_zero_cost_returns_no_unit() {
    let (mut bench, dear, _) = two_lanes(per_second("points", 100));
    let start = bench.now;
    let mut granted = 0;
    while bench.now < start + Duration::from_secs(1) {
        while let Answer::Granted(permit) = bench.submit(dear, Ask { immediate: true, ..ask(Tier::High) }) {
            granted += 1;
            answer_with_cost(&mut bench, permit, 0);
            assert!(granted <= 100, "a vendor that counts them sees {granted} within a second");
        }
        bench.now = bench.now + Duration::from_millis(5);
    }
    assert!(granted > 90);
}

/// A quota of a day, of which a request takes what is known only when its body was read.
#[test]
fn late_corrections_leave_the_exact_figure() {
    let per_day = |name: &str, measure: Measure| {
        let day = 86_400 * SECOND;
        let kind = LimitKind::Rate {
            bucket: BucketSpec::new(800, 800.0, day, 0),
            guard: GuardSpec::Log(LogSpec::new(1_000, 200, day, TRANSIT).fixed()),
        };
        LimitSpec { measure, kind, ..per_second(name, 1_000) }
    };
    let plan = plan(vec![per_day("tokens", Measure::Usage(PointKind::POINTS)), per_day("bytes", Measure::Bytes)]);
    let (mut bench, lane) = Bench::with(plan);
    for request in 1..=3 {
        let ask = Ask { cost: Cost::from(100).with_bytes(77, 0), ..ask(Tier::Normal) };
        let permit = bench.submit_granted(lane, ask);
        bench.now = bench.now + Duration::from_micros(300);
        bench.settle(permit, 30);
        bench.engine.answered(bench.now, permit);
        bench.now = bench.now + Duration::from_micros(300);
        bench.engine.received(bench.now, permit, 23);
        bench.engine.abandoned(bench.now, permit);
        let limits = bench.engine.view(bench.now, lane).unwrap().limits;
        let used: Vec<u32> = limits.iter().map(|limit| limit.limit - limit.left).collect();
        assert_eq!(used, [30 * request, 100 * request]);
    }
}

#[test]
fn quota_end_is_forecast_from_recent_use() {
    let hour = 3_600 * SECOND;
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(1_000, 1_000.0, 24 * hour, 0),
        guard: GuardSpec::Log(LogSpec::new(1_000, 0, 24 * hour, TRANSIT).fixed()),
    };
    let pace = Pace { window_ns: 24 * hour, limit: 1_000, ..Pace::default() };
    let (mut bench, lane) = Bench::with(plan(vec![LimitSpec { kind, pace, ..per_second("day", 1_000) }]));
    let ends_in = |bench: &mut Bench| {
        let limit = bench.engine.view(bench.now, lane).unwrap().limits.remove(0);
        limit.ends_at.map(|at| at.since(bench.now).as_secs() / 60)
    };
    assert_eq!(ends_in(&mut bench), None, "nothing goes");
    for _ in 0..100 {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.finished(bench.now, permit);
        bench.now = bench.now + Duration::from_secs(17);
    }
    assert_eq!(
        ends_in(&mut bench),
        Some(9 * 30),
        "a hundred in the half hour since the first, and nine hundred are left"
    );
    bench.now = bench.now + Duration::from_secs(3 * 3_600);
    assert_eq!(ends_in(&mut bench), None, "nothing went in the last hour");
}

/// A limit that only responses state counts requests, unless it is named like a kind of points.
#[test]
fn discovered_limit_counts_in_its_own_unit() {
    for mode in [Mode::Adaptive, Mode::Bands, Mode::Pace] {
        for (name, units) in [("", 1), ("images", 1), ("input-tokens", 200)] {
            let kinds = ["points", "input_tokens"].map(Label::of).into();
            let mut plan = Plan { has_slots: false, kinds, ..plan(vec![bucket("points", 10_000, 10_000.0)]) };
            plan.pace.mode = mode;
            let (mut bench, lane) = Bench::with(plan);
            let expensive = Ask { cost: Cost::of([500, 200, 1, 1]), ..ask(Tier::High) };
            let permit = bench.submit_granted(lane, expensive);
            let about = About { name: Label::of(name), is_special: !name.is_empty(), ..About::default() };
            let report = Report { about, limit: 300, remaining: 299, reset_ns: Some(60 * SECOND), ..Report::default() };
            bench.on_response(permit, Feedback::Passed(Some(report)));
            bench.submit_granted(lane, expensive);
            let seen = bench.engine.view(bench.now, lane).unwrap();
            let found = seen.limits.iter().find(|limit| limit.is_discovered).unwrap();
            assert_eq!((found.left, found.limit), (299 - units, 300), "{mode:?}: {name}");
        }
    }
}

#[test]
fn discovered_limit_in_points_holds_what_exceeds_it() {
    let kinds = ["points", "tokens"].map(Label::of).into();
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, kinds, ..plan(vec![]) });
    let of_tokens = |tokens: u32| Ask { cost: Cost::of([1, tokens, 1, 1]), ..ask(Tier::High) };
    let permit = bench.submit_granted(lane, of_tokens(500));
    let about = About { name: Label::of("tokens"), is_special: true, ..About::default() };
    let report = Report { about, limit: 1_000, remaining: 499, reset_ns: Some(60 * SECOND), ..Report::default() };
    bench.on_response(permit, Feedback::Passed(Some(report)));
    let (_, until) = bench.submit_waiting(lane, of_tokens(500));
    assert!(matches!(until, Until::At(at) if at >= bench.now + Duration::from_secs(60)), "{until:?}");
}
