//! The units that no process holds, each with the time from which it is free.

use serde::{Deserialize, Serialize};

/// The most entries in a pool: more would enlarge the stored value without a benefit.
const ENTRIES: usize = 64;
/// How many entries are left at most when a pool with more than [`ENTRIES`] has been compacted. The margin lets most calls
/// leave the entries as they are: in a store without a clock, each merged entry gets a little later for all processes.
const COMPACTED: usize = 48;

/// Entries of (time from which the units are free, units), soonest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pool(pub(super) Vec<(u64, u32)>);

impl Pool {
    /// Adds units that are free from `free_at` on.
    pub(crate) fn put(&mut self, free_at: u64, units: u32) {
        if units == 0 {
            return;
        }
        let place = self.0.partition_point(|(at, _)| *at < free_at);
        match self.0.get_mut(place) {
            Some((at, there)) if *at == free_at => *there = there.saturating_add(units),
            _ => self.0.insert(place, (free_at, units)),
        }
    }

    /// Adds units that are free at a time from `free_at` to `grain_us` later. Many units with times close to each other
    /// then share an entry, and no entry gets later.
    pub(crate) fn put_within(&mut self, free_at: u64, grain_us: u64, units: u32) {
        let last_at = free_at.saturating_add(grain_us);
        let place = self.0.partition_point(|(at, _)| *at < free_at);
        let there = self.0.get(place).map(|(at, _)| *at).filter(|at| *at <= last_at);
        self.put(there.unwrap_or(last_at), units);
    }

    /// The number of all units, free or not.
    pub(crate) fn total(&self) -> u32 {
        self.until(u64::MAX)
    }

    /// The number of units that are free at `time`.
    pub(crate) fn until(&self, time: u64) -> u32 {
        let some = self.0.iter().take_while(|(at, _)| *at <= time);
        some.fold(0, |sum, (_, units)| sum.saturating_add(*units))
    }

    /// When the last unit becomes free.
    pub(crate) fn last_at(&self) -> u64 {
        self.0.last().map_or(0, |(at, _)| *at)
    }

    /// Takes up to `units` units that are free at `time`, soonest first.
    pub(crate) fn take(&mut self, units: u32, time: u64) -> Vec<(u64, u32)> {
        let mut left = units;
        let mut taken = Vec::new();
        for (at, there) in &mut self.0 {
            if left == 0 || *at > time {
                break;
            }
            let part = left.min(*there);
            *there = there.saturating_sub(part);
            left = left.saturating_sub(part);
            taken.push((*at, part));
        }
        self.0.retain(|(_, there)| *there > 0);
        taken
    }

    /// Drops up to `units` units, those that become free last first. Returns when the last of them would have been
    /// free; 0 if there was none.
    pub(crate) fn drop_last(&mut self, units: u32) -> u64 {
        let last_at = if units > 0 { self.last_at() } else { 0 };
        let mut left = units;
        for (_, there) in self.0.iter_mut().rev() {
            let part = left.min(*there);
            *there = there.saturating_sub(part);
            left = left.saturating_sub(part);
        }
        self.0.retain(|(_, there)| *there > 0);
        last_at
    }

    /// Makes every unit free later.
    pub(crate) fn delay(&mut self, now: u64, by: u64) {
        for (at, _) in &mut self.0 {
            *at = later(*at, now, by);
        }
        self.0.sort_unstable();
    }

    /// Merges the entries that are free at `now`. If more than [`ENTRIES`] are left, merges those that are not free yet
    /// and whose times lie in the same cell of a grid, towards the latest of them. The cells are the shortest powers of
    /// two, in microseconds, that leave at most [`COMPACTED`] entries: about a twentieth of the pool's span at most.
    ///
    /// A cell of the next size consists of two cells whole, so a unit stays in its cell and is late by less than one,
    /// however often the pool is compacted. Without cells, the units of one entry could be moved on with each new one.
    pub(crate) fn compact(&mut self, now: u64) {
        let free = self.until(now);
        let past = self.0.partition_point(|(at, _)| *at <= now);
        if past > 1 {
            let last = self.0.drain(..past).next_back().map_or(now, |(at, _)| at);
            self.0.insert(0, (last, free));
        }
        if self.0.len() <= ENTRIES {
            return;
        }
        let share = |bits: u32, earlier: u64, later: u64| earlier > now && earlier >> bits == later >> bits;
        let left = |bits: &u32| self.0.chunk_by(|(a, _), (b, _)| share(*bits, *a, *b)).count();
        let bits = (0..u64::BITS).find(|bits| left(bits) <= COMPACTED).unwrap_or_default();
        self.0.dedup_by(|(at, units), (kept, sum)| {
            let is_same = share(bits, *kept, *at);
            if is_same {
                (*kept, *sum) = (*at, sum.saturating_add(*units));
            }
            is_same
        });
    }
}

/// The time `by` after `at`. An `at` of 0 stands for an unknown time up to `now`.
pub(super) fn later(at: u64, now: u64, by: u64) -> u64 {
    let at = if at == 0 { now } else { at };
    at.saturating_add(by)
}

#[cfg(test)]
mod tests;
