//! Requests whose transit time has passed, although their responses may still be read.
//!
//! A guard counts them as if they had arrived at the last moment. If the vendor then states that one of them cost less,
//! the guard takes the difference off where it has counted them. Each slot has a mark for that, whose meaning is the
//! guard's: when the slot was counted as ended, or how much a bucket has lacked since.

use std::collections::VecDeque;

use super::transit::Entry;
use crate::time::Time;

/// The most slots that are remembered: those of nearly three minutes at the default transit time. A cost that is
/// stated later stays as it was counted.
const MOST: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its units of which nothing was taken off yet, and when it began.
    entry: Entry,
    mark: u64,
}

#[derive(Clone, Debug, Default)]
struct Slots {
    /// Oldest first.
    all: VecDeque<Slot>,
}

/// Boxed, because few guards ever lose a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Lost {
    slots: Option<Box<Slots>>,
}

impl Lost {
    /// A request costs one unit at least, so of a single unit nothing is ever taken off.
    pub(super) fn may_be_refunded(entry: Entry) -> bool {
        entry.units > 1
    }

    /// Remembers a slot that began at `entry.at`.
    #[cold]
    pub(super) fn note(&mut self, entry: Entry, mark: u64) {
        if !Lost::may_be_refunded(entry) {
            return;
        }
        let all = &mut self.slots.get_or_insert_default().all;
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(Slot { entry, mark });
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.slots = None;
    }

    /// Forgets the oldest slots, as long as their marks are `past`.
    #[inline]
    pub(super) fn forget(&mut self, past: impl Fn(u64) -> bool) {
        if let Some(slots) = &mut self.slots {
            while slots.all.pop_front_if(|slot| past(slot.mark)).is_some() {}
        }
    }

    /// Takes `units` off the slot of a request that was granted at `granted`. Returns the slot's mark; `None` if it is
    /// not remembered or has fewer units.
    pub(super) fn leave(&mut self, width: u64, granted: Time, units: u32, high: bool) -> Option<u64> {
        let all = &mut self.slots.as_mut()?.all;
        let slot = all.iter_mut().rev().find(|slot| slot.entry.spans(width, granted))?;
        slot.entry.leave(units, high).then_some(slot.mark)
    }

    /// Lowers the newest mark to `mark`, if it is higher.
    #[inline]
    pub(super) fn lower_newest(&mut self, mark: u64) {
        if let Some(newest) = self.slots.as_mut().and_then(|slots| slots.all.back_mut()) {
            newest.mark = newest.mark.min(mark);
        }
    }

    /// As [`leave`](Self::leave), but returns the lowest mark since the slot was lost, at most `most`, and lowers these
    /// marks by it. 0 if the slot is not remembered or has fewer units.
    pub(super) fn leave_lowest(&mut self, width: u64, granted: Time, units: u32, high: bool, most: u64) -> u64 {
        let Some(slots) = &mut self.slots else { return 0 };
        let Some(place) = slots.all.iter().rposition(|slot| slot.entry.spans(width, granted)) else { return 0 };
        if !slots.all.get_mut(place).is_some_and(|slot| slot.entry.leave(units, high)) {
            return 0;
        }
        let lowest = slots.all.range(place..).map(|slot| slot.mark).min().unwrap_or(0).min(most);
        slots.all.range_mut(place..).for_each(|slot| slot.mark -= lowest);
        lowest
    }

    /// Replaces each mark.
    pub(super) fn change_marks(&mut self, change: impl Fn(u64) -> u64) {
        if let Some(slots) = &mut self.slots {
            slots.all.iter_mut().for_each(|slot| slot.mark = change(slot.mark));
        }
    }
}
