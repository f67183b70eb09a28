//! What the lower tiers have of a log: all but the reserve, counted only where they come near to it.

use super::{LogSpec, Lower, WindowLog};
use crate::time::Time;

impl WindowLog {
    #[inline]
    pub(super) fn lower_ready_at(&self, spec: &LogSpec, now: Time, units: u32, high: bool) -> Time {
        if high || self.is_far_from_share(spec, units) { now } else { self.share_ready_at(spec, now, units) }
    }

    fn share_ready_at(&self, spec: &LogSpec, now: Time, units: u32) -> Time {
        if self.is_far_from_share(spec, 0) {
            return self.counted_lower(spec).ready_at(spec.share(), now, units, false);
        }
        let lower = self.before.as_ref().map_or(Lower::NONE, |before| &before.lower);
        lower.ready_at(spec.share(), now, units, false)
    }

    /// The lower tiers have used so little of their share, these `units` included, that nothing needs to be counted for it: what
    /// they use is no more than what the log holds of them.
    #[inline]
    fn is_far_from_share(&self, spec: &LogSpec, units: u32) -> bool {
        u64::from(self.units - self.high) + u64::from(units) <= u64::from(spec.near)
    }

    /// What was little of the old share may be much of the new one.
    pub(super) fn change_share(&mut self, old: &LogSpec, new: &LogSpec) {
        if self.is_far_from_share(old, 0) && !self.is_far_from_share(new, 0) {
            self.before.get_or_insert_default().lower = self.counted_lower(new);
        }
    }

    /// Counts what is about to be added to the log for the lower tiers.
    #[inline]
    pub(super) fn take_lower(&mut self, spec: &LogSpec, granted: Time, units: u32, high: bool) {
        if !high && spec.reserve > 0 && !self.is_far_from_share(spec, units) {
            self.take_share(spec, granted, units);
        }
    }

    fn take_share(&mut self, spec: &LogSpec, granted: Time, units: u32) {
        if self.is_far_from_share(spec, 0) {
            self.before.get_or_insert_default().lower = self.counted_lower(spec);
        }
        self.before.get_or_insert_default().lower.take(spec.share(), granted, units, false);
    }

    /// What the log holds of the lower tiers, as if each unit had been granted when it ended: at most a round trip too late.
    #[cold]
    fn counted_lower(&self, spec: &LogSpec) -> Lower {
        let mut lower = Lower::default();
        let before = self.before.as_deref();
        let ended = before.into_iter().flat_map(|before| &before.ended).chain([&self.ended]);
        let pending = before.into_iter().flat_map(|before| &before.pending).chain([&self.pending]);
        for entry in ended.chain(pending).filter(|entry| entry.units > entry.high) {
            lower.take(spec.share(), Time::from_nanos(entry.at), entry.units - entry.high, false);
        }
        lower
    }
}
