//! A request as its limits see it.

use super::cost::Cost;
use super::endpoint::EndpointId;
use super::slab::Key;

/// What a request needs of the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) lane: Key,
    pub(super) endpoint: EndpointId,
    pub(super) tier: u8,
    pub(super) cost: Cost,
}

impl Need {
    pub(super) fn high(&self) -> bool {
        self.tier == 0
    }
}
