//! A request as its limits see it.

use super::cost::Cost;
use super::endpoint::EndpointId;
use super::keys::LaneKey;
use super::tier::Tier;

/// What a request needs of the limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) lane: LaneKey,
    pub(super) endpoint: EndpointId,
    pub(super) tier: Tier,
    pub(super) cost: Cost,
}

impl Need {
    pub(super) fn high(&self) -> bool {
        self.tier.is_high()
    }
}
