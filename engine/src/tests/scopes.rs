//! What a vendor says acts where its limit is, whatever the scope.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::limit::{BlockedBy, Got, Pooled};
use crate::plan::{Counting, Pace};
use crate::throttle::{About, Label, Mode, Notice, Report, Wait};

/// Whose the limit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Tenant,
    Account,
    Vendor,
    /// One endpoint's, for each tenant.
    Endpoint,
    /// One endpoint's, for the account.
    AccountEndpoint,
}

pub(super) const SCOPES: [Scope; 5] =
    [Scope::Tenant, Scope::Account, Scope::Vendor, Scope::Endpoint, Scope::AccountEndpoint];
pub(super) const WINDOW: u64 = 15;
/// Two endpoints: only requests to the first count in the limit of an endpoint.
pub(super) const COUNTED: EndpointId = EndpointId::at(0);
pub(super) const FREE: EndpointId = EndpointId::at(1);

pub(super) fn limit(mode: Mode) -> LimitSpec {
    let mut spec = per_second("requests", 100);
    spec.kind = LimitKind::Rate {
        bucket: BucketSpec::new(80, 100.0, WINDOW * SECOND, 0),
        guard: GuardSpec::Log(LogSpec::new(100, 0, WINDOW * SECOND, TRANSIT).fixed()),
    };
    let (limit, window_ns) = (100, WINDOW * SECOND);
    spec.pace = Pace { unit_ns: window_ns / limit, limit, window_ns, counting: Counting::Windows, mode };
    spec
}

fn endpoint(name: &str) -> EndpointPlan {
    EndpointPlan { name: name.into(), hash: EndpointHash::of(name), own: 0..0 }
}

/// Four tenants of one account.
pub(super) fn tenants(scope: Scope, mode: Mode) -> (Bench, Vec<LaneKey>) {
    let spec = limit(mode);
    let mut plan = Plan { has_slots: false, ..plan(Vec::new()) };
    plan.pace.mode = mode;
    plan.endpoints = vec![endpoint("counted"), endpoint("free")];
    match scope {
        Scope::Tenant => (plan.own, plan.whole) = (vec![spec], 1),
        Scope::Account => plan.account = [SharedSpec { spec, endpoint: None }].into(),
        Scope::Vendor => plan.vendor_wide = [SharedSpec { spec, endpoint: None }].into(),
        Scope::Endpoint => {
            plan.own = vec![spec];
            plan.endpoints[0].own = 0..1;
            plan.endpoints[1].own = 1..1;
        }
        Scope::AccountEndpoint => plan.account = [endpoint_spec("counted", spec)].into(),
    }
    let plan = Arc::new(plan);
    let mut bench = Bench::new();
    let lanes = ["a", "b", "c", "d"].map(|tenant| bench.lane(tenant, "account", &plan));
    (bench, lanes.to_vec())
}

pub(super) fn request_to(endpoint: EndpointId) -> Ask {
    Ask { endpoint, ..ask(Tier::High) }
}

pub(super) fn report_with_left(remaining: u64) -> Report {
    Report { limit: 100, remaining, reset_ns: Some(WINDOW * SECOND), ..Report::default() }
}

/// Those of the lanes that share the limit with the first.
pub(super) fn lanes_sharing_limit(scope: Scope, lanes: &[LaneKey]) -> &[LaneKey] {
    match scope {
        Scope::Tenant | Scope::Endpoint => &lanes[..1],
        _ => lanes,
    }
}

/// How many of the lanes' requests go in so many seconds, answered after 50 ms without a word.
fn count_sent(bench: &mut Bench, lanes: &[LaneKey], seconds: u64) -> usize {
    let mut sent = 0;
    for lane in lanes {
        for _ in 0..200 {
            match bench.submit(*lane, request_to(COUNTED)) {
                Answer::Granted(permit) => {
                    sent += 1;
                    bench.engine.finished(bench.now, permit);
                }
                Answer::Wait { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    sent + bench.serve(bench.now + Duration::from_secs(seconds), SECOND / 20).len()
}

#[test]
fn low_headroom_slows_all_sharers() {
    for scope in SCOPES {
        let (mut bench, lanes) = tenants(scope, Mode::Bands);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        let notice = bench.on_response(permit, Feedback::Passed(Some(report_with_left(9))));
        assert!(matches!(notice, Some(Notice::Slower { remaining_pct: 9, .. })), "{scope:?}: {notice:?}");
        let sent = count_sent(&mut bench, lanes_sharing_limit(scope, &lanes), 5);
        // A quarter of 6.67 a second, and the first at once.
        assert!((8..=9).contains(&sent), "{scope:?}: {sent}");
    }
}

#[test]
fn exhaustion_stops_all_sharers_until_reset() {
    for (scope, mode) in SCOPES.into_iter().flat_map(|scope| [(scope, Mode::Bands), (scope, Mode::Adaptive)]) {
        let (mut bench, lanes) = tenants(scope, mode);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        let until = bench.now + Duration::from_millis(WINDOW * 1_000 + 500);
        bench.on_response(permit, Feedback::Passed(Some(report_with_left(0))));
        for lane in lanes_sharing_limit(scope, &lanes) {
            let (waiter, waits) = bench.submit_waiting(*lane, request_to(COUNTED));
            assert_eq!(waits, Until::At(until), "{scope:?} {mode:?}");
            assert_eq!(bench.engine.waiters[waiter].reason.lack, Some(BlockedBy::Reported));
            bench.engine.cancel(bench.now, waiter);
        }
        if matches!(scope, Scope::Endpoint | Scope::AccountEndpoint) {
            bench.submit_granted(lanes[0], request_to(FREE));
        }
    }
}

#[test]
fn refusal_stops_all_sharers_and_one_probes() {
    for scope in SCOPES {
        let (mut bench, lanes) = tenants(scope, Mode::Adaptive);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        let until = bench.now + Duration::from_secs(10);
        let notice = bench.on_response(permit, Feedback::Refused(Wait::Stated(10 * SECOND), None));
        assert_eq!(notice, Some(Notice::Exhausted { until }), "{scope:?}: a pause, and no cut");
        let shared = lanes_sharing_limit(scope, &lanes);
        let mut waiters: Vec<WaiterKey> =
            shared.iter().map(|lane| bench.submit_waiting(*lane, request_to(COUNTED)).0).collect();
        if matches!(scope, Scope::Endpoint | Scope::AccountEndpoint) {
            bench.submit_granted(lanes[0], request_to(FREE));
        }
        for lane in lanes.iter().filter(|lane| !shared.contains(lane)) {
            bench.submit_granted(*lane, request_to(COUNTED));
        }
        bench.advance_to(until.minus_nanos(1));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{scope:?}: early");
        bench.advance_to(until);
        let probe = bench.start_granted(&mut waiters);
        assert_eq!(probe.len(), 1, "{scope:?}: one goes alone");
        bench.advance_to(until + Duration::from_secs(3));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{scope:?}: until it is known how it went");
        assert_eq!(bench.on_response(probe[0], Feedback::Passed(None)), Some(Notice::Recovered));
        let others = bench.start_granted(&mut waiters).len() + bench.serve(until + Duration::from_secs(20), 0).len();
        assert_eq!(others, shared.len() - 1, "{scope:?}");
    }
}

#[test]
fn unnamed_refusal_stops_possibly_full_slots() {
    let spec = slots("slots", 4);
    let shared: Arc<[SharedSpec]> = [SharedSpec { spec, endpoint: None }].into();
    let plan = Arc::new(Plan { account: shared, ..plan(Vec::new()) });
    let mut bench = Bench::new();
    let [a, b] = ["a", "b"].map(|tenant| bench.lane(tenant, "account", &plan));
    let permits = [a, b].map(|lane| bench.submit_granted(lane, ask(Tier::High)));
    let until = bench.now + Duration::from_secs(10);
    bench.on_response(permits[0], Feedback::Refused(Wait::Stated(10 * SECOND), None));
    bench.engine.finished(bench.now, permits[0]);
    bench.engine.finished(bench.now, permits[1]);
    let mut waiters: Vec<WaiterKey> = [a, b].map(|lane| bench.submit_waiting(lane, ask(Tier::High)).0).into();
    bench.advance_to(until.minus_nanos(1));
    assert!(bench.start_granted(&mut waiters).is_empty(), "early");
    bench.advance_to(until);
    assert_eq!(bench.start_granted(&mut waiters).len(), 1, "one goes alone");
}

#[test]
fn abandoned_probe_passes_to_another_lane() {
    for scope in [Scope::Account, Scope::Vendor, Scope::AccountEndpoint] {
        let (mut bench, lanes) = tenants(scope, Mode::Adaptive);
        let permit = bench.submit_granted(lanes[0], request_to(COUNTED));
        bench.on_response(permit, Feedback::Refused(Wait::Stated(10 * SECOND), None));
        let mut waiters: Vec<WaiterKey> =
            lanes.iter().map(|lane| bench.submit_waiting(*lane, request_to(COUNTED)).0).collect();
        bench.advance_to(bench.now + Duration::from_secs(10));
        let probe = bench.start_granted(&mut waiters);
        bench.engine.abandoned(bench.now, probe[0]);
        bench.advance_to(bench.now + Duration::from_secs(1));
        assert_eq!(bench.start_granted(&mut waiters).len(), 1, "{scope:?}");
    }
}

/// What a vendor states of a limit that the configuration does not know slows the lane down.
#[test]
fn discovered_limit_slows_the_lane() {
    for mode in [Mode::Bands, Mode::Adaptive, Mode::Pace] {
        let mut before = u64::MAX;
        for remaining in [25, 15, 5, 1] {
            let mut plan = Plan { has_slots: false, ..plan(Vec::new()) };
            plan.pace.mode = mode;
            let (mut bench, lane) = Bench::with(plan);
            let permit = bench.submit_granted(lane, ask(Tier::High));
            let notice = bench.on_response(permit, Feedback::Passed(Some(report_with_left(remaining))));
            if let Some(Notice::Slower { delay_ns, .. }) = notice {
                assert!(delay_ns > 0, "{mode:?}: {notice:?}");
            }
            bench.submit_granted(lane, ask(Tier::High));
            let (_, until) = bench.submit_waiting(lane, ask(Tier::High));
            let Until::At(at) = until else { panic!("{until:?}") };
            let spacing = at.since(bench.now).as_nanos() as u64;
            let full = WINDOW * SECOND / 100;
            assert!(spacing > full, "{mode:?}, {remaining} left: {spacing}");
            assert!(remaining == 25 || spacing >= before, "{mode:?}, {remaining} left: {spacing}");
            before = spacing;
            let seen = bench.engine.view(bench.now, lane).unwrap();
            let found = seen.limits.iter().find(|limit| limit.is_discovered).unwrap();
            assert_eq!((found.left, found.limit), (remaining as u32 - 1, 100), "one went since");
        }
    }
}

#[test]
fn unmentioned_limit_is_forgotten() {
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(Vec::new()) });
    let permit = bench.submit_granted(lane, ask(Tier::High));
    bench.on_response(permit, Feedback::Passed(Some(report_with_left(1))));
    assert!(bench.engine.view(bench.now, lane).unwrap().limits.iter().any(|limit| limit.is_discovered));
    bench.now = bench.now + Duration::from_secs(601);
    assert!(bench.engine.view(bench.now, lane).unwrap().limits.is_empty());
    bench.sweep(bench.now, false);
    assert!(bench.engine.lanes[lane].throttle.is_none());
}

#[test]
fn discovered_limits_are_bounded() {
    let (mut bench, lane) = Bench::with(Plan { has_slots: false, ..plan(Vec::new()) });
    for number in 0..100 {
        let about = About { name: Label::of(&format!("window {number}")), is_special: true, ..About::default() };
        let permit = bench.submit_granted(lane, ask(Tier::High));
        bench.on_response(permit, Feedback::Passed(Some(Report { about, ..report_with_left(1_000_000) })));
        bench.now = bench.now + Duration::from_millis(200);
    }
    let seen = bench.engine.view(bench.now, lane).unwrap();
    assert_eq!(seen.limits.len(), 8);
}

#[test]
fn report_belongs_to_best_fitting_limit() {
    let named = |name: &str, units: u32, seconds: u64| {
        let mut spec = limit(Mode::Bands);
        let (limit, window_ns) = (u64::from(units), seconds * SECOND);
        spec.name = name.into();
        spec.pace = Pace { unit_ns: window_ns / limit, limit, window_ns, ..spec.pace };
        spec
    };
    let mut plan = Plan { has_slots: false, ..plan(vec![named("burst", 10, 1), named("day", 1_000, 86_400)]) };
    plan.account = [SharedSpec { spec: named("tokens", 50_000, 60), endpoint: None }].into();
    let (mut bench, lane) = Bench::with(plan);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let origin = bench.engine.permits[permit].origin;
    let about = |name: &str, is_special: bool, seconds: Option<u64>| About {
        name: Label::of(name),
        is_special,
        window_ns: seconds.map(|seconds| seconds * SECOND),
        ..About::default()
    };
    use crate::origin::Target::{Own, Shared};
    for (about, limit, found) in [
        (about("Day", true, None), 1_000, Some(Own(1))),
        (about("", false, Some(1)), 10, Some(Own(0))),
        (about("", false, None), 1_000, Some(Own(1))),
        (about("", false, Some(86_400)), 5_000, Some(Own(1))),
        (about("tokens", true, None), 90_000, Some(Shared(0, 0))),
        // Which of them is not known.
        (about("", false, None), 77, None),
        (about("images", true, None), 77, None),
        (about("day", false, Some(60)), 77, None),
    ] {
        let report = Report { about, limit, remaining: 1, ..Report::default() };
        assert_eq!(bench.engine.limit_of(&origin, &report), found, "{about:?} {limit}");
    }
}

#[test]
fn far_reset_means_the_longer_limit() {
    let named = |name: &str, seconds: u64| {
        let mut spec = limit(Mode::Adaptive);
        spec.name = name.into();
        spec.pace = Pace { unit_ns: seconds * SECOND / 40, limit: 40, window_ns: seconds * SECOND, ..spec.pace };
        spec
    };
    let plan = Plan { has_slots: false, ..plan(vec![named("minute", 60), named("day", 86_400)]) };
    let (mut bench, lane) = Bench::with(plan);
    let permit = bench.submit_granted(lane, ask(Tier::High));
    let origin = bench.engine.permits[permit].origin;
    use crate::origin::Target::Own;
    for (seconds, found) in [(20_000, Own(1)), (30, Own(0))] {
        let report = Report { limit: 40, remaining: 1, reset_ns: Some(seconds * SECOND), ..Report::default() };
        assert_eq!(bench.engine.limit_of(&origin, &report), Some(found), "{seconds} s");
    }
}

#[test]
fn refusal_stops_only_plausible_limits() {
    let mut day = limit(Mode::Adaptive);
    day.name = "day".into();
    let plan = Plan { has_slots: false, ..plan(vec![limit(Mode::Adaptive), day]) };
    let plan = with_shared(plan, vec![limit(Mode::Adaptive)], Vec::new());
    let plan = Arc::new(plan);
    let mut bench = Bench::new();
    let [first, second] = ["first", "second"].map(|tenant| bench.lane(tenant, "account", &plan));
    // More than half of the account's limit is used, by both together.
    let mut permits = Vec::new();
    for _ in 0..30 {
        permits.push(bench.submit_granted(first, ask(Tier::High)));
        permits.push(bench.submit_granted(second, ask(Tier::High)));
    }
    let permit = permits.pop().unwrap();
    bench.on_response(permit, Feedback::Refused(Wait::Stated(10 * SECOND), None));
    let until = bench.engine.paused_until(bench.now, first);
    assert_eq!(until, Some(bench.now + Duration::from_secs(10)), "the account's limit stands for both");
    assert!(!bench.engine.lanes[second].own.as_slice().iter().any(|cell| cell.is_throttled()));
}

#[test]
fn tenants_host_speaks_for_that_tenant() {
    let hostile = |kind: usize| match kind {
        0 => Feedback::Refused(Wait::Stated(SECOND * 86_400 * 31), None),
        1 => Feedback::Refused(Wait::Guess { most: u64::MAX }, None),
        2 => Feedback::Refused(Wait::Stated(SECOND), Some(report_with_left(0))),
        3 => Feedback::RefusedFor(Whose::Vendor, Wait::Stated(SECOND * 86_400), None),
        4 => Feedback::RefusedFor(Whose::Account, Wait::Stated(SECOND * 86_400), Some(report_with_left(0))),
        5 => Feedback::RefusedFor(Whose::Endpoint, Wait::Stated(SECOND * 86_400), None),
        6 => Feedback::Passed(Some(report_with_left(0))),
        7 => Feedback::Passed(Some(Report { limit: 1, remaining: 0, reset_ns: Some(u64::MAX), ..Report::default() })),
        8 => Feedback::Passed(Some(Report { limit: u64::MAX, remaining: 1, reset_ns: Some(0), ..Report::default() })),
        9 => Feedback::PassedFor(u64::MAX, Some(report_with_left(1))),
        10 => Feedback::Failed,
        11 => Feedback::Disowned,
        _ => Feedback::Passed(Some(Report { limit: 0, remaining: u64::MAX, ..Report::default() })),
    };
    // The vendor's own host; one that all tenants chose; one that the first tenant chose alone.
    let [vendors, same, apart] = [[None, None], [Some("https://one"); 2], [Some("https://evil"), Some("https://one")]];
    for scope in [Scope::Account, Scope::Vendor, Scope::AccountEndpoint] {
        let mut stopped = std::collections::BTreeSet::new();
        for (kind, hosts) in (0..13).flat_map(|kind| [(kind, vendors), (kind, same), (kind, apart)]) {
            let (mut bench, lanes) = tenants(scope, Mode::Adaptive);
            let plan = bench.engine.lanes[lanes[0]].plan.clone();
            let plan = Arc::new(Plan { max_hold_ns: u64::MAX, ..(*plan).clone() });
            let lanes: Vec<LaneKey> = ["a", "b", "c", "d"]
                .map(|tenant| bench.lane_at(tenant, "account", &plan, hosts[usize::from(tenant != "a")]))
                .into_iter()
                .collect();
            for _ in 0..6 {
                if let Answer::Granted(permit) = bench.submit(lanes[0], Ask { immediate: true, ..request_to(COUNTED) })
                {
                    bench.on_response(permit, hostile(kind));
                }
            }
            let start = bench.now;
            let waiter = match bench.submit(lanes[1], request_to(COUNTED)) {
                Answer::Granted(_) => continue,
                Answer::Wait { waiter, .. } if hosts != apart => waiter,
                other => panic!("{scope:?} {kind}: {other:?}"),
            };
            // Even the vendor's own word stops others for a quarter of an hour at most, as long as one tenant heard it.
            let grants = bench.serve(start + Duration::from_secs(3_600), 0);
            let (at, _) = grants.iter().find(|(_, granted)| *granted == waiter).unwrap();
            assert!(at.since(start).as_secs() <= 901, "{scope:?} {kind}: {:?}", at.since(start));
            stopped.insert(kind);
        }
        // Refusals, and reports that no or hardly any units remain, stop the shared limit. The other answers act on the
        // lane that got them, or on a limit that is not configured.
        let expected: &[usize] = match scope {
            Scope::Account => &[0, 1, 2, 4, 6, 8],
            Scope::Vendor => &[0, 1, 2, 3, 4, 6, 8],
            _ => &[0, 1, 2, 4, 5, 6, 8],
        };
        assert_eq!(stopped.into_iter().collect::<Vec<_>>(), expected, "{scope:?}");
    }
}

/// A tenant at another host joins: what the first host said of the shared limit is forgotten, but for the wait of the
/// tenant that was refused, and it is not believed again.
#[test]
fn second_host_ends_trust_in_the_first() {
    let word = || Feedback::Refused(Wait::Stated(600 * SECOND), Some(report_with_left(0)));
    let (mut bench, lanes) = tenants(Scope::Account, Mode::Adaptive);
    let plan = bench.engine.lanes[lanes[0]].plan.clone();
    let [first, second] = ["a", "b"].map(|tenant| bench.lane_at(tenant, "account", &plan, Some("https://one")));
    let permit = bench.submit_granted(first, request_to(COUNTED));
    bench.on_response(permit, word());
    let at_once = || Ask { immediate: true, ..request_to(COUNTED) };
    assert!(matches!(bench.submit(second, at_once()), Answer::Refused(_)), "both chose this host, and it is believed");

    let third = bench.lane_at("c", "account", &plan, Some("https://two"));
    assert!(matches!(bench.submit(first, at_once()), Answer::Refused(_)), "the tenant itself was asked to wait");
    let permit = bench.submit_granted(third, at_once());
    bench.on_response(permit, word());
    assert!(matches!(bench.submit(second, at_once()), Answer::Granted(_)), "another tenant's host is not believed");
}

/// Other processes have not heard that nothing is left of a limit that no configuration states.
#[test]
fn discovered_exhaustion_reaches_other_processes() {
    let pooled = Some(Pooled { lasts_ns: 30 * SECOND, floor: None });
    let spec = LimitSpec { pooled, measure: Measure::Requests, ..per_second("requests", 100) };
    let mut plan = Plan { has_slots: false, ..plan(vec![spec]) };
    plan.pace.mode = Mode::Off;
    let (mut bench, lane) = Bench::with(plan);
    let wish = |bench: &mut Bench| {
        let mut found = Vec::new();
        bench.engine.wishes(bench.now, |limit, _, wish| found.push((limit, wish)));
        found.remove(0)
    };
    bench.submit_waiting(lane, ask(Tier::High));
    let got = Got { units: vec![(0, 10)], keep: 10, ..Got::default() };
    let (limit, _) = wish(&mut bench);
    bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(1_000 * SECOND));
    bench.serve(ms(1), 1);
    for (remaining, paused) in [(3, 0), (0, 600 * SECOND)] {
        let permit = bench.submit_granted(lane, ask(Tier::High));
        let about = About { window_ns: Some(3_600 * SECOND), ..About::default() };
        let report = Report { about, limit: 5_000, remaining, reset_ns: Some(600 * SECOND), ..Report::default() };
        bench.on_response(permit, Feedback::Passed(Some(report)));
        assert_eq!(wish(&mut bench).1.paused_ns, paused, "{remaining} left");
    }
    bench.now = bench.now.plus_nanos(600 * SECOND + 1);
    assert_eq!(wish(&mut bench).1.paused_ns, 0);
}
