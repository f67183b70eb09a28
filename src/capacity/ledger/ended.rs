//! Leases that are over, and what the ledger keeps of them.
//!
//! The units of an ended lease stay in the record of their process, which may come back and say that they are free.
//! Jobs that start again and again and are killed would make the ledger ever larger in this way, so it keeps the units
//! of the latest processes only. An outage of the store ends the leases of all processes at about the same time, and
//! they come back when it is over; so the ledger also keeps those that ended together with the latest.

use super::ledger::{AHEAD_US, Ledger};

/// Of how many ended processes the records keep units in any case.
const LATEST: usize = 32;
/// Of how many ended processes the records keep units at most.
const MOST: usize = 256;
/// Leases that end within this time of each other may have been ended by the same outage.
const TOGETHER_US: u64 = 60_000_000;
/// The units of other processes are free later by at most one part in this number of a lease's tail, so that they need
/// few entries of the pool.
const GRAINS: u64 = 32;

impl Ledger {
    /// Ends leases that are over. Their units become free when no request of the holder can occupy them any more, or
    /// earlier if the holder then calls and says so.
    pub(super) fn end_leases(&mut self, now: u64) {
        let lapse = self.figures.lapse_us();
        for holder in self.holders.values_mut().filter(|h| h.expires <= now && !h.has_ended) {
            holder.has_ended = holder.floor == 0 || holder.floor_until <= now;
            // If the window has become longer, a granted unit may count for what another process used it for. A holder
            // that has not received the grant cannot say so.
            let counts = holder.last_grant().iter().any(|(free_at, _)| *free_at > now);
            for (ended, units) in holder.end(holder.has_ended) {
                let free_at = ended.saturating_add(lapse);
                if counts { self.pool.put(free_at, units) } else { holder.lapse(free_at, units) }
            }
        }
        self.pool_lapsed(now.saturating_add(AHEAD_US));
        self.pool_older_lapsed(lapse / GRAINS);
        self.holders.retain(|_, h| !h.has_ended || now < h.kept_until(lapse));
    }

    /// Puts the units of processes that ended long before the latest ones into the pool, which makes them free up to
    /// `grain_us` later. These processes can no longer say that they are free earlier.
    fn pool_older_lapsed(&mut self, grain_us: u64) {
        let ended = self.holders.iter().filter(|(_, h)| h.has_ended && !h.lapsed().is_empty());
        let mut ended: Vec<(u64, u64)> = ended.map(|(process, h)| (h.ends(), *process)).collect();
        if ended.len() <= LATEST {
            return;
        }
        ended.sort_unstable_by(|a, b| b.cmp(a));
        let latest = ended.first().map_or(0, |(ends, _)| *ends);
        let mut older: Vec<(u64, u32)> = Vec::new();
        for (place, (ends, process)) in ended.into_iter().enumerate().skip(LATEST) {
            let is_kept = place < MOST && latest.saturating_sub(ends) <= TOGETHER_US;
            if let Some(holder) = self.holders.get_mut(&process).filter(|_| !is_kept) {
                older.extend(holder.take_lapsed(u64::MAX));
            }
        }
        older.sort_unstable();
        for (free_at, units) in older {
            self.pool.put_within(free_at, grain_us, units);
        }
    }
}
