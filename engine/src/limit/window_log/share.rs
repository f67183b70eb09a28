//! The lower tiers' share of a log: all units but the reserve, counted only when the lower tiers come near that share.

use super::{Entry, LogSpec, Lower, WindowLog};
use crate::time::Time;

impl WindowLog {
    /// Whether the share has room by the log alone, which counts each unit at least as long as the share does.
    #[inline]
    pub(super) fn fits_share(&self, spec: &LogSpec, units: u32, high: bool) -> bool {
        high || self.of_lower() + u64::from(units) <= u64::from(spec.limit - spec.reserve)
    }

    /// When `units` fit into the lower tiers' share. Expired units must have been freed before.
    pub(super) fn lower_ready_at(&self, spec: &LogSpec, now: Time, units: u32, high: bool) -> Time {
        if self.fits_share(spec, units, high) { now } else { self.share_ready_at(spec, now, units) }
    }

    fn share_ready_at(&self, spec: &LogSpec, now: Time, units: u32) -> Time {
        if spec.reserve > 0 && self.is_far_from_share(spec, 0) {
            return self.counted_lower(spec, now).ready_at(spec.share(), now, units, false);
        }
        let lower = self.before.as_ref().map_or(Lower::NONE, |before| &before.lower);
        lower.ready_at(spec.share(), now, units, false)
    }

    /// Units of the lower tiers in the log.
    fn of_lower(&self) -> u64 {
        u64::from(self.units - self.high)
    }

    /// Whether the lower tiers, including these `units`, use so little of their share that it need not be counted.
    #[inline]
    fn is_far_from_share(&self, spec: &LogSpec, units: u32) -> bool {
        self.of_lower() + u64::from(units) <= u64::from(spec.near)
    }

    /// A use that was far from the old share, or had none, may be near the new one: then its count begins.
    pub(super) fn change_share(&mut self, old: &LogSpec, new: &LogSpec, now: Time) {
        let is_uncounted = old.reserve == 0 || self.is_far_from_share(old, 0);
        if is_uncounted && new.reserve > 0 && !self.is_far_from_share(new, 0) {
            self.before.get_or_insert_default().lower = self.counted_lower(new, now);
        }
    }

    /// Counts `units` granted at `granted` that are about to be added to the log for the lower tiers.
    #[inline]
    pub(super) fn take_lower(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32, high: bool) {
        if !high && spec.reserve > 0 && !self.is_far_from_share(spec, units) {
            self.take_share(spec, now, granted, units);
        }
    }

    fn take_share(&mut self, spec: &LogSpec, now: Time, granted: Time, units: u32) {
        // Frees expired units first: the result must not depend on them, because a log that was dropped and made anew
        // would not have them.
        self.advance(spec, now);
        if self.is_far_from_share(spec, units) {
            return;
        }
        if self.is_far_from_share(spec, 0) {
            self.before.get_or_insert_default().lower = self.counted_lower(spec, now);
        }
        self.before.get_or_insert_default().lower.take(spec.share(), granted, units, false);
    }

    /// The lower tiers' units in the log, as if each had been granted at its latest possible moment: at most a round
    /// trip and one slot of the log too late.
    #[cold]
    fn counted_lower(&self, spec: &LogSpec, now: Time) -> Lower {
        let mut lower = Lower::default();
        let before = self.before.as_deref();
        let ended = before.into_iter().flat_map(|before| &before.ended).chain([&self.ended]);
        let pending = before.into_iter().flat_map(|before| &before.pending).chain([&self.pending]);
        // A slot of requests in flight begins with its first grant.
        let latest = |slot: &Entry| slot.at.saturating_add(self.width - 1).min(now.as_nanos()).max(slot.at);
        let granted = ended.map(|entry| (entry.at, entry)).chain(pending.map(|slot| (latest(slot), slot)));
        for (at, entry) in granted.filter(|(_, entry)| entry.units > entry.high) {
            lower.take(spec.share(), Time::from_nanos(at), entry.units - entry.high, false);
        }
        lower
    }
}
