//! The guard of a rate limit: a log of what may still be inside the vendor's window.
//!
//! A request that was granted at g reaches the vendor at some moment between g and its answer, and no later than g + D
//! (`transit`). It may therefore count against any window that touches that span. So it is held from its grant until one
//! window after `min(answered, g + D)`: whatever the delay was, as long as it was at most D, the vendor never sees more
//! than the limit in any window. The price is the round trip divided by the window, not a guessed jitter constant.
//!
//! Two queues: `pending` for what is in flight, in slots of D / 16 by grant time (so that an answer finds its slot
//! without an id, and a lost one expires without a timer), and `ended`, sorted by end. Ends arrive in order: answers end
//! at `now`; a pending slot that ran into D ends at a moment after the last time the log was looked at.
//!
//! Above about a thousand units ends are merged into slots of 1/512 to 1/256 of the window, each freed with its last
//! entry. While less than a quarter of the limit is used the slots are 16 times as wide: no request waits for those units,
//! and a lane far from its limit then holds 32 entries instead of 512.
//!
//! The newest of each queue stands in the log itself and the rest behind a pointer: 64 bytes that most decisions touch
//! and no others. No decision divides: a pending slot starts with its first entry, and the widths of the others are
//! powers of two. What seldom happens is `#[cold]`, which keeps the rest small enough to be inlined: saving and restoring
//! registers was two fifths of what an end cost.

mod edge;
mod ends;
mod share;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::free::Free;
use edge::{Edge, gone_at};
pub use spec::LogSpec;

use super::lower::{Lower, held_back};
use super::transit::{Entry, width};
use crate::time::Time;

/// One guard's state: one line of the processor's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct WindowLog {
    /// Nothing in flight runs into its transit time before this moment. It may be earlier than the truth, never later.
    lost_due: u64,
    /// Units inside, those in flight included.
    units: u32,
    /// Of `units`, those of the high tier.
    high: u32,
    /// The newest slot of what is in flight; none while it has no units.
    pending: Entry,
    /// The newest of what has ended; none while it has no units.
    ended: Entry,
    /// Width of a pending slot; stays what it was when the log was made, so that answers find their slot.
    width: u64,
    before: Option<Box<Before>>,
}

/// All but the newest, oldest first.
#[derive(Clone, Debug, Default)]
struct Before {
    /// At most 17.
    pending: VecDeque<Entry>,
    ended: VecDeque<Entry>,
    edge: Option<Edge>,
    lower: Lower,
}

impl WindowLog {
    pub(crate) fn new(spec: &LogSpec) -> WindowLog {
        let (pending, ended) = (Entry::default(), Entry::default());
        WindowLog { lost_due: u64::MAX, units: 0, high: 0, pending, ended, width: width(spec.transit), before: None }
    }

    #[cold]
    pub(crate) fn boxed(spec: &LogSpec) -> Box<WindowLog> {
        Box::new(WindowLog::new(spec))
    }

    /// Nothing is inside any window any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// The same, and no grant to a lower tier counts any more.
    pub(crate) fn rests(&self, spec: &LogSpec, now: Time) -> bool {
        self.is_empty() && self.before.as_ref().is_none_or(|before| before.lower.rests(spec.share(), now))
    }

    /// Units inside, those in flight included.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// Those of them that are in flight, or ended later than `time`.
    pub(crate) fn units_since(&self, time: Time) -> u32 {
        let before = self.before.as_deref();
        let ended = before.into_iter().flat_map(|before| &before.ended).chain([&self.ended]);
        let pending = before.into_iter().flat_map(|before| &before.pending).chain([&self.pending]);
        let late = ended.filter(|entry| entry.at > time.as_nanos());
        pending.chain(late).map(|entry| entry.units).sum()
    }

    /// Units in flight.
    pub(crate) fn under_way(&self) -> u32 {
        let before = self.before.iter().flat_map(|before| &before.pending);
        self.pending.units + before.map(|slot| slot.units).sum::<u32>()
    }

    /// The limit has changed: what was known about when is no longer true.
    pub(crate) fn change(&mut self, old: &LogSpec, new: &LogSpec, now: Time) {
        self.lost_due = 0;
        self.change_share(old, new, now);
    }

    /// Frees what is past. Everything else is asked after this, with the same `now`.
    #[inline]
    pub(crate) fn advance(&mut self, spec: &LogSpec, now: Time) {
        self.lose(spec, now);
        self.expire(spec, now.as_nanos());
    }

    /// Ends what has run into its transit time. Comes before any other end, so that ends stay in order.
    #[inline]
    fn lose(&mut self, spec: &LogSpec, now: Time) {
        if now.as_nanos() >= self.lost_due {
            self.lose_due(spec, now.as_nanos());
        }
    }

    #[cold]
    fn lose_due(&mut self, spec: &LogSpec, now: u64) {
        let lost_at = |log: &WindowLog, slot: &Entry| log.lost_at(spec, *slot);
        while let Some(before) = &mut self.before
            && let Some(slot) = before.pending.front().copied()
            && (slot.units == 0 || slot.at.saturating_add(self.width).saturating_add(spec.transit) <= now)
        {
            before.pending.pop_front();
            self.push_ended(spec, Entry { at: lost_at(self, &slot), ..slot });
        }
        if lost_at(self, &self.pending) <= now {
            let slot = std::mem::take(&mut self.pending);
            self.push_ended(spec, Entry { at: lost_at(self, &slot), ..slot });
        }
        let before = self.before.as_ref().and_then(|before| before.pending.front());
        let oldest = before.unwrap_or(&self.pending);
        self.lost_due = if oldest.units > 0 { lost_at(self, oldest) } else { u64::MAX };
    }

    /// Frees what ended a window ago. What is not freed in time counts too long, so whoever finds room without this
    /// need not ask for it; a decision then never reads the oldest entry, which no cache holds.
    #[cold]
    fn expire(&mut self, spec: &LogSpec, now: u64) {
        let edge = self.edge().filter(|edge| edge.to <= now);
        let cleared = edge.map_or(0, |edge| edge.from);
        let past = |entry: &mut Entry| entry.at.saturating_add(spec.window) <= now || entry.at <= cleared;
        while let Some(before) = &mut self.before
            && let Some(entry) = before.ended.pop_front_if(past)
        {
            self.units -= entry.units;
            self.high -= entry.high;
        }
        if past(&mut self.ended) {
            let entry = std::mem::take(&mut self.ended);
            self.units -= entry.units;
            self.high -= entry.high;
        }
        if edge.is_some()
            && let Some(before) = &mut self.before
        {
            before.edge = None;
            before.lower.forget(cleared);
        }
    }

    /// When a slot's requests can no longer be in flight.
    fn lost_at(&self, spec: &LogSpec, slot: Entry) -> u64 {
        slot.at.saturating_add(self.width).saturating_add(spec.transit)
    }

    #[inline]
    fn push_ended(&mut self, spec: &LogSpec, entry: Entry) {
        if entry.units == 0 {
            return;
        }
        if self.ended.units > 0 {
            let bits = if self.units < spec.limit / 4 { spec.wide_bits } else { spec.slot_bits };
            // What ended before a window of the vendor's does not stay longer because of what ended after it.
            let before = self.ended.at;
            let parts = |edge: Edge| before <= edge.from && edge.from < entry.at;
            if entry.at >> bits == before >> bits
                && !self.edge().is_some_and(parts)
                && let Some(units) = self.ended.units.checked_add(entry.units)
            {
                self.ended = Entry { at: entry.at, units, high: self.ended.high + entry.high };
                return;
            }
            self.keep_ended(spec, entry.at);
        }
        self.ended = entry;
    }

    /// Makes place for another newest end.
    #[cold]
    fn keep_ended(&mut self, spec: &LogSpec, now: u64) {
        let before = self.before.get_or_insert_default();
        if before.ended.len() == before.ended.capacity() {
            // Before it grows: it may be long ago that somebody asked for room in vain.
            self.expire(spec, now);
        }
        let last = std::mem::take(&mut self.ended);
        if last.units > 0 {
            self.before.get_or_insert_default().ended.push_back(last);
        }
    }

    /// Counts `units` that another process was granted and that ended at `at`, perhaps before others that are in the log.
    ///
    /// Recalled entries are merged into slots of 1/512 to 1/256 of the window. Each slot is freed with its last entry, so
    /// the log stays small however much is recalled.
    #[cold]
    pub(crate) fn replay(&mut self, spec: &LogSpec, now: Time, at: Time, units: u32, high: bool) {
        self.advance(spec, now);
        let entry = Entry::of(at.min(now).as_nanos(), units.min(u32::MAX - self.units), high);
        if entry.units == 0 || entry.at.saturating_add(spec.window) <= now.as_nanos() {
            return;
        }
        self.take_lower(spec, now, at.min(now), entry.units, high);
        self.units += entry.units;
        self.high += entry.high;
        let bits = spec.slot_bits.max((spec.window / 256).max(1).ilog2());
        let same_slot = |known: &Entry| known.at >> bits == entry.at >> bits;
        let merge = |known: &mut Entry| {
            known.at = known.at.max(entry.at);
            known.units += entry.units;
            known.high += entry.high;
        };
        if self.ended.units > 0 && same_slot(&self.ended) {
            merge(&mut self.ended);
        } else if self.ended.units == 0 || self.ended.at < entry.at {
            self.keep_ended(spec, now.as_nanos());
            self.ended = entry;
        } else {
            let ended = &mut self.before.get_or_insert_default().ended;
            let place = ended.partition_point(|known| known.at <= entry.at);
            if let Some(later) = ended.get_mut(place).filter(|later| same_slot(later)) {
                merge(later);
            } else if let Some(earlier) =
                place.checked_sub(1).and_then(|place| ended.get_mut(place)).filter(|earlier| same_slot(earlier))
            {
                merge(earlier);
            } else {
                ended.insert(place, entry);
            }
        }
    }

    /// Takes out up to `most` units that ended after `since`, the oldest first: each with the time for which they still count, in
    /// nanoseconds.
    #[cold]
    pub(crate) fn withdraw(&mut self, spec: &LogSpec, now: Time, since: Time, most: u32) -> Vec<(u64, u32)> {
        self.advance(spec, now);
        let (mut most, mut of_lower, mut taken) = (most, 0, Vec::new());
        let edge = self.edge();
        let before = self.before.iter_mut().flat_map(|before| &mut before.ended);
        for entry in before.chain([&mut self.ended]) {
            let units = if entry.at > since.as_nanos() { entry.units.min(most) } else { 0 };
            if units == 0 {
                continue;
            }
            most -= units;
            // Those of the high tier stay as long as others do: what it keeps back for itself is its own.
            let high = entry.high.saturating_sub(entry.units - units);
            entry.units -= units;
            entry.high -= high;
            self.units -= units;
            self.high -= high;
            of_lower += units - high;
            taken.push((gone_at(edge, spec.window, entry.at).saturating_sub(now.as_nanos()), units));
        }
        if let Some(before) = &mut self.before {
            before.ended.retain(|entry| entry.units > 0);
            before.lower.withdraw(of_lower);
        }
        taken
    }

    #[inline]
    fn fits(spec: &LogSpec, used: u32, used_high: u32, units: u32, high: bool) -> bool {
        let held_back = if high { 0 } else { held_back(spec.reserve, used_high) };
        used as u64 + units as u64 + held_back as u64 <= spec.limit as u64
    }

    /// Whether `units` fit now.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, spec: &LogSpec, now: Time, units: u32, high: bool) -> bool {
        self.lose(spec, now);
        let fits = |log: &Self| Self::fits(spec, log.units, log.high, units, high);
        if fits(self) && self.fits_share(spec, units, high) {
            return true;
        }
        self.expire(spec, now.as_nanos());
        fits(self) && self.lower_ready_at(spec, now, units, high) <= now
    }

    /// Whether the high tier's reserve alone stands between `units` of a lower tier and a grant.
    pub(crate) fn only_reserve_lacks(&self, spec: &LogSpec, units: u32) -> bool {
        Self::fits(spec, self.units, self.high, units, true)
    }

    /// When `units` fit.
    pub(crate) fn free(&self, spec: &LogSpec, now: Time, units: u32, high: bool) -> Free {
        let ready = self.lower_ready_at(spec, now, units, high);
        Lower::free(self.mirror_free(spec, units, high), spec.share(), (ready, now), units, || self.under_way())
    }

    fn mirror_free(&self, spec: &LogSpec, units: u32, high: bool) -> Free {
        if Self::fits(spec, self.units, self.high, units, high) {
            return Free::Now;
        }
        let (mut used, mut used_high) = (self.units, self.high);
        let mut latest = Time::MAX;
        let before = self.before.as_deref();
        let ended = before.into_iter().flat_map(|before| &before.ended).chain([&self.ended]);
        let pending = before.into_iter().flat_map(|before| &before.pending).chain([&self.pending]);
        let ended = ended.map(|entry| (true, entry.at, entry));
        let pending = pending.map(|slot| (false, self.lost_at(spec, *slot), slot));
        for (has_ended, at, entry) in ended.chain(pending) {
            used -= entry.units;
            used_high -= entry.high;
            if Self::fits(spec, used, used_high, units, high) {
                let free_at = Time::from_nanos(gone_at(self.edge(), spec.window, at));
                if has_ended {
                    return Free::At(free_at);
                }
                latest = free_at;
                break;
            }
        }
        Free::OnSettle(latest)
    }

    /// A request of `units` was granted at `now`.
    #[inline(always)]
    pub(crate) fn take(&mut self, spec: &LogSpec, now: Time, units: u32, high: bool) {
        let entry = Entry::of(now.as_nanos(), units, high);
        self.take_lower(spec, now, now, units, high);
        self.units += units;
        self.high += entry.high;
        if self.pending.units > 0 {
            if self.pending.spans(self.width, now) {
                self.pending.units += units;
                self.pending.high += entry.high;
                return;
            }
            self.keep_pending();
        }
        self.pending = entry;
        self.lost_due = self.lost_due.min(self.lost_at(spec, entry));
    }

    #[cold]
    fn keep_pending(&mut self) {
        self.before.get_or_insert_default().pending.push_back(self.pending);
    }

    /// Takes `units` out of the slot of `granted`; false when the slot has run into its transit time already.
    #[inline]
    fn leave_pending(&mut self, granted: Time, units: u32, high: bool) -> bool {
        if self.pending.spans(self.width, granted) {
            return self.pending.leave(units, high);
        }
        self.leave_before(granted, units, high)
    }

    #[cold]
    fn leave_before(&mut self, granted: Time, units: u32, high: bool) -> bool {
        let Some(before) = &mut self.before else { return false };
        let slot = before.pending.iter_mut().rev().find(|slot| slot.spans(self.width, granted));
        slot.is_some_and(|slot| slot.leave(units, high))
    }

    /// What was granted at `granted` has been answered, or has failed, at `now`.
    #[inline(always)]
    pub(crate) fn end(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.lose(spec, now);
        if self.leave_pending(granted, units, high) {
            self.push_ended(spec, Entry::of(now.as_nanos(), units, high));
        }
    }

    /// What was granted at `granted` has started at `now` only: its transit time runs from here. Should the time have
    /// run out before the start, it is counted a second time: too much rather than too little.
    pub(crate) fn restart(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        let same_slot = self.pending.spans(self.width, granted) && self.pending.spans(self.width, now);
        if !same_slot {
            self.give_back(granted, units, high);
            self.take(spec, now, units, high);
        }
    }

    /// The vendor counted `units` more than was believed.
    pub(crate) fn owe(&mut self, spec: &LogSpec, now: Time, units: u32) {
        self.advance(spec, now);
        self.take_lower(spec, now, now, units, false);
        self.units = self.units.saturating_add(units);
        self.push_ended(spec, Entry::of(now.as_nanos(), units, false));
    }

    /// What was granted at `granted` never left: it counts nowhere.
    pub(crate) fn give_back(&mut self, granted: Time, units: u32, high: bool) {
        if self.leave_pending(granted, units, high) {
            self.units -= units;
            self.high -= if high { units } else { 0 };
            if let Some(before) = &mut self.before {
                before.lower.leave(granted, units, high);
            }
        }
    }
}
