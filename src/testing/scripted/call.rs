//! A request, and the vendor's decision about it.

use std::time::Duration;

use crate::testing::limit::Reading;

/// A request as a [`ScriptedVendor`](super::ScriptedVendor) sees it. Tenants and accounts are numbers that the caller
/// chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The tenant with the credential.
    pub tenant: u32,
    /// The account of the credential.
    pub account: u32,
    /// A number from [`ScriptedVendor::endpoint`](super::ScriptedVendor::endpoint); 0 for a path without an endpoint.
    pub endpoint: u32,
    /// The cost in units; limits that count requests ignore it.
    pub cost: u32,
}

/// The vendor's decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether all limits admitted the request. If not, it counted in none (but see
    /// [`VendorLimit::count_refused`](super::VendorLimit::count_refused)).
    pub admitted: bool,
    /// The id of an admitted request, for [`ScriptedVendor::finish`](super::ScriptedVendor::finish).
    pub call: u64,
    /// Why the request was not admitted.
    pub refusal: Option<Refusal>,
    /// The index, in order of declaration, of the first limit that refused.
    pub refused_by: Option<usize>,
    /// When a refused request would be admitted if no other came first, if that depends on time alone and the vendor
    /// knows it.
    pub retry_at_ns: Option<u64>,
    /// The state of the limit that refused, or else of the rate limit with the smallest share left.
    pub reading: Option<Reading>,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit was used up.
    Limit,
    /// The key is blocked after an earlier refusal by a limit.
    Blocked,
    /// The endpoint answers everything with this status.
    Poisoned(u16),
    /// The vendor was down.
    Outage(Outage),
}

/// The kinds of outages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outage {
    /// Status 503, without `retry-after`.
    Unavailable,
    /// Status 503 with `retry-after`: always this long, whenever the outage ends, and with every header style.
    RetryAfter(Duration),
    /// Each request is read, and the connection is reset without an answer.
    Reset,
    /// Connections are refused, and open ones are reset. A connection that is made at the very beginning of the outage
    /// may still be reset instead of refused; its request is not answered.
    Refuse,
}
