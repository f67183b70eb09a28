//! Reports that leave something open: which limit they mean, or one of their figures.

use std::time::Duration;

use super::*;
use crate::plan::{Counting, Pace};
use crate::throttle::{Mode, Report, Says, Wait};

/// A limit of fixed windows, of which the client uses 80 %.
fn rate(name: &str, limit: u32, seconds: u64) -> LimitSpec {
    let (window_ns, budget) = (seconds * SECOND, limit * 4 / 5);
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(budget, f64::from(budget), window_ns, 0),
        guard: GuardSpec::Log(LogSpec::new(limit, 0, window_ns, TRANSIT).fixed()),
    };
    let unit_ns = window_ns / u64::from(budget);
    let (counting, mode) = (Counting::Windows, Mode::Adaptive);
    let pace = Pace { unit_ns, limit: limit.into(), window_ns, counting, mode };
    LimitSpec { kind, pace, ..per_second(name, limit) }
}

/// A lane with these limits, as (name, limit, window in seconds).
fn lane_of(limits: &[(&str, u32, u64)]) -> (Bench, LaneKey) {
    let own = limits.iter().map(|(name, limit, seconds)| rate(name, *limit, *seconds)).collect();
    let mut plan = Plan { has_slots: false, max_hold_ns: u64::MAX, ..plan(own) };
    plan.pace.mode = Mode::Adaptive;
    Bench::with(plan)
}

/// A report that nothing is left, with a reset in `seconds`, of a response that does not state the limit.
fn nothing_left(seconds: u64) -> Report {
    Report { reset_ns: Some(seconds * SECOND), says: Says::Remaining, ..Report::default() }
}

/// Returns how many requests are sent within `seconds`. The vendor answers each at once, without a report.
fn count_sent(bench: &mut Bench, lane: LaneKey, seconds: u64) -> usize {
    let mut sent = 0;
    for _ in 0..seconds * 40 {
        if let Answer::Granted(permit) = bench.submit(lane, Ask { immediate: true, ..ask(Tier::High) }) {
            bench.on_response(permit, Feedback::Passed(None));
            sent += 1;
        }
        bench.advance_to(bench.now + Duration::from_millis(25));
    }
    sent
}

/// The time between requests of the lane's first limit, in nanoseconds, if the vendor's responses have changed it.
fn spacing(bench: &mut Bench, lane: LaneKey) -> Option<u64> {
    let lane = &mut bench.engine.lanes[lane];
    let pace = lane.plan.own[0].pace;
    lane.own.as_mut()[0].throttle_mut()?.spacing(bench.now, &pace)
}

#[test]
fn nothing_left_of_an_unstated_limit_stops_the_one_that_fits() {
    let limits = [("second", 10, 1), ("minute", 600, 60)];
    let (mut bench, lane) = lane_of(&limits);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Passed(Some(nothing_left(30))));
    let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert_eq!(until, Until::At(bench.now + Duration::from_millis(30_500)), "a second's window ends earlier");
    // Of no limit that is configured: the lane waits.
    let (mut bench, lane) = lane_of(&limits[..1]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Passed(Some(nothing_left(30))));
    let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
    assert_eq!(until, Until::At(bench.now + Duration::from_millis(30_500)));
}

#[test]
fn refusal_without_figures_lowers_no_limit() {
    let (mut bench, lane) = lane_of(&[("second", 10, 1), ("minute", 600, 60)]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Refused(Wait::Stated(30 * SECOND), Some(nothing_left(30))));
    assert_eq!(count_sent(&mut bench, lane, 30), 0);
    bench.advance_to(bench.now + Duration::from_secs(1));
    // The rate grows back over the 30 s of the pause, to 8 a second.
    let sent = count_sent(&mut bench, lane, 60);
    assert!(sent >= 250, "{sent}");
}

#[test]
fn report_without_limit_keeps_the_stated_one() {
    let (mut bench, lane) = lane_of(&[("minute", 600, 60)]);
    let stated = Report { limit: 300, remaining: 299, ..Report::default() };
    let unstated = Report { limit: 600, remaining: 599, says: Says::Remaining, ..Report::default() };
    for report in [stated, unstated] {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.on_response(permit, Feedback::Passed(Some(report)));
        bench.advance_to(bench.now + Duration::from_secs(1));
    }
    assert_eq!(spacing(&mut bench, lane), Some(250_000_000), "four fifths of 300 a minute");
}

/// A queue that waits for units of a lower limit goes on when that limit is believed no longer.
#[test]
fn lower_limit_parks_a_queue_for_15_minutes() {
    let (mut bench, lane) = lane_of(&[("daily", 1_000, 86_400)]);
    let of = |cost: u32| Ask { cost: cost.into(), ..ask(Tier::High) };
    let permit = bench.submit_granted(lane, of(600));
    let stated = Report { limit: 500, remaining: 250, ..Report::default() };
    bench.on_response(permit, Feedback::Passed(Some(stated)));
    let end = bench.now + Duration::from_secs(900);
    let (waiter, until) = bench.submit_waiting(lane, of(1));
    assert_eq!(until, Until::At(end));
    assert_eq!(bench.serve(end, 0), [(end, waiter)]);
}

/// Two families of headers are about the same limit.
#[test]
fn looser_report_ends_no_stop() {
    let says = |limit: u64, remaining: u64, seconds: u64, says: Says| Report {
        limit,
        remaining,
        reset_ns: Some(seconds * SECOND),
        says,
        ..Report::default()
    };
    let nothing = says(1_000, 0, 20, Says::Remaining);
    for looser in [says(1_000, 100, 600, Says::Remaining), says(1_000, 100, 600, Says::Both)] {
        let (mut bench, lane) = lane_of(&[("hourly", 1_000, 3_600)]);
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(nothing)), &[looser], true);
        let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
        assert_eq!(until, Until::At(bench.now + Duration::from_millis(20_500)), "{looser:?}");
    }
    // Of a limit that no configuration states.
    let (mut bench, lane) = lane_of(&[]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let [nothing, looser] = [says(77, 0, 20, Says::Both), says(77, 10, 600, Says::Both)];
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(nothing)), &[looser], true);
    bench.submit_waiting(lane, ask(Tier::High));
    // The figure of the limit decides between reports that may be about it.
    let (mut bench, lane) = lane_of(&[("hourly", 1_000, 3_600)]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let [of_another, its_own] = [says(5_000, 0, 20, Says::Both), says(1_000, 999, 600, Says::Both)];
    bench.engine.answered_with(bench.now, permit, Feedback::Passed(Some(of_another)), &[its_own], true);
    bench.submit_granted(lane, ask(Tier::High));
}

#[test]
fn limit_without_remaining_ends_no_stop() {
    for limits in [&[("hourly", 1_000, 3_600)][..], &[]] {
        let (mut bench, lane) = lane_of(limits);
        let permits = [0, 1].map(|_| {
            bench.advance_to(bench.now + Duration::from_millis(10));
            bench.submit_granted(lane, ask(Tier::High))
        });
        let nothing = Report { limit: 1_000, reset_ns: Some(20 * SECOND), ..Report::default() };
        let limit = Report { limit: 1_000, remaining: 1_000, says: Says::Limit, ..Report::default() };
        for (permit, report) in permits.into_iter().zip([nothing, limit]) {
            bench.on_response(permit, Feedback::Passed(Some(report)));
        }
        let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
        assert_eq!(until, Until::At(bench.now + Duration::from_millis(20_500)), "{limits:?}");
    }
}

#[test]
fn lower_limit_without_remaining_slows_the_lane() {
    let (mut bench, lane) = lane_of(&[("minute", 600, 60)]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let limit = Report { limit: 300, remaining: 300, says: Says::Limit, ..Report::default() };
    bench.on_response(permit, Feedback::Passed(Some(limit)));
    assert_eq!(spacing(&mut bench, lane), Some(250_000_000));
}
