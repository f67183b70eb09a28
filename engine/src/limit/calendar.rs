//! Windows that end by a calendar: a daily quota at the vendor's midnight, a monthly quota on the first of the month.
//!
//! The shell turns the calendar into moments, so this module knows no dates and no time zones. Days of 23 and 25 hours
//! and months of 28 to 31 days are only distances between those moments.

use std::sync::Arc;

use crate::time::Time;

/// The largest difference between the client's clock and the vendor's, in nanoseconds. A request that ends this close
/// to the end of a window counts in the next window, and the units of a window count for this much longer.
const CLOCKS_DIFFER: u64 = 1_000_000_000;

/// When the windows of a limit end. Immutable; shared by every lane with the same limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Calendar {
    /// Sorted. No end of a window is known before the first.
    ends: Arc<[Time]>,
    /// The length of the windows after the last end, in nanoseconds; 0 if none follows.
    every_ns: u64,
}

impl Calendar {
    /// Windows end at `ends`, and then every `every_ns` after the last of them, unless that is 0.
    pub fn new(mut ends: Vec<Time>, every_ns: u64) -> Calendar {
        ends.sort_unstable();
        Calendar { ends: ends.into(), every_ns }
    }

    /// The first end after `now`.
    pub(crate) fn next(&self, now: Time) -> Option<Time> {
        let place = self.ends.partition_point(|end| *end <= now);
        if let Some(end) = self.ends.get(place) {
            return Some(*end);
        }
        let last = *self.ends.last()?;
        let passed = since(last, now).checked_div(self.every_ns)?;
        Some(last.plus_nanos(self.every_ns.saturating_mul(passed.saturating_add(1))))
    }

    /// The last end at or before `now`.
    fn last(&self, now: Time) -> Option<Time> {
        let place = self.ends.partition_point(|end| *end <= now).checked_sub(1)?;
        let end = *self.ends.get(place)?;
        let is_newest = place + 1 == self.ends.len();
        let passed = since(end, now).checked_div(self.every_ns).filter(|_| is_newest).unwrap_or(0);
        Some(end.plus_nanos(self.every_ns.saturating_mul(passed)))
    }

    /// The earliest and the latest moment of the first end after `now`, by either clock.
    pub(super) fn next_edge(&self, now: Time) -> Option<(Time, Time)> {
        self.next(now).map(|end| (end.minus_nanos(CLOCKS_DIFFER), end.plus_nanos(CLOCKS_DIFFER)))
    }

    /// Whether a request that the vendor counted at `at` was in a window that has ended by both clocks.
    pub(super) fn is_over(&self, at: Time, now: Time) -> bool {
        let ended = self.last(now.minus_nanos(CLOCKS_DIFFER));
        ended.is_some_and(|end| at < end.minus_nanos(CLOCKS_DIFFER))
    }
}

pub(super) fn since(earlier: Time, later: Time) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}
