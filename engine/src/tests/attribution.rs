//! Of which limit an answer speaks, where several are alike.

use std::time::Duration;

use super::scopes::{COUNTED, FREE, Scope, request_to, tenants};
use super::*;
use crate::origin::Target;
use crate::plan::Counting;
use crate::throttle::{About, Mode, Notice, Report, Wait};

/// A limit that the vendor counts in fixed windows, and of which the client uses all.
fn fixed_window_limit(name: &str, limit: u32, window_ns: u64) -> LimitSpec {
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(limit, f64::from(limit), window_ns, 0),
        guard: GuardSpec::Log(LogSpec::new(limit, 0, window_ns, TRANSIT).fixed()),
    };
    let pace = Pace {
        unit_ns: window_ns / u64::from(limit),
        limit: limit.into(),
        window_ns,
        counting: Counting::Windows,
        mode: Mode::Adaptive,
    };
    LimitSpec { kind, pace, ..per_second(name, limit) }
}

fn passed_with_report(remaining: u64, reset_ns: u64) -> Feedback {
    Feedback::Passed(Some(Report { limit: 100, remaining, reset_ns: Some(reset_ns), ..Report::default() }))
}

/// Sends `requests` requests at once and answers all but the last, without a report. Returns the permit of the last.
fn burst(bench: &mut Bench, lane: LaneKey, ask: Ask, requests: usize) -> PermitKey {
    let mut permits: Vec<PermitKey> = (0..requests).map(|_| bench.submit_granted(lane, ask)).collect();
    let last = permits.pop().unwrap();
    permits.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
    last
}

#[test]
fn reset_ends_only_the_window_it_names() {
    let limits = vec![fixed_window_limit("minute", 100, 60 * SECOND), fixed_window_limit("hour", 100, 3_600 * SECOND)];
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(limits) });
    let last = burst(&mut bench, lane, ask(Tier::High), 100);
    bench.engine.answered_with(bench.now, last, passed_with_report(0, 20 * SECOND), &[], true);
    for _ in 0..100 {
        bench.submit_waiting(lane, ask(Tier::High));
    }
    let next = bench.now + Duration::from_secs(3_590);
    assert_eq!(bench.serve(next, SECOND / 20).len(), 0, "the hour is used up");
}

#[test]
fn report_of_requests_at_once_is_about_no_rate() {
    let (mut bench, lane) =
        Bench::with(Plan { has_slots: false, ..plan(vec![fixed_window_limit("concurrency", 100, 60 * SECOND)]) });
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let origin = bench.engine.permits[permit].origin;
    for name in ["concurrency", "others"] {
        for (is_parallel, found) in [(false, Some(Target::Own(0))), (true, None)] {
            let about = About { name: Label::of(name), is_special: true, is_parallel, ..About::default() };
            let report = Report { about, limit: 100, remaining: 0, reset_ns: None, ..Report::default() };
            assert_eq!(bench.engine.limit_of(&origin, &report), found, "{name}");
        }
    }
}

#[test]
fn reported_exhaustion_stands_despite_our_count() {
    let (mut bench, lane) =
        Bench::with(Plan { has_slots: false, ..plan(vec![fixed_window_limit("minute", 100, 60 * SECOND)]) });
    let last = burst(&mut bench, lane, ask(Tier::High), 99);
    bench.engine.answered_with(bench.now, last, passed_with_report(0, 20 * SECOND), &[], true);
    let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert_eq!(until, Until::At(bench.now + Duration::from_millis(20_500)), "somebody else had the hundredth");
}

#[test]
fn account_refusal_slows_the_exhausted_endpoint_limit() {
    let (mut bench, lanes) = tenants(Scope::AccountEndpoint, Mode::Adaptive);
    // A limit of the whole account which is hardly used.
    let whole = fixed_window_limit("whole", 10_000, 60 * SECOND);
    let mut plan = (*bench.engine.lanes[lanes[0]].plan).clone();
    plan.account = plan.account.iter().cloned().chain([SharedSpec { spec: whole, endpoint: None }]).collect();
    let plan = Arc::new(plan);
    let lanes = ["a", "b"].map(|tenant| bench.lane(tenant, "other", &plan));
    let last = burst(&mut bench, lanes[0], request_to(COUNTED), 70);
    let refusal = Feedback::RefusedFor(Whose::Account, Wait::Stated(10 * SECOND), None);
    let heard = bench.notices_on_response(last, refusal);
    let slowed = heard.iter().filter(|noticed| matches!(noticed.notice, Notice::Yielded { .. })).count();
    assert_eq!(slowed, 1, "{heard:?}");
    let stands = |noticed: &&Noticed| matches!(noticed.notice, Notice::Exhausted { .. });
    let endpoints: Vec<_> = heard.iter().filter(stands).map(|noticed| noticed.of.endpoint.is_some()).collect();
    assert_eq!(endpoints, [false], "it is told of the account: {heard:?}");
    for (lane, endpoint) in [(lanes[0], FREE), (lanes[1], FREE), (lanes[1], COUNTED)] {
        let (waiter, until) = bench.submit_waiting(lane, request_to(endpoint));
        assert_eq!(until, Until::At(bench.now + Duration::from_secs(10)), "{endpoint:?}");
        bench.engine.cancel(bench.now, waiter);
    }
}
