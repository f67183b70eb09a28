//! Pauses that outlive an engine: what one reports, the next restores.

use std::time::Duration;

use super::super::pushback::Feedback;
use super::super::throttle::{Notice, Report, Wait};
use super::*;

/// What an engine reports of a lane: who waits, the limit's name, and for how many seconds.
fn stated(bench: &Bench, lane: LaneKey) -> Vec<(Waits, Option<Arc<str>>, u64)> {
    let pauses = bench.engine.stated_pauses(bench.now, lane).unwrap();
    let seconds = |pause: &StatedPause| pause.until.since(bench.now).as_secs();
    pauses.iter().map(|pause| (pause.who, pause.limit.as_ref().map(|(name, _)| name.clone()), seconds(pause))).collect()
}

fn named(name: &str) -> Option<Arc<str>> {
    Some(name.into())
}

/// Restores the pauses of the lane `from` in the lane `to` of another engine.
fn restore(before: &Bench, from: LaneKey, after: &mut Bench, to: LaneKey) -> Vec<Option<Vec<Noticed>>> {
    after.now = before.now;
    let pauses = before.engine.stated_pauses(before.now, from).unwrap();
    pauses.iter().map(|pause| after.engine.restore_pause(after.now, to, pause)).collect()
}

/// Sends a request, and applies what its response says.
fn answer(bench: &mut Bench, lane: LaneKey, ask: Ask, feedback: Feedback) {
    let permit = bench.submit_granted(lane, ask);
    bench.engine.answered_with(bench.now, permit, feedback, &[], true);
}

fn refused_for(seconds: u64) -> Feedback {
    Feedback::Refused(Wait::Stated(seconds * SECOND), None)
}

/// Plans whose lanes wait for every pause.
fn patient(own: Vec<LimitSpec>) -> Plan {
    Plan { has_slots: false, max_hold_ns: u64::MAX, ..plan(own) }
}

#[test]
fn restored_pause_stops_all_lanes_of_the_account() {
    let plan = Arc::new(with_shared(patient(Vec::new()), vec![per_second("requests", 100)], Vec::new()));
    let lanes = |bench: &mut Bench| ["a", "b"].map(|tenant| bench.lane(tenant, "account", &plan));
    let mut before = Bench::new();
    let [refused, _] = lanes(&mut before);
    answer(&mut before, refused, ask(Tier::High), refused_for(3_600));
    // The others wait for a quarter of an hour, as one tenant's refusal asks.
    let expected = [(Waits::Lane, None, 3_600), (Waits::Account, named("requests"), 900)];
    assert_eq!(stated(&before, refused), expected);
    let mut after = Bench::new();
    let [refused_then, other] = lanes(&mut after);
    restore(&before, refused, &mut after, refused_then);
    assert_eq!(stated(&after, refused_then), expected);
    let start = after.now;
    let told = after.submit_waiting(refused_then, ask(Tier::High)).0;
    let bystander = after.submit_waiting(other, ask(Tier::High)).0;
    let grants = after.serve(start + Duration::from_secs(3_700), 0);
    let grants: Vec<_> = grants.into_iter().map(|(at, waiter)| (at.since(start).as_secs(), waiter)).collect();
    assert_eq!(grants, [(900, bystander), (3_600, told)]);
}

#[test]
fn probe_follows_a_restored_pause() {
    let (mut before, lane) = Bench::with(patient(vec![per_second("second", 10)]));
    answer(&mut before, lane, ask(Tier::High), refused_for(60));
    assert_eq!(stated(&before, lane), [(Waits::Lane, named("second"), 60)]);
    // The figure of the limit has changed meanwhile.
    let (mut after, again) = Bench::with(patient(vec![per_second("second", 20)]));
    let notices = restore(&before, lane, &mut after, again);
    let (start, end) = (after.now, after.now + Duration::from_secs(60));
    let of = OfLimit { limit: named("second"), holder: Holder::Lane, endpoint: None };
    assert_eq!(notices, [Some(vec![Noticed { notice: Notice::Exhausted { until: end }, of }])]);
    let repeated = restore(&before, lane, &mut after, again);
    assert!(repeated[0].as_ref().is_some_and(Vec::is_empty), "it is in force already");
    let first = after.submit_waiting(again, ask(Tier::High)).0;
    after.submit_waiting(again, ask(Tier::High));
    assert_eq!(after.serve(start + Duration::from_secs(60), SECOND), [(end, first)], "one request finds out");
}

#[test]
fn pause_of_a_removed_limit_is_ignored() {
    let (mut before, lane) = Bench::with(patient(vec![per_second("second", 10)]));
    answer(&mut before, lane, ask(Tier::High), refused_for(60));
    let (mut after, again) = Bench::with(patient(vec![per_second("other", 10)]));
    assert!(restore(&before, lane, &mut after, again)[0].is_none());
    after.submit_granted(again, ask(Tier::High));
}

#[test]
fn pause_that_is_over_is_not_restored() {
    let (mut before, lane) = Bench::with(patient(vec![per_second("second", 10)]));
    answer(&mut before, lane, ask(Tier::High), refused_for(60));
    let pause = before.engine.stated_pauses(before.now, lane).unwrap().remove(0);
    let (mut after, again) = Bench::with(patient(vec![per_second("second", 10)]));
    after.now = before.now + Duration::from_secs(60);
    assert_eq!(after.engine.restore_pause(after.now, again, &pause), Some(Vec::new()));
    assert_eq!(before.engine.stated_pauses(after.now, lane), Some(Vec::new()));
    after.submit_granted(again, ask(Tier::High));
}

#[test]
fn endpoints_pause_stops_its_requests_alone() {
    let plan = with_endpoint(patient(Vec::new()), "search", per_second("searches", 10));
    let search = || Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) };
    let (mut before, lane) = Bench::with(plan.clone());
    let feedback = Feedback::RefusedFor(Whose::Endpoint, Wait::Stated(60 * SECOND), None);
    answer(&mut before, lane, search(), feedback);
    let (mut after, again) = Bench::with(plan);
    restore(&before, lane, &mut after, again);
    assert_eq!(stated(&after, again), [(Waits::Lane, named("searches"), 60)]);
    after.submit_granted(again, ask(Tier::High));
    after.submit_waiting(again, search());
}

#[test]
fn unknown_limit_without_units_stops_the_lane() {
    let (mut before, lane) = Bench::with(patient(Vec::new()));
    let report = Report { limit: 77, remaining: 0, reset_ns: Some(3_600 * SECOND), ..Report::default() };
    answer(&mut before, lane, ask(Tier::High), Feedback::Passed(Some(report)));
    assert_eq!(stated(&before, lane), [(Waits::Lane, None, 3_600)]);
    let (mut after, again) = Bench::with(patient(Vec::new()));
    restore(&before, lane, &mut after, again);
    after.submit_waiting(again, ask(Tier::High));
}

/// The tenants of a vendor chose their hosts, and the next engine meets another one first.
#[test]
fn pause_by_a_chosen_host_stops_its_tenant_alone() {
    let plan = Arc::new(with_shared(patient(Vec::new()), Vec::new(), vec![per_second("requests", 100)]));
    let mut before = Bench::new();
    let told = before.lane_at("a", "a", &plan, Some("https://one"));
    answer(&mut before, told, ask(Tier::High), refused_for(3_600));
    let pauses = stated(&before, told);
    assert!(!pauses.is_empty());
    assert!(pauses.iter().all(|(who, limit, _)| *who == Waits::Lane && limit.is_none()), "{pauses:?}");
    let mut after = Bench::new();
    let other = after.lane_at("b", "b", &plan, Some("https://two"));
    let told_then = after.lane_at("a", "a", &plan, Some("https://one"));
    restore(&before, told, &mut after, told_then);
    after.submit_granted(other, ask(Tier::High));
    after.submit_waiting(told_then, ask(Tier::High));
}

/// It was written when the vendor's own host answered all tenants.
#[test]
fn pause_of_all_is_not_restored_at_a_chosen_host() {
    let plan = Arc::new(with_shared(patient(Vec::new()), Vec::new(), vec![per_second("requests", 100)]));
    let mut before = Bench::new();
    let told = before.lane("a", "a", &plan);
    answer(&mut before, told, ask(Tier::High), refused_for(60));
    let mut after = Bench::new();
    let again = after.lane_at("a", "a", &plan, Some("https://one"));
    assert!(restore(&before, told, &mut after, again).contains(&None));
}

#[test]
fn pause_after_failures_is_not_stated() {
    let (mut bench, lane) = Bench::with(patient(vec![per_second("second", 10)]));
    for _ in 0..5 {
        answer(&mut bench, lane, ask(Tier::High), Feedback::Failed);
    }
    assert!(bench.engine.paused_until(bench.now, lane).is_some());
    assert!(stated(&bench, lane).is_empty());
}

#[test]
fn pause_of_a_whole_vendor_is_stated() {
    let (mut bench, lane) = Bench::with(patient(Vec::new()));
    let group = Group { vendor: "vendor", environment: "live", account: None };
    bench.engine.pause_group(bench.now, group, "other", bench.now.plus_nanos(60 * SECOND), u64::MAX);
    assert_eq!(stated(&bench, lane), [(Waits::Vendor, None, 60)]);
}

#[test]
fn lane_counts_in_its_present_account() {
    let plan = Arc::new(patient(Vec::new()));
    let mut bench = Bench::new();
    let lane = bench.lane("a", "one", &plan);
    let group = |environment, account| Group { vendor: "vendor", environment, account };
    let counts = |bench: &Bench, environment, account| bench.engine.counts_in(lane, group(environment, account));
    assert!(counts(&bench, "live", None) && counts(&bench, "live", Some("one")));
    assert!(!counts(&bench, "test", None) && !counts(&bench, "live", Some("two")));
    assert_eq!(bench.lane("a", "two", &plan), lane);
    assert!(counts(&bench, "live", Some("two")) && !counts(&bench, "live", Some("one")));
}
