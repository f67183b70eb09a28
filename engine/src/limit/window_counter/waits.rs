//! Whether units fit under the vendor's counter, and if not, when they will.

use super::beginning::Beginning;
use super::{CounterSpec, Wait, WindowCounter};
use crate::limit::free::Free;
use crate::limit::lower::Lower;
use crate::time::Time;

impl WindowCounter {
    #[inline(never)]
    pub(crate) fn has_room(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> bool {
        self.free(spec, now, units, high) == Free::Now
    }

    pub(crate) fn only_reserve_lacks(&mut self, spec: &CounterSpec, now: Time, units: u32) -> bool {
        spec.reserve > 0 && self.has_room(spec, now, units, true)
    }

    /// When `units` fit.
    pub(crate) fn free(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> Free {
        let ready = self.lower.ready_at(spec.share(), now, units, high);
        let free = self.mirror_free(spec, now, units, high);
        Lower::free(free, spec.share(), (ready, now), units, || self.under_way())
    }

    fn mirror_free(&mut self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> Free {
        self.advance(spec, now);
        let wanted = units.saturating_add(self.held_back(spec, now.as_nanos(), high));
        if wanted <= self.known {
            return Free::Now;
        }
        if let Some(wait) = self.wait {
            if wait.until <= now && wanted <= wait.units {
                self.known = wait.units;
                return Free::Now;
            }
            if wait.until > now && wait.asked == (units, high) {
                return wait.free();
            }
        }
        if !self.full {
            let left = f64::from(spec.limit) - f64::from(self.transit.units) - self.held(spec, now.as_nanos());
            // Float to integer casts saturate.
            self.known = left.floor() as u32;
            self.full = self.known <= spec.limit / 16;
            if wanted <= self.known {
                return Free::Now;
            }
        }
        let wait = self.work_out(spec, now, units, high);
        self.wait = Some(wait);
        if wait.until <= now {
            self.known = self.known.max(wait.units);
            return Free::Now;
        }
        wait.free()
    }

    fn work_out(&self, spec: &CounterSpec, now: Time, units: u32, high: bool) -> Wait {
        let mut at = now.as_nanos();
        loop {
            let wanted = units.saturating_add(self.held_back(spec, at, high));
            let Some(most) = spec.limit.checked_sub(wanted).and_then(|most| most.checked_sub(self.transit.units))
            else {
                // The units cannot fit before a request in flight ends.
                let lost = self.transit.all_lost_at(spec.transit).max(at);
                let until = lost.saturating_add(spec.window.saturating_mul(2)).saturating_add(spec.slot);
                return Wait { asked: (units, high), units: wanted, until: Time::from_nanos(until), settles: true };
            };
            let free = self.falls_to(spec, at, most.into());
            if free <= at {
                // Units in flight count in full; ended units count in full for one window at most.
                let late = self.phase.is_some() || at > now.as_nanos().saturating_add(spec.window);
                let settles = self.transit.units > 0 && late && at > now.as_nanos();
                return Wait { asked: (units, high), units: wanted, until: Time::from_nanos(at), settles };
            }
            // The units held back may have grown until then, so check again.
            at = free;
        }
    }

    /// Forgets the last result of `work_out`, because units were taken or are counted differently.
    pub(super) fn forget_wait(&mut self) {
        self.wait = None;
    }

    /// From when on the vendor counts at most `most` units, not before `now`.
    fn falls_to(&self, spec: &CounterSpec, now: u64, most: f64) -> u64 {
        let mut at = now;
        if let Some(phase) = self.phase(spec, now) {
            // A window that has not begun yet sets no bound: its units count in full in the window before it now.
            for beginning in self.known_beginnings(spec, &phase, now) {
                if beginning.at.saturating_add(spec.window) > now {
                    at = at.max(beginning.falls_to(spec.window, most));
                }
            }
            return at;
        }
        // Follows the highest line down until another one is higher.
        while let (held, Some(line)) = self.highest(spec, at as f64)
            && held > most
        {
            let since = self.total.saturating_sub(line.earlier as u64);
            let beginning = Beginning { at: line.at as u64, since, before: 0 };
            at = beginning.falls_to_of(spec.window, most, line.before).max(at.saturating_add(1));
        }
        // An entry less than one window old counts in full until it is, and then less and less for another window.
        for ended in self.ended.range(self.young.min(self.ended.len())..) {
            let count = self.total - ended.before;
            if count as f64 <= most {
                break;
            }
            at = at.max(self.beginning(spec, ended.at.saturating_add(spec.window)).falls_to(spec.window, most));
        }
        at
    }
}
