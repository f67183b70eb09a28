//! The guard of a rate limit: a log of the requests that may still be inside the vendor's window.
//!
//! A request that was granted at g reaches the vendor at some moment between g and its response, and no later than g +
//! D (`transit`). It may therefore count against any window that touches that span. So the log counts it from its grant
//! until one window after `min(answered, g + D)`: whatever the delay was, as long as it was at most D, the vendor never
//! sees more than the limit in any window. The price is the round trip divided by the window, not a guessed jitter
//! constant.
//!
//! There are two queues: `pending` for requests in flight, in slots of D / 16 by grant time (so that a response finds
//! its slot without an id, and a lost request expires without a timer), and `ended`, sorted by end. Ends arrive in
//! order: a response ends a request at `now`; a pending slot that passed D ends after the last time the log was
//! advanced.
//!
//! Above about a thousand units, ends are merged into slots of 1/512 to 1/256 of the window, each freed with its last
//! entry. While less than a quarter of the limit is used, the slots are 16 times as wide: no request waits for those
//! units, and a lane far from its limit then holds 32 entries instead of 512.
//!
//! The newest entry of each queue is in the log itself and the rest behind a pointer, so that most decisions touch 64
//! bytes and no other memory. No decision divides: a pending slot starts with its first entry, and the widths of the
//! others are powers of two. Rare branches are `#[cold]`, which keeps the rest small enough to be inlined: saving and
//! restoring registers was two fifths of the cost of an end.

mod edge;
mod ends;
mod refund;
mod share;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::free::Free;
use edge::{Edge, gone_at};
pub use spec::LogSpec;

use super::lost::Lost;
use super::lower::{Lower, held_back};
use super::transit::{Entry, width};
use crate::time::Time;

/// The state of one guard, in one line of the processor's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct WindowLog {
    /// No request in flight passes its transit time before this moment. It may be too early, never too late.
    lost_due: u64,
    /// Units that count, including those in flight.
    units: u32,
    /// Units of the high tier among `units`.
    high: u32,
    /// The newest slot of requests in flight; has no units if there is none.
    pending: Entry,
    /// The newest entry that has ended; has no units if there is none.
    ended: Entry,
    /// The width of a pending slot; never changes after the log was made, so that responses find their slot.
    width: u64,
    before: Option<Box<Before>>,
}

/// All entries but the newest ones, oldest first.
#[derive(Clone, Debug, Default)]
struct Before {
    /// At most 17 slots.
    pending: VecDeque<Entry>,
    ended: VecDeque<Entry>,
    edge: Option<Edge>,
    lower: Lower,
    /// Marked with the moment at which each slot was counted as ended.
    lost: Lost,
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

    /// Whether no units count any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Whether no units and no grants to lower tiers count any more.
    pub(crate) fn rests(&self, spec: &LogSpec, now: Time) -> bool {
        self.is_empty() && self.before.as_ref().is_none_or(|before| before.lower.rests(spec.share(), now))
    }

    /// Units that count, including those in flight.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// Units of requests that are in flight or ended after `time`.
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

    /// Adopts a changed limit, after which `lost_due` must be worked out again. A window that slides has no end at which
    /// the vendor forgets its units.
    pub(crate) fn change(&mut self, old: &LogSpec, new: &LogSpec, now: Time) {
        self.lost_due = 0;
        if let Some(before) = &mut self.before {
            before.edge = before.edge.filter(|_| new.fixed);
            if (old.window, old.transit) != (new.window, new.transit) {
                before.lost.clear();
            }
        }
        self.change_share(old, new, now);
    }

    /// Frees expired units. Must be called before any other question at the same `now`.
    #[inline]
    pub(crate) fn advance(&mut self, spec: &LogSpec, now: Time) {
        self.lose(spec, now);
        self.expire(spec, now.as_nanos());
    }

    /// Ends requests whose transit time has passed. Must be called before any other end, so that ends stay in order.
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
            self.lose_slot(spec, now, slot);
        }
        if lost_at(self, &self.pending) <= now {
            let slot = std::mem::take(&mut self.pending);
            self.lose_slot(spec, now, slot);
        }
        let before = self.before.as_ref().and_then(|before| before.pending.front());
        let oldest = before.unwrap_or(&self.pending);
        self.lost_due = if oldest.units > 0 { lost_at(self, oldest) } else { u64::MAX };
    }

    fn lose_slot(&mut self, spec: &LogSpec, now: u64, slot: Entry) {
        let at = self.lost_at(spec, slot);
        self.push_ended(spec, Entry { at, ..slot });
        if Lost::may_be_refunded(slot) && at.saturating_add(spec.window) > now {
            self.before.get_or_insert_default().lost.note(slot, at);
        }
    }

    /// Frees units that ended a window ago. Units that are freed late only count for too long, so a caller that finds
    /// room without this call can skip it; such a decision never reads the oldest entry, which is in no cache.
    #[cold]
    fn expire(&mut self, spec: &LogSpec, now: u64) {
        let edge = self.edge().filter(|edge| edge.to <= now);
        let cleared = edge.map_or(0, |edge| edge.from);
        let is_past = |at: u64| at.saturating_add(spec.window) <= now || at <= cleared;
        let past = |entry: &mut Entry| is_past(entry.at);
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
        if let Some(before) = &mut self.before {
            before.lost.forget(is_past);
            if edge.is_some() {
                before.edge = None;
                before.lower.forget(cleared);
            }
        }
    }

    /// When a slot's requests can no longer be in flight.
    fn lost_at(&self, spec: &LogSpec, slot: Entry) -> u64 {
        slot.at.saturating_add(self.width).saturating_add(spec.transit)
    }

    #[inline]
    fn push_ended(&mut self, spec: &LogSpec, mut entry: Entry) {
        if entry.units == 0 {
            return;
        }
        if self.ended.units > 0 {
            // A change to a shorter transit time ends requests that were in flight before others that have ended.
            entry.at = entry.at.max(self.ended.at);
            let bits = if self.units < spec.limit / 4 { spec.wide_bits } else { spec.slot_bits };
            // Units that ended before the edge of a vendor's window must not be kept longer by merging them with later
            // ones.
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

    /// Makes room for a new newest end.
    #[cold]
    fn keep_ended(&mut self, spec: &LogSpec, now: u64) {
        let before = self.before.get_or_insert_default();
        if before.ended.len() == before.ended.capacity() {
            // Frees expired entries before the queue grows: the last call to do so may be long ago.
            self.expire(spec, now);
        }
        let last = std::mem::take(&mut self.ended);
        if last.units > 0 {
            self.before.get_or_insert_default().ended.push_back(last);
        }
    }

    /// Counts `units` that another process was granted and that ended at `at`, perhaps before others in the log.
    ///
    /// Replayed entries are merged into slots of 1/512 to 1/256 of the window. Each slot is freed with its last entry,
    /// so the log stays small however many are replayed.
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

    /// Removes up to `most` units that ended after `since`, the oldest first: each with the nanoseconds for which it
    /// still counts.
    #[cold]
    pub(crate) fn withdraw(&mut self, spec: &LogSpec, now: Time, since: Time, most: u32) -> Vec<(u64, u32)> {
        self.advance(spec, now);
        let (mut most, mut of_lower, mut last, mut taken) = (most, 0, 0, Vec::new());
        let edge = self.edge();
        let before = self.before.iter_mut().flat_map(|before| &mut before.ended);
        for entry in before.chain([&mut self.ended]) {
            let units = if entry.at > since.as_nanos() { entry.units.min(most) } else { 0 };
            if units == 0 {
                continue;
            }
            (most, last) = (most - units, entry.at);
            // The high tier's units are removed last, because this process keeps a reserve of its own.
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
            before.lost.forget(|at| at <= last);
            // Entries are placed by comparing them with the newest one, so the next newest takes its place.
            if self.ended.units == 0 {
                self.ended = before.ended.pop_back().unwrap_or_default();
            }
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

    /// Whether `units` of a lower tier would fit if the high tier had no reserve.
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

    /// Counts a request of `units` granted at `now`.
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

    /// Removes `units` from the slot of `granted`; `false` if the slot's transit time has passed already.
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

    /// Ends a request granted at `granted`, because it was answered or failed at `now`.
    #[inline(always)]
    pub(crate) fn end(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.lose(spec, now);
        if self.leave_pending(granted, units, high) {
            self.push_ended(spec, Entry::of(now.as_nanos(), units, high));
        }
    }

    /// Moves a request granted at `granted` to `now`, when it has started: its transit time begins there. If its
    /// transit time passed before the start, it counts twice: too much rather than too little.
    pub(crate) fn restart(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        let same_slot = self.pending.spans(self.width, granted) && self.pending.spans(self.width, now);
        if !same_slot {
            self.give_back(granted, units, high);
            self.take(spec, now, units, high);
        }
    }

    /// Counts `units` more, because the vendor counted more than the log did.
    pub(crate) fn owe(&mut self, spec: &LogSpec, now: Time, units: u32) {
        self.advance(spec, now);
        self.take_lower(spec, now, now, units, false);
        self.units = self.units.saturating_add(units);
        self.push_ended(spec, Entry::of(now.as_nanos(), units, false));
    }
}
