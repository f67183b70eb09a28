//! Lanes that state different figures of a limit that they share.

use super::*;

fn account_of(limit: u32) -> Arc<Plan> {
    Arc::new(with_shared(plan(vec![]), vec![per_second("requests", limit)], vec![]))
}

/// The figure in force of the lane's only limit.
fn figure(bench: &mut Bench, lane: LaneKey) -> u32 {
    bench.engine.headroom(bench.now, lane, NO_ENDPOINT).expect("a limit").1
}

#[test]
fn strictest_figure_holds_while_it_is_stated() {
    let mut bench = Bench::new();
    let [strict, usual] = [account_of(100), account_of(600)];
    let a = bench.lane("a", "account", &strict);
    let b = bench.lane("b", "account", &usual);
    assert_eq!(figure(&mut bench, b), 100);
    let heavier = Arc::new(Plan { weight: 2, ..(*usual).clone() });
    bench.engine.upsert(bench.now, "b", "account", &heavier, None);
    assert_eq!(figure(&mut bench, b), 100, "the other lane has not changed");
    for (limit, expected) in [(1_200, 600), (10, 10), (100, 100)] {
        bench.lane("a", "account", &account_of(limit));
        assert_eq!(figure(&mut bench, b), expected, "{limit} is stated now");
    }
    bench.engine.retire(bench.now, a, false);
    assert_eq!(figure(&mut bench, b), 600, "a removed tenant states nothing");
    bench.lane("a", "account", &strict);
    assert_eq!(figure(&mut bench, b), 100, "it has come back");
    bench.lane("a", "elsewhere", &strict);
    assert_eq!(figure(&mut bench, b), 600, "it has left the account");
    bench.assert_clean();
}

#[test]
fn only_lane_may_raise_its_figure() {
    let mut bench = Bench::new();
    let lane = bench.lane("a", "account", &account_of(600));
    for limit in [1_200, 10, 100] {
        bench.lane("a", "account", &account_of(limit));
        assert_eq!(figure(&mut bench, lane), limit);
    }
}

#[test]
fn lane_that_decides_a_figure_stays_in_memory() {
    let mut bench = Bench::new();
    bench.lane("a", "account", &account_of(100));
    bench.lane("b", "account", &account_of(600));
    bench.sweep(bench.now, true);
    assert_eq!(bench.engine.lane_count(), 1, "lane b decides nothing");
    let b = bench.lane("b", "account", &account_of(600));
    assert_eq!(figure(&mut bench, b), 100);
    for _ in 0..2 {
        bench.sweep(bench.now, true);
    }
    assert!(bench.engine.is_empty(), "the last lane decides for nobody");
}

#[test]
fn limits_of_all_lanes_apply() {
    let mut bench = Bench::new();
    let one = with_shared(plan(vec![]), vec![per_second("one", 10)], vec![]);
    let both = with_shared(plan(vec![]), vec![per_second("one", 20), per_second("two", 5)], vec![]);
    let a = bench.lane("a", "account", &Arc::new(one));
    let b = bench.lane("b", "account", &Arc::new(both));
    let in_force = |bench: &Bench| {
        let specs = bench.engine.lanes.holders().flat_map(|shared| shared.specs.iter());
        specs.map(|shared| (shared.spec.name.to_string(), shared.spec.total())).collect::<Vec<_>>()
    };
    assert_eq!(in_force(&bench), [("one".to_owned(), 10), ("two".to_owned(), 5)]);
    bench.engine.retire(bench.now, a, false);
    assert_eq!(in_force(&bench), [("one".to_owned(), 20), ("two".to_owned(), 5)]);
    bench.lane("a", "account", &Arc::new(with_shared(plan(vec![]), vec![per_second("one", 10)], vec![])));
    bench.engine.retire(bench.now, b, false);
    assert_eq!(in_force(&bench), [("one".to_owned(), 10)]);
    bench.assert_clean();
}

#[test]
fn removed_strict_tenant_lets_waiters_go() {
    let mut bench = Bench::new();
    let slots_of = |limit: u32| Arc::new(with_shared(plan(vec![]), vec![slots("at once", limit)], vec![]));
    let (strict, other) = (bench.lane("a", "account", &slots_of(1)), bench.lane("b", "account", &slots_of(2)));
    let permit = bench.submit_granted(other, ask(Tier::High));
    let waiter = bench.submit_waiting(other, ask(Tier::High)).0;
    bench.engine.retire(bench.now, strict, false);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    let Claim::Started(second, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    bench.submit_waiting(other, ask(Tier::High));
    [permit, second].into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
}

/// The lane with the strict figure goes to another engine, where it is the first of its account.
#[test]
fn moved_lane_takes_its_figure_along() {
    let (mut here, mut there) = (Bench::new(), Bench::new());
    let [strict, usual] = [account_of(100), account_of(600)];
    let a = here.lane("a", "account", &strict);
    let b = here.lane("b", "account", &usual);
    let moved = here.engine.move_out(here.now, a).expect("the lane exists");
    let a = there.lane("a", "account", &strict);
    there.engine.move_in(there.now, a, moved);
    assert_eq!((figure(&mut here, b), figure(&mut there, a)), (600, 100));
    let moved = here.engine.move_out(here.now, b).expect("the lane exists");
    let b = there.lane("b", "account", &usual);
    there.engine.move_in(there.now, b, moved);
    assert_eq!(figure(&mut there, b), 100);
}
