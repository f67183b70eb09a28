//! A request, and what the vendor makes of it.

use std::time::Duration;

use crate::testing::limit::Reading;

/// A request as a [`ScriptedVendor`](super::ScriptedVendor) sees it. Tenants and accounts are numbers of the caller's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The credential's owner.
    pub tenant: u32,
    /// The account that the credential belongs to.
    pub account: u32,
    /// A number from [`ScriptedVendor::endpoint`](super::ScriptedVendor::endpoint); 0 is a path without an endpoint of its own.
    pub endpoint: u32,
    /// Units that the request takes from limits that do not merely count requests.
    pub cost: u32,
}

/// What the vendor makes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the request was admitted by all limits. If not, it counted in none (but see
    /// [`VendorLimit::count_refused`](super::VendorLimit::count_refused)).
    pub admitted: bool,
    /// Names an admitted request in [`ScriptedVendor::finish`](super::ScriptedVendor::finish).
    pub call: u64,
    /// Why it was not admitted.
    pub refusal: Option<Refusal>,
    /// The place, in order of declaration, of the first limit that refused.
    pub refused_by: Option<usize>,
    /// When a refused request would be admitted if no other came before, as far as that is a matter of time and the
    /// vendor knows it.
    pub retry_at_ns: Option<u64>,
    /// What is left of the limit that refused, or else of the rate limit with the smallest share left.
    pub reading: Option<Reading>,
}

/// Why a request was not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// A limit was spent.
    Limit,
    /// The key is blocked, because a limit refused it a while ago.
    Blocked,
    /// The endpoint answers everything with this status.
    Poisoned(u16),
    /// The vendor was down.
    Outage(Outage),
}

/// How a vendor is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outage {
    /// Status 503, and no word on how long.
    Unavailable,
    /// Status 503 with `retry-after`: always this long, whenever the outage ends, and whatever the headers' style is.
    RetryAfter(Duration),
    /// Each request is read, and the connection is reset without an answer.
    Reset,
    /// Connections are refused, and those that were open are reset. One that comes in at the very beginning may still be
    /// reset instead of refused; its request is not answered.
    Refuse,
}
