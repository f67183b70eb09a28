//! What a vendor said is left.

use crate::clock::Time;
use crate::engine::plan::Pace;

/// Bands of headroom: below so many percent, so many hundredths of the rate.
const BANDS: [(u64, u64); 3] = [(10, 25), (20, 50), (30, 75)];
/// A band is left upwards this many percent above its threshold.
const HYSTERESIS: u64 = 3;

/// What a response said about the tightest window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Until the reset, in nanoseconds.
    pub(crate) reset_ns: Option<u64>,
}

impl Report {
    /// Nothing needs to be done about it while nothing was done before.
    pub(crate) fn is_comfortable(&self, in_flight: u32) -> bool {
        let left = self.remaining.saturating_sub(in_flight as u64);
        left.saturating_mul(100) > self.limit.saturating_mul(30) || self.limit == 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    pub(super) limit: u64,
    /// Units that may still be granted; below zero those that went as they came back.
    pub(super) credit: i64,
    pub(super) at: Time,
    /// The report means nothing from here on.
    pub(super) until: Time,
    /// Hundredths of the rate.
    pub(super) share: u64,
    pub(super) percent: u64,
    /// Between grants, in nanoseconds, where the rate is not a share of the lane's own.
    pub(super) spacing: Option<u64>,
}

impl Told {
    /// When `cost` units may go.
    pub(super) fn free(&self, now: Time, cost: u32, pace: &Pace) -> Time {
        let cost = i64::from(cost);
        if self.credit >= cost {
            return now;
        }
        if pace.regrows && pace.window_ns > 0 {
            let unit = pace.window_ns / self.limit.max(1);
            let lacking = cost.saturating_sub(self.credit).unsigned_abs();
            return self.at.plus_nanos(unit.saturating_mul(lacking)).min(self.until);
        }
        self.until
    }
}

/// Hundredths of the rate at so many percent of headroom, coming from `before`.
pub(super) fn band(percent: u64, before: u64) -> u64 {
    let share = |percent: u64| BANDS.iter().find(|(below, _)| percent < *below).map_or(100, |(_, share)| *share);
    let now = share(percent);
    match now > before {
        // Upwards only when clear of the threshold.
        true => share(percent.saturating_sub(HYSTERESIS)).max(before),
        false => now,
    }
}
