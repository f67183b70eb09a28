//! What a request takes of a limit, and what requests of another process took.

use super::guard::Taken;
use crate::cost::{Cost, Measure};
use crate::tier::Tier;
use crate::time::Time;

/// What one request takes.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    pub(crate) cost: Cost,
    pub(crate) tier: Tier,
    pub(crate) granted: Time,
}

impl Take {
    pub(super) fn taken(&self, units: u32) -> Taken {
        Taken { granted: self.granted, units, high: self.tier.is_high() }
    }
}

/// Requests that another process sent.
#[derive(Clone, Copy, Debug)]
pub struct PriorUse {
    pub requests: u32,
    /// The cost of all requests together.
    pub cost: Cost,
    pub high: bool,
    /// When the vendor counted the last of them.
    pub at: Time,
}

impl PriorUse {
    pub(super) fn units(&self, measure: Measure) -> u32 {
        match measure {
            Measure::Requests => self.requests,
            Measure::Points(kind) | Measure::Usage(kind) => self.cost.points(kind),
            Measure::Sent => self.cost.sent,
            Measure::Received => self.cost.received,
            Measure::Bytes => self.cost.sent.saturating_add(self.cost.received),
        }
    }
}
