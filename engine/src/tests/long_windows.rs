//! What refusals change about limits of hours and days, and for how long all who share the limit are slower.

use std::time::Duration;

use super::*;
use crate::plan::{Counting, Pace};
use crate::throttle::{About, Mode, Notice, Report, Wait};

const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// The plan of tenants who share `limit` points in a window, of which the client uses four fifths.
fn shared_plan(limit: u32, window_ns: u64) -> Arc<Plan> {
    let budget = limit / 5 * 4;
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(budget, budget.into(), window_ns, 0),
        guard: GuardSpec::Log(LogSpec::new(limit, limit - budget, window_ns, TRANSIT).fixed()),
    };
    let pace = Pace {
        unit_ns: window_ns / u64::from(budget),
        limit: limit.into(),
        window_ns,
        counting: Counting::Windows,
        mode: Mode::Adaptive,
    };
    let spec = LimitSpec { kind, pace, ..per_second("quota", limit) };
    let plan = Plan { has_slots: false, max_hold_ns: u64::MAX, ..plan(Vec::new()) };
    Arc::new(with_shared(plan, Vec::new(), vec![spec]))
}

/// Three tenants with such a plan.
fn tenants(limit: u32, window_ns: u64) -> (Bench, [LaneKey; 3]) {
    let plan = shared_plan(limit, window_ns);
    let mut bench = Bench::new();
    let lanes = ["a", "b", "c"].map(|tenant| bench.lane(tenant, tenant, &plan));
    (bench, lanes)
}

fn large(points: u32) -> Ask {
    Ask { cost: points.into(), ..ask(Tier::High) }
}

fn use_points(bench: &mut Bench, lane: LaneKey, requests: u32, points: u32) {
    for _ in 0..requests {
        let permit = bench.submit_granted(lane, large(points));
        bench.engine.finished(bench.now, permit);
    }
}

/// Sends requests whose responses report truly what is left, until that is `least`. Returns the last report.
fn use_with_reports(bench: &mut Bench, lane: LaneKey, limit: u64, least: u64) -> Report {
    let report = |remaining| Report { limit, remaining, ..Report::default() };
    for remaining in (least..limit).rev() {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.on_response(permit, Feedback::Passed(Some(report(remaining))));
        bench.advance_to(bench.now + Duration::from_secs(1));
    }
    report(least)
}

/// The vendor refuses a request, asks for a wait of a second, and accepts the probe. Returns whether that cut the rate.
fn refuse(bench: &mut Bench, lane: LaneKey, report: Option<Report>) -> bool {
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let notices = bench.notices_on_response(permit, Feedback::Refused(Wait::Stated(SECOND), report));
    let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
    let probe = loop {
        let due = bench.engine.poll_timeout().unwrap();
        bench.advance_to(due);
        if let [probe] = bench.start_granted(&mut waiters)[..] {
            break probe;
        }
    };
    bench.on_response(probe, Feedback::Passed(report));
    notices.iter().any(|noticed| matches!(noticed.notice, Notice::Yielded { .. }))
}

/// How many requests go, if one asks every second for so long and goes at once or not at all.
fn count_granted(bench: &mut Bench, lane: LaneKey, seconds: u64) -> u32 {
    let mut granted = 0;
    for second in 0..=seconds {
        while let Answer::Granted(permit) = bench.submit(lane, Ask { immediate: true, ..ask(Tier::High) }) {
            bench.engine.finished(bench.now, permit);
            granted += 1;
        }
        if second < seconds {
            bench.advance_to(bench.now + Duration::from_secs(1));
        }
    }
    granted
}

#[test]
fn large_request_after_refusal_delays_others_for_minutes() {
    // If half of the limit is used, the refusal also cuts the rate, for an hour.
    for (requests, most) in [(0, 901), (10, 3_602)] {
        let (mut bench, [a, b, c]) = tenants(10_000, DAY);
        use_points(&mut bench, a, requests, 500);
        let start = bench.now;
        assert_eq!(refuse(&mut bench, a, None), requests > 0);
        let permit = bench.submit_granted(b, large(400));
        bench.on_response(permit, Feedback::Passed(None));
        let mut waiters = vec![bench.submit_waiting(c, ask(Tier::High)).0];
        bench.advance_to(start + Duration::from_secs(most));
        assert_eq!(bench.start_granted(&mut waiters).len(), 1, "after {requests} requests");
    }
}

/// A burst has met a limit that no entry states, twice.
#[test]
fn refusals_despite_room_keep_long_windows_rate() {
    let (mut bench, [a, b, _]) = tenants(300, DAY);
    let report = use_with_reports(&mut bench, a, 300, 270);
    for remaining in [270, 268] {
        assert!(!refuse(&mut bench, a, Some(Report { remaining, ..report })), "{remaining}");
    }
    let granted = count_granted(&mut bench, b, 3_600);
    assert!(granted >= 100, "{granted}");

    let (mut bench, [a, ..]) = tenants(5_000, HOUR);
    let report = use_with_reports(&mut bench, a, 5_000, 4_900);
    for remaining in [4_900, 4_898, 4_896] {
        assert!(!refuse(&mut bench, a, Some(Report { remaining, ..report })), "{remaining}");
    }
}

#[test]
fn repeated_refusals_slow_a_day_for_an_hour() {
    let (mut bench, [a, b, _]) = tenants(300, DAY);
    use_points(&mut bench, a, 150, 1);
    assert!(refuse(&mut bench, a, None), "half of the limit is used");
    refuse(&mut bench, a, None);
    let slowed = count_granted(&mut bench, b, 3_000);
    assert!(slowed <= 10, "{slowed}");
    let after = count_granted(&mut bench, b, 1_800);
    assert!(after >= 70, "{after}");
}

#[test]
fn no_number_of_refusals_stops_an_hour() {
    let (mut bench, [a, b, _]) = tenants(5_000, HOUR);
    for _ in 0..12 {
        refuse(&mut bench, a, None);
    }
    let granted = count_granted(&mut bench, b, 600);
    assert!(granted >= 120, "{granted}: a quarter of the full rate are 166");
}

#[test]
fn resume_ends_what_refusals_taught() {
    let (mut bench, [a, b, _]) = tenants(300, DAY);
    use_points(&mut bench, a, 150, 1);
    assert!(refuse(&mut bench, a, None));
    let slowed = count_granted(&mut bench, b, 0);
    assert!(slowed <= 1, "{slowed}");
    bench.engine.resume(bench.now, a);
    let granted = count_granted(&mut bench, b, 0);
    assert!(granted >= 80, "{granted} of the 88 that the bucket had");
}

fn change_limit(bench: &mut Bench, limit: u32, window_ns: u64) {
    let plan = shared_plan(limit, window_ns);
    for tenant in ["a", "b", "c"] {
        bench.lane(tenant, tenant, &plan);
    }
}

/// Of a hundred a minute the vendor accepted about sixty. The configuration is corrected to three thousand an hour, of
/// which two thirds of one go each second.
#[test]
fn changed_window_forgets_learned_rate() {
    let (mut bench, [a, b, _]) = tenants(100, 60 * SECOND);
    use_points(&mut bench, a, 60, 1);
    assert!(refuse(&mut bench, a, None), "half of the limit is used");
    change_limit(&mut bench, 3_000, HOUR);
    let granted = count_granted(&mut bench, b, 300);
    assert!(granted >= 100, "{granted}: sixty an hour are five");
}

#[test]
fn changed_window_keeps_pauses() {
    let (mut bench, [a, b, _]) = tenants(100, 60 * SECOND);
    let permit = bench.submit_granted(a, ask(Tier::High));
    bench.on_response(permit, Feedback::Refused(Wait::Stated(600 * SECOND), None));
    change_limit(&mut bench, 3_000, HOUR);
    assert_eq!(count_granted(&mut bench, b, 599), 0);
    assert!(count_granted(&mut bench, b, 10) > 0);
}

/// No configuration states the limit, the vendor does not say when its window ends, and the response to the request
/// that took the last unit is lost.
#[test]
fn window_without_reset_stops_lane_for_minutes() {
    for mode in [Mode::Adaptive, Mode::Bands, Mode::Pace] {
        for window_ns in [DAY, u64::MAX] {
            let mut plan = Plan { has_slots: false, ..plan(Vec::new()) };
            plan.pace.mode = mode;
            let (mut bench, lane) = Bench::with(plan);
            let start = bench.now;
            let about = About { window_ns: Some(window_ns), ..About::default() };
            let permit = bench.submit_granted(lane, ask(Tier::High));
            let report = Report { about, limit: 100, remaining: 1, ..Report::default() };
            bench.on_response(permit, Feedback::Passed(Some(report)));
            let permit = bench.submit_granted(lane, ask(Tier::High));
            bench.engine.finished(bench.now, permit);
            let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
            bench.advance_to(start + Duration::from_secs(900));
            assert_eq!(bench.start_granted(&mut waiters).len(), 1, "{mode:?}, {window_ns}");
        }
    }
}
