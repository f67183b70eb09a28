//! Limits that processes share, one within the other: which answers of the store decide between tiers, and how fast both fill.

use super::pool::wishes;
use super::*;
use crate::limit::{Got, Pooled};

const MS: u64 = 1_000_000;

fn pooled(spec: LimitSpec) -> LimitSpec {
    LimitSpec { pooled: Some(Pooled { lasts_ns: 30 * SECOND, floor: None }), ..spec }
}

/// The store gives all that is wanted, with `weights` by the limit's name.
fn answer(bench: &mut Bench, weights: impl Fn(&str) -> [u32; 3]) {
    for (limit, name, wish) in wishes(bench) {
        let keep: u32 = wish.want.iter().sum();
        let units = vec![(0, keep.saturating_sub(wish.claim))];
        let got = Got { units, keep, weights: weights(&name), ..Got::default() };
        bench.engine.hold(bench.now, limit, &got, bench.now.plus_nanos(10 * SECOND));
    }
}

/// Only requests of the low tier wait for the endpoint, whose limit is told after that of all requests.
#[test]
fn limit_of_an_endpoint_decides_between_no_tiers() {
    let mut plan = with_shared(plan(vec![]), vec![pooled(per_second("all", 10))], vec![]);
    plan.endpoints.push(EndpointPlan { name: "search".into(), hash: EndpointHash::of("search"), own: 0..0 });
    let mut limits = plan.account.to_vec();
    limits.push(endpoint_spec("search", pooled(per_second("search", 1))));
    plan.account = limits.into();
    let (mut bench, lane) = Bench::with(plan);
    let mut of_tier = std::collections::HashMap::new();
    for tier in [Tier::High, Tier::Normal, Tier::Low] {
        for number in 0..200 {
            let endpoint = if tier == Tier::Low && number % 2 == 0 { EndpointId::at(0) } else { NO_ENDPOINT };
            of_tier.insert(bench.submit_waiting(lane, Ask { endpoint, ..ask(tier) }).0, tier);
        }
    }
    let mut sent = [0u32; 3];
    while sent.iter().sum::<u32>() < 100 {
        answer(&mut bench, |name| if name.ends_with("|search") { [1, 1, 1_000] } else { [6, 3, 1] });
        for (_, waiter) in bench.serve(bench.now.plus_nanos(250 * MS), 10 * MS) {
            sent[of_tier[&waiter].index()] += 1;
        }
    }
    assert!(sent[0] >= 50 && sent[1] >= 25, "{sent:?}");
}

#[test]
fn nested_slots_fill_within_few_calls() {
    let slots = |name: &str| vec![pooled(slots(name, 50))];
    let (mut bench, lane) = Bench::with(with_shared(plan(vec![]), slots("account"), slots("vendor")));
    for _ in 0..100 {
        bench.submit_waiting(lane, ask(Tier::Normal));
    }
    let mut sent = 0;
    for _ in 0..4 {
        answer(&mut bench, |_| [6, 3, 1]);
        sent += bench.serve(bench.now.plus_nanos(250 * MS), 60 * SECOND).len();
    }
    assert!(sent >= 40, "{sent} of 50 slots are in use");
}
