//! Counts requests that another process sent and that the vendor may still count.

use super::Engine;
use super::endpoint::EndpointId;
use super::keys::LaneKey;
use super::limit::PriorUse;
use crate::time::Time;

impl Engine {
    /// Counts requests of another process that have ended against the limits of a lane. They may come in any order, and
    /// may be older than what the limits have counted already.
    ///
    /// More may have been sent than a bucket holds, because it refilled meanwhile: the bucket is left empty and owes
    /// nothing. Only the guard knows how much came back meanwhile.
    pub fn replay(&mut self, now: Time, lane: LaneKey, endpoint: EndpointId, past: &PriorUse) {
        let now = self.tick(now);
        let past = PriorUse { at: past.at.min(now), ..*past };
        let origin = self.limits_of(lane, endpoint);
        self.each_cell(&origin, |cell, spec| cell.replay(spec, &past, now));
    }
}
