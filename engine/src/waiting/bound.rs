//! The bound on waiting requests that all engines of a client share.
//!
//! When as many requests wait as may, the lane with the most of them loses one, in whichever engine it is. An engine
//! cannot change another one, which has a lock of its own. So it admits a request of its own beyond the bound and notes
//! that an eviction is owed, and the engine with the fullest lane makes that eviction at its next decision.
//!
//! All of this is a few atomic counters. They guard no other memory, so no order between them is needed: an engine that
//! reads an old number admits or evicts one request more or less.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::backlog::{CLASSES, class_of};

/// The smallest class of lanes that is counted: two or three waiting requests. A lane with one has no more of them than
/// any other lane that wants to wait, and most lanes never have two.
const COUNTED: u8 = 2;

/// A bound on the number of waiting requests in all engines of a client together, and what the engines know of each
/// other.
#[derive(Clone, Debug)]
pub struct Bound {
    most: u32,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    waiting: AtomicU32,
    /// Evictions that are owed for requests that were admitted beyond the bound.
    owed: AtomicU32,
    /// The number of lanes in each class of [`class_of`], from [`COUNTED`] on.
    lanes: [AtomicU32; CLASSES],
}

impl Bound {
    pub fn new(most: u32) -> Bound {
        let lanes = std::array::from_fn(|_| AtomicU32::new(0));
        Bound { most, counts: Arc::new(Counts { waiting: AtomicU32::new(0), owed: AtomicU32::new(0), lanes }) }
    }

    /// The requests that wait in all engines.
    pub(super) fn waiting(&self) -> u32 {
        self.counts.waiting.load(Relaxed)
    }

    /// Whether as many requests wait as may.
    pub(super) fn is_reached(&self) -> bool {
        self.waiting() >= self.most
    }

    /// Whether more requests wait than may.
    pub(super) fn is_exceeded(&self) -> bool {
        self.waiting() > self.most
    }

    pub(super) fn one_more(&self) {
        self.counts.waiting.fetch_add(1, Relaxed);
    }

    pub(super) fn one_less(&self) {
        self.counts.waiting.fetch_sub(1, Relaxed);
    }

    /// A lane passes from one class to another.
    pub(super) fn lane_moves(&self, from: u8, to: u8) {
        if from == to {
            return;
        }
        if to >= COUNTED {
            self.counts.lanes[to as usize].fetch_add(1, Relaxed);
        }
        if from >= COUNTED {
            self.counts.lanes[from as usize].fetch_sub(1, Relaxed);
        }
    }

    /// The highest class that has a lane in any engine; `None` if no lane has two waiting requests.
    pub(super) fn fullest_class(&self) -> Option<u8> {
        let class = self.counts.lanes.iter().rposition(|lanes| lanes.load(Relaxed) > 0)?;
        u8::try_from(class).ok()
    }

    /// Admits a request beyond the bound, of a lane in which `total` wait already, if another lane is fuller by a class
    /// or more. That lane then owes an eviction. At most an eighth more than the bound may wait.
    pub(super) fn admit_beyond(&self, total: u32) -> bool {
        let limit = self.most.saturating_add((self.most / 8).max(1));
        let class = class_of(total.saturating_add(1));
        if self.waiting() >= limit || self.fullest_class().is_none_or(|fullest| fullest <= class) {
            return false;
        }
        self.counts.owed.fetch_add(1, Relaxed);
        true
    }

    /// Whether an eviction is owed.
    #[inline]
    pub(super) fn is_owed(&self) -> bool {
        self.counts.owed.load(Relaxed) > 0
    }

    /// Waives the evictions that are owed if no more requests wait than may. Returns whether it does.
    pub(super) fn waive(&self) -> bool {
        let is_kept = !self.is_exceeded();
        if is_kept {
            self.counts.owed.store(0, Relaxed);
        }
        is_kept
    }

    /// Takes over one of the evictions that are owed. Returns whether there was one.
    pub(super) fn take_owed(&self) -> bool {
        let owed = self.counts.owed.load(Relaxed);
        // It fails if another engine changes the number at the same moment: that engine goes on.
        owed > 0 && self.counts.owed.compare_exchange(owed, owed - 1, Relaxed, Relaxed).is_ok()
    }

    /// Whether no request waits and no lane is counted, for tests.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.waiting() == 0 && self.fullest_class().is_none()
    }
}
