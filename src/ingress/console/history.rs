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
mod tests {
    use super::*;

    fn name(tenant: &str) -> Name {
        (tenant.into(), "v".into())
    }

    fn line(history: &History, tenant: &str) -> Vec<u8> {
        history.line(tenant, "v")
    }

    #[test]
    fn line_is_the_last_hour_oldest_first() {
        let mut history = History::default();
        assert_eq!(line(&history, "a"), Vec::<u8>::new());
        for number in 0..200u8 {
            history.sample([(name("a"), number % 100)].into_iter());
        }
        let shown = line(&history, "a");
        assert_eq!(shown.len(), KEPT / TOGETHER);
        assert_eq!((shown[0], shown[59]), (20, 97), "the lowest of each three, from sample 20 to 199");
        assert!(line(&history, "b").is_empty());
    }

    #[test]
    fn lanes_at_rest_take_no_room() {
        let mut history = History::default();
        history.sample([(name("a"), 40)].into_iter());
        for _ in 1..KEPT {
            history.sample(std::iter::empty());
            assert_eq!(history.rings.len(), 1);
        }
        assert_eq!(line(&history, "a")[0], 40, "it was so an hour ago");
        history.sample(std::iter::empty());
        assert!(history.rings.is_empty());
    }
}
