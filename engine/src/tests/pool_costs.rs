//! Requests of pooled limits that cost more than they were assumed to: what the process does not hold comes from the
//! pool.

use super::pool::{give, plan_in_points, serve_with_store, wishes};
use super::*;
use crate::limit::vendor_bucket::VendorBucketSpec;
use crate::limit::window_counter::CounterSpec;
use crate::limit::{BlockedBy, Got};

/// Units that are free in the pool while a process holds 13 of an account's 1,000 points a minute.
const FREE: u32 = 980;

fn guards() -> [GuardSpec; 3] {
    [
        GuardSpec::Log(LogSpec::new(1_000, 200, 60 * SECOND, TRANSIT)),
        GuardSpec::Counter(CounterSpec::new(999, 1_000, 200, 60 * SECOND, TRANSIT)),
        GuardSpec::Bucket(VendorBucketSpec::new(1_000, 200, 1_000.0, 60 * SECOND, TRANSIT)),
    ]
}

fn account_plan(guard: GuardSpec) -> Plan {
    with_shared(plan(vec![]), plan_in_points(guard).own, vec![])
}

fn ask_of_ten() -> Ask {
    Ask { cost: 10.into(), ..ask(Tier::Normal) }
}

fn claimed(bench: &mut Bench, waiter: WaiterKey) -> PermitKey {
    assert_eq!(bench.run(bench.now), [(bench.now, waiter)]);
    match bench.engine.claim(bench.now, waiter) {
        Claim::Started(permit, _) => permit,
        other => panic!("{other:?}"),
    }
}

/// A request that is assumed to cost ten points has started, in a process that holds 13.
fn started(guard: GuardSpec) -> (Bench, LaneKey, PermitKey) {
    let (mut bench, lane) = Bench::with(account_plan(guard));
    let (waiter, _) = bench.submit_waiting(lane, ask_of_ten());
    give(&mut bench, 13, 13);
    let permit = claimed(&mut bench, waiter);
    (bench, lane, permit)
}

#[test]
fn higher_cost_is_taken_from_the_pool_before_more_goes() {
    for (guard, stated) in guards().into_iter().flat_map(|guard| [(guard, 100), (guard, 500)]) {
        let (mut bench, lane, permit) = started(guard);
        bench.settle(permit, stated);
        bench.engine.finished(bench.now, permit);
        assert!(bench.engine.is_starved(), "{guard:?}");
        bench.submit_waiting(lane, ask_of_ten());
        let (_, _, wish) = wishes(&mut bench).remove(0);
        assert!(wish.claim == 13 && wish.want.iter().sum::<u32>() >= stated, "{guard:?}: {wish:?}");
        let (sent, most) = serve_with_store(&mut bench, FREE, 4);
        assert_eq!(sent, 1, "{guard:?}: within a second");
        assert!(most >= stated, "{guard:?}: {most} of {stated}");
    }
}

/// A response may last longer than its process wants units. What it states at its end is news to the store even so.
#[test]
fn late_cost_is_wanted_though_nothing_waits() {
    for guard in guards() {
        let (mut bench, _, permit) = started(guard);
        serve_with_store(&mut bench, FREE, 20);
        bench.settle(permit, 500);
        bench.engine.finished(bench.now, permit);
        assert!(bench.engine.is_starved(), "{guard:?}");
        let (limit, _, wish) = wishes(&mut bench).remove(0);
        let wanted: u32 = wish.want.iter().sum();
        assert!(wish.claim <= 10 && wanted >= wish.claim + 485, "{guard:?}: {wish:?}");
        let got = Got { units: vec![(0, wanted - wish.claim)], keep: wanted, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        // All of them are used: they stay, or go back with the time for which they still count.
        let (_, _, wish) = wishes(&mut bench).remove(0);
        assert_eq!(wish.claim + wish.returned.iter().map(|(_, units)| units).sum::<u32>(), wanted, "{guard:?}");
        assert!(wish.returned.iter().all(|(free_in, _)| *free_in > 50 * SECOND), "{guard:?}: {wish:?}");
        assert_eq!(wish.want, [0; 3], "{guard:?}: wanted once");
    }
}

#[test]
fn lane_above_the_whole_limit_goes_after_the_others() {
    let mut bench = Bench::new();
    let plan = Arc::new(account_plan(guards()[0]));
    let [dear, other] = ["dear", "other"].map(|tenant| bench.lane(tenant, "account", &plan));
    let (waiter, _) = bench.submit_waiting(dear, ask_of_ten());
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { units: vec![(0, 1_000)], keep: 1_000, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(300_000));
    for permit in [claimed(&mut bench, waiter), bench.submit_granted(dear, ask_of_ten())] {
        bench.settle(permit, 800);
        bench.engine.finished(bench.now, permit);
    }
    bench.now = ms(65_000);
    bench.submit_granted(other, ask_of_ten());
    bench.submit_waiting(dear, ask_of_ten());
}

/// The bucket of a limit holds a tenth of it, and has filled again since the first units were used.
#[test]
fn lane_within_the_whole_limit_waits_for_the_bucket_alone() {
    let mut plan = account_plan(guards()[1]);
    let mut specs = plan.account.to_vec();
    for shared in &mut specs {
        if let LimitKind::Rate { bucket, .. } = &mut shared.spec.kind {
            *bucket = BucketSpec::new(100, 800.0, 60 * SECOND, 0);
        }
    }
    plan.account = specs.into();
    let (mut bench, lane) = Bench::with(plan);
    let (waiter, _) = bench.submit_waiting(lane, ask_of_ten());
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let got = Got { units: vec![(0, 1_000)], keep: 1_000, ..Got::default() };
    bench.engine.hold(bench.now, limit, &got, ms(300_000));
    let first = claimed(&mut bench, waiter);
    bench.settle(first, 100);
    bench.engine.finished(bench.now, first);
    bench.advance_to(ms(10_000));
    let second = bench.submit_granted(lane, ask_of_ten());
    bench.settle(second, 100);
    bench.engine.finished(bench.now, second);
    bench.advance_to(ms(19_000));
    bench.submit_granted(lane, ask_of_ten());
}

/// Another process has a figure of 500 points, so this one gets no more, whatever the others give up.
#[test]
fn cost_beyond_another_figure_has_its_own_reason() {
    let (mut bench, lane) = Bench::with(account_plan(guards()[0]));
    let lack = |bench: &mut Bench, cost: u32| {
        let ask = Ask { cost: cost.into(), immediate: true, ..ask(Tier::Normal) };
        match bench.submit(lane, ask) {
            Answer::Refused(Refusal::NotNow { reason, .. }) => reason.lack,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lack(&mut bench, 10), Some(BlockedBy::NotHeld));
    let (limit, _, _) = wishes(&mut bench).remove(0);
    let mut units = vec![(0, 100)];
    for (out_of_reach, cost, expected) in
        [(500, 450, BlockedBy::OutOfReach), (500, 300, BlockedBy::NotHeld), (0, 450, BlockedBy::NotHeld)]
    {
        let got = Got { units: std::mem::take(&mut units), keep: 100, out_of_reach, ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, ms(300_000));
        assert_eq!(lack(&mut bench, cost), Some(expected), "{out_of_reach}");
        assert!(bench.engine.is_starved(), "the store is asked, because this may have ended");
    }
}
