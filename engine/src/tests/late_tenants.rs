//! Tenants whose lanes are made after a report to another tenant has stopped the limit that they share.

use std::time::Duration;

use super::pauses::{DAY, lanes_of_daily_limit, paused_for, report_of_day};
use super::*;
use crate::throttle::Mode;

/// The lane of a tenant whom the vendor has told what is left of a limit, while no other tenant had a lane.
fn told_alone(mode: Mode, remaining: u64) -> (Bench, LaneKey, Arc<Plan>) {
    let (mut bench, [told]) = lanes_of_daily_limit(mode, ["a"], 900 * SECOND);
    let permit = bench.submit_granted(told, ask(Tier::High));
    bench.on_response(permit, report_of_day(100, remaining));
    let plan = bench.engine.lanes[told].plan.clone();
    (bench, told, plan)
}

#[test]
fn report_to_a_lone_tenant_stops_later_ones_as_configured() {
    for mode in [Mode::Bands, Mode::Adaptive, Mode::Pace, Mode::Off] {
        let (mut bench, a, plan) = told_alone(mode, 0);
        let start = bench.now;
        bench.advance_to(start + Duration::from_secs(300));
        let of_told = bench.submit_waiting(a, ask(Tier::High)).0;
        let b = bench.lane("b", "account", &plan);
        let mut waiters = vec![bench.submit_waiting(b, ask(Tier::High)).0, of_told];
        bench.advance_to(start + Duration::from_secs(899));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{mode:?}: the report is believed");
        bench.advance_to(start + Duration::from_secs(901));
        let probe = bench.start_granted(&mut waiters);
        assert_eq!(probe.len(), 1, "{mode:?}: one request finds out");
        assert_eq!(waiters, [of_told], "{mode:?}: who was told waits");
        assert!(paused_for(&bench, a) > Duration::from_secs(80_000), "{mode:?}");
        // The other tenant hears the same, so that all wait as long as the vendor says.
        bench.on_response(probe[0], report_of_day(100, 0));
        waiters.push(bench.submit_waiting(b, ask(Tier::High)).0);
        bench.advance_to(start + Duration::from_secs(7_200));
        assert!(bench.start_granted(&mut waiters).is_empty(), "{mode:?}: two tenants are believed");
    }
}

#[test]
fn old_report_stops_no_later_tenant() {
    let (mut bench, a, plan) = told_alone(Mode::Adaptive, 0);
    bench.advance_to(bench.now + Duration::from_secs(7_200));
    let b = bench.lane("b", "account", &plan);
    bench.submit_granted(b, ask(Tier::High));
    bench.submit_waiting(b, ask(Tier::High));
    assert!(paused_for(&bench, a) > Duration::from_secs(70_000), "who was told waits");
}

#[test]
fn spacing_by_a_lone_tenants_report_delays_later_ones_as_configured() {
    let (mut bench, a, plan) = told_alone(Mode::Pace, 5);
    let start = bench.now;
    bench.submit_granted(a, ask(Tier::High));
    bench.advance_to(start + Duration::from_secs(60));
    let b = bench.lane("b", "account", &plan);
    let mut waiters = vec![bench.submit_waiting(b, ask(Tier::High)).0];
    bench.advance_to(start + Duration::from_secs(959));
    assert!(bench.start_granted(&mut waiters).is_empty());
    bench.advance_to(start + Duration::from_secs(960));
    assert_eq!(bench.start_granted(&mut waiters).len(), 1);
}

/// The next process may meet another tenant first.
#[test]
fn lone_tenants_pause_is_kept_for_its_lane() {
    let (bench, a, _) = told_alone(Mode::Adaptive, 0);
    let pauses = bench.engine.stated_pauses(bench.now, a).unwrap();
    let seen = pauses.iter().map(|pause| (pause.who, pause.limit.is_some(), pause.until.since(bench.now).as_secs()));
    assert_eq!(seen.collect::<Vec<_>>(), [(Waits::Lane, false, DAY / SECOND), (Waits::Account, true, 900)]);
}
