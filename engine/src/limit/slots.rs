//! A limit of requests at once: how many of its slots are taken.

use super::{Cell, State};

impl Cell {
    /// Whether this is a number of slots, and not a rate.
    pub(crate) fn is_slots(&self) -> bool {
        matches!(self.state, State::Slots { .. })
    }

    /// Sets how many slots are taken.
    pub(crate) fn set_slots(&mut self, taken: u32) {
        if let State::Slots { used, .. } = &mut self.state {
            *used = taken;
        }
    }

    /// While `on` is set, grants nothing, because the requests in flight are still being counted.
    pub(crate) fn gather(&mut self, on: bool) {
        if let State::Slots { gathers, .. } = &mut self.state {
            *gathers = on;
        }
    }

    /// Takes a slot for a request that is in flight already.
    pub(crate) fn take_slot(&mut self) {
        if let State::Slots { used, .. } = &mut self.state {
            *used += 1;
        }
    }

    /// The taken slots; `None` for a rate.
    #[cfg(test)]
    pub(crate) fn slots_used(&self) -> Option<u32> {
        match self.state {
            State::Slots { used, .. } => Some(used),
            State::Rate { .. } => None,
        }
    }
}
