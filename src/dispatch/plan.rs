//! Translates a vendor's published limits into the specifications that the engine enforces.
//!
//! `config::Shape` decides how large a bucket is and how strict its guard. This file only converts its figures.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use crate::clock::{Time, nanos};
use crate::config::priority::Priority;
use crate::config::{
    Algorithm, Holds, Limit, LimitKind as Kind, MAX_COSTS, Rate, Resets, Scope, SharingFloor, Tenant, Throttle, Unit,
    Vendor,
};
use crate::engine::cost::{Cost, KINDS, Measure, PointKind, Settled};
use crate::engine::limit::guard::GuardSpec;
use crate::engine::limit::token_bucket::BucketSpec;
use crate::engine::limit::vendor_bucket::VendorBucketSpec;
use crate::engine::limit::window_counter::CounterSpec;
use crate::engine::limit::window_log::LogSpec;
use crate::engine::limit::{Calendar, FloorPart, LimitKind, LimitSpec, Pooled};
use crate::engine::plan::{Counting, EndpointHash, EndpointPlan, Pace, Plan, SharedSpec};
use crate::engine::throttle::{Label, Mode};
use crate::engine::tier::Tier;
use crate::signals::Stated;

impl From<Priority> for Tier {
    fn from(priority: Priority) -> Tier {
        match priority {
            Priority::High => Tier::High,
            Priority::Normal => Tier::Normal,
            Priority::Low => Tier::Low,
        }
    }
}

/// Settings of a client that apply to all plans.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) tier_weights: [u32; 3],
    pub(crate) max_waiting: u32,
    /// Off only in tests, to show that the checker finds what the guard prevents.
    pub(crate) guard: bool,
    /// The wall clock at [`Time::ZERO`](crate::clock::Time::ZERO), by which the dates of calendars are converted to the
    /// client's clock.
    pub(crate) epoch: SystemTime,
    /// Set if limits are shared with other processes, through a store that keeps the pool of their units.
    pub(crate) pooled: Option<Holds>,
    /// The part of pooled limits that a process continues to use when the pool's store does not answer.
    pub(crate) floor: Option<SharingFloor>,
}

impl Policy {
    /// The defaults of a client, except for `epoch`.
    pub(crate) const USUAL: Policy = Policy {
        tier_weights: Tier::WEIGHTS,
        max_waiting: 10_000,
        guard: true,
        epoch: SystemTime::UNIX_EPOCH,
        pooled: None,
        floor: None,
    };
}

/// A cache of plans by vendor and weight: tenants without limits of their own share a plan.
#[derive(Default)]
pub(crate) struct Plans {
    known: HashMap<(usize, u32), (Weak<Vendor>, Weak<Plan>)>,
}

impl Plans {
    pub(crate) fn of(&mut self, tenant: &Tenant, policy: &Policy) -> Arc<Plan> {
        let key = (Arc::as_ptr(&tenant.vendor) as usize, tenant.weight);
        if let Some((vendor, plan)) = self.known.get(&key)
            && let (Some(vendor), Some(plan)) = (vendor.upgrade(), plan.upgrade())
            && Arc::ptr_eq(&vendor, &tenant.vendor)
        {
            return plan;
        }
        let plan = Arc::new(compile(&tenant.vendor, tenant.weight, policy));
        if self.known.len() >= 64 && self.known.len().is_power_of_two() {
            self.forget();
        }
        self.known.insert(key, (Arc::downgrade(&tenant.vendor), Arc::downgrade(&plan)));
        plan
    }

    /// Drops plans that no lane uses.
    pub(crate) fn forget(&mut self) {
        self.known.retain(|_, (vendor, plan)| vendor.strong_count() > 0 && plan.strong_count() > 0);
        if self.known.capacity() > 64 && self.known.len() < self.known.capacity() / 8 {
            self.known.shrink_to(2 * self.known.len());
        }
    }
}

pub(crate) fn compile(vendor: &Vendor, weight: u32, policy: &Policy) -> Plan {
    let spec = |limit: &Limit| limit_spec(limit, vendor, policy);
    let is_own = |limit: &&Limit| matches!(limit.scope, Scope::Tenant | Scope::Endpoint);
    let mut own: Vec<LimitSpec> = vendor.limits.iter().filter(is_own).map(spec).collect();
    let whole = own.len();
    let mut endpoints = Vec::new();
    for endpoint in &vendor.endpoints {
        let from = own.len();
        own.extend(endpoint.limits.iter().filter(is_own).map(spec));
        let (name, hash) = (endpoint.name.clone(), EndpointHash::of(&endpoint.name));
        endpoints.push(EndpointPlan { name, hash, own: from..own.len() });
    }
    let shared = |scope: Scope| -> Arc<[SharedSpec]> {
        let of_all = vendor.limits.iter().map(|limit| (limit, None));
        let of_endpoints = vendor.endpoints.iter().flat_map(|endpoint| {
            let hash = EndpointHash::of(&endpoint.name);
            endpoint.limits.iter().map(move |limit| (limit, Some(hash)))
        });
        of_all
            .chain(of_endpoints)
            .filter(|(limit, _)| limit.scope == scope)
            .map(|(limit, endpoint)| SharedSpec { spec: spec(limit), endpoint })
            .collect()
    };
    let every = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    let has_slots = every.map(|limit| &limit.kind).any(|kind| matches!(kind, Kind::Concurrency { .. }));
    Plan {
        vendor: vendor.name.clone(),
        environment: vendor.environment.clone(),
        own,
        whole,
        endpoints,
        account: shared(Scope::Account),
        vendor_wide: shared(Scope::Vendor),
        has_slots,
        weight,
        tier_weights: policy.tier_weights,
        max_waiting: policy.max_waiting,
        service_ns: nanos(vendor.attempt_timeout),
        usual: Cost::of(vendor.costs.usual()),
        kinds: vendor.costs.iter().map(|(name, _)| Label::of(name)).collect(),
        closing_ns: if has_slots { nanos(closing(vendor)) } else { 0 },
        pace: pace(vendor),
        max_hold_ns: nanos(vendor.retry.max_hold),
        one_witness_ns: nanos(vendor.retry.max_shared_pause),
    }
}

fn mode(vendor: &Vendor) -> Mode {
    match vendor.throttle {
        Throttle::Adaptive => Mode::Adaptive,
        Throttle::Bands => Mode::Bands,
        Throttle::Pace => Mode::Pace,
        Throttle::Off => Mode::Off,
    }
}

/// How long the vendor may take to notice a closed connection: `max_transit` minus the time to connect, which is over
/// by then.
fn closing(vendor: &Vendor) -> Duration {
    let connected = vendor.max_transit.saturating_sub(vendor.connect_timeout);
    if connected.is_zero() { vendor.max_transit } else { connected }
}

/// The slowest pace among the rates that apply to every request.
pub(crate) fn pace(vendor: &Vendor) -> Pace {
    let is_quota = |rate: &Rate| rate.algorithm == Algorithm::Quota;
    let rates =
        || vendor.limits.iter().filter_map(|limit| if let Kind::Rate(rate) = &limit.kind { Some(rate) } else { None });
    let all_quotas = rates().all(is_quota);
    let paces = rates().filter(|rate| all_quotas || !is_quota(rate)).map(|rate| rate_pace(rate, mode(vendor)));
    let none = Pace { mode: mode(vendor), ..Pace::default() };
    paces.fold(none, |slowest, pace| if pace.unit_ns > slowest.unit_ns { pace } else { slowest })
}

fn rate_pace(rate: &Rate, mode: Mode) -> Pace {
    let window_ns = nanos(rate.window);
    let counting = match rate.algorithm {
        Algorithm::FixedWindow | Algorithm::Quota => Counting::Windows,
        Algorithm::Unknown => Counting::Unstated,
        Algorithm::SlidingWindow | Algorithm::SlidingCounter => Counting::Log,
        Algorithm::TokenBucket | Algorithm::LeakyBucket => Counting::Bucket,
    };
    let unit_ns = (window_ns as f64 / (rate.safety * f64::from(rate.limit))).ceil() as u64;
    Pace { unit_ns, limit: rate.limit.into(), window_ns, counting, mode }
}

fn limit_spec(limit: &Limit, vendor: &Vendor, policy: &Policy) -> LimitSpec {
    let max_transit = vendor.max_transit;
    let (kind, measure, starts_spent) = match &limit.kind {
        Kind::Rate(rate) => {
            (rate_kind(rate, max_transit, policy.guard), measure(&rate.unit, vendor), rate.cold_start_spent)
        }
        Kind::Concurrency { limit } => (LimitKind::Slots { limit: *limit }, Measure::Requests, false),
    };
    let pace = match &limit.kind {
        Kind::Rate(rate) => rate_pace(rate, mode(vendor)),
        Kind::Concurrency { .. } => Pace { mode: mode(vendor), ..Pace::default() },
    };
    let lasts_ns = nanos(vendor.attempt_timeout).saturating_add(nanos(closing(vendor)));
    let floor = policy
        .floor
        .map(|floor| FloorPart { millionths: (floor.part * 1e6).round() as u32, processes: floor.max_processes.get() });
    let pooled = (policy.pooled.is_some() && limit.shared).then_some(Pooled { lasts_ns, floor });
    let calendar = match &limit.kind {
        Kind::Rate(Rate { resets: Some(resets), .. }) => Some(calendar(resets, policy.epoch)),
        Kind::Rate(_) | Kind::Concurrency { .. } => None,
    };
    LimitSpec { name: limit.name.clone(), kind, measure, starts_spent, pace, calendar, pooled }
}

/// The ends of a calendar's windows by the client's clock, without those from before it began: it cannot express them,
/// and no request is that old.
fn calendar(resets: &Resets, epoch: SystemTime) -> Calendar {
    let (ends, every) = resets.ends(epoch);
    let time = |end: SystemTime| Some(Time::from_nanos(nanos(end.duration_since(epoch).ok()?)));
    Calendar::new(ends.into_iter().filter_map(time).collect(), nanos(every))
}

// The engine has room for every kind of points that a vendor may declare.
const _: () = assert!(MAX_COSTS == KINDS);

/// Converts the cost that a response states for the engine: `points` if no kind is named. Fractions are rounded up.
pub(crate) fn settled(vendor: &Vendor, stated: &[Stated], points: Option<f64>) -> Settled {
    let mut settled = Settled::default();
    let points = points.map(|units| (Some(PointKind::POINTS), units));
    let named = stated.iter().map(|stated| (kind(&stated.kind, vendor), stated.units));
    for (kind, units) in points.into_iter().chain(named) {
        if let Some(kind) = kind.filter(|_| units.is_finite() && units >= 0.0) {
            // Float to integer casts saturate.
            settled.set(kind, units.ceil() as u32);
        }
    }
    settled
}

/// The cost of `units` points of the kind `name` and nothing else; zero if the vendor has no such kind.
pub(crate) fn of_kind(vendor: &Vendor, name: &str, units: u32) -> Cost {
    kind(name, vendor).map_or(Cost::NOTHING, |kind| Cost::NOTHING.with(kind, units))
}

/// The engine's number for a vendor's kind of points, which is its place in the vendor's entry.
fn kind(name: &str, vendor: &Vendor) -> Option<PointKind> {
    vendor.costs.place(name).and_then(PointKind::at)
}

fn measure(unit: &Unit, vendor: &Vendor) -> Measure {
    match unit {
        Unit::Requests => Measure::Requests,
        // The check of the configuration ensures that the kind is declared.
        Unit::Cost(name) => {
            let kind = kind(name, vendor).unwrap_or(PointKind::POINTS);
            if vendor.dialect.is_cost_in_body(name) { Measure::Usage(kind) } else { Measure::Points(kind) }
        }
        Unit::RequestBytes => Measure::Sent,
        Unit::ResponseBytes => Measure::Received,
        Unit::Bytes => Measure::Bytes,
    }
}

fn rate_kind(rate: &Rate, max_transit: Duration, guarded: bool) -> LimitKind {
    let shape = rate.shape();
    let (limit, reserve) = (shape.guard_limit, shape.guard_reserve);
    let (window, transit) = (nanos(rate.window), nanos(max_transit));
    // A calendar decides when the window ends, so the window may be longer than usual.
    let longest = rate.resets.as_ref().map_or(window, |resets| nanos(resets.longest()));
    let log = LogSpec::new(limit, reserve, longest, transit);
    let guard = match rate.algorithm {
        _ if !guarded => GuardSpec::Off,
        Algorithm::FixedWindow | Algorithm::Quota => GuardSpec::Log(log.fixed()),
        Algorithm::SlidingWindow => GuardSpec::Log(log),
        Algorithm::SlidingCounter | Algorithm::Unknown => {
            GuardSpec::Counter(CounterSpec::new(limit, rate.limit, reserve, window, transit))
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let refill = rate.ceiling * f64::from(rate.limit);
            GuardSpec::Bucket(VendorBucketSpec::new(limit, reserve, refill, window, transit))
        }
    };
    let release = shape.release_interval.map_or(0, nanos);
    // With a calendar, only the guard limits the pace: the bucket refills at once.
    let refill = if rate.resets.is_some() { f64::INFINITY } else { shape.refill };
    LimitKind::Rate { bucket: BucketSpec::new(shape.capacity, refill, window, release), guard }
}

#[cfg(test)]
mod tests;
