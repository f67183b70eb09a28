//! What the engine knows about a lane's vendor: its limits, by who shares them. Immutable; shared by all lanes alike.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::limit::{Cell, LimitSpec};
use super::throttle::Mode;

/// The number of an endpoint in its [`Plan`]; [`NO_ENDPOINT`] for requests to none.
pub(crate) type EndpointId = u16;

/// A request that belongs to no endpoint.
pub(crate) const NO_ENDPOINT: EndpointId = EndpointId::MAX;

/// An endpoint by the hash of its name. Its number differs from plan to plan when a reload adds or removes endpoints; the
/// hash does not, so limits that lanes of different plans share are compared by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EndpointHash(u64);

impl EndpointHash {
    /// Of requests that belong to no endpoint.
    pub(crate) const NONE: EndpointHash = EndpointHash(0);

    pub(crate) fn of(name: &str) -> EndpointHash {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        EndpointHash(hasher.finish().max(1))
    }
}

/// Limits and weights of a lane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) vendor: Arc<str>,
    pub(crate) environment: Arc<str>,
    /// Limits of the lane itself: those of every request first, then each endpoint's.
    pub(crate) own: Vec<LimitSpec>,
    /// How many of `own` hold for every request.
    pub(crate) whole: usize,
    /// Sorted by name, the same for every plan of the vendor.
    pub(crate) endpoints: Vec<EndpointPlan>,
    /// Limits that the lanes of an account share.
    pub(crate) account: Arc<[SharedSpec]>,
    /// Limits that all lanes of the vendor share.
    pub(crate) vendor_wide: Arc<[SharedSpec]>,
    /// Some limit counts requests at once.
    pub(crate) has_slots: bool,
    /// Turns among the lanes that share a limit.
    pub(crate) weight: u32,
    /// Shares of the tiers when all of them wait.
    pub(crate) tier_weights: [u32; 3],
    /// Most waiting requests per lane and tier.
    pub(crate) max_waiting: u32,
    /// How long a slot stays taken after its caller went away in the middle of an exchange, when nothing is known
    /// about how long the vendor takes, in nanoseconds.
    pub(crate) service_ns: u64,
    /// How much later the vendor may notice that a connection was closed, in nanoseconds: for so much longer a slot stays
    /// taken after an exchange that got no answer.
    pub(crate) closing_ns: u64,
    /// The slowest rate that holds for every request.
    pub(crate) pace: Pace,
    /// The longest pause that a request waits for, in nanoseconds: of a longer one its caller is told at once.
    pub(crate) max_hold_ns: u64,
    /// The longest that one tenant's refusals stop others, in nanoseconds.
    pub(crate) one_witness_ns: u64,
}

/// The rate of a limit, as far as slowing down is concerned. That of a lane is the slowest of its limits for all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// Between two units at the full rate, in nanoseconds; 0 where no limit states a rate.
    pub(crate) unit_ns: u64,
    /// What the vendor allows, in its units.
    pub(crate) limit: u64,
    /// The window that it allows them in, in nanoseconds.
    pub(crate) window_ns: u64,
    pub(crate) counting: Counting,
    pub(crate) mode: Mode,
}

/// How a vendor's own count of a limit goes down again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Counting {
    /// All at once, at a reset. Also where the configuration does not say how the vendor counts.
    #[default]
    Windows,
    /// Each unit a window after it was taken.
    Log,
    /// Evenly.
    Bucket,
}

impl Counting {
    /// Units come back one by one, and not all at a reset.
    pub(crate) fn regrows(self) -> bool {
        self != Counting::Windows
    }
}

/// An endpoint's own limits, as a range of [`Plan::own`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EndpointPlan {
    pub(crate) name: Arc<str>,
    pub(crate) hash: EndpointHash,
    pub(crate) own: std::ops::Range<usize>,
}

/// A limit that several lanes share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SharedSpec {
    pub(crate) spec: LimitSpec,
    /// Holds for requests to this endpoint alone.
    pub(crate) endpoint: Option<EndpointHash>,
}

impl SharedSpec {
    pub(crate) fn applies(&self, endpoint: EndpointHash) -> bool {
        self.endpoint.is_none_or(|only| only == endpoint)
    }
}

impl Plan {
    #[inline]
    pub(crate) fn endpoint_own(&self, endpoint: EndpointId) -> std::ops::Range<usize> {
        self.endpoints.get(endpoint as usize).map_or(0..0, |endpoint| endpoint.own.clone())
    }

    #[inline]
    pub(crate) fn endpoint_hash(&self, endpoint: EndpointId) -> EndpointHash {
        self.endpoints.get(endpoint as usize).map_or(EndpointHash::NONE, |endpoint| endpoint.hash)
    }

    /// The vendor's word slows one of the lane's own limits for all requests down. `own`: their counts.
    #[inline(always)]
    pub(crate) fn whole_is_throttled(&self, own: &[Cell]) -> bool {
        own[..self.whole].iter().any(Cell::is_throttled)
    }

    /// The name by which a limit of `own` is found again after a change: limits of two endpoints may share one.
    pub(crate) fn own_name(&self, index: usize) -> (Option<&str>, &str) {
        let endpoint = self.endpoints.iter().find(|endpoint| endpoint.own.contains(&index));
        (endpoint.map(|endpoint| &*endpoint.name), &self.own[index].name)
    }
}
