//! Slots are freed where they were taken, when their exchanges end, whatever changes meanwhile.

use super::*;

fn account_of(limit: u32) -> Arc<Plan> {
    Arc::new(with_shared(plan(vec![]), vec![slots("account", limit)], vec![]))
}

/// Takes permits of a lane until none is granted at once.
fn take_all(bench: &mut Bench, lane: Key) -> Vec<Key> {
    let now_or_never = Ask { immediate: true, ..ask(0) };
    std::iter::from_fn(|| match bench.submit(lane, now_or_never) {
        Answer::Granted(permit) => Some(permit),
        _ => None,
    })
    .take(100)
    .collect()
}

#[test]
fn lane_that_changes_its_account_keeps_the_slots_of_the_old_one() {
    let mut bench = Bench::new();
    let plan = account_of(4);
    let lane = bench.lane("mover", "old", &plan);
    let mut under_way = Vec::new();
    for _ in 0..3 {
        under_way.extend(take_all(&mut bench, lane));
        bench.lane("mover", "new", &plan);
        bench.lane("mover", "old", &plan);
    }
    assert_eq!(under_way.len(), 4, "exchanges of account `old` at the same time");
    under_way.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
    assert_eq!(take_all(&mut bench, lane).len(), 4);
    bench.assert_clean();
}

#[test]
fn end_of_a_moved_lanes_exchange_wakes_the_old_account() {
    let mut bench = Bench::new();
    let plan = account_of(2);
    let mover = bench.lane("mover", "old", &plan);
    let stays = bench.lane("stays", "old", &plan);
    let under_way = take_all(&mut bench, mover);
    let (first, second) = (bench.waits(stays, ask(0)).0, bench.waits(stays, ask(2)).0);
    bench.lane("mover", "new", &plan);
    assert!(bench.engine.is_quiet(), "the vendor still works on both exchanges");
    for (permit, waiter) in under_way.into_iter().zip([first, second]) {
        bench.engine.finished(bench.now, permit);
        assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    }
}

/// Endpoints by these names, and for the account a limit of ten requests at once and one of one request at once to
/// `search`.
fn one_search(endpoints: &[&str]) -> Arc<Plan> {
    let mut plan = plan(vec![]);
    for name in endpoints {
        plan = with_endpoint(plan, name, slots("own", 10));
    }
    let all = SharedSpec { spec: slots("all", 10), endpoint: None };
    let search = endpoint_spec("search", slots("search", 1));
    Arc::new(Plan { account: [all, search].into_iter().collect(), ..plan })
}

#[test]
fn lane_that_leaves_frees_no_endpoint_limit_that_it_never_took_from() {
    let mut bench = Bench::new();
    let plan = one_search(&["export", "search"]);
    let (export, search) = (Ask { endpoint: 0, ..ask(0) }, Ask { endpoint: 1, ..ask(0) });
    let (mover, stays) = (bench.lane("mover", "old", &plan), bench.lane("stays", "old", &plan));
    let exports = [bench.granted(mover, export), bench.granted(mover, export)];
    let searches = bench.granted(stays, search);
    bench.lane("mover", "new", &plan);
    let waiter = bench.waits(stays, search).0;
    exports.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
    assert!(bench.engine.is_quiet(), "a search is still under way");
    bench.engine.finished(bench.now, searches);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

#[test]
fn endpoint_that_gets_another_number_keeps_its_slots() {
    let mut bench = Bench::new();
    let lane = bench.lane("acme", "acme", &one_search(&["search"]));
    let before = bench.granted(lane, Ask { endpoint: 0, ..ask(0) });
    bench.engine.upsert(bench.now, "acme", "acme", &one_search(&["export", "search"]), 2);
    bench.granted(lane, Ask { endpoint: 0, ..ask(0) });
    let waiter = bench.waits(lane, Ask { endpoint: 1, ..ask(0) }).0;
    bench.engine.finished(bench.now, before);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

/// The version of a lane counts its changes. It once began anew in another engine, where limits that were older than
/// that by number never saw an exchange end.
#[test]
fn lane_that_changed_often_before_it_moved_frees_its_slots() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("first", 1)]));
    for name in ["second", "third", "fourth"] {
        bench.lane("acme", "acme", &Arc::new(plan(vec![slots(name, 1)])));
    }
    let moved = bench.engine.move_out(bench.now, lane).expect("the lane exists");
    let mut other = Bench { now: bench.now, ..Bench::new() };
    let lane = other.lane("acme", "acme", &Arc::new(plan(vec![slots("fourth", 1)])));
    other.engine.move_in(other.now, lane, moved);
    for _ in 0..3 {
        let permit = other.granted(lane, ask(0));
        other.engine.finished(other.now, permit);
    }
    other.assert_clean();
}
