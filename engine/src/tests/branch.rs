//! The scheduler's nodes of a lane or an account in which no request waits: how long they are kept, and that they do not
//! stay parked.

use std::time::Duration;

use super::*;
use crate::throttle::Wait;

/// Lane `x` of account `a`, beside a lane of another account in which a request waits all the time for its own limit.
/// Also the plan of lanes without a limit of their own.
fn beside_a_waiting_account() -> (Bench, LaneKey, Arc<Plan>) {
    let plan_with = |own: Vec<LimitSpec>| {
        Arc::new(with_shared(plan(own), vec![bucket("account", 10, 10.0)], vec![bucket("vendor", 100, 100.0)]))
    };
    let mut bench = Bench::new();
    let (free, slow) = (plan_with(vec![]), plan_with(vec![bucket("own", 1, 0.001)]));
    let (lane, other) = (bench.lane("x", "a", &free), bench.lane("y", "b", &slow));
    bench.submit_granted(other, ask(Tier::Normal));
    bench.submit_waiting(other, ask(Tier::Normal));
    (bench, lane, free)
}

/// The vendor refuses the lane's account for 5 s.
fn pause_account(bench: &mut Bench, lane: LaneKey) {
    let permit = bench.submit_granted(lane, ask(Tier::Normal));
    bench.on_response(permit, Feedback::RefusedFor(Whose::Account, Wait::Stated(5 * SECOND), None));
}

#[test]
fn account_goes_on_after_its_only_waiter_left() {
    let (mut bench, lane, _) = beside_a_waiting_account();
    pause_account(&mut bench, lane);
    let waiter = bench.submit_waiting(lane, ask(Tier::Normal)).0;
    bench.now = ms(1_000);
    bench.engine.cancel(bench.now, waiter);
    bench.advance_to(ms(6_000));
    let probe = bench.submit_granted(lane, ask(Tier::Normal));
    // The next one waits for the end of the probe, and leaves as well.
    let waiter = bench.submit_waiting(lane, ask(Tier::Normal)).0;
    bench.engine.cancel(bench.now, waiter);
    bench.on_response(probe, Feedback::Passed(None));
    bench.advance_to(ms(8_000));
    bench.submit_granted(lane, ask(Tier::Normal));
}

#[test]
fn account_goes_on_after_its_only_waiter_moved() {
    let (mut bench, lane, plan) = beside_a_waiting_account();
    let stays = bench.lane("z", "a", &plan);
    pause_account(&mut bench, lane);
    bench.submit_waiting(lane, ask(Tier::Normal));
    assert_eq!(bench.lane("x", "c", &plan), lane);
    bench.advance_to(ms(6_000));
    bench.submit_granted(stays, ask(Tier::Normal));
}

/// A request waits for the shared limit all the time, and the high tier rests after a single turn.
#[test]
fn lane_that_waits_again_and_again_lingers_once() {
    let mut bench = Bench::new();
    let plan = Arc::new(with_shared(plan(vec![]), vec![], vec![bucket("vendor", 1, 100.0)]));
    let [busy, once, often] = ["busy", "once", "often"].map(|tenant| bench.lane(tenant, tenant, &plan));
    bench.submit_granted(busy, ask(Tier::Normal));
    for _ in 0..10_000 {
        let _ = bench.submit_waiting(busy, ask(Tier::Normal));
    }
    let serve = |bench: &mut Bench, lane: LaneKey, tier: Tier| {
        let waiter = bench.submit_waiting(lane, ask(tier)).0;
        let until = bench.now + Duration::from_millis(50);
        assert!(bench.serve(until, 0).iter().any(|(_, granted)| *granted == waiter));
    };
    serve(&mut bench, once, Tier::High);
    for _ in 0..1_000 {
        serve(&mut bench, often, Tier::Normal);
    }
    let branches = bench.engine.lanes.holders().flat_map(|shared| &shared.branches);
    let lingering: usize = branches.map(|branch| branch.lingering.len()).sum();
    assert!(lingering <= 3, "{lingering}");
}

/// An account weighs as much as all its waiting lanes, here 721,000.
#[test]
fn heavy_account_starves_no_other() {
    let with_weight_1000 = Plan { weight: 1_000, ..plan(vec![]) };
    let (account, vendor) = (vec![bucket("account", 10_000, 10_000.0)], vec![bucket("vendor", 1, 1_000.0)]);
    let plan = Arc::new(with_shared(with_weight_1000, account, vendor));
    let mut bench = Bench::new();
    let other = bench.lane("other", "small", &plan);
    bench.submit_granted(other, ask(Tier::Normal));
    let of_other: Vec<WaiterKey> = (0..10).map(|_| bench.submit_waiting(other, ask(Tier::Normal)).0).collect();
    for tenant in 0..721 {
        let lane = bench.lane(&format!("tenant {tenant}"), "large", &plan);
        for _ in 0..5 {
            bench.submit_waiting(lane, ask(Tier::Normal));
        }
    }
    let until = bench.now + Duration::from_millis(3_000);
    let grants = bench.serve(until, 0);
    let found = grants.iter().filter(|(_, waiter)| of_other.contains(waiter)).count();
    assert!((2_990..=3_010).contains(&grants.len()), "{}", grants.len());
    assert!((4..=6).contains(&found), "{found} of {} grants, where a 722nd is its share", grants.len());
}

/// A request waits below the vendor all the time, while accounts come, wait once and go.
#[test]
fn removed_accounts_leave_the_vendors_list() {
    let (mut bench, _, plan) = beside_a_waiting_account();
    for number in 0..100 {
        let name = format!("account {number}");
        let lane = bench.lane(&name, &name, &plan);
        bench.engine.pause(bench.now, lane);
        let waiter = bench.submit_waiting(lane, ask(Tier::Normal)).0;
        bench.engine.cancel(bench.now, waiter);
        bench.engine.unpause(bench.now, lane);
        bench.sweep(bench.now, true);
    }
    let known = bench.engine.lanes.holders().map(|shared| shared.accounts.len()).max();
    assert!(known.is_some_and(|known| (1..=8).contains(&known)), "{known:?}");
}
