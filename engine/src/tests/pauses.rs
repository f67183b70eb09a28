//! How long one answer stops a lane, and all lanes of an account or a vendor.

use std::time::Duration;

use super::*;
use crate::plan::{Counting, Pace};
use crate::throttle::{Mode, Report, Wait};

const MONTH: u64 = 31 * 86_400 * SECOND;

fn all_of_vendor() -> Group<'static> {
    Group { vendor: "vendor", environment: "live", account: None }
}

fn lanes_of_tenants<const N: usize>(bench: &mut Bench, tenants: [&str; N]) -> [LaneKey; N] {
    let plan = Arc::new(Plan { max_hold_ns: u64::MAX, ..plan(vec![slots("slots", 9)]) });
    tenants.map(|tenant| bench.lane(tenant, tenant, &plan))
}

/// A tenant's request is refused for all who call the vendor, for a month.
fn refuse(bench: &mut Bench, tenant: &str, lane: LaneKey) {
    refuse_for(bench, tenant, lane, MONTH);
}

fn refuse_for(bench: &mut Bench, tenant: &str, lane: LaneKey, wait: u64) {
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.answered_with(bench.now, permit, Feedback::Refused(Wait::Stated(wait), None), &[], true);
    bench.engine.pause_group(bench.now, all_of_vendor(), tenant, bench.now.plus_nanos(wait), 900 * SECOND);
}

pub(super) fn paused_for(bench: &Bench, lane: LaneKey) -> Duration {
    bench.engine.paused_until(bench.now, lane).map_or(Duration::ZERO, |until| until.since(bench.now))
}

#[test]
fn tenants_refusal_stops_others_for_15_minutes() {
    let mut bench = Bench::new();
    let [refused, other] = lanes_of_tenants(&mut bench, ["refused", "other"]);
    refuse(&mut bench, "refused", refused);
    let start = bench.now;
    assert_eq!(paused_for(&bench, refused), Duration::from_nanos(MONTH), "its own lane waits as it was told");
    let waiter = bench.submit_waiting(other, ask(Tier::High)).0;
    let grants = bench.serve(start + Duration::from_secs(3_600), 0);
    let (at, first) = grants[0];
    assert_eq!(first, waiter);
    assert!((900..=905).contains(&at.since(start).as_secs()), "{:?}", at.since(start));
}

/// Who looks at a lane is told until when it would have to wait, and changes nothing about it.
#[test]
fn looking_at_lanes_pauses_none() {
    let mut bench = Bench::new();
    let [refused, other] = lanes_of_tenants(&mut bench, ["refused", "other"]);
    refuse(&mut bench, "refused", refused);
    let seen = |bench: &mut Bench| {
        let check = bench.engine.check(bench.now, other, NO_ENDPOINT, Tier::High).unwrap();
        let view = bench.engine.view(bench.now, other).unwrap();
        let brief = bench.engine.brief(bench.now, other).unwrap();
        [check.stop.unwrap().1.not_before(), view.paused_until, brief.paused_until]
    };
    let before = seen(&mut bench);
    assert!(before.iter().all(|until| *until == before[0]), "{before:?}");
    assert!((900..=905).contains(&before[0].since(bench.now).as_secs()), "{before:?}");
    assert!(bench.engine.lanes[other].throttle.is_none(), "nothing is made for it");
    bench.submit_waiting(other, ask(Tier::High));
    assert!(bench.engine.lanes[other].throttle.is_some());
    assert_eq!(seen(&mut bench), before, "as a request is told");
}

#[test]
fn second_tenants_refusal_stops_all_as_stated() {
    let mut bench = Bench::new();
    let [refused, second, third] = lanes_of_tenants(&mut bench, ["refused", "second", "third"]);
    refuse(&mut bench, "refused", refused);
    bench.now = bench.now + Duration::from_secs(910);
    bench.sweep(bench.now, false);
    refuse(&mut bench, "second", second);
    assert_eq!(paused_for(&bench, third), Duration::from_nanos(MONTH));
}

/// Only a refusal that asks for a long pause confirms another one.
#[test]
fn short_refusal_is_no_witness() {
    let mut bench = Bench::new();
    let [refused, second, third] = lanes_of_tenants(&mut bench, ["refused", "second", "third"]);
    refuse_for(&mut bench, "refused", refused, SECOND);
    bench.now = bench.now + Duration::from_secs(10);
    bench.sweep(bench.now, false);
    refuse(&mut bench, "second", second);
    assert!(paused_for(&bench, third) <= Duration::from_secs(905), "{:?}", paused_for(&bench, third));
}

#[test]
fn probe_follows_a_pause_without_refusal() {
    let mut bench = Bench::new();
    let [lane] = lanes_of_tenants(&mut bench, ["acme"]);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.engine.answered_with(bench.now, permit, Feedback::PassedFor(3_600 * SECOND, None), &[], true);
    assert_eq!(paused_for(&bench, lane), Duration::from_secs(3_600));
    let start = bench.now;
    let alone = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.submit_waiting(lane, ask(Tier::High));
    let grants = bench.serve(start + Duration::from_secs(3_600), SECOND);
    assert_eq!(grants, [(start + Duration::from_secs(3_600), alone)], "one request finds out");
}

/// Two lanes of an account that is paused for a second; a request of the second lane probes it. Returns the lanes and the
/// permit of the probe.
fn probed_account() -> (Bench, [LaneKey; 2], PermitKey) {
    let (mut bench, [a, b]) = lanes_of_daily_limit(Mode::Adaptive, ["a", "b"], 900 * SECOND);
    let permit = bench.submit_granted(a, ask(Tier::High));
    bench.on_response(permit, Feedback::RefusedFor(Whose::Account, Wait::Stated(SECOND), None));
    bench.engine.finished(bench.now, permit);
    bench.advance_to(bench.now + Duration::from_secs(2));
    let probe = bench.submit_granted(b, ask(Tier::High));
    bench.advance_to(bench.now + Duration::from_millis(100));
    (bench, [a, b], probe)
}

#[test]
fn failed_probe_is_followed_by_another() {
    let (mut bench, [a, _], probe) = probed_account();
    let waiter = bench.submit_waiting(a, ask(Tier::High)).0;
    assert!(bench.start_granted(&mut vec![waiter]).is_empty());
    // The vendor's error says nothing about the limit. Its body is still on the way.
    bench.engine.answered_with(bench.now, probe, Feedback::Failed, &[], false);
    assert_eq!(bench.start_granted(&mut vec![waiter]).len(), 1);
}

#[test]
fn slow_probe_is_joined_by_another() {
    let (mut bench, [a, b], probe) = probed_account();
    let start = bench.now;
    let second = bench.submit_waiting(a, ask(Tier::High)).0;
    bench.submit_waiting(b, ask(Tier::High));
    bench.submit_waiting(a, ask(Tier::High));
    // The vendor answers after a minute, and not at all before.
    let grants = bench.serve(start + Duration::from_secs(15), 60 * SECOND);
    assert_eq!(grants.len(), 1, "{grants:?}");
    assert_eq!(grants[0].1, second);
    assert!((9..=11).contains(&grants[0].0.since(start).as_secs()), "{grants:?}");
    // The answer to the first of both ends the pause.
    bench.on_response(probe, Feedback::Passed(None));
    let grants = bench.serve(bench.now + Duration::from_secs(1), SECOND);
    assert!(!grants.is_empty());
}

/// A lane whose vendor may keep a request waiting for a quarter of an hour, paused for `seconds`. It has one slot.
fn paused_lane(seconds: u64) -> (Bench, LaneKey) {
    let plan = plan(vec![slots("slots", 1)]);
    let (mut bench, lane) = Bench::with(plan.clone());
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Refused(Wait::Stated(seconds * SECOND), None));
    (bench, lane)
}

/// Waits a minute, and as long again after each pause.
fn patient_request(bench: &Bench) -> Ask {
    Ask {
        give_up: bench.now + Duration::from_secs(60),
        patience_ns: 60 * SECOND,
        attempt: Attempt::within(3_600 * SECOND),
        ..ask(Tier::High)
    }
}

#[test]
fn pause_extends_a_patient_callers_deadline() {
    let (mut bench, lane) = paused_lane(600);
    let (start, ask) = (bench.now, patient_request(&bench));
    assert!(matches!(bench.submit(lane, Ask { patience_ns: 0, ..ask }), Answer::Refused(Refusal::RetryLater { .. })));
    let mut waiters = vec![bench.submit_waiting(lane, ask).0, bench.submit_waiting(lane, ask).0];
    bench.advance_to(start + Duration::from_secs(599));
    assert!(bench.start_granted(&mut waiters).is_empty());
    bench.advance_to(start + Duration::from_secs(600));
    let probe = bench.start_granted(&mut waiters);
    assert_eq!(probe.len(), 1);
    // The other has a minute for its turn.
    bench.advance_to(start + Duration::from_secs(659));
    assert!(matches!(bench.engine.claim(bench.now, waiters[0]), Claim::Waiting));
    bench.advance_to(start + Duration::from_secs(660));
    assert!(matches!(bench.engine.claim(bench.now, waiters[0]), Claim::Refused(Refusal::Deadline)));
}

#[test]
fn patient_caller_waits_15_minutes_at_most() {
    let (mut bench, lane) = paused_lane(600);
    let (start, ask) = (bench.now, patient_request(&bench));
    let mut waiters = vec![bench.submit_waiting(lane, ask).0, bench.submit_waiting(lane, ask).0];
    bench.advance_to(start + Duration::from_secs(600));
    let probe = bench.start_granted(&mut waiters)[0];
    // It would go on for 600 s more, which is more than 900 in all.
    bench.on_response(probe, Feedback::Refused(Wait::Stated(600 * SECOND), None));
    assert!(matches!(bench.engine.claim(bench.now, waiters[0]), Claim::Refused(Refusal::RetryLater { .. })));
    // One that comes now has another quarter of an hour, and is told at once of a pause that is longer.
    let waiter = bench.submit_waiting(lane, patient_request(&bench)).0;
    bench.advance_to(start + Duration::from_secs(1_200));
    let Claim::Started(probe, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    bench.on_response(probe, Feedback::Refused(Wait::Stated(901 * SECOND), None));
    let answer = bench.submit(lane, patient_request(&bench));
    assert!(matches!(answer, Answer::Refused(Refusal::RetryLater { .. })), "{answer:?}");
}

#[test]
fn operators_pause_counts_as_waiting() {
    let (mut bench, lane) = paused_lane(1);
    bench.engine.pause(bench.now, lane);
    let waiter = bench.submit_waiting(lane, patient_request(&bench)).0;
    bench.advance_to(bench.now + Duration::from_secs(70));
    assert!(matches!(bench.engine.claim(bench.now, waiter), Claim::Refused(Refusal::Held)));
}

#[test]
fn refused_endpoint_resumes_beside_a_waiting_one() {
    // The refused limit is the endpoint's own, or one of all requests.
    for is_of_endpoint in [true, false] {
        let mut plan = plan(if is_of_endpoint { vec![] } else { vec![per_second("refused", 10)] });
        plan = with_endpoint(plan, "refused", per_second("own", 10));
        plan = with_endpoint(plan, "other", slots("one", 1));
        let (mut bench, lane) = Bench::with(Plan { max_hold_ns: u64::MAX, ..plan });
        let (refused, other) = (
            Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) },
            Ask { endpoint: EndpointId::at(1), ..ask(Tier::High) },
        );
        // The other endpoint's only slot is taken by what does not end.
        let _held = bench.submit_granted(lane, other);
        bench.submit_waiting(lane, other);
        let permit = bench.submit_granted(lane, refused);
        bench.on_response(permit, Feedback::Refused(Wait::Stated(2 * SECOND), None));
        let waiter = bench.submit_waiting(lane, refused).0;
        let grants = bench.serve(bench.now + Duration::from_secs(4), SECOND);
        let went = grants.iter().any(|(_, granted)| *granted == waiter);
        assert!(went, "is_of_endpoint={is_of_endpoint}: {grants:?}");
    }
}

/// The refusal stopped the account that the lane had left, and the lane went on.
#[test]
fn refusal_stops_a_lane_after_its_move() {
    let mut bench = Bench::new();
    let plan = Arc::new(Plan { max_hold_ns: u64::MAX, ..with_shared(plan(vec![]), vec![slots("account", 4)], vec![]) });
    let lane = bench.lane("acme", "first", &plan);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    assert_eq!(bench.lane("acme", "second", &plan), lane);
    bench.engine.answered_with(bench.now, permit, Feedback::Refused(Wait::Stated(30 * SECOND), None), &[], true);
    assert_eq!(paused_for(&bench, lane), Duration::from_secs(30));
    let start = bench.now;
    bench.submit_waiting(lane, ask(Tier::High));
    let grants = bench.serve(start + Duration::from_secs(60), 0);
    assert_eq!(grants.len(), 1);
    assert!((30..=34).contains(&grants[0].0.since(start).as_secs()));
}

pub(super) const DAY: u64 = 86_400 * SECOND;

/// Tenants of an account that has 100 requests a day. One tenant's response stops the others for `most` nanoseconds.
pub(super) fn lanes_of_daily_limit<const N: usize>(mode: Mode, tenants: [&str; N], most: u64) -> (Bench, [LaneKey; N]) {
    let mut spec = per_second("daily", 100);
    spec.kind = LimitKind::Rate {
        bucket: BucketSpec::new(80, 100.0, DAY, 0),
        guard: GuardSpec::Log(LogSpec::new(100, 0, DAY, TRANSIT).fixed()),
    };
    spec.pace = Pace { unit_ns: DAY / 100, limit: 100, window_ns: DAY, counting: Counting::Windows, mode };
    let mut plan = Plan { has_slots: false, max_hold_ns: u64::MAX, one_witness_ns: most, ..plan(Vec::new()) };
    plan.pace.mode = mode;
    plan.account = [SharedSpec { spec, endpoint: None }].into();
    let plan = Arc::new(plan);
    let mut bench = Bench::new();
    let lanes = tenants.map(|tenant| bench.lane(tenant, "account", &plan));
    (bench, lanes)
}

pub(super) fn report_of_day(limit: u64, remaining: u64) -> Feedback {
    Feedback::Passed(Some(Report { limit, remaining, reset_ns: Some(DAY), ..Report::default() }))
}

#[test]
fn tenants_report_stops_others_as_configured() {
    let modes = [Mode::Bands, Mode::Adaptive, Mode::Pace, Mode::Off];
    for (mode, most) in modes.into_iter().flat_map(|mode| [(mode, 900), (mode, 60)]) {
        let (mut bench, [a, b, c]) = lanes_of_daily_limit(mode, ["a", "b", "c"], most * SECOND);
        let permit = bench.submit_granted(a, ask(Tier::High));
        bench.on_response(permit, report_of_day(100, 0));
        bench.engine.finished(bench.now, permit);
        let start = bench.now;
        let mut waiters: Vec<WaiterKey> = [b, c].map(|lane| bench.submit_waiting(lane, ask(Tier::High)).0).into();
        bench.advance_to(start + Duration::from_secs(most - 1));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{mode:?}: the report is believed");
        bench.advance_to(start + Duration::from_secs(most + 1));
        let probe = bench.start_granted(&mut waiters);
        assert_eq!(probe.len(), 1, "{mode:?}: one request finds out");
        assert!(paused_for(&bench, a) > Duration::from_secs(80_000), "{mode:?}: who was told waits");
        // Another tenant hears the same, so that all wait as long as the vendor says.
        bench.on_response(probe[0], report_of_day(100, 0));
        bench.engine.finished(bench.now, probe[0]);
        bench.advance_to(start + Duration::from_secs(7_200));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{mode:?}: two tenants are believed");
    }
}

/// Requests in flight may take the units that are left, so the limit stops as if none were left. Their responses do not
/// correct the report, because they were granted before.
#[test]
fn tenants_report_of_few_units_stops_others_as_configured() {
    for mode in [Mode::Adaptive, Mode::Pace] {
        let (mut bench, [a, b, c]) = lanes_of_daily_limit(mode, ["a", "b", "c"], 900 * SECOND);
        let earlier: Vec<PermitKey> = (0..5).map(|_| bench.submit_granted(b, ask(Tier::High))).collect();
        bench.advance_to(bench.now + Duration::from_millis(500));
        let permit = bench.submit_granted(a, ask(Tier::High));
        bench.advance_to(bench.now + Duration::from_millis(500));
        bench.on_response(permit, report_of_day(100, 5));
        bench.engine.finished(bench.now, permit);
        let start = bench.now;
        for permit in earlier {
            bench.on_response(permit, report_of_day(100, 95));
            bench.engine.finished(bench.now, permit);
        }
        let mut waiters: Vec<WaiterKey> = [b, c].map(|lane| bench.submit_waiting(lane, ask(Tier::High)).0).into();
        bench.advance_to(start + Duration::from_secs(899));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{mode:?}: the report is believed");
        bench.advance_to(start + Duration::from_secs(901));
        assert_eq!(bench.start_granted(&mut waiters).len(), 2, "{mode:?}: it is forgotten");
    }
}

#[test]
fn report_of_units_left_is_replaced_by_the_next() {
    let (mut bench, [a, b, c]) = lanes_of_daily_limit(Mode::Adaptive, ["a", "b", "c"], 900 * SECOND);
    let earlier: Vec<PermitKey> = (0..5).map(|_| bench.submit_granted(b, ask(Tier::High))).collect();
    let permit = bench.submit_granted(a, ask(Tier::High));
    let later = bench.submit_granted(c, ask(Tier::High));
    bench.advance_to(bench.now + Duration::from_millis(500));
    bench.on_response(permit, report_of_day(100, 5));
    let (waiter, _) = bench.submit_waiting(b, ask(Tier::High));
    for permit in [later, permit].into_iter().chain(earlier) {
        bench.on_response(permit, report_of_day(100, 93));
        bench.engine.finished(bench.now, permit);
    }
    assert_eq!(bench.start_granted(&mut vec![waiter]).len(), 1);
    bench.submit_granted(a, ask(Tier::High));
}

/// A report of few units spaces grants out by hours. The request that is granted under it shows that it was wrong, or is
/// never answered.
#[test]
fn delay_by_a_wrong_report_ends_with_the_next() {
    for mode in [Mode::Adaptive, Mode::Pace, Mode::Bands] {
        for is_answered in [true, false] {
            let (mut bench, [a, b, c]) = lanes_of_daily_limit(mode, ["a", "b", "c"], 900 * SECOND);
            let wrong = bench.submit_granted(a, ask(Tier::High));
            bench.on_response(wrong, report_of_day(100, 5));
            bench.engine.finished(bench.now, wrong);
            let permit = bench.submit_granted(b, ask(Tier::High));
            bench.advance_to(bench.now + Duration::from_millis(50));
            let start = bench.now;
            let waiter = bench.submit_waiting(c, ask(Tier::High)).0;
            assert!(bench.start_granted(&mut vec![waiter]).is_empty(), "{mode:?}: the report is believed");
            if is_answered {
                bench.on_response(permit, report_of_day(100, 98));
            }
            bench.engine.finished(bench.now, permit);
            // `pace` spreads 98 units evenly over the day.
            let wait = Duration::from_secs(if is_answered && mode != Mode::Pace { 1 } else { 901 });
            assert_eq!(bench.serve(start + wait, 0).len(), 1, "{mode:?}, is_answered={is_answered}");
        }
    }
}

#[test]
fn report_that_another_tenant_saw_coming_stops_all_until_reset() {
    let (mut bench, [a, b, c]) = lanes_of_daily_limit(Mode::Adaptive, ["a", "b", "c"], 900 * SECOND);
    for (lane, remaining) in [(b, 20), (a, 0)] {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.on_response(permit, report_of_day(100, remaining));
        bench.engine.finished(bench.now, permit);
    }
    let mut waiters = vec![bench.submit_waiting(c, ask(Tier::High)).0];
    bench.advance_to(bench.now + Duration::from_secs(86_000));
    assert!(bench.start_granted(&mut waiters).is_empty());
}

/// No other tenant uses the limit that a wrong report could stop, so the report is obeyed in full.
#[test]
fn report_of_only_tenant_stops_it_until_reset() {
    let (mut bench, [a]) = lanes_of_daily_limit(Mode::Adaptive, ["a"], 900 * SECOND);
    let permit = bench.submit_granted(a, ask(Tier::High));
    bench.on_response(permit, report_of_day(100, 0));
    bench.engine.finished(bench.now, permit);
    let start = bench.now;
    let mut waiters = vec![bench.submit_waiting(a, ask(Tier::High)).0];
    bench.advance_to(start + Duration::from_secs(86_399));
    assert!(bench.start_granted(&mut waiters).is_empty());
    bench.advance_to(start + Duration::from_secs(86_402));
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
}

#[test]
fn tenants_lower_limit_slows_others_for_15_minutes() {
    let (mut bench, [a, b]) = lanes_of_daily_limit(Mode::Adaptive, ["a", "b"], 900 * SECOND);
    let permit = bench.submit_granted(a, ask(Tier::High));
    bench.on_response(permit, report_of_day(10, 10));
    bench.engine.finished(bench.now, permit);
    let at_once = || Ask { immediate: true, ..ask(Tier::High) };
    let mut count = |seconds: u64| {
        bench.advance_to(bench.now + Duration::from_secs(seconds));
        let mut granted = 0;
        while let Answer::Granted(permit) = bench.submit(b, at_once()) {
            bench.engine.finished(bench.now, permit);
            granted += 1;
        }
        granted
    };
    let slowed = count(1);
    assert!(slowed <= 10, "{slowed}");
    let after = count(901);
    assert!(after >= 50, "{after}");
}

/// A tenant goes to another account while its request is under way. The response stops those who stay.
#[test]
fn moved_tenants_response_stops_others_for_15_minutes() {
    let words = [Feedback::RefusedFor(Whose::Account, Wait::Stated(DAY), None), report_of_day(100, 0)];
    for (word, to_another_engine) in words.into_iter().flat_map(|word| [(word, true), (word, false)]) {
        let (mut bench, [moves, stays]) = lanes_of_daily_limit(Mode::Adaptive, ["moves", "stays"], 900 * SECOND);
        let plan = bench.engine.lanes[moves].plan.clone();
        let permit = bench.submit_granted(moves, ask(Tier::High));
        if to_another_engine {
            let moved = bench.engine.move_out(bench.now, moves).expect("the lane exists");
            let mut other = Bench { now: bench.now, ..Bench::new() };
            let there = other.lane("moves", "elsewhere", &plan);
            other.engine.take_over(other.now, there, moved, &mut bench.engine);
        } else {
            bench.lane("moves", "elsewhere", &plan);
        }
        bench.on_response(permit, word);
        let start = bench.now;
        let waiter = bench.submit_waiting(stays, ask(Tier::High)).0;
        let grants = bench.serve(start + Duration::from_secs(3_600), 0);
        let (at, first) = grants[0];
        assert_eq!(first, waiter);
        let waited = at.since(start).as_secs();
        assert!((899..=901).contains(&waited), "{word:?}, to_another_engine={to_another_engine}: {waited} s");
    }
}

/// Two tenants chose different hosts, and one of them goes to another account while its request is under way.
#[test]
fn moved_tenants_host_stops_nobody_else() {
    let (mut bench, [moves, stays]) = lanes_of_daily_limit(Mode::Adaptive, ["moves", "stays"], 900 * SECOND);
    let plan = bench.engine.lanes[moves].plan.clone();
    for (tenant, host) in [("moves", "https://evil"), ("stays", "https://one")] {
        bench.lane_at(tenant, "account", &plan, Some(host));
    }
    let permit = bench.submit_granted(moves, ask(Tier::High));
    bench.lane_at("moves", "elsewhere", &plan, Some("https://evil"));
    bench.on_response(permit, Feedback::RefusedFor(Whose::Account, Wait::Stated(DAY), None));
    bench.submit_granted(stays, ask(Tier::High));
}

/// The vendor's refusal pauses the limit that tenants share, or the lane alone if there is no limit.
#[test]
fn unpausing_keeps_the_vendors_pause() {
    let wait = Wait::Stated(30 * SECOND);
    let (shared, [lane, other]) = lanes_of_daily_limit(Mode::Adaptive, ["acme", "umbra"], 900 * SECOND);
    let (alone, only) = Bench::with(Plan { has_slots: false, max_hold_ns: u64::MAX, ..plan(Vec::new()) });
    for (mut bench, lane, other, word) in [
        (shared, lane, Some(other), Feedback::RefusedFor(Whose::Account, wait, None)),
        (alone, only, None, Feedback::Refused(wait, None)),
    ] {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.engine.pause(bench.now, lane);
        bench.on_response(permit, word);
        let stands = bench.engine.stands_until(lane, NO_ENDPOINT);
        assert!(stands.since(bench.now) >= Duration::from_secs(30), "{word:?}");
        let of_other = other.map(|other| paused_for(&bench, other));
        assert!(of_other.is_none_or(|wait| wait >= Duration::from_secs(30)), "{word:?}: {of_other:?}");
        bench.engine.unpause(bench.now, lane);
        assert!(!bench.engine.is_held(lane));
        assert_eq!(bench.engine.stands_until(lane, NO_ENDPOINT), stands, "{word:?}");
        assert_eq!(bench.engine.paused_until(bench.now, lane), Some(stands), "{word:?}");
        assert_eq!(other.map(|other| paused_for(&bench, other)), of_other, "{word:?}");
    }
}

#[test]
fn unpaused_lane_goes_on_at_once() {
    let mut bench = Bench::new();
    let [lane] = lanes_of_tenants(&mut bench, ["acme"]);
    assert!(bench.engine.unpause(bench.now, lane).is_empty(), "there is nothing to end");
    bench.engine.pause(bench.now, lane);
    let mut waiters = vec![bench.submit_waiting(lane, ask(Tier::High)).0];
    assert!(bench.start_granted(&mut waiters).is_empty());
    assert_eq!(bench.engine.unpause(bench.now, lane).len(), 1, "its end is told");
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
    assert_eq!(bench.engine.paused_until(bench.now, lane), None);
}
