//! Which requests of the lower tiers wait longer than the high tier would, because of that tier's reserve.

use super::{BlockedBy, Cell, Free, LimitSpec, Room};
use crate::cost::Cost;
use crate::time::Time;

impl Cell {
    /// Whether the high tier could have `cost` before a lower tier, which lacks room until `free`. Then the reserve is
    /// what the lower tier waits for in the end, and what the limit gives before that is not for the lower tier.
    pub(crate) fn spares_high(
        &mut self,
        spec: &LimitSpec,
        now: Time,
        cost: Cost,
        (free, lack): (Free, BlockedBy),
    ) -> bool {
        match lack {
            BlockedBy::Reserve => true,
            BlockedBy::Budget | BlockedBy::Window if spec.reserve() > 0 => match self.room(spec, now, cost, true) {
                Room::Yes => true,
                Room::No { free: of_high, .. } => free.is_after(of_high),
            },
            _ => false,
        }
    }
}
