//! Of which limits a permit is, and which of them an answer speaks of.

use super::endpoint::{EndpointHash, EndpointId};
use super::keys::{HolderKey, LaneKey};

/// From which limits a permit took its units. A lane may change its plan, its account or its engine while the exchange is
/// in flight: the permit ends in the limits that it took from, and those who wait there are woken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Holder of the lane's own limits. [`Key::NONE`] once the lane has gone to another engine: its own limits went along,
    /// and only what is shared here is left of the permit.
    pub(super) lane: LaneKey,
    /// The account and the vendor that held the shared limits at the time of the grant. A holder whose slots are taken
    /// does not rest, so it exists for as long as a permit counts there.
    pub(super) holders: [HolderKey; 2],
    pub(super) endpoint_hash: EndpointHash,
    /// Versions of lane, account and vendor at the time of the grant: a rate that came later is not ended in. Slots are,
    /// as they hold all that is in flight (`under_way.rs`).
    pub(super) versions: [u32; 3],
    /// In the numbers of the lane's present plan.
    pub(super) endpoint: EndpointId,
    /// Of the shared limits only the slots are taken: it came from another engine, and their rates have its history.
    pub(super) only_slots: bool,
}

/// A limit of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The lane's own of this number.
    Own(usize),
    /// Of the account (0) or the vendor (1), of this number.
    Shared(usize, usize),
}

/// Whose limit was refused for, as the vendor says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    Endpoint,
    Lane,
    Account,
    Vendor,
}
