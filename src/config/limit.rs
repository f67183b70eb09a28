//! A limit as a vendor publishes it.

use std::sync::Arc;
use std::time::Duration;

use super::names::names;
use super::resets::Resets;

/// One limit, validated: a number of units per window, or of requests at once, and the scope that shares it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limit {
    /// The limit's name, unique in its vendor or endpoint.
    pub name: Arc<str>,
    /// Which requests share the limit.
    pub scope: Scope,
    /// What the limit counts, and the figures.
    pub kind: LimitKind,
    /// Whether several processes share the limit, if they share limits at all
    /// ([`share_through`](crate::IntegrationClientBuilder::share_through)).
    pub shared: bool,
    /// Where the figure comes from.
    pub source: Option<Source>,
}

/// Which requests share a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// One tenant's requests to one endpoint.
    Endpoint,
    /// One tenant's requests to one vendor.
    Tenant,
    /// Requests of all tenants that use one account of the vendor.
    Account,
    /// All requests to the vendor.
    Vendor,
}

/// What a limit counts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LimitKind {
    /// Units per window.
    Rate(Rate),
    /// Requests in flight at once.
    Concurrency {
        /// The most requests in flight at once.
        limit: u32,
    },
}

/// A limit of units per window.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rate {
    /// Units per window: the published figure, multiplied with the tenant's `share`.
    pub limit: u32,
    /// The window.
    pub window: Duration,
    /// How the vendor counts.
    pub algorithm: Algorithm,
    /// The share of the limit that the client uses: above 0, at most 1; 0.8 by default.
    pub safety: f64,
    /// Capacity of the bucket, in units; `floor(safety x limit)` when absent.
    pub burst: Option<u32>,
    /// The calendar by which the window resets. Without it the window ends when the vendor says or requests have aged
    /// beyond it.
    pub resets: Option<Resets>,
    /// The interval at which the vendor refills its bucket in steps; absent for a steady refill.
    pub refill_interval: Option<Duration>,
    /// The interval at which the client releases units in groups; absent for a steady pace.
    pub release_interval: Option<Duration>,
    /// The guard's limit as a share of the vendor's: above 0, at most 1; 1 by default.
    pub ceiling: f64,
    /// What the limit counts.
    pub unit: Unit,
    /// The cost, in units, of the largest request that the vendor accepts, if its documents state it. Validation warns
    /// if it does not fit the bucket; no request is refused because of it.
    pub largest_request: Option<u32>,
    /// Whether the limit counts as used up, rather than unused, if nothing is known of its past usage.
    pub cold_start_spent: bool,
}

/// How a vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Algorithm {
    /// A counter that restarts at zero at each window's end.
    FixedWindow,
    /// Every request counts for one window from its arrival.
    SlidingWindow,
    /// Two fixed windows, the older weighted by its overlap with the sliding window.
    SlidingCounter,
    /// A bucket that refills steadily; a request takes from it.
    TokenBucket,
    /// A bucket that drains steadily; a request adds to it.
    LeakyBucket,
    /// A long window, such as a day or a month: requests are counted but not paced.
    Quota,
    /// The vendor does not publish how it counts.
    Unknown,
}

/// The unit of a limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Each request is one unit.
    Requests,
    /// Each request counts its cost in this kind of points: `points`, or a kind that the vendor's entry declares in
    /// `costs`, such as `input_tokens`.
    Cost(Arc<str>),
    /// Each byte of a request's body is a unit; headers are not counted.
    RequestBytes,
    /// Each decoded byte of a response body is a unit. When the request starts, the size of recent responses is reserved;
    /// the count is corrected when the body has been read or dropped.
    ResponseBytes,
    /// Bytes of the request body and of the response body together.
    Bytes,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// The page or document that states the figure.
    pub reference: String,
    /// When the document was read.
    pub as_of: String,
    /// `documented`, `seen in code` or `from memory` (unconfirmed).
    pub confidence: String,
}

impl Unit {
    /// The units that need no declaration, except `points`.
    pub(super) const FIXED: [Unit; 4] = [Unit::Requests, Unit::RequestBytes, Unit::ResponseBytes, Unit::Bytes];

    /// The unit's name in the configuration format.
    pub fn name(&self) -> &str {
        match self {
            Unit::Requests => "requests",
            Unit::Cost(kind) => kind,
            Unit::RequestBytes => "request_bytes",
            Unit::ResponseBytes => "response_bytes",
            Unit::Bytes => "bytes",
        }
    }

    /// The unit that counts points of this kind.
    pub fn cost(kind: &str) -> Unit {
        Unit::Cost(kind.into())
    }
}

names!(Scope { Endpoint = "endpoint", Tenant = "tenant", Account = "account", Vendor = "vendor" });
names!(Algorithm {
    FixedWindow = "fixed_window",
    SlidingWindow = "sliding_window",
    SlidingCounter = "sliding_counter",
    TokenBucket = "token_bucket",
    LeakyBucket = "leaky_bucket",
    Quota = "quota",
    Unknown = "unknown",
});
