//! A request that a pause or a limit of its own tenant stops holds nothing of a limit that processes share.

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
        assert_eq!(share(&mut bench, 10, 40), 0);
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
    bench.submit_waiting(lane, ask(Tier::Normal));
    assert!(!bench.engine.is_starved());
    assert_eq!(wishes(&mut bench), vec![]);
    assert_eq!(share(&mut bench, 10, 30), 1, "its turn comes ten seconds after the first");
}

#[test]
fn limit_of_an_endpoint_counts_its_own_requests() {
    let mut plan = of_account(vec![], per_second("all", 100));
    plan.endpoints.push(EndpointPlan { name: "search".into(), hash: EndpointHash::of("search"), own: 0..0 });
    let mut limits = plan.account.to_vec();
    limits.push(endpoint_spec("search", pooled(per_second("search", 100))));
    plan.account = limits.into();
    let (mut bench, lane) = Bench::with(plan);
    for endpoint in [EndpointId::at(0); 2].into_iter().chain([NO_ENDPOINT; 3]) {
        bench.submit_waiting(lane, Ask { endpoint, ..ask(Tier::Normal) });
    }
    let found = wishes(&mut bench);
    let wants = |limit: &str| found.iter().find(|(_, name, _)| name.ends_with(limit)).map(|(_, _, wish)| wish.want);
    assert_eq!([wants("|all"), wants("|search")], [Some([0, 3, 0]), Some([0, 2, 0])]);
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
