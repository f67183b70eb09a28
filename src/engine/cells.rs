//! The limits that a permit has taken from: the lane's own, its endpoint's, and those that lanes share.

use super::limit::{Cell, LimitSpec};
use super::plan::EndpointId;
use super::slab::Key;
use super::{Engine, lane::Lane};

impl Engine {
    /// Calls `f` with every limit that a permit has taken from.
    #[inline]
    pub(super) fn each_cell(
        &mut self,
        lane: Key,
        endpoint: EndpointId,
        versions: [u32; 3],
        mut f: impl FnMut(&mut Cell, &LimitSpec),
    ) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        for (cell, spec) in inside.whole().filter(|(cell, _)| cell.since <= versions[0]) {
            f(cell, spec);
        }
        if inside.has_others(endpoint) {
            self.each_other_cell(lane, endpoint, versions, &mut f);
        }
    }

    /// Of those, the limits of the endpoint, and those that are shared. Apart from the lane's own, which the busiest
    /// paths go through by themselves: where both were one, a decision took an eighth more instructions.
    #[inline(never)]
    pub(super) fn each_other_cell(
        &mut self,
        lane: Key,
        endpoint: EndpointId,
        versions: [u32; 3],
        f: &mut dyn FnMut(&mut Cell, &LimitSpec),
    ) {
        let Some(Lane { plan, own, shared, .. }) = self.lanes.slab.get_mut(lane) else { return };
        let (range, shared) = (plan.endpoint_own(endpoint), *shared);
        for (cell, spec) in own.as_mut()[range.clone()].iter_mut().zip(&plan.own[range]) {
            if cell.since <= versions[0] {
                f(cell, spec);
            }
        }
        for (holder, version) in shared.into_iter().zip(&versions[1..]) {
            if holder == Key::NONE {
                continue;
            }
            let Some(holder) = self.lanes.shared.get_mut(holder) else { continue };
            for (cell, spec) in holder.cells.iter_mut().zip(holder.specs.iter()) {
                if cell.since <= *version && spec.applies(endpoint) {
                    f(cell, &spec.spec);
                }
            }
        }
    }
}
