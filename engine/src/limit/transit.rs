//! Units in flight: granted, and neither answered nor lost.
//!
//! They are kept in slots of D / 16 (`D`: the transit time) by grant time. So a response finds its slot without an id,
//! and a request that is never answered ends D after its slot without a timer.

use std::collections::VecDeque;

use crate::time::Time;

/// Units with a common moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    /// For units in flight, the start of the slot. For ended units, the latest end in the slot.
    pub(super) at: u64,
    pub(super) units: u32,
    /// Units of the high tier among `units`.
    pub(super) high: u32,
}

impl Entry {
    pub(super) fn of(at: u64, units: u32, high: bool) -> Entry {
        Entry { at, units, high: if high { units } else { 0 } }
    }

    /// Whether a request granted at `granted` is in this slot. Slots do not overlap.
    #[inline]
    pub(super) fn spans(&self, width: u64, granted: Time) -> bool {
        granted.as_nanos().checked_sub(self.at).is_some_and(|after| after < width)
    }

    /// Removes `units`, and returns whether they were there.
    #[inline]
    pub(super) fn leave(&mut self, units: u32, high: bool) -> bool {
        let of_high = if high { units } else { 0 };
        if self.units < units || self.high < of_high {
            return false;
        }
        self.units -= units;
        self.high -= of_high;
        true
    }
}

/// The width of a slot if no request is in flight for longer than `transit`.
pub(super) fn width(transit: u64) -> u64 {
    (transit / 16).max(1)
}

#[derive(Clone, Debug)]
pub(super) struct Transit {
    /// Never changes after the creation, so that responses find their slot.
    pub(super) width: u64,
    pub(super) units: u32,
    pub(super) high: u32,
    /// Oldest first; at most one more than fit into the transit time. Slots may be empty.
    slots: VecDeque<Entry>,
}

impl Transit {
    pub(super) fn new(transit: u64) -> Transit {
        Transit::in_slots_of(width(transit))
    }

    pub(super) fn in_slots_of(width: u64) -> Transit {
        Transit { width, units: 0, high: 0, slots: VecDeque::new() }
    }

    pub(super) fn take(&mut self, now: Time, units: u32, high: bool) {
        let entry = Entry::of(now.as_nanos(), units, high);
        self.units += units;
        self.high += entry.high;
        match self.slots.back_mut() {
            // A request that is recorded late counts as long as the newest ones.
            Some(last) if last.spans(self.width, now) || now.as_nanos() < last.at => {
                last.units += units;
                last.high += entry.high;
            }
            _ => self.slots.push_back(entry),
        }
    }

    /// Removes `units` that were granted at `granted`; `false` if their transit time has passed already.
    pub(super) fn leave(&mut self, granted: Time, units: u32, high: bool) -> bool {
        let width = self.width;
        let slot = self.slots.iter_mut().rev().find(|slot| slot.spans(width, granted));
        let left = slot.is_some_and(|slot| slot.leave(units, high));
        if left {
            self.units -= units;
            self.high -= if high { units } else { 0 };
        }
        left
    }

    /// Removes `units`, the oldest first, of any tier.
    pub(super) fn drop_oldest(&mut self, units: u32) {
        let mut left = units;
        while left > 0
            && let Some(oldest) = self.slots.front_mut()
        {
            let part = left.min(oldest.units);
            let high = oldest.high.saturating_sub(oldest.units - part);
            (oldest.units, oldest.high) = (oldest.units - part, oldest.high - high);
            (self.units, self.high, left) = (self.units - part, self.high - high, left - part);
            if oldest.units == 0 {
                self.slots.pop_front();
            }
        }
    }

    /// Removes and returns the oldest slot whose transit time has passed, with the moment when it passed.
    pub(super) fn lose(&mut self, transit: u64, now: Time) -> Option<Entry> {
        while let Some(oldest) = self.slots.front().copied() {
            let lost_at = oldest.at.saturating_add(self.width).saturating_add(transit);
            if oldest.units > 0 && lost_at > now.as_nanos() {
                return None;
            }
            self.slots.pop_front();
            if oldest.units > 0 {
                self.units -= oldest.units;
                self.high -= oldest.high;
                return Some(Entry { at: lost_at, ..oldest });
            }
        }
        None
    }

    /// The slot that [`lose`](Self::lose) has returned, as it was before: with its begin instead of its end.
    pub(super) fn before_loss(&self, transit: u64, lost: Entry) -> Entry {
        Entry { at: lost.at.saturating_sub(self.width).saturating_sub(transit), ..lost }
    }

    /// Whether a request granted at `granted` that starts at `now` stays in its slot.
    pub(super) fn is_same_slot(&self, granted: Time, now: Time) -> bool {
        self.slots.iter().any(|slot| slot.spans(self.width, granted) && slot.spans(self.width, now))
    }

    /// When all units but `most` have passed their transit time; 0 if there are no more than `most` now.
    #[inline]
    pub(super) fn falls_to(&self, most: u32, transit: u64) -> Time {
        let (mut left, mut at, mut slots) = (self.units, 0, self.slots.iter());
        while left > most
            && let Some(slot) = slots.next()
        {
            left -= slot.units;
            at = slot.at.saturating_add(self.width).saturating_add(transit);
        }
        Time::from_nanos(at)
    }

    #[cfg(test)]
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// When all units have passed their transit time.
    pub(super) fn all_lost_at(&self, transit: u64) -> u64 {
        self.slots.back().map_or(0, |slot| slot.at.saturating_add(self.width).saturating_add(transit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Time {
        Time::from_nanos(1_000_000 + n)
    }

    /// At most 1600 ns in flight, in slots of 100 ns: three units in the first, two of them high, and one in the
    /// second.
    fn two_slots() -> Transit {
        let mut transit = Transit::new(1_600);
        transit.take(at(0), 1, false);
        transit.take(at(99), 2, true);
        transit.take(at(100), 1, false);
        transit
    }

    fn contents(transit: &Transit) -> (u32, u32, usize) {
        (transit.units, transit.high, transit.slots.len())
    }

    #[test]
    fn slot_width_is_a_sixteenth_of_transit() {
        assert_eq!([1_600, 16, 15, 0].map(width), [100, 1, 1, 1]);
    }

    #[test]
    fn grants_of_one_slot_expire_together() {
        let mut transit = two_slots();
        assert_eq!(contents(&transit), (4, 2, 2));
        assert_eq!(transit.all_lost_at(1_600), at(1_800).as_nanos());
        assert!(transit.lose(1_600, at(1_699)).is_none());
        let lost = transit.lose(1_600, at(5_000)).unwrap();
        assert_eq!((lost.at, lost.units, lost.high), (at(1_700).as_nanos(), 3, 2));
        assert_eq!(contents(&transit), (1, 0, 1));
        let lost = transit.lose(1_600, at(1_800)).unwrap();
        assert_eq!((lost.at, lost.units, lost.high), (at(1_800).as_nanos(), 1, 0));
        assert!(transit.lose(1_600, at(5_000)).is_none());
        assert_eq!((contents(&transit), transit.all_lost_at(1_600)), ((0, 0, 0), 0));
    }

    #[test]
    fn answered_units_leave_no_slot() {
        let mut transit = two_slots();
        assert!(transit.leave(at(99), 2, true) && transit.leave(at(0), 1, false));
        assert_eq!((transit.units, transit.high), (1, 0));
        assert!(transit.lose(1_600, at(150)).is_none());
        assert_eq!(contents(&transit), (1, 0, 1));
        assert!(transit.leave(at(100), 1, false));
        assert!(transit.lose(1_600, at(5_000)).is_none());
        assert_eq!(contents(&transit), (0, 0, 0));
    }

    #[test]
    fn absent_units_cannot_leave() {
        let mut transit = two_slots();
        for (granted, units, high) in [(0, 3, true), (0, 4, false), (100, 1, true), (200, 1, false)] {
            assert!(!transit.leave(at(granted), units, high), "{granted} {units} {high}");
        }
        assert!(!transit.leave(at(0).minus_nanos(1), 1, false), "before the first slot");
        assert_eq!(contents(&transit), (4, 2, 2));
    }

    #[test]
    fn start_soon_after_grant_shares_its_slot() {
        let transit = two_slots();
        let same = [(0, 99), (0, 100), (50, 99), (100, 199), (100, 200), (300, 310)];
        let same = same.map(|(granted, now)| transit.is_same_slot(at(granted), at(now)));
        assert_eq!(same, [true, false, true, true, false, false]);
    }
}
