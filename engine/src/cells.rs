//! The limits that a permit has taken from: the lane's own, its endpoint's, and those that lanes share.

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId};
use super::keys::LaneKey;
use super::lane::{Lane, Lanes};
use super::limit::{Cell, LimitSpec};
use super::origin::Origin;
use super::slab::Key;

impl Engine {
    /// The limits that a request of a lane would take from under the lane's present plan.
    pub(super) fn limits_of(&self, lane: LaneKey, endpoint: EndpointId) -> Origin {
        let inside = self.lanes.get(lane);
        Origin {
            lane,
            holders: inside.map_or([Key::NONE; 2], |lane| lane.shared),
            endpoint_hash: inside.map_or(EndpointHash::NONE, |lane| lane.plan.endpoint_hash(endpoint)),
            versions: [u32::MAX; 3],
            endpoint,
            only_slots: false,
        }
    }

    /// Calls `f` with every limit that a permit has taken from.
    #[inline]
    pub(super) fn each_cell(&mut self, origin: &Origin, mut f: impl FnMut(&mut Cell, &LimitSpec)) {
        let mut has_others = origin.holders != [Key::NONE; 2];
        if let Some(lane) = self.lanes.get_mut(origin.lane) {
            has_others |= !lane.plan.endpoint_own(origin.endpoint).is_empty();
            for (cell, spec) in lane.whole().filter(|(cell, _)| cell.since <= origin.versions[0]) {
                f(cell, spec);
            }
        }
        if has_others {
            self.lanes.each_other_cell(origin, &mut f);
        }
    }
}

impl Lanes {
    /// Calls `f` with the limits that a permit has taken from, without those of the whole lane: limits of the endpoint,
    /// and shared limits. Separate from the lane's own limits, over which the busiest paths loop inline: as one
    /// function, a decision took an eighth more instructions.
    #[inline(never)]
    pub(super) fn each_other_cell(&mut self, origin: &Origin, f: &mut dyn FnMut(&mut Cell, &LimitSpec)) {
        if let Some(Lane { plan, own, .. }) = self.get_mut(origin.lane) {
            let range = plan.endpoint_own(origin.endpoint);
            for (cell, spec) in own.as_mut()[range.clone()].iter_mut().zip(&plan.own[range]) {
                if cell.since <= origin.versions[0] {
                    f(cell, spec);
                }
            }
        }
        for (holder, version) in origin.holders.into_iter().zip(&origin.versions[1..]) {
            if holder == Key::NONE {
                continue;
            }
            let Some(holder) = self.holder_mut(holder) else { continue };
            for (cell, shared) in holder.cells.iter_mut().zip(holder.specs.iter()) {
                let is_meant = !origin.only_slots || cell.is_slots();
                if is_meant && cell.since <= *version && shared.applies(origin.endpoint_hash) {
                    f(cell, &shared.spec);
                }
            }
        }
    }
}
