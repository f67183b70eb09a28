//! The limits that a permit counts in, and the one of them that a response is about.

use super::endpoint::{EndpointHash, EndpointId};
use super::keys::{HolderKey, LaneKey};

/// The limits that a permit took its units from. A lane may change its plan, its account or its engine while the
/// exchange is in flight. The permit still ends in the limits that it took from, and the requests that wait there are
/// woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// The lane that owns the lane's limits. [`Key::NONE`] once the lane has moved to another engine: its own limits
    /// moved with it, and only the permit's part in shared limits is left here.
    pub(super) lane: LaneKey,
    /// The account and the vendor that held the shared limits at the time of the grant. A holder with taken slots is
    /// never evicted, so both exist for as long as the permit counts in them.
    pub(super) holders: [HolderKey; 2],
    pub(super) endpoint_hash: EndpointHash,
    /// The versions of lane, account and vendor at the time of the grant. The permit does not end in a rate that was
    /// added later. It does end in slots that were, as they count all that is in flight (`under_way.rs`).
    pub(super) versions: [u32; 3],
    /// By its number in the lane's present plan.
    pub(super) endpoint: EndpointId,
    /// Whether the permit took only slots of the shared limits: it came from another engine, with the history of their
    /// rates.
    pub(super) only_slots: bool,
}

/// One of a request's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The lane's own limit with this number.
    Own(usize),
    /// A limit of the account (0) or the vendor (1), and its number there.
    Shared(usize, usize),
}

/// Whose word a response is, where it is about a limit that several tenants share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness {
    /// The hash of the tenant.
    pub(super) tenant: u64,
    /// The longest that this tenant's responses alone stop the others, in nanoseconds.
    pub(super) most_ns: u64,
}

/// The scope that the vendor names in a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Endpoint,
    Lane,
    Account,
    Vendor,
}
