//! Decisions of the engine, on a virtual clock. Nothing sleeps.

mod answers;
mod attribution;
mod bound;
mod branch;
mod change;
mod check;
mod concurrency;
mod costs;
mod deferred;
mod drain;
mod failures;
mod figures;
mod forecast;
mod late_tenants;
mod learning;
mod long_windows;
mod moved_units;
mod notices;
mod pauses;
mod pool;
mod pool_asks;
mod pool_costs;
mod pool_pauses;
mod pool_tiers;
mod pushback;
mod reports;
mod scopes;
mod slots;
mod slots_model;
mod stated_pauses;
mod stopped_lanes;
mod tiers;
mod vendor_figure;
mod waits;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::cost::Cost;
use super::cost::{Measure, PointKind, Settled};
use super::endpoint::EndpointId;
use super::keys::PermitKey;
use super::limit::guard::GuardSpec;
use super::limit::token_bucket::BucketSpec;
use super::limit::window_log::LogSpec;
use super::limit::{LimitKind, LimitSpec};
use super::plan::{EndpointHash, EndpointPlan, NO_ENDPOINT, Pace, Plan, SharedSpec};
use super::slab::Key;
use super::throttle::Label;
use super::*;
use crate::tier::Tier;

pub(super) const SECOND: u64 = 1_000_000_000;
const TRANSIT: u64 = 1_600_000_000;

pub(super) fn ms(n: u64) -> Time {
    Time::from_nanos(3_600 * SECOND + n * 1_000_000)
}

/// `limit` per second, 80 % of it as the bucket.
pub(super) fn per_second(name: &str, limit: u32) -> LimitSpec {
    let budget = (limit as f64 * 0.8).floor().max(1.0);
    LimitSpec {
        name: name.into(),
        kind: LimitKind::Rate {
            bucket: BucketSpec::new(budget as u32, limit as f64 * 0.8, SECOND, 0),
            guard: GuardSpec::Log(LogSpec::new(limit, limit - budget as u32, SECOND, TRANSIT)),
        },
        measure: Measure::Points(PointKind::POINTS),
        starts_spent: false,
        pace: Default::default(),
        calendar: None,
        pooled: None,
    }
}

/// A bucket of `capacity` that refills `rate` a second, under a guard that never bites.
pub(super) fn bucket(name: &str, capacity: u32, rate: f64) -> LimitSpec {
    let kind = LimitKind::Rate {
        bucket: BucketSpec::new(capacity, rate, SECOND, 0),
        guard: GuardSpec::Log(LogSpec::new(1_000_000, 0, SECOND, TRANSIT)),
    };
    LimitSpec {
        name: name.into(),
        kind,
        measure: Measure::Points(PointKind::POINTS),
        starts_spent: false,
        pace: Default::default(),
        calendar: None,
        pooled: None,
    }
}

pub(super) fn slots(name: &str, limit: u32) -> LimitSpec {
    let kind = LimitKind::Slots { limit };
    LimitSpec {
        name: name.into(),
        kind,
        measure: Measure::Requests,
        starts_spent: false,
        pace: Default::default(),
        calendar: None,
        pooled: None,
    }
}

pub(super) fn plan(own: Vec<LimitSpec>) -> Plan {
    Plan {
        vendor: "vendor".into(),
        environment: "live".into(),
        whole: own.len(),
        own,
        endpoints: Vec::new(),
        account: Arc::new([]),
        vendor_wide: Arc::new([]),
        has_slots: true,
        weight: 1,
        tier_weights: [6, 3, 1],
        max_waiting: 100_000,
        service_ns: SECOND,
        usual: 1.into(),
        kinds: [Label::of("points")].into(),
        closing_ns: 0,
        pace: Default::default(),
        max_hold_ns: 900 * SECOND,
        one_witness_ns: 900 * SECOND,
    }
}

/// With this pace for the lane and each of its rates.
pub(super) fn paced(pace: Pace, mut plan: Plan) -> Plan {
    plan.pace = pace;
    plan.own.iter_mut().filter(|spec| spec.is_rate()).for_each(|spec| spec.pace = pace);
    plan
}

/// Adds an endpoint with a limit of its own.
pub(super) fn with_endpoint(mut plan: Plan, name: &str, limit: LimitSpec) -> Plan {
    let at = plan.own.len();
    plan.own.push(limit);
    plan.endpoints.push(EndpointPlan { name: name.into(), hash: EndpointHash::of(name), own: at..at + 1 });
    plan
}

pub(super) fn with_shared(mut plan: Plan, account: Vec<LimitSpec>, vendor: Vec<LimitSpec>) -> Plan {
    let shared = |specs: Vec<LimitSpec>| -> Arc<[SharedSpec]> {
        specs.into_iter().map(|spec| SharedSpec { spec, endpoint: None }).collect()
    };
    plan.account = shared(account);
    plan.vendor_wide = shared(vendor);
    plan
}

/// A limit that lanes share for requests to one endpoint.
pub(super) fn endpoint_spec(name: &str, spec: LimitSpec) -> SharedSpec {
    SharedSpec { spec, endpoint: Some(EndpointHash::of(name)) }
}

pub(super) fn ask(tier: Tier) -> Ask {
    Ask::new(tier, NO_ENDPOINT, 1, Attempt::within(30 * SECOND))
}

/// An engine and the time.
pub(super) struct Bench {
    pub(super) engine: Engine,
    pub(super) now: Time,
}

impl Bench {
    pub(super) fn new() -> Bench {
        Bench { engine: Engine::new(Bound::new(1_000_000), Default::default()), now: ms(0) }
    }

    pub(super) fn with(plan: Plan) -> (Bench, LaneKey) {
        let mut bench = Bench::new();
        let lane = bench.lane("acme", "acme", &Arc::new(plan));
        (bench, lane)
    }

    pub(super) fn lane(&mut self, tenant: &str, account: &str, plan: &Arc<Plan>) -> LaneKey {
        self.engine.upsert(self.now, tenant, account, plan, None)
    }

    /// A lane whose tenant chose the host that answers it.
    pub(super) fn lane_at(&mut self, tenant: &str, account: &str, plan: &Arc<Plan>, host: Option<&str>) -> LaneKey {
        self.engine.upsert(self.now, tenant, account, plan, host)
    }

    /// The answer states what its request cost, in points.
    pub(super) fn settle(&mut self, permit: PermitKey, points: u32) {
        let mut stated = Settled::default();
        stated.set(PointKind::POINTS, points);
        self.engine.corrected(self.now, permit, &stated);
    }

    pub(super) fn submit(&mut self, lane: LaneKey, ask: Ask) -> Answer {
        self.engine.submit(self.now, lane, &ask)
    }

    /// Submits a request that is granted at once.
    pub(super) fn submit_granted(&mut self, lane: LaneKey, ask: Ask) -> PermitKey {
        match self.submit(lane, ask) {
            Answer::Granted(permit) => permit,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    /// Submits a request that has to wait.
    pub(super) fn submit_waiting(&mut self, lane: LaneKey, ask: Ask) -> (WaiterKey, Until) {
        match self.submit(lane, ask) {
            Answer::Wait { waiter, until, .. } => (waiter, until),
            other => panic!("expected a wait, got {other:?}"),
        }
    }

    /// Lets time pass to `until`; returns who was woken, and when.
    pub(super) fn run(&mut self, until: Time) -> Vec<(Time, WaiterKey)> {
        let mut woken = Vec::new();
        loop {
            woken.extend(self.engine.woken().map(|waiter| (self.now, waiter)));
            match self.engine.poll_timeout() {
                Some(at) if at <= until => {
                    assert!(at > self.now, "a poll timeout that is not later than now spins");
                    self.now = at;
                    self.engine.poll(at);
                }
                _ => break,
            }
        }
        self.now = until;
        woken
    }

    /// Lets time pass; whoever is granted starts, and is answered and finished after `took`. Returns the grants.
    pub(super) fn serve(&mut self, until: Time, took: u64) -> Vec<(Time, WaiterKey)> {
        let mut grants = Vec::new();
        let mut ends: BinaryHeap<Reverse<(Time, PermitKey)>> = BinaryHeap::new();
        loop {
            let woken: Vec<WaiterKey> = self.engine.woken().collect();
            for waiter in woken {
                if let Claim::Started(permit, _) = self.engine.claim(self.now, waiter) {
                    grants.push((self.now, waiter));
                    ends.push(Reverse((self.now.plus_nanos(took), permit)));
                }
            }
            let end = ends.peek().map_or(Time::MAX, |Reverse((at, _))| *at);
            let at = self.engine.poll_timeout().unwrap_or(Time::MAX).min(end);
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            while let Some(Reverse((at, permit))) = ends.peek().copied()
                && at <= self.now
            {
                ends.pop();
                self.engine.finished(self.now, permit);
            }
            self.engine.poll(self.now);
        }
        self.now = until;
        grants
    }

    /// A whole sweep, in small steps.
    pub(super) fn sweep(&mut self, now: Time, evict: bool) {
        let mut next = Some(Sweep::START);
        while let Some(from) = next {
            next = self.engine.sweep(now, from, 2, evict);
        }
    }

    /// Everything that was ever submitted has ended and left nothing.
    pub(super) fn assert_clean(&mut self) {
        self.now = self.now + std::time::Duration::from_secs(400);
        self.engine.poll(self.now);
        self.sweep(self.now, false);
        assert_eq!(self.engine.leftovers(), Vec::<String>::new());
    }
}
