//! Windows that end when a calendar says so: a day's quota at the vendor's midnight, a month's at the first of the month.
//!
//! The shell turns the calendar into moments; here is no date and no time zone. Days of 23 and 25 hours and months of 28 to 31
//! days are nothing but distances between those moments.

use std::sync::Arc;

use crate::time::Time;

/// The clocks of client and vendor may differ by so much, in nanoseconds: what ends that close to the end of a window counts in
/// the next one, and what is in it counts for that much longer.
const CLOCKS_DIFFER: u64 = 1_000_000_000;

/// When the windows of a limit end. Immutable; shared by every lane with the same limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Calendar {
    /// In order. Windows are not known to end before the first.
    ends: Arc<[Time]>,
    /// The length in nanoseconds of the windows after the last end; 0 where none follows.
    every_ns: u64,
}

impl Calendar {
    /// Windows end at these moments, and each `every_ns` after the last of them unless that is 0.
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

    /// The last end that is not after `now`.
    fn last(&self, now: Time) -> Option<Time> {
        let place = self.ends.partition_point(|end| *end <= now).checked_sub(1)?;
        let end = *self.ends.get(place)?;
        let is_newest = place + 1 == self.ends.len();
        let passed = since(end, now).checked_div(self.every_ns).filter(|_| is_newest).unwrap_or(0);
        Some(end.plus_nanos(self.every_ns.saturating_mul(passed)))
    }

    /// The end after `now`, by whichever of the two clocks: at the earliest and at the latest.
    pub(super) fn next_edge(&self, now: Time) -> Option<(Time, Time)> {
        self.next(now).map(|end| (end.minus_nanos(CLOCKS_DIFFER), end.plus_nanos(CLOCKS_DIFFER)))
    }

    /// Whether what the vendor counted at `at` was in a window that has ended by both clocks.
    pub(super) fn is_over(&self, at: Time, now: Time) -> bool {
        let ended = self.last(now.minus_nanos(CLOCKS_DIFFER));
        ended.is_some_and(|end| at < end.minus_nanos(CLOCKS_DIFFER))
    }
}

pub(super) fn since(earlier: Time, later: Time) -> u64 {
    later.as_nanos().saturating_sub(earlier.as_nanos())
}
