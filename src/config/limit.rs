//! A limit as a vendor publishes it.

use std::sync::Arc;
use std::time::Duration;

use super::names::names;
use super::resets::Resets;

/// One limit, validated: so many units per window, or at once, for a scope.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limit {
    /// The limit's name, unique in its vendor or endpoint.
    pub name: Arc<str>,
    /// Who shares it.
    pub scope: Scope,
    /// What is limited.
    pub kind: LimitKind,
    /// Processes share it where they share limits ([`share_through`](crate::IntegrationClientBuilder::share_through)).
    pub shared: bool,
    /// Where the figure comes from.
    pub source: Option<Source>,
}

/// Who shares a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    /// One tenant's requests to one endpoint.
    Endpoint,
    /// One tenant at one vendor.
    Tenant,
    /// All tenants that use one vendor credential.
    Account,
    /// All requests to the vendor.
    Vendor,
}

/// What a limit counts.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LimitKind {
    /// So many units per window.
    Rate(Rate),
    /// At most this many requests in flight at once.
    Concurrency {
        /// Requests at once.
        limit: u32,
    },
}

/// So many units per window.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rate {
    /// Units per window, as the vendor publishes it (already multiplied with the tenant's `share`).
    pub limit: u32,
    /// The window.
    pub window: Duration,
    /// How the vendor counts.
    pub algorithm: Algorithm,
    /// The share of the limit that is used: above 0, at most 1; 0.8 by default.
    pub safety: f64,
    /// Capacity of the bucket, in units; `floor(safety x limit)` when absent.
    pub burst: Option<u32>,
    /// The window begins anew by a calendar, and not when the vendor says or a request has become old.
    pub resets: Option<Resets>,
    /// The vendor refills in lumps, one each interval.
    pub refill_interval: Option<Duration>,
    /// Units are released in groups, one group each interval.
    pub release_interval: Option<Duration>,
    /// The guard's limit as a share of the vendor's: above 0, at most 1; 1 by default.
    pub ceiling: f64,
    /// What of a request is counted.
    pub unit: Unit,
    /// What the largest request costs that the vendor takes, in the unit, where its documents say so. It must fit the
    /// bucket; no request is refused for it.
    pub largest_request: Option<u32>,
    /// Start empty rather than full when nothing is known about the past.
    pub cold_start_spent: bool,
}

/// How a vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Algorithm {
    /// A counter that starts again at each window's end.
    FixedWindow,
    /// Every request counts for one window from its arrival.
    SlidingWindow,
    /// Two fixed windows, the older weighted by what still overlaps.
    SlidingCounter,
    /// A bucket that refills steadily; a request takes from it.
    TokenBucket,
    /// A bucket that drains steadily; a request adds to it.
    LeakyBucket,
    /// A long window, as a day or a month: it is counted and not paced.
    Quota,
    /// Not published.
    Unknown,
}

/// The unit of a limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Unit {
    /// Each request is one unit.
    Requests,
    /// Each request is as many units as it costs of this kind of points: `points`, or one that the vendor's entry
    /// declares in `costs`, such as `input_tokens`.
    Cost(Arc<str>),
    /// Each byte of a request's body is a unit; headers are not counted.
    RequestBytes,
    /// Each decoded byte of a response body is a unit. When the request starts, the size of recent responses is reserved;
    /// the count is corrected when the body was read or dropped.
    ResponseBytes,
    /// Bytes of the request body and of the response body together.
    Bytes,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Source {
    /// A page or a document.
    pub reference: String,
    /// When it was read.
    pub as_of: String,
    /// `documented`, `seen in code` or `from memory` (unconfirmed).
    pub confidence: String,
}

impl Unit {
    /// The units that need no declaration, but for `points`.
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

    /// Points of this kind.
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
