//! Decides which processes' jobs may be taken over: a failure detector by observation. Pure.
//!
//! A working process writes a number that grows, four times in each lease or more often. An observer takes over its jobs
//! when it has read the same number for a whole lease of its own monotonic time, in which the observer's own writes to
//! the store succeeded without a gap. After a gap, whatever its cause (the store stalled, the observer was stopped), the
//! observation of every process starts again: a stall of the store gives every process a new lease.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::store::owners::{self, Seen, Silent};

/// What this process has observed of others, and the number of its own latest heartbeat.
pub(super) struct Leases {
    lease: Duration,
    beats: i64,
    /// When the latest observation ended.
    last: Option<Time>,
    seen: HashMap<Vec<u8>, Known>,
    /// The processes that have claims and no heartbeat, as of the latest search.
    unregistered: Vec<Vec<u8>>,
}

struct Known {
    number: Option<i64>,
    /// When this process first read this number.
    since: Time,
}

impl Leases {
    pub(super) fn new(lease: Duration) -> Leases {
        Leases { lease, beats: 0, last: None, seen: HashMap::new(), unregistered: Vec::new() }
    }

    /// The number of this process's next heartbeat.
    pub(super) fn next_beat(&mut self) -> i64 {
        self.beats = self.beats.saturating_add(1);
        self.beats
    }

    /// The interval between heartbeats. With a long lease it is shorter than a quarter: a process that finds the lock file
    /// of a SQLite store removed does not wait for a long lease to see whether another one works on the store.
    pub(super) fn every(&self) -> Duration {
        (self.lease / 4).min(owners::LONGEST_BEAT)
    }

    /// Whether other processes work on the store, as of the latest observation. A process that was killed counts until
    /// its jobs are taken over.
    pub(super) fn others_work(&self) -> bool {
        self.seen.values().any(|known| known.number.is_some())
    }

    /// Records the result of a search for processes that have claims and no heartbeat. Until the next search, every
    /// observation counts them as seen without a heartbeat.
    pub(super) fn found(&mut self, owners: Vec<Vec<u8>>) {
        self.unregistered = owners;
    }

    /// Processes an observation that was `asked` for and ended `now`. Returns the processes whose jobs may be taken
    /// over.
    pub(super) fn observe(&mut self, asked: Time, now: Time, clock: Clock, seen: Vec<Seen>) -> Vec<Silent> {
        // Every process tries to write a heartbeat within a quarter of a lease. A stall of all processes that is
        // shorter than half a lease leaves each of them enough of the lease to be seen; a longer stall is noticed here.
        let gap = self.last.replace(now).is_none_or(|last| now.since(last) > self.lease / 2);
        if gap {
            self.seen.clear();
        }
        let mut before = std::mem::take(&mut self.seen);
        let mut silent = Vec::new();
        self.unregistered.retain(|owner| !seen.iter().any(|seen| seen.owner == *owner));
        let unregistered = self.unregistered.iter().map(|owner| (owner.clone(), None, 0));
        let registered = seen.into_iter().map(|seen| (seen.owner, Some(seen.number), seen.lease_ms));
        for (owner, number, lease_ms) in registered.chain(unregistered) {
            let known = before.remove(&owner).filter(|known| known.number == number);
            let known = known.unwrap_or(Known { number, since: now });
            // The other process may be configured with a longer lease, and then its heartbeats are further apart.
            let lease = self.lease.max(Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0)));
            // The number was read at some moment after `asked`, and for the first time before `since`.
            if asked.since(known.since) >= lease {
                let not_after = now + self.every();
                silent.push(Silent { owner: owner.clone(), number, not_after, clock });
            }
            self.seen.insert(owner, known);
        }
        silent
    }
}

#[cfg(test)]
mod tests;
