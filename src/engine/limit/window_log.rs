//! The guard of a rate limit: a log of what may still be inside the vendor's window.
//!
//! A request that was granted at g reaches the vendor at some moment between g and its answer, and no later than g + D
//! (`transit`). It may therefore count against any window that touches that span. So it is held from its grant until one
//! window after `min(answered, g + D)`: whatever the delay was, as long as it was at most D, the vendor never sees more
//! than the limit in any window. The price is the round trip divided by the window, not a guessed jitter constant.
//!
//! Two queues: `pending` for what is under way, in slots of D / 16 by grant time (so that an answer finds its slot
//! without an id, and a lost one expires without a timer), and `ended`, sorted by end. Ends arrive in order: answers end
//! at `now`; a pending slot that ran into D ends at a moment after the last time the log was looked at.
//!
//! Above about a thousand units ends are merged into slots of a 512th of the window, each freed with its last entry.

use std::collections::VecDeque;

use crate::clock::Time;

/// What a [`WindowLog`] mirrors. Shared by every lane with the same limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogSpec {
    /// Units that the vendor allows in any window.
    pub(crate) limit: u32,
    /// Of these, units that only the high tier may use while it has not used as many.
    pub(crate) reserve: u32,
    /// How long an ended entry counts, in nanoseconds: the vendor's window and what its clock may be off.
    pub(crate) window: u64,
    /// The longest that a request may be under way before the vendor counts it, in nanoseconds.
    pub(crate) transit: u64,
    /// Ends inside one slot of this many nanoseconds are merged; 0 for exact.
    pub(crate) slot: u64,
}

impl LogSpec {
    /// Freeing an entry at exactly one window broke vendors that count both ends of it (1.2 million violations in 11.5
    /// million simulated requests; 0 with this slack): 100 ppm for clocks that drift and one tick of 1 ms.
    const TICK: u64 = 1_000_000;

    pub(crate) fn new(limit: u32, reserve: u32, window_ns: u64, transit_ns: u64) -> LogSpec {
        let window = window_ns.saturating_add(window_ns / 10_000).saturating_add(Self::TICK);
        let slot = if limit > 1_000 { window_ns / 512 } else { 0 };
        LogSpec { limit, reserve: reserve.min(limit), window, transit: transit_ns, slot }
    }
}

/// When units are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Free {
    Now,
    /// At this moment, neither earlier nor later, if nothing else happens.
    At(Time),
    /// When something that is under way ends; at this moment at the latest.
    OnSettle(Time),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Pending: start of the slot. Ended: the latest end in it.
    at: u64,
    units: u32,
    /// Of `units`, those of the high tier.
    high: u32,
}

impl Entry {
    fn of(at: u64, units: u32, high: bool) -> Entry {
        Entry { at, units, high: if high { units } else { 0 } }
    }
}

/// One guard's state.
#[derive(Debug)]
pub(crate) struct WindowLog {
    pending: VecDeque<Entry>,
    ended: VecDeque<Entry>,
    units: u64,
    high: u64,
    /// Width of a pending slot; stays what it was when the log was made, so that answers find their slot.
    width: u64,
}

impl WindowLog {
    pub(crate) fn new(spec: &LogSpec) -> WindowLog {
        WindowLog {
            pending: VecDeque::with_capacity(2),
            ended: VecDeque::with_capacity(4),
            units: 0,
            high: 0,
            width: (spec.transit / 16).max(1),
        }
    }

    /// Nothing is inside any window any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Units inside, those under way included.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Frees what is past. Everything else is asked after this, with the same `now`.
    #[inline]
    pub(crate) fn advance(&mut self, spec: &LogSpec, now: Time) {
        let now = now.as_nanos();
        while let Some(slot) = self.pending.front().copied() {
            let lost_at = self.lost_at(spec, slot);
            if slot.units > 0 && lost_at > now {
                break;
            }
            self.pending.pop_front();
            if slot.units > 0 {
                self.push_ended(spec, Entry { at: lost_at, ..slot });
            }
        }
        while let Some(entry) = self.ended.front() {
            if entry.at.saturating_add(spec.window) > now {
                break;
            }
            self.units -= entry.units as u64;
            self.high -= entry.high as u64;
            self.ended.pop_front();
        }
    }

    /// When a slot's requests can no longer be under way.
    fn lost_at(&self, spec: &LogSpec, slot: Entry) -> u64 {
        slot.at.saturating_add(self.width).saturating_add(spec.transit)
    }

    fn push_ended(&mut self, spec: &LogSpec, entry: Entry) {
        if let Some(last) = self.ended.back_mut() {
            let same = last.at == entry.at || (spec.slot > 0 && last.at / spec.slot == entry.at / spec.slot);
            if same && let Some(units) = last.units.checked_add(entry.units) {
                *last = Entry { at: entry.at.max(last.at), units, high: last.high.saturating_add(entry.high) };
                return;
            }
        }
        self.ended.push_back(entry);
    }

    #[inline]
    fn fits(spec: &LogSpec, used: u64, used_high: u64, units: u32, high: bool) -> bool {
        let held_back = if high { 0 } else { (spec.reserve as u64).saturating_sub(used_high) };
        used + units as u64 + held_back <= spec.limit as u64
    }

    /// Whether the high tier's reserve alone stands between `units` of a lower tier and a grant.
    pub(crate) fn only_reserve_lacks(&self, spec: &LogSpec, units: u32) -> bool {
        Self::fits(spec, self.units, self.high, units, true)
    }

    /// When `units` fit.
    #[inline]
    pub(crate) fn free(&self, spec: &LogSpec, units: u32, high: bool) -> Free {
        if Self::fits(spec, self.units, self.high, units, high) {
            return Free::Now;
        }
        let (mut used, mut used_high) = (self.units, self.high);
        let mut latest = Time::MAX;
        let ended = self.ended.iter().map(|entry| (true, entry.at, entry));
        let pending = self.pending.iter().map(|slot| (false, self.lost_at(spec, *slot), slot));
        for (has_ended, at, entry) in ended.chain(pending) {
            used -= entry.units as u64;
            used_high -= entry.high as u64;
            if Self::fits(spec, used, used_high, units, high) {
                let free_at = Time::from_nanos(at.saturating_add(spec.window));
                if has_ended {
                    return Free::At(free_at);
                }
                latest = free_at;
                break;
            }
        }
        Free::OnSettle(latest)
    }

    fn slot_of(&self, granted: Time) -> u64 {
        let at = granted.as_nanos();
        at - at % self.width
    }

    /// A request of `units` was granted at `now`.
    #[inline]
    pub(crate) fn take(&mut self, now: Time, units: u32, high: bool) {
        let entry = Entry::of(self.slot_of(now), units, high);
        self.units += units as u64;
        self.high += entry.high as u64;
        match self.pending.back_mut() {
            Some(last) if last.at == entry.at => {
                last.units += units;
                last.high += entry.high;
            }
            _ => self.pending.push_back(entry),
        }
    }

    /// Takes `units` out of the slot of `granted`; false when the slot has run into its transit time already.
    fn leave_pending(&mut self, granted: Time, units: u32, high: bool) -> bool {
        let at = self.slot_of(granted);
        let Some(slot) = self.pending.iter_mut().rev().find(|slot| slot.at == at) else { return false };
        let of_high = if high { units } else { 0 };
        if slot.units < units || slot.high < of_high {
            return false;
        }
        slot.units -= units;
        slot.high -= of_high;
        true
    }

    /// What was granted at `granted` has been answered, or has failed, at `now`.
    #[inline]
    pub(crate) fn end(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        if self.leave_pending(granted, units, high) {
            self.push_ended(spec, Entry::of(now.as_nanos(), units, high));
        }
    }

    /// What was granted at `granted` has started at `now` only: its transit time runs from here. Should the time have
    /// run out before the start, it is counted a second time: too much rather than too little.
    pub(crate) fn restart(&mut self, now: Time, granted: Time, units: u32, high: bool) {
        if self.slot_of(now) != self.slot_of(granted) {
            self.give_back(granted, units, high);
            self.take(now, units, high);
        }
    }

    /// What was granted at `granted` never left: it counts nowhere.
    pub(crate) fn give_back(&mut self, granted: Time, units: u32, high: bool) {
        if self.leave_pending(granted, units, high) {
            self.units -= units as u64;
            self.high -= if high { units as u64 } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    /// 10 per second, 2 of them held back for the high tier, 1.6 s in transit at most.
    fn spec() -> LogSpec {
        LogSpec::new(10, 2, SECOND, 1_600_000_000)
    }

    fn free(log: &mut WindowLog, spec: &LogSpec, now: Time, units: u32, high: bool) -> Free {
        log.advance(spec, now);
        log.free(spec, units, high)
    }

    #[test]
    fn an_answered_request_counts_for_one_window_after_its_answer() {
        let spec = spec();
        let mut log = WindowLog::new(&spec);
        log.take(ms(5000), 10, true);
        log.advance(&spec, ms(5300));
        log.end(&spec, ms(5300), ms(5000), 10, true);
        let freed = Time::from_nanos(ms(5300).as_nanos() + spec.window);
        assert!(freed > ms(6300));
        assert_eq!(free(&mut log, &spec, ms(6300), 1, true), Free::At(freed));
        assert_eq!(free(&mut log, &spec, freed.minus_nanos(1), 1, true), Free::At(freed));
        assert_eq!(free(&mut log, &spec, freed, 10, true), Free::Now);
        assert!(log.is_empty());
    }

    #[test]
    fn a_lost_request_counts_for_one_window_after_its_transit_time() {
        let spec = spec();
        let mut log = WindowLog::new(&spec);
        log.take(ms(5000), 10, true);
        let Free::OnSettle(latest) = free(&mut log, &spec, ms(5000), 1, true) else { panic!() };
        assert!(latest >= ms(5000 + 1600 + 1000) && latest <= ms(5000 + 1600 + 100 + 1002));
        assert_eq!(free(&mut log, &spec, ms(7000), 1, true), Free::At(latest));
        log.end(&spec, ms(7000), ms(5000), 10, true);
        assert_eq!(free(&mut log, &spec, latest.minus_nanos(1), 1, true), Free::At(latest), "too late to count");
        assert_eq!(free(&mut log, &spec, latest, 10, true), Free::Now);
    }

    #[test]
    fn lower_tiers_leave_the_reserve_unless_it_is_used() {
        let spec = spec();
        let mut log = WindowLog::new(&spec);
        log.take(ms(0), 8, false);
        assert_ne!(log.free(&spec, 1, false), Free::Now);
        assert!(log.only_reserve_lacks(&spec, 1));
        assert_eq!(log.free(&spec, 2, true), Free::Now);
        let mut log = WindowLog::new(&spec);
        log.take(ms(0), 2, true);
        assert_eq!(log.free(&spec, 8, false), Free::Now, "the reserve is used up: the rest is for everybody");
    }

    #[test]
    fn what_never_left_counts_nowhere() {
        let spec = spec();
        let mut log = WindowLog::new(&spec);
        log.take(ms(0), 10, false);
        log.give_back(ms(0), 10, false);
        assert!(log.is_empty());
        assert_eq!(log.free(&spec, 8, false), Free::Now);
    }

    #[test]
    fn a_late_start_moves_the_transit_time() {
        let spec = spec();
        let mut log = WindowLog::new(&spec);
        log.take(ms(0), 10, true);
        log.restart(ms(100), ms(0), 10, true);
        let Free::OnSettle(latest) = log.free(&spec, 1, true) else { panic!() };
        assert!(latest >= ms(100 + 1600 + 1000));
    }

    #[test]
    fn a_start_after_the_transit_time_counts_again() {
        let spec = LogSpec::new(10, 0, SECOND, 20_000_000);
        let mut log = WindowLog::new(&spec);
        log.take(ms(0), 1, true);
        log.advance(&spec, ms(90));
        log.restart(ms(90), ms(0), 1, true);
        assert_eq!(log.units(), 2);
        log.end(&spec, ms(95), ms(90), 1, true);
        log.advance(&spec, ms(1_090));
        assert_eq!(log.units(), 1, "the second count lasts one window after the answer");
    }

    #[test]
    fn a_large_limit_is_merged_into_slots_and_stays_on_the_safe_side() {
        let spec = LogSpec::new(100_000, 0, SECOND, 0);
        let mut log = WindowLog::new(&spec);
        for n in 0..100_000 {
            let now = Time::from_nanos(n * 10_000);
            log.advance(&spec, now);
            log.take(now, 1, false);
            log.end(&spec, now, now, 1, false);
        }
        assert!(log.ended.len() <= 514, "{}", log.ended.len());
        log.advance(&spec, Time::from_nanos(spec.window));
        assert!(log.units() > 100_000 - 200 && log.units() <= 100_000);
    }
}
