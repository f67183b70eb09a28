//! What another process sent, and the vendor may still count.

use super::Engine;
use super::endpoint::EndpointId;
use super::keys::LaneKey;
use super::limit::PriorUse;
use crate::time::Time;

impl Engine {
    /// Counts requests that another process sent, and that have ended, against the limits of a lane. In any order: they may
    /// be older than what the limits know already.
    ///
    /// More may have been sent in that time than a bucket holds, for it refilled meanwhile: the bucket is left empty, and
    /// owes nothing. Of what came back meanwhile only the guard knows.
    pub fn replay(&mut self, now: Time, lane: LaneKey, endpoint: EndpointId, past: &PriorUse) {
        let now = self.tick(now);
        let past = PriorUse { at: past.at.min(now), ..*past };
        let origin = self.limits_of(lane, endpoint);
        self.each_cell(&origin, |cell, spec| cell.replay(spec, &past, now));
    }
}
