//! Counts of the outbox for its metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Time;
use crate::store::records::Backlog;

/// The interval between two counts of the backlog is this many times the duration of the last one: counting a backlog of
/// millions is slow. [A count that decides on requests](super::counted) is made once a minute at least.
pub(super) const SHARE: u32 = 50;

#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) delivered: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) later: AtomicU64,
    pub(super) in_hand: AtomicUsize,
    /// Outcomes that are in the memory of this process alone.
    pub(super) unwritten: AtomicUsize,
    pub(super) intake: Intake,
    /// The backlog at its last count.
    pub(super) backlog: Mutex<Option<Backlog>>,
    /// When the backlog is counted next.
    pub(super) count_at: Mutex<Time>,
}

/// Counts of the messages that sources handed over.
#[derive(Debug, Default)]
pub(super) struct Intake {
    taken: AtomicU64,
    refused: AtomicU64,
    /// The largest age of a message since the last read, in milliseconds.
    behind_ms: AtomicU64,
}

impl Intake {
    /// Counts messages that became jobs.
    pub(super) fn taken(&self, count: u64) {
        self.taken.fetch_add(count, Relaxed);
    }

    /// Counts refused messages.
    pub(super) fn refused(&self, count: u64) {
        self.refused.fetch_add(count, Relaxed);
    }

    /// Records the age of a message that arrived.
    pub(super) fn behind(&self, age: Option<Duration>) {
        let age = age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.behind_ms.fetch_max(age, Relaxed);
    }

    /// Returns the number of messages that became jobs, the number that were refused, and the largest age since the
    /// last call.
    pub(super) fn read(&self) -> ([u64; 2], Duration) {
        let age = Duration::from_millis(self.behind_ms.swap(0, Relaxed));
        ([self.taken.load(Relaxed), self.refused.load(Relaxed)], age)
    }
}
