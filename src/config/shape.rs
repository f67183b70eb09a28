//! Derives what the client enforces from the limit that a vendor publishes: the sizes of the bucket and of the guard.
//!
//! The budget, `safety x limit`, sizes the bucket. The guard copies the vendor's own counting at the vendor's own limit
//! (or at `ceiling x limit`):
//!
//! | the vendor counts by | guard |
//! |---|---|
//! | fixed window | a log: at most `limit` in any window. When a response says that a window ends, its entries are dropped at that time |
//! | sliding window | a log |
//! | sliding counter | a counter at every phase that the vendor's windows may have |
//! | token bucket, leaky bucket (`limit` is its size, `window` the time to fill it) | a copy of the bucket at its lowest possible level, one refill step smaller if the vendor refills in steps |
//! | quota | a log, without pacing. A quota that resets by a calendar (`resets`) has only the log: a bucket refills all day, so in the evening it would grant units that the vendor gives back only at the reset |
//! | unknown | a counter (whose newest window is the log), under a bucket that holds a tenth of the limit |

use std::time::Duration;

use super::limit::{Algorithm, Rate};
use crate::clock::nanos;

/// The bucket and the guard of a [`Rate`], as the client enforces them. Made by [`Rate::shape`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shape {
    /// The most units that the bucket holds.
    pub capacity: u32,
    /// Units that the bucket regains in one `window` of the limit; all at once if the limit resets by a calendar.
    pub refill: f64,
    /// The interval at which the bucket regains units in groups; `None` for a steady refill.
    pub release_interval: Option<Duration>,
    /// The most units that the guard grants in a window, or that the vendor's full bucket holds.
    pub guard_limit: u32,
    /// Units of `guard_limit` that only the high tier may use, until it has used as many. If the vendor counts in
    /// windows, half of them leave room for grants to the lower tiers that are older than a window but still count.
    pub guard_reserve: u32,
    /// Whether the vendor counts in a bucket, whose lowest possible level the guard tracks, rather than in windows.
    pub guard_is_bucket: bool,
}

/// From this limit on, the guard of a sliding counter leaves one unit unused, for vendors that round.
const LEAVES_ONE: u32 = 10;
/// The guard's copy of a bucket refills at this share of the vendor's rate, because clocks drift.
const SLOWER: f64 = 0.999;
/// How far a product of figures may exceed a whole number because binary fractions are inexact.
const ROUNDING: f64 = 1e-6;

impl Rate {
    /// The bucket and the guard that the client enforces for this limit.
    ///
    /// ```
    /// use integration_client::config::{Config, LimitKind, Sources};
    ///
    /// let config = Config::load(&Sources::new(), 1)?;
    /// let xero = config.vendor("xero", "live")?;
    /// let LimitKind::Rate(minute) = &xero.limits[0].kind else { panic!("a rate") };
    /// let shape = minute.shape();
    /// assert_eq!((shape.capacity, shape.guard_limit), (48, 60));
    /// # Ok::<(), integration_client::Error>(())
    /// ```
    pub fn shape(&self) -> Shape {
        let window = nanos(self.window);
        let limit = f64::from(self.limit);
        let budget = self.safety * limit;
        let per_window = |interval: Duration| limit * nanos(interval) as f64 / window as f64;
        // Float to integer casts saturate, and every figure has been validated.
        let units = |units: f64| (units.floor() as u32).max(1);
        let guard_is_bucket = matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        // If the vendor refills in steps, whose phase is unknown, its bucket may lag one step behind a steady refill.
        let lump = self.refill_interval.filter(|_| guard_is_bucket).map_or(0.0, per_window);
        let most = units(self.ceiling * (limit - lump));
        let guard_limit = match self.algorithm {
            Algorithm::SlidingCounter | Algorithm::Unknown if most >= LEAVES_ONE => most - 1,
            _ => most,
        };
        let burst = match self.algorithm {
            _ if self.resets.is_some() => guard_limit,
            Algorithm::Unknown => units(limit / 10.0).min(units(budget)),
            _ => units(budget),
        };
        let mut capacity = self.burst.unwrap_or(burst);
        if let Some(interval) = self.release_interval {
            capacity = capacity.min(units(self.safety * per_window(interval)));
        }
        // Rounds up the limit of the lower tiers: of two or three units, one would be a half or a third of the limit,
        // and the lower tiers would never use their share.
        let low = (self.safety * f64::from(most) / self.ceiling - ROUNDING).ceil() as u32;
        let low = low.clamp(1, guard_limit);
        Shape {
            capacity: capacity.min(guard_limit).max(1),
            refill: budget,
            release_interval: self.release_interval,
            guard_limit,
            guard_reserve: guard_limit - low,
            guard_is_bucket,
        }
    }

    /// The share of the vendor's limit, at most 1, that requests use in the long run if some always wait and the vendor
    /// answers each after `round_trip`. `high` says whether they are of the high tier, which alone may use the guard's
    /// reserve.
    pub fn reach(&self, max_transit: Duration, round_trip: Duration, high: bool) -> f64 {
        let shape = self.shape();
        let per_second = |units: f64, span: Duration| units / span.as_secs_f64().max(1e-9);
        let published = per_second(f64::from(self.limit), self.window);
        let bucket = per_second(shape.refill, self.window);
        // With releases in groups, the bucket grants at most its capacity once per interval.
        let released = shape.release_interval.map_or(bucket, |span| per_second(f64::from(shape.capacity), span));
        // In windows, a request counts against the guard from its grant until one window after its response, and
        // against the limit of the lower tiers for one window after its grant.
        let counted = self.window.saturating_add(round_trip.min(max_transit));
        let kept = shape.guard_reserve.div_ceil(2);
        if self.resets.is_some() {
            return f64::from(if high { shape.guard_limit } else { shape.lower_limit() }) / f64::from(self.limit);
        }
        let guard = match (shape.guard_is_bucket, high) {
            (true, _) => per_second(self.ceiling * SLOWER * f64::from(self.limit), self.window),
            (false, true) => per_second(f64::from(shape.guard_limit), counted),
            (false, false) => per_second(f64::from(shape.guard_limit - kept), counted)
                .min(per_second(f64::from(shape.lower_limit()), self.window)),
        };
        (bucket.min(released).min(guard) / published).min(1.0)
    }
}

impl Shape {
    /// The guard's limit for the tiers below high.
    fn lower_limit(&self) -> u32 {
        self.guard_limit.saturating_sub(self.guard_reserve)
    }

    /// The most units that one request may cost. Requests of the tiers below high may not use the guard's reserve.
    pub fn largest_cost(&self, high: bool) -> u32 {
        self.capacity.min(if high { self.guard_limit } else { self.lower_limit() })
    }
}

#[cfg(test)]
mod tests;
