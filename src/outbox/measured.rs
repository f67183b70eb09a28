//! Counts of the outbox that its metrics state.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Time;
use crate::store::records::Backlog;

#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) delivered: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) later: AtomicU64,
    pub(super) in_hand: AtomicUsize,
    pub(super) intake: Intake,
    /// What waited when it was counted last.
    pub(super) backlog: Mutex<Option<Backlog>>,
    /// When it is counted next.
    pub(super) count_at: Mutex<Time>,
}

/// What was handed over by sources.
#[derive(Debug, Default)]
pub(super) struct Intake {
    taken: AtomicU64,
    refused: AtomicU64,
    /// The oldest that was seen since this was read last.
    behind_ms: AtomicU64,
}

impl Intake {
    /// Messages became jobs.
    pub(super) fn taken(&self, count: u64) {
        self.taken.fetch_add(count, Relaxed);
    }

    /// Messages were refused.
    pub(super) fn refused(&self, count: u64) {
        self.refused.fetch_add(count, Relaxed);
    }

    /// A message arrived that is so old.
    pub(super) fn behind(&self, age: Option<Duration>) {
        let age = age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.behind_ms.fetch_max(age, Relaxed);
    }

    /// Messages that became jobs, messages that were refused, and the age of the oldest since the last call.
    pub(super) fn read(&self) -> ([u64; 2], Duration) {
        let age = Duration::from_millis(self.behind_ms.swap(0, Relaxed));
        ([self.taken.load(Relaxed), self.refused.load(Relaxed)], age)
    }
}
