//! Slots are freed where they were taken, when their exchanges end, whatever changes meanwhile.

use super::*;

fn account_with_slots(limit: u32) -> Arc<Plan> {
    Arc::new(with_shared(plan(vec![]), vec![slots("account", limit)], vec![]))
}

/// Takes permits of a lane until none is granted at once.
fn take_all(bench: &mut Bench, lane: LaneKey) -> Vec<PermitKey> {
    let now_or_never = Ask { immediate: true, ..ask(Tier::High) };
    std::iter::from_fn(|| match bench.submit(lane, now_or_never) {
        Answer::Granted(permit) => Some(permit),
        _ => None,
    })
    .take(100)
    .collect()
}

#[test]
fn moved_lane_keeps_the_old_accounts_slots() {
    let mut bench = Bench::new();
    let plan = account_with_slots(4);
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
fn moved_lanes_exchange_wakes_the_old_account() {
    let mut bench = Bench::new();
    let plan = account_with_slots(2);
    let mover = bench.lane("mover", "old", &plan);
    let stays = bench.lane("stays", "old", &plan);
    let under_way = take_all(&mut bench, mover);
    let (first, second) =
        (bench.submit_waiting(stays, ask(Tier::High)).0, bench.submit_waiting(stays, ask(Tier::Low)).0);
    bench.lane("mover", "new", &plan);
    assert!(bench.engine.is_quiet(), "the vendor still works on both exchanges");
    for (permit, waiter) in under_way.into_iter().zip([first, second]) {
        bench.engine.finished(bench.now, permit);
        assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    }
}

/// Endpoints by these names, and for the account a limit of ten requests at once and one of one request at once to
/// `search`.
fn account_with_one_search(endpoints: &[&str]) -> Arc<Plan> {
    let mut plan = plan(vec![]);
    for name in endpoints {
        plan = with_endpoint(plan, name, slots("own", 10));
    }
    let all = SharedSpec { spec: slots("all", 10), endpoint: None };
    let search = endpoint_spec("search", slots("search", 1));
    Arc::new(Plan { account: [all, search].into_iter().collect(), ..plan })
}

#[test]
fn moved_lane_frees_no_untaken_endpoint_slot() {
    let mut bench = Bench::new();
    let plan = account_with_one_search(&["export", "search"]);
    let (export, search) = (
        Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) },
        Ask { endpoint: EndpointId::at(1), ..ask(Tier::High) },
    );
    let (mover, stays) = (bench.lane("mover", "old", &plan), bench.lane("stays", "old", &plan));
    let exports = [bench.submit_granted(mover, export), bench.submit_granted(mover, export)];
    let searches = bench.submit_granted(stays, search);
    bench.lane("mover", "new", &plan);
    let waiter = bench.submit_waiting(stays, search).0;
    exports.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
    assert!(bench.engine.is_quiet(), "a search is still under way");
    bench.engine.finished(bench.now, searches);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

#[test]
fn renumbered_endpoint_keeps_its_slots() {
    let mut bench = Bench::new();
    let lane = bench.lane("acme", "acme", &account_with_one_search(&["search"]));
    let before = bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    bench.engine.upsert(bench.now, "acme", "acme", &account_with_one_search(&["export", "search"]), None);
    bench.submit_granted(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::High) });
    let waiter = bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(1), ..ask(Tier::High) }).0;
    bench.engine.finished(bench.now, before);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
}

/// The version of a lane counts its changes. It once began anew in another engine, where limits that were older than
/// that by number never saw an exchange end.
#[test]
fn often_changed_lane_frees_its_slots() {
    let (mut bench, lane) = Bench::with(plan(vec![slots("first", 1)]));
    for name in ["second", "third", "fourth"] {
        bench.lane("acme", "acme", &Arc::new(plan(vec![slots(name, 1)])));
    }
    let moved = bench.engine.move_out(bench.now, lane).expect("the lane exists");
    let mut other = Bench { now: bench.now, ..Bench::new() };
    let lane = other.lane("acme", "acme", &Arc::new(plan(vec![slots("fourth", 1)])));
    other.engine.move_in(other.now, lane, moved);
    for _ in 0..3 {
        let permit = other.submit_granted(lane, ask(Tier::High));
        other.engine.finished(other.now, permit);
    }
    other.assert_clean();
}

#[test]
fn added_limit_counts_exchanges_under_way() {
    let mut bench = Bench::new();
    let unlimited = Arc::new(plan(vec![]));
    let lanes = ["one", "two"].map(|tenant| bench.lane(tenant, "account", &unlimited));
    let under_way = lanes.map(|lane| bench.submit_granted(lane, ask(Tier::High)));
    bench.engine.begin_changes();
    let limited = account_with_slots(3);
    let lane = bench.engine.upsert(bench.now, "one", "account", &limited, None);
    assert_eq!(take_all(&mut bench, lane), [], "what is under way in the other lane is not known yet");
    let waiter = bench.submit_waiting(lane, ask(Tier::High)).0;
    bench.engine.upsert(bench.now, "two", "account", &limited, None);
    bench.engine.end_changes(bench.now);
    assert_eq!(bench.engine.woken().collect::<Vec<_>>(), [waiter]);
    let Claim::Started(third, _) = bench.engine.claim(bench.now, waiter) else { panic!() };
    assert_eq!(take_all(&mut bench, lane), []);
    under_way.into_iter().chain([third]).for_each(|permit| bench.engine.finished(bench.now, permit));
    assert_eq!(take_all(&mut bench, lane).len(), 3);
    bench.assert_clean();
}

/// The holder of the limit is still there, and knows only what is under way from before.
#[test]
fn restored_limit_counts_exchanges_under_way() {
    let mut bench = Bench::new();
    let [limited, unlimited] = [account_with_slots(3), Arc::new(plan(vec![]))];
    let change = |bench: &mut Bench, tenant: &str, plan: &Arc<Plan>| {
        bench.engine.upsert(bench.now, tenant, "account", plan, None)
    };
    let lanes = ["one", "two"].map(|tenant| change(&mut bench, tenant, &limited));
    let before = bench.submit_granted(lanes[0], ask(Tier::High));
    for tenant in ["one", "two"] {
        change(&mut bench, tenant, &unlimited);
    }
    let meanwhile = bench.submit_granted(lanes[1], ask(Tier::High));
    bench.engine.begin_changes();
    change(&mut bench, "one", &limited);
    assert_eq!(take_all(&mut bench, lanes[0]), [], "what is under way in the other lane is not known yet");
    change(&mut bench, "two", &limited);
    bench.engine.end_changes(bench.now);
    let under_way = take_all(&mut bench, lanes[0]);
    assert_eq!(under_way.len(), 1);
    under_way.into_iter().chain([before, meanwhile]).for_each(|permit| bench.engine.finished(bench.now, permit));
    assert_eq!(take_all(&mut bench, lanes[1]).len(), 3);
    bench.assert_clean();
}

#[test]
fn rescoped_limit_counts_exchanges_under_way() {
    let mut bench = Bench::new();
    let rate = || bucket("overall", 100, 100.0);
    let of_account = Arc::new(with_shared(plan(vec![]), vec![slots("parallel", 4)], vec![rate()]));
    let of_vendor = Arc::new(with_shared(plan(vec![]), vec![], vec![rate(), slots("parallel", 4)]));
    let lanes = [("one", "a"), ("two", "b")].map(|(tenant, account)| bench.lane(tenant, account, &of_account));
    let mut under_way: Vec<PermitKey> =
        lanes.into_iter().flat_map(|lane| [(); 3].map(|()| bench.submit_granted(lane, ask(Tier::High)))).collect();
    let change = |bench: &mut Bench, plan: &Arc<Plan>| {
        for (tenant, account) in [("one", "a"), ("two", "b")] {
            bench.engine.upsert(bench.now, tenant, account, plan, None);
        }
    };
    change(&mut bench, &of_vendor);
    assert_eq!(take_all(&mut bench, lanes[0]), [], "six are under way");
    under_way.drain(..4).for_each(|permit| bench.engine.finished(bench.now, permit));
    under_way.extend(take_all(&mut bench, lanes[0]));
    assert_eq!(under_way.len(), 4);
    // Two of account b and two of account a.
    change(&mut bench, &of_account);
    for lane in lanes {
        let granted = take_all(&mut bench, lane);
        assert_eq!(granted.len(), 2);
        under_way.extend(granted);
    }
    under_way.into_iter().for_each(|permit| bench.engine.finished(bench.now, permit));
    assert_eq!(take_all(&mut bench, lanes[0]).len(), 4);
    bench.assert_clean();
}

#[test]
fn account_moved_lane_by_lane_keeps_limit() {
    let (mut here, mut there) = (Bench::new(), Bench::new());
    let plan = account_with_slots(4);
    let tenants = ["one", "two", "three"];
    let lanes = tenants.map(|tenant| here.lane(tenant, "account", &plan));
    let mut under_way: Vec<Vec<PermitKey>> =
        lanes.iter().map(|lane| vec![here.submit_granted(*lane, ask(Tier::High))]).collect();
    [&mut here, &mut there].into_iter().for_each(|bench| bench.engine.begin_changes());
    let mut keys = Vec::new();
    let mut granted = Vec::new();
    for (number, (tenant, lane)) in tenants.into_iter().zip(lanes).enumerate() {
        let moved = here.engine.move_out(here.now, lane).expect("the lane exists");
        let lane = there.lane(tenant, "account", &plan);
        keys.extend(there.engine.move_in(there.now, lane, moved));
        granted.extend(take_all(&mut there, lane));
        // Those that have not gone go on where they are.
        if let Some(lane) = lanes.get(number + 1)
            && let Answer::Granted(permit) = here.submit(*lane, Ask { immediate: true, ..ask(Tier::High) })
        {
            under_way[number + 1].push(permit);
        }
    }
    [&mut here, &mut there].into_iter().for_each(|bench| bench.engine.end_changes(bench.now));
    let lane = there.lane("one", "account", &plan);
    granted.extend(take_all(&mut there, lane));
    let exchanges: Vec<PermitKey> = under_way.into_iter().flatten().collect();
    assert_eq!((exchanges.len(), granted.len()), (4, 0));
    for permit in exchanges {
        here.engine.finished(here.now, permit);
        let (_, moved) = keys.iter().find(|(before, _)| *before == permit).expect("it came along");
        there.engine.finished(there.now, *moved);
    }
    assert_eq!(take_all(&mut there, lane).len(), 4);
    here.assert_clean();
    there.assert_clean();
}
