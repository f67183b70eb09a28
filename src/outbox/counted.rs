//! When jobs are counted again. Pure.

use std::time::Duration;

use super::measured::SHARE;
use crate::clock::Time;

/// The age up to which a count below its bound is used, or [`SHARE`] times the time that the count took, if that is longer.
pub(super) const COUNT_EVERY: Duration = Duration::from_secs(5);
/// The longest age up to which a count is used, however long it took: most of that time may be a wait for a store that
/// was away.
const LATEST: Duration = Duration::from_secs(60);
/// How long one call counts for all others. It may have been dropped.
const COUNTING: Duration = Duration::from_secs(20);

/// When jobs were counted, and when they are counted next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    at: Time,
    /// How long the count took.
    took: Duration,
    /// Until when another call counts.
    counting_until: Time,
}

impl Counted {
    /// A count that began at `began` and has ended now.
    pub(super) fn new(began: Time, now: Time) -> Counted {
        Counted { at: now, took: now.since(began), counting_until: Time::ZERO }
    }

    /// Whether the caller counts now; no other call counts meanwhile. `full_every` is the age up to which a count is used
    /// that has reached its bound, and `None` if the count is below: only a count finds the jobs that have ended, so one that
    /// takes long may not keep the backlog full for long.
    pub(super) fn begin(&mut self, now: Time, full_every: Option<Duration>) -> bool {
        let every = match full_every {
            Some(every) => every.max(self.took.saturating_mul(2)),
            None => COUNT_EVERY.max(self.took.saturating_mul(SHARE).min(LATEST)),
        };
        let is_due = now >= self.counting_until && now.since(self.at) >= every;
        if is_due {
            self.counting_until = now + COUNTING;
        }
        is_due
    }
}

#[cfg(test)]
mod tests;
