//! The room of each lane, which is the share that is left of its tightest limit, in the last hour: a sample of one byte
//! every 20 seconds. Pure functions.
//!
//! A lane that had its whole room all the time takes no memory: of a large number of tenants, nearly all are idle.

use std::collections::HashMap;
use std::time::Duration;

use compact_str::CompactString;

/// The time between two samples.
pub(super) const EVERY: Duration = Duration::from_secs(20);
/// The number of samples that are kept: one hour.
const KEPT: usize = 180;
/// The number of samples in one point of a line, which shows the lowest of them.
const TOGETHER: usize = 3;
const FULL: u8 = 100;

/// A lane: its tenant and its vendor.
type Name = (CompactString, CompactString);

#[derive(Debug)]
struct Ring {
    samples: Box<[u8; KEPT]>,
    /// The number of samples since the last one below [`FULL`].
    full_for: u8,
}

/// The samples of all lanes.
#[derive(Debug, Default)]
pub(super) struct History {
    rings: HashMap<Name, Ring>,
    /// The number of samples that were taken so far.
    taken: usize,
}

impl History {
    /// Takes a sample of all lanes. `below` holds the room in percent of each lane that has less than its whole room.
    pub(super) fn sample(&mut self, below: impl Iterator<Item = (Name, u8)>) {
        let at = self.taken % KEPT;
        self.taken += 1;
        for ring in self.rings.values_mut() {
            ring.samples[at] = FULL;
            ring.full_for = ring.full_for.saturating_add(1);
        }
        for (name, percent) in below {
            let ring = self.rings.entry(name).or_insert_with(|| Ring { samples: Box::new([FULL; KEPT]), full_for: 0 });
            ring.samples[at] = percent.min(FULL);
            ring.full_for = 0;
        }
        self.rings.retain(|_, ring| usize::from(ring.full_for) < KEPT);
    }

    /// Returns the points of a lane's line in percent, oldest first. The line is empty if the lane had its whole room
    /// all the time, or if nothing is known about the lane.
    pub(super) fn line(&self, tenant: &str, vendor: &str) -> Vec<u8> {
        let Some(ring) = self.rings.get(&(tenant.into(), vendor.into())) else { return Vec::new() };
        let known = self.taken.min(KEPT);
        let first = self.taken - known;
        let samples: Vec<u8> = (first..self.taken).map(|number| ring.samples[number % KEPT]).collect();
        samples.rchunks(TOGETHER).rev().map(|some| some.iter().copied().min().unwrap_or(FULL)).collect()
    }
}

#[cfg(test)]
mod tests;
