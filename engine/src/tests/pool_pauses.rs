//! A request that a pause or a limit of its own tenant stops holds nothing of a limit that processes share, and one that lacks
//! units alone keeps those that it has.

use std::collections::HashMap;

use super::pool::{give, wishes};
use super::*;
use crate::limit::{Got, Pooled};
use crate::throttle::Wait;

const MS: u64 = 1_000_000;
/// How long a vendor's answer pauses a lane, in nanoseconds.
const PAUSE: u64 = 20 * SECOND;

fn pooled(spec: LimitSpec) -> LimitSpec {
    LimitSpec { pooled: Some(Pooled { lasts_ns: 30 * SECOND, floor: None }), ..spec }
}

fn of_account(own: Vec<LimitSpec>, limit: LimitSpec) -> Plan {
    with_shared(plan(own), vec![pooled(limit)], vec![])
}

/// Lets the store answer every 250 ms. Others want all units, so this process gets `part` of them at most. Returns how many
/// requests were sent.
fn share(bench: &mut Bench, part: u32, looks: u64) -> usize {
    let mut sent = 0;
    for _ in 0..looks {
        for (limit, _, wish) in wishes(bench) {
            let keep = wish.want.iter().sum::<u32>().min(part);
            let units = vec![(0, keep.saturating_sub(wish.claim))];
            let got = Got { units, keep, is_scarce: true, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        sent += bench.serve(bench.now.plus_nanos(250 * MS), 10 * MS).len();
    }
    sent
}

/// A process that uses the ten units that it holds of the only limit, while at least 20 more requests wait. Returns its permits,
/// too.
fn saturated(plan: Plan) -> (Bench, LaneKey, Vec<PermitKey>) {
    let (mut bench, lane) = Bench::with(plan);
    let (first, _) = bench.submit_waiting(lane, ask(Tier::Normal));
    give(&mut bench, 10, 10);
    let Claim::Started(permit, _) = bench.engine.claim(bench.now, first) else { panic!("units are held") };
    let mut under_way = vec![permit];
    for _ in 0..30 {
        if let Answer::Granted(permit) = bench.submit(lane, ask(Tier::Normal)) {
            under_way.push(permit);
        }
    }
    assert!(wishes(&mut bench)[0].2.want[Tier::Normal.index()] >= 20);
    (bench, lane, under_way)
}

/// Pauses the lane: an operator does, or an answer to this request.
fn pause(bench: &mut Bench, lane: LaneKey, permit: PermitKey, by: Option<Feedback>) {
    match by {
        Some(word) => drop(bench.engine.answered_with(bench.now, permit, word, &[], true)),
        None => {
            bench.engine.pause(bench.now, lane);
            bench.engine.finished(bench.now, permit);
        }
    }
}

#[test]
fn paused_tenant_gives_units_of_its_account_back() {
    let refused = Feedback::RefusedFor(Whose::Lane, Wait::Stated(PAUSE), None);
    let pauses = [None, Some(refused), Some(Feedback::PassedFor(PAUSE, None))];
    for (by, limit) in pauses.into_iter().flat_map(|by| [(by, per_second("all", 100)), (by, slots("all", 100))]) {
        let (mut bench, lane, under_way) = saturated(of_account(vec![], limit));
        pause(&mut bench, lane, under_way[0], by);
        under_way[1..].iter().for_each(|permit| bench.engine.finished(bench.now, *permit));
        assert_eq!(share(&mut bench, 10, 12), 0);
        assert_eq!(wishes(&mut bench), vec![], "{by:?}");
        // Nor does a look, or a request that comes during the pause, want units.
        bench.submit_waiting(lane, Ask { cost: 5.into(), ..ask(Tier::High) });
        assert!(bench.engine.view(bench.now, lane).is_some());
        assert!(!bench.engine.is_starved(), "{by:?}");
        assert_eq!(wishes(&mut bench), vec![], "{by:?}");
        assert!(bench.serve(ms(25_000), 10 * MS).is_empty());
        bench.engine.unpause(bench.now, lane);
        assert!(bench.engine.is_starved(), "{by:?}: the store is called as soon as the pause is over");
        assert!(share(&mut bench, 10, 1) >= 1, "{by:?}");
    }
}

/// Requests of another process with the same key may pass. If the vendor has stated a wait, all processes keep to it.
#[test]
fn pause_in_one_process_leaves_a_key_to_others() {
    for (by, expected) in [(None, 0), (Some(Feedback::PassedFor(PAUSE, None)), 10)] {
        let (mut bench, lane, under_way) = saturated(plan(vec![pooled(per_second("own", 100))]));
        pause(&mut bench, lane, under_way[0], by);
        under_way[1..].iter().for_each(|permit| bench.engine.finished(bench.now, *permit));
        assert_eq!(share(&mut bench, 10, 40), 0);
        let held: u32 = wishes(&mut bench).iter().map(|(_, _, wish)| wish.claim).sum();
        assert_eq!(held, expected, "{by:?}");
        bench.serve(ms(25_000), 10 * MS);
        bench.engine.unpause(bench.now, lane);
        assert!(share(&mut bench, 10, 2) >= 1, "{by:?}");
    }
}

#[test]
fn requests_of_paused_tenant_add_nothing_to_what_others_want() {
    for limit in [per_second("all", 100), slots("all", 100)] {
        let plan = Arc::new(of_account(vec![], limit));
        let mut bench = Bench::new();
        let [paused, other] = ["paused", "other"].map(|tenant| bench.lane(tenant, "account", &plan));
        bench.engine.pause(bench.now, paused);
        for _ in 0..30 {
            bench.submit_waiting(paused, ask(Tier::Normal));
        }
        assert!(!bench.engine.is_starved());
        assert_eq!(wishes(&mut bench), vec![]);
        for _ in 0..3 {
            bench.submit_waiting(other, ask(Tier::Normal));
        }
        let (_, _, wish) = wishes(&mut bench).remove(0);
        assert_eq!((wish.want, wish.need), ([0, 3, 0], 1));
    }
}

#[test]
fn request_at_its_tenants_limit_wants_no_shared_units() {
    let (mut bench, lane) = Bench::with(of_account(vec![bucket("own", 1, 0.1)], per_second("all", 100)));
    bench.submit_waiting(lane, ask(Tier::Normal));
    assert_eq!(share(&mut bench, 10, 20), 1);
    assert_eq!(wishes(&mut bench), vec![]);
    for _ in 0..20 {
        bench.submit_waiting(lane, ask(Tier::Normal));
    }
    let wanted: u32 = wishes(&mut bench).iter().flat_map(|(_, _, wish)| wish.want).sum();
    assert!(wanted <= 1, "{wanted}");
    assert_eq!(share(&mut bench, 10, 30), 1, "its turn comes ten seconds after the first");
}

/// It waits for its own limit at most looks, for a few milliseconds.
#[test]
fn tenant_at_its_own_pace_keeps_the_units_it_needs() {
    let (mut bench, lane) = Bench::with(of_account(vec![bucket("own", 1, 50.0)], per_second("all", 100)));
    for _ in 0..1_500 {
        bench.submit_waiting(lane, ask(Tier::Normal));
    }
    share(&mut bench, 100, 16);
    let sent = share(&mut bench, 100, 40);
    assert!((475..=505).contains(&sent), "{sent} in ten seconds, of 50 a second");
}

/// The store has one unit at a time, of one of the limits, and others want all of them. Returns when requests were sent.
fn serve_unit_by_unit(bench: &mut Bench, looks: usize) -> Vec<Time> {
    let mut sent = Vec::new();
    for look in 0..looks {
        let told = wishes(bench);
        let lacking: Vec<usize> =
            (0..told.len()).filter(|number| told[*number].2.claim < told[*number].2.want.iter().sum()).collect();
        let gives = (!lacking.is_empty()).then(|| lacking[look % lacking.len()]);
        for (number, (limit, _, wish)) in told.into_iter().enumerate() {
            let units = u32::from(gives == Some(number));
            let got = Got { units: vec![(0, units)], keep: wish.claim + units, is_scarce: true, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        sent.extend(bench.serve(bench.now.plus_nanos(250 * MS), 10 * MS).into_iter().map(|(at, _)| at));
    }
    sent
}

#[test]
fn request_gathers_scarce_units_of_nested_limits() {
    let own = || vec![bucket("own", 1, 0.1)];
    let nested =
        with_shared(plan(own()), vec![pooled(per_second("all", 100))], vec![pooled(per_second("vendor", 100))]);
    let beside = with_shared(plan(own()), vec![pooled(per_second("all", 100)), pooled(slots("slots", 10))], vec![]);
    let mut of_endpoint = with_shared(plan(own()), vec![pooled(per_second("all", 100))], vec![]);
    of_endpoint.endpoints.push(EndpointPlan { name: "search".into(), hash: EndpointHash::of("search"), own: 0..0 });
    let mut limits = of_endpoint.account.to_vec();
    limits.push(endpoint_spec("search", pooled(per_second("search", 100))));
    of_endpoint.account = limits.into();
    for (plan, endpoint) in [(nested, NO_ENDPOINT), (beside, NO_ENDPOINT), (of_endpoint, EndpointId::at(0))] {
        let (mut bench, lane) = Bench::with(plan);
        for _ in 0..20 {
            bench.submit_waiting(lane, Ask { endpoint, ..ask(Tier::Normal) });
        }
        let sent = serve_unit_by_unit(&mut bench, 240);
        assert_eq!(sent.len(), 6, "one in ten seconds, by its own limit: {sent:?}");
        let late = sent.windows(2).filter(|pair| pair[1] > pair[0].plus_nanos(11 * SECOND)).count();
        assert_eq!(late, 0, "{sent:?}");
    }
}

/// The store gives all that is wanted, and each request takes 20 s. Returns how many requests of each lane were sent in 200 s.
fn serve_slowly(bench: &mut Bench, waiters: &HashMap<WaiterKey, usize>) -> [usize; 2] {
    let (mut sent, mut under_way) = ([0; 2], Vec::<(Time, PermitKey)>::new());
    for _ in 0..800 {
        for (limit, _, wish) in wishes(bench) {
            let keep: u32 = wish.want.iter().sum();
            let got = Got { units: vec![(0, keep.saturating_sub(wish.claim))], keep, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        for waiter in bench.engine.woken().collect::<Vec<_>>() {
            if let Claim::Started(permit, _) = bench.engine.claim(bench.now, waiter) {
                sent[waiters[&waiter]] += 1;
                under_way.push((bench.now.plus_nanos(20 * SECOND), permit));
            }
        }
        bench.now = bench.now.plus_nanos(250 * MS);
        bench.engine.poll(bench.now);
        for (_, permit) in under_way.extract_if(.., |(end, _)| *end <= bench.now) {
            bench.engine.finished(bench.now, permit);
        }
    }
    sent
}

/// The vendor takes one request at a time, by a limit that is not shared. When its slot is free, the account that holds units
/// of its shared limit gets it.
#[test]
fn slow_wider_limit_starves_no_account() {
    let plan = Arc::new(with_shared(plan(vec![]), vec![pooled(per_second("all", 100))], vec![slots("vendor", 1)]));
    let mut bench = Bench::new();
    let lanes = ["first", "second"].map(|name| bench.lane(name, name, &plan));
    let mut waiters = HashMap::new();
    for _ in 0..20 {
        for (number, lane) in lanes.into_iter().enumerate() {
            waiters.insert(bench.submit_waiting(lane, ask(Tier::Normal)).0, number);
        }
    }
    let sent = serve_slowly(&mut bench, &waiters);
    assert!(sent.iter().all(|sent| *sent >= 3), "{sent:?}");
}

#[test]
fn slow_account_limit_starves_no_endpoint() {
    let mut plan = with_shared(plan(vec![]), vec![slots("all", 1)], vec![]);
    plan.endpoints.push(EndpointPlan { name: "search".into(), hash: EndpointHash::of("search"), own: 0..0 });
    let mut limits = plan.account.to_vec();
    limits.push(endpoint_spec("search", pooled(per_second("search", 100))));
    plan.account = limits.into();
    let (mut bench, lane) = Bench::with(plan);
    let busy = bench.submit_granted(lane, ask(Tier::Normal));
    let mut waiters = HashMap::new();
    for _ in 0..20 {
        for (number, endpoint) in [EndpointId::at(0), NO_ENDPOINT].into_iter().enumerate() {
            waiters.insert(bench.submit_waiting(lane, Ask { endpoint, ..ask(Tier::Normal) }).0, number);
        }
    }
    bench.engine.finished(bench.now, busy);
    let sent = serve_slowly(&mut bench, &waiters);
    assert!(sent.iter().all(|sent| *sent >= 3), "{sent:?}");
}

/// The own limit of the tenant parks its lane at each look, because others of its requests wait for that.
#[test]
fn busy_lane_starves_no_endpoint() {
    let plan_of = |rate: f64, search: LimitSpec| {
        let mut plan = with_shared(plan(vec![bucket("own", 1, rate)]), vec![], vec![]);
        plan.endpoints.push(EndpointPlan { name: "search".into(), hash: EndpointHash::of("search"), own: 0..0 });
        plan.account = vec![endpoint_spec("search", pooled(search))].into();
        plan
    };
    // The store has nothing for 12 s, and then all.
    let (mut bench, lane) = Bench::with(plan_of(10.0, slots("search", 1)));
    for _ in 0..2_000 {
        bench.submit(lane, ask(Tier::Normal));
    }
    let (search, _) = bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::Normal) });
    let mut sent_at = None;
    for look in 0..56 {
        for (limit, _, wish) in wishes(&mut bench) {
            let want = if look < 48 { 0 } else { wish.want.iter().sum() };
            let units = vec![(0, want.saturating_sub(wish.claim))];
            let got = Got { units, keep: want, is_scarce: look < 48, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        let sent = bench.serve(bench.now.plus_nanos(250 * MS), 10 * MS);
        sent_at = sent_at.or(sent.into_iter().find(|(_, waiter)| *waiter == search).map(|(at, _)| at));
    }
    assert!(sent_at.is_some_and(|at| at < ms(13_500)), "{sent_at:?}");
    // One unit at a time, which others want.
    let (mut bench, lane) = Bench::with(plan_of(0.5, per_second("search", 100)));
    let mut searches = std::collections::HashSet::new();
    for _ in 0..100 {
        bench.submit(lane, ask(Tier::Normal));
        searches.insert(bench.submit_waiting(lane, Ask { endpoint: EndpointId::at(0), ..ask(Tier::Normal) }).0);
    }
    let mut sent = 0;
    for _ in 0..240 {
        for (limit, _, wish) in wishes(&mut bench) {
            let keep = wish.want.iter().sum::<u32>().min(1);
            let got =
                Got { units: vec![(0, keep.saturating_sub(wish.claim))], keep, is_scarce: true, ..Got::default() };
            bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
        }
        let served = bench.serve(bench.now.plus_nanos(250 * MS), 10 * MS);
        sent += served.iter().filter(|(_, waiter)| searches.contains(waiter)).count();
    }
    assert!(
        sent >= 6,
        "{sent} of the 30 requests in a minute; their turn is every second one, and half the time without a unit"
    );
}
