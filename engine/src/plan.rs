//! A vendor's limits as the engine knows them, by who shares them. Immutable; equal lanes share one plan.

use std::sync::Arc;

use super::cost::{Cost, Measure, PointKind};
pub use super::endpoint::{EndpointHash, EndpointId, NO_ENDPOINT};
use super::limit::{Cell, LimitSpec};
pub use super::pace::{Counting, Pace};
use super::throttle::Label;

/// Limits and weights of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub vendor: Arc<str>,
    pub environment: Arc<str>,
    /// Limits of the lane itself: those of every request first, then each endpoint's.
    pub own: Vec<LimitSpec>,
    /// How many of `own` hold for every request.
    pub whole: usize,
    /// Sorted by name, the same for every plan of the vendor.
    pub endpoints: Vec<EndpointPlan>,
    /// Limits that the lanes of an account share.
    pub account: Arc<[SharedSpec]>,
    /// Limits that all lanes of the vendor share.
    pub vendor_wide: Arc<[SharedSpec]>,
    /// Whether some limit is a concurrency limit.
    pub has_slots: bool,
    /// The lane's weight among the lanes that share a limit.
    pub weight: u32,
    /// Shares of the tiers when all of them wait.
    pub tier_weights: [u32; 3],
    /// Most waiting requests per lane and tier.
    pub max_waiting: u32,
    /// How long a slot stays taken after its caller went away in the middle of an exchange, when nothing is known
    /// about how long the vendor takes, in nanoseconds.
    pub service_ns: u64,
    /// The cost of a request that states none.
    pub usual: Cost,
    /// The names of the kinds of points that the vendor counts, by their index.
    pub kinds: Arc<[Label]>,
    /// How much later the vendor may notice that a connection was closed, in nanoseconds: a slot stays taken for that
    /// long after an exchange that got no response.
    pub closing_ns: u64,
    /// The slowest rate that holds for every request.
    pub pace: Pace,
    /// The longest pause that a request waits for, in nanoseconds: a request with a longer one is refused at once.
    pub max_hold_ns: u64,
    /// The longest that the refusals of one tenant stop other tenants, in nanoseconds.
    pub one_witness_ns: u64,
}

/// An endpoint's own limits, as a range of [`Plan::own`].
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointPlan {
    pub name: Arc<str>,
    pub hash: EndpointHash,
    pub own: std::ops::Range<usize>,
}

/// A limit that several lanes share.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSpec {
    pub spec: LimitSpec,
    /// The endpoint that the limit is for; `None` if it is for all requests.
    pub endpoint: Option<EndpointHash>,
}

impl SharedSpec {
    pub(crate) fn applies(&self, endpoint: EndpointHash) -> bool {
        self.endpoint.is_none_or(|only| only == endpoint)
    }
}

impl Plan {
    /// Whether one of the lane's own limits counts as used up in a process that has just begun. Such a lane stays in
    /// memory: a new one would count as used up again.
    pub(crate) fn starts_spent(&self) -> bool {
        self.own.iter().any(LimitSpec::counts_as_used_up)
    }

    /// What a limit counts that only responses state: points if it is named like a kind of points, otherwise requests.
    pub(crate) fn measure_of(&self, name: &Label) -> Measure {
        let kind = self.kinds.iter().position(|kind| kind.is_like(name)).and_then(PointKind::at);
        kind.map_or(Measure::Requests, Measure::Points)
    }

    #[inline]
    pub(crate) fn endpoint_own(&self, endpoint: EndpointId) -> std::ops::Range<usize> {
        self.endpoints.get(endpoint.place()).map_or(0..0, |endpoint| endpoint.own.clone())
    }

    #[inline]
    pub(crate) fn endpoint_hash(&self, endpoint: EndpointId) -> EndpointHash {
        self.endpoints.get(endpoint.place()).map_or(EndpointHash::NONE, |endpoint| endpoint.hash)
    }

    /// Whether a response has slowed one of the lane's own limits for all requests. `own` is their state.
    #[inline(always)]
    pub(crate) fn whole_is_throttled(&self, own: &[Cell]) -> bool {
        own[..self.whole].iter().any(Cell::is_throttled)
    }

    /// Identifies a limit of `own` across a change of the plan, together with its endpoint: two endpoints may use one
    /// name.
    pub(crate) fn own_name(&self, index: usize) -> (Option<&str>, &str) {
        let endpoint = self.endpoints.iter().find(|endpoint| endpoint.own.contains(&index));
        (endpoint.map(|endpoint| &*endpoint.name), &self.own[index].name)
    }
}
