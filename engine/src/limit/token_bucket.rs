//! The token bucket that sets the pace of a rate limit, whatever algorithm the vendor counts by. The guard of a
//! vendor's own token bucket is in `vendor_bucket.rs`.
//!
//! The state is one number, the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371): the moment
//! at which the bucket is full again. `owed = full_at - now` is what was taken and has not come back; a request of `n`
//! units may be granted while `owed + n x interval <= capacity x interval`. A refusal changes nothing, so asking can
//! never drive a bucket below empty.
//!
//! Times are sixteenths of a nanosecond, so that a million units per second lose less than 0.01 % to rounding (always
//! towards the slower side). A `u64` of them lasts 36 years from the clock's origin.

use crate::time::Time;

const SUBDIVISION: u64 = 16;

/// Capacity and rate of a [`Bucket`]. Shared by every lane with the same limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketSpec {
    /// The most units that the bucket holds.
    pub(crate) capacity: u32,
    /// Sixteenths of a nanosecond for one unit to come back, rounded up.
    interval: u64,
    /// Units come back in groups at multiples of this many nanoseconds; 0 for steadily.
    release: u64,
}

impl BucketSpec {
    /// A bucket of `capacity` units that come back at `units` per `window_ns`, in groups every `release` ns unless that
    /// is 0.
    pub fn new(capacity: u32, units: f64, window_ns: u64, release: u64) -> BucketSpec {
        let interval = (window_ns as f64 * SUBDIVISION as f64 / units).ceil();
        // Float to integer casts saturate: a rate of next to nothing becomes "never again".
        BucketSpec { capacity: capacity.max(1), interval: (interval as u64).max(1), release }
    }

    /// Units that come back in a second.
    pub(crate) fn per_second(&self) -> f64 {
        1e9 * SUBDIVISION as f64 / self.interval as f64
    }

    /// The bucket of a process that holds `units` of the limit's `total`: that part of capacity and rate, and at least
    /// one unit.
    pub(crate) fn part(&self, (units, total): (u32, u32)) -> BucketSpec {
        let (units, total) = (u64::from(units.max(1)), u64::from(total.max(1)));
        let capacity = (u64::from(self.capacity) * units).div_ceil(total);
        let interval = (u128::from(self.interval) * u128::from(total)).div_ceil(u128::from(units));
        BucketSpec {
            capacity: u32::try_from(capacity).unwrap_or(u32::MAX).max(1),
            interval: u64::try_from(interval).unwrap_or(u64::MAX),
            release: self.release,
        }
    }

    fn span(&self, units: u32) -> u64 {
        self.interval.saturating_mul(units as u64)
    }

    /// How long it takes until `units` have come back, in nanoseconds.
    pub(super) fn nanos(&self, units: u32) -> u64 {
        self.span(units).div_ceil(SUBDIVISION)
    }

    /// `now` as the bucket counts it: rounded down to a multiple of the release interval, if there is one.
    fn ticks(&self, now: Time) -> u64 {
        let nanos = now.as_nanos();
        let nanos = if self.release > 0 { nanos - nanos % self.release } else { nanos };
        nanos.saturating_mul(SUBDIVISION)
    }

    fn time(&self, ticks: u64) -> Time {
        let nanos = ticks.div_ceil(SUBDIVISION);
        match self.release {
            0 => Time::from_nanos(nanos),
            release => Time::from_nanos(nanos.div_ceil(release).saturating_mul(release)),
        }
    }
}

/// The state of one bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// When the bucket is full again, in sixteenths of a nanosecond.
    full_at: u64,
}

impl Bucket {
    pub(crate) fn full() -> Bucket {
        Bucket { full_at: 0 }
    }

    pub(crate) fn empty(spec: &BucketSpec, now: Time) -> Bucket {
        Bucket { full_at: spec.ticks(now).saturating_add(spec.span(spec.capacity)) }
    }

    /// The first moment at which `units` fit. The caller has refused requests above the capacity, which never fit.
    #[inline]
    pub(crate) fn ready_at(&self, spec: &BucketSpec, units: u32) -> Time {
        let slack = spec.span(spec.capacity.saturating_sub(units));
        spec.time(self.full_at.saturating_sub(slack))
    }

    /// Whether `now` is not before [`ready_at`](Self::ready_at).
    #[inline]
    pub(crate) fn fits(&self, spec: &BucketSpec, now: Time, units: u32) -> bool {
        // The bucket's `now` is never later than `now`, and equal to it at the moments when units come back.
        self.full_at.saturating_sub(spec.span(spec.capacity.saturating_sub(units))) <= spec.ticks(now)
    }

    /// Takes `units` at `now`, which is not before [`ready_at`](Self::ready_at).
    #[inline]
    pub(crate) fn take(&mut self, spec: &BucketSpec, now: Time, units: u32) {
        self.full_at = self.full_at.max(spec.ticks(now)).saturating_add(spec.span(units));
    }

    /// Takes `units` that were used already, even if they are not there, down to one capacity below empty. Returns how
    /// many it has taken.
    pub(crate) fn owe(&mut self, spec: &BucketSpec, now: Time, units: u32) -> u32 {
        let before = self.full_at.max(spec.ticks(now));
        let most = Bucket::empty(spec, now).full_at.saturating_add(spec.span(spec.capacity));
        self.full_at = self.full_at.max(before.saturating_add(spec.span(units)).min(most));
        u32::try_from(self.full_at.saturating_sub(before) / spec.interval).unwrap_or(u32::MAX)
    }

    pub(crate) fn give_back(&mut self, spec: &BucketSpec, units: u32) {
        self.full_at = self.full_at.saturating_sub(spec.span(units));
    }

    /// Takes `units` that another process took at `at`, down to empty at `now` at most: the bucket refilled meanwhile,
    /// so more may have been taken than it holds.
    pub(crate) fn replay(&mut self, spec: &BucketSpec, now: Time, at: Time, units: u32) {
        let before = self.full_at;
        self.take(spec, at, units);
        self.full_at = self.full_at.min(Bucket::empty(spec, now).full_at.max(before));
    }

    pub(crate) fn is_full(&self, spec: &BucketSpec, now: Time) -> bool {
        self.full_at <= spec.ticks(now)
    }

    /// Whole units in the bucket.
    #[cfg(test)]
    pub(crate) fn level(&self, spec: &BucketSpec, now: Time) -> u32 {
        let owed = self.full_at.saturating_sub(spec.ticks(now)).div_ceil(spec.interval);
        spec.capacity.saturating_sub(u32::try_from(owed).unwrap_or(u32::MAX))
    }

    /// Adopts the bucket of another number of units held. Owed units stay owed, up to the capacity of the new bucket.
    pub(crate) fn resize(&mut self, old: &BucketSpec, new: &BucketSpec, now: Time) {
        let owed = u128::from(self.full_at.saturating_sub(old.ticks(now)));
        let owed = (owed * u128::from(new.interval)).div_ceil(u128::from(old.interval.max(1)));
        let owed = u64::try_from(owed).unwrap_or(u64::MAX).min(new.span(new.capacity));
        self.full_at = if owed == 0 { 0 } else { new.ticks(now).saturating_add(owed) };
    }

    /// Adopts another capacity and rate. Owed units stay owed, and nothing is credited: afterwards no more units fit
    /// than before, nor than the new bucket holds beside those owed. A full bucket, which owes nothing, stays full: a
    /// lane that was dropped while idle would begin with a full bucket too.
    pub(crate) fn change(&mut self, old: &BucketSpec, new: &BucketSpec, now: Time) {
        let owed_ticks = self.full_at.saturating_sub(old.ticks(now));
        if owed_ticks == 0 {
            *self = Bucket::full();
            return;
        }
        // In sixteenths of a nanosecond at the new rate, without rounding to whole units first.
        let at_new_rate = |ticks: u64| (ticks as u128 * new.interval as u128).div_ceil(old.interval as u128);
        let level_ticks = old.span(old.capacity).saturating_sub(owed_ticks);
        let level = (level_ticks as u128 * new.interval as u128) / old.interval as u128;
        let owed = at_new_rate(owed_ticks).max((new.span(new.capacity) as u128).saturating_sub(level));
        self.full_at = new.ticks(now).saturating_add(u64::try_from(owed).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn bucket_grants_capacity_then_rate() {
        let spec = BucketSpec::new(2, 10.0, SECOND, 0);
        let mut bucket = Bucket::full();
        for due in [0, 0, 1100, 1200] {
            let ready = bucket.ready_at(&spec, 1).max(ms(1000));
            assert_eq!(ready, ms(due).max(ms(1000)));
            bucket.take(&spec, ready, 1);
        }
    }

    #[test]
    fn bucket_never_exceeds_its_capacity() {
        let spec = BucketSpec::new(3, 10.0, SECOND, 0);
        let mut bucket = Bucket::empty(&spec, ms(0));
        assert_eq!(bucket.level(&spec, ms(0)), 0);
        assert_eq!(bucket.level(&spec, ms(250)), 2);
        assert_eq!(bucket.level(&spec, ms(9000)), 3);
        bucket.take(&spec, ms(9000), 1);
        assert_eq!(bucket.level(&spec, ms(9000)), 2);
        assert!(!bucket.is_full(&spec, ms(9099)) && bucket.is_full(&spec, ms(9100)));
        bucket.give_back(&spec, 1);
        assert!(bucket.is_full(&spec, ms(9000)));
        assert!((spec.per_second() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn time_that_goes_back_grants_nothing() {
        let spec = BucketSpec::new(1, 1.0, SECOND, 0);
        let mut bucket = Bucket::full();
        bucket.take(&spec, ms(5000), 1);
        assert_eq!(bucket.level(&spec, ms(1000)), 0);
        assert_eq!(bucket.ready_at(&spec, 1), ms(6000));
    }

    #[test]
    fn units_are_released_in_groups() {
        let spec = BucketSpec::new(20, 100.0, SECOND, 200_000_000);
        let mut bucket = Bucket::full();
        bucket.take(&spec, ms(1010), 20);
        assert_eq!(bucket.ready_at(&spec, 1), ms(1200));
        assert_eq!(bucket.ready_at(&spec, 20), ms(1200));
        bucket.take(&spec, ms(1230), 20);
        assert_eq!(bucket.ready_at(&spec, 20), ms(1400));
    }

    #[test]
    fn change_neither_forgives_nor_credits() {
        let small = BucketSpec::new(80, 80.0, SECOND, 0);
        let large = BucketSpec::new(160, 160.0, SECOND, 0);
        for (spent, from, to, expected) in [
            (80, &small, &large, 0),  // nothing was left: nothing is left
            (20, &small, &large, 60), // what was left stays, and grows at the new rate
            (0, &small, &large, 160), // nothing is owed
            (80, &large, &small, 0),  // 80 are owed: a bucket of 80 is empty
            (20, &large, &small, 60), // 20 are owed: 60 are left
        ] {
            let mut bucket = Bucket::full();
            bucket.take(from, ms(1000), spent);
            bucket.change(from, to, ms(1000));
            assert_eq!(bucket.level(to, ms(1000)), expected, "{spent} spent");
        }
    }

    #[test]
    fn units_fit_exactly_when_ready() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let release = [0, 1, 7, 1_000, SECOND][random.usize(..5)];
            let spec = BucketSpec::new(random.u32(1..50), random.f64() * 1e4 + 0.1, random.u64(1..2 * SECOND), release);
            let bucket = Bucket { full_at: random.u64(0..100 * SECOND) };
            let units = random.u32(1..=spec.capacity);
            let ready = bucket.ready_at(&spec, units);
            assert!(bucket.fits(&spec, ready, units));
            assert!(ready == Time::ZERO || !bucket.fits(&spec, ready.minus_nanos(1), units));
        }
    }
}
