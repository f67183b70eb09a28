//! The figures in force, which are the strictest of all processes with a lease, and what becomes of a limit's units
//! when the figures change.
//!
//! A limit that is reduced loses units of its pool. They may still count at the vendor, so the ledger keeps until when.
//! A limit that is raised gets units that no process can have used, except those that it lost before. If the window
//! becomes longer, however, processes may have used each of their units several times within it, and the ledger knows
//! of the last use alone. Then the new units are free when these uses no longer count.

use super::call::Figures;
use super::clock::slack;
use super::ledger::Ledger;
use super::pool::later;

impl Ledger {
    /// Puts the strictest figures of all processes with a lease in force.
    pub(super) fn bind(&mut self, now: u64) {
        let live = self.holders.values().filter(|h| !h.has_ended).map(|h| h.figures);
        let strictest = live.reduce(stricter).unwrap_or(self.figures);
        let longer = strictest.again_us.saturating_sub(self.figures.again_us);
        let grown = strictest.units.saturating_sub(self.figures.units);
        if longer > 0 || self.known_units() > strictest.units {
            // What their holders say of them no longer suffices.
            self.pool_lapsed(u64::MAX);
        }
        self.figures = strictest;
        if longer > 0 {
            self.delay(now, longer);
            self.uncounted_until = self.uncounted_until.max(self.counts_until(now));
        }
        let excess = self.known_units().saturating_sub(strictest.units);
        self.uncounted_until = self.uncounted_until.max(self.pool.drop_last(excess));
        if !self.is_learning() {
            self.pool.put(now.max(self.uncounted_until), grown.min(self.missing_units()));
            self.fill_up(now, u32::MAX);
        }
        if self.uncounted_until <= now {
            (self.uncounted_until, self.withheld) = (0, 0);
        }
    }

    /// Allows for processes that count by a shorter window than the one in force. Within the window in force they may
    /// have used each of their units several times, and go on so until they have the longer window too or end.
    ///
    /// To be called before the leases that are over end, and before the caller's figures are recorded.
    pub(super) fn allow_for_shorter_windows(&mut self, now: u64) {
        let mut live = self.holders.values().filter(|h| !h.has_ended);
        if live.any(|h| h.figures.again_us < self.figures.again_us) {
            self.uncounted_until = self.uncounted_until.max(self.counts_until(now));
        }
    }

    /// Puts units that no process holds and the pool lacks into the pool, at most `most`. A process whose lease has
    /// ended may have used them until `last_use`.
    pub(super) fn fill_up(&mut self, last_use: u64, most: u32) {
        let free_at = self.counts_until(last_use).max(self.uncounted_until);
        self.pool.put(free_at, self.missing_units().min(most));
    }

    /// Puts units whose lease has ended and that are free at `time` into the pool. Their holders can no longer say that
    /// they are free earlier.
    pub(super) fn pool_lapsed(&mut self, time: u64) {
        for (free_at, units) in self.holders.values_mut().flat_map(|holder| holder.take_lapsed(time)) {
            self.pool.put(free_at, units);
        }
    }

    /// Until when a unit may count that a process used at `last_use`, if the store has measured that time on the
    /// process's behalf.
    pub(super) fn counts_until(&self, last_use: u64) -> u64 {
        let tail = self.figures.tail_us();
        last_use.saturating_add(tail).saturating_add(slack(tail))
    }

    /// The number of the limit's units that are neither held nor in the pool.
    pub(super) fn missing_units(&self) -> u32 {
        self.figures.units.saturating_sub(self.known_units())
    }

    /// Makes units free later because the window in force has become longer.
    fn delay(&mut self, now: u64, by: u64) {
        self.pool.delay(now, by);
        for (free_at, _) in self.holders.values_mut().flat_map(|h| &mut h.last) {
            *free_at = later(*free_at, now, by);
        }
        if self.uncounted_until > 0 {
            self.uncounted_until = self.uncounted_until.saturating_add(by);
        }
    }
}

/// The fewer units and the longer times of the two.
fn stricter(a: Figures, b: Figures) -> Figures {
    Figures {
        units: a.units.min(b.units),
        again_us: a.again_us.max(b.again_us),
        transit_us: a.transit_us.max(b.transit_us),
        takes_used: a.takes_used && b.takes_used,
    }
}
