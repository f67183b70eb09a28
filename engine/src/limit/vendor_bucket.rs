//! The guard of a limit that the vendor counts by a token bucket or a leaky bucket: the least that can be in the
//! vendor's bucket.
//!
//! A request takes units from the guard when it is granted, and from the vendor's bucket when it arrives, at an unknown
//! moment. While it is in flight, the vendor's bucket may be full and gain nothing, so the guard never rises above
//! `capacity - in flight` either. Let `M` be the units in the guard, `V` those in the vendor's bucket, and `I` the
//! units that were granted and have not arrived. Then `M <= V - I` holds at every moment: a grant moves a unit from `M`
//! to `I`, an arrival takes one from `V` and from `I`, and `V` refills at least as fast as `M`. So every request that
//! is granted while `M` has room finds room when it arrives.
//!
//! Clocks drift, so the guard refills at 0.999 of the rate (50 ppm are 18 units an hour at 100 a second), and counts no
//! unit as back before a tick of 1 ms is over. A vendor that refills in lumps is at most one lump behind a steady one,
//! so its guard is smaller by one lump.
//!
//! If the vendor states after the transit time that a request cost less, the guard is raised to what it would be had
//! it taken less at once. The difference between the two stays the same until the guard that took less is full: from
//! then on the other one catches up. So no more is given back than the guard has lacked at each moment since the
//! transit time passed.

#[cfg(test)]
mod tests;

use super::free::Free;
use super::lost::Lost;
use super::transit::{Entry, Transit};
use crate::time::Time;

/// Times are in sixteenths of a nanosecond, as in the shape.
const SUBDIVISION: u64 = 16;
/// The longest tick of a vendor's clock.
const TICK: u64 = 1_000_000 * SUBDIVISION;
/// The guard's refill rate, as a share of the vendor's.
const SLOWER: f64 = 0.999;

/// What a [`VendorBucket`] copies of the vendor's bucket.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VendorBucketSpec {
    /// Units that are certainly there when the vendor's bucket is full.
    pub(crate) capacity: u32,
    /// Units of `capacity` that only the high tier may use, until it has used as many.
    pub(crate) reserve: u32,
    /// Sixteenths of a nanosecond for one unit to come back.
    interval: u64,
    transit: u64,
}

impl VendorBucketSpec {
    /// A bucket of `capacity` units that come back at `units` per `window_ns`.
    pub fn new(capacity: u32, reserve: u32, units: f64, window_ns: u64, transit: u64) -> VendorBucketSpec {
        let capacity = capacity.max(1);
        let interval = (window_ns as f64 * SUBDIVISION as f64 / (units * SLOWER)).ceil();
        VendorBucketSpec { capacity, reserve: reserve.min(capacity), interval: (interval as u64).max(1), transit }
    }

    /// The guard of a process that holds `units` of the vendor's bucket: that capacity, and the same part of the rate.
    pub(super) fn part(&self, units: u32, reserve: u32) -> VendorBucketSpec {
        let (whole, units) = (u128::from(self.capacity), units.max(1));
        let interval = (u128::from(self.interval) * whole).div_ceil(u128::from(units));
        let interval = u64::try_from(interval).unwrap_or(u64::MAX);
        VendorBucketSpec { capacity: units, reserve: reserve.min(units), interval, transit: self.transit }
    }

    /// How long an empty bucket takes to fill, and the longest time that a request takes to arrive, in nanoseconds.
    pub(super) fn counts_for(&self) -> (u64, u64) {
        ((self.span(self.capacity).saturating_add(TICK)).div_ceil(SUBDIVISION), self.transit)
    }

    fn span(&self, units: u32) -> u64 {
        self.interval.saturating_mul(units.into())
    }

    /// The share of the rate at which the reserve refills.
    fn reserve_share(&self) -> f64 {
        f64::from(self.reserve) / f64::from(self.capacity)
    }
}

fn ticks(nanos: u64) -> u64 {
    nanos.saturating_mul(SUBDIVISION)
}

/// The state of one guard.
#[derive(Clone, Debug)]
pub(crate) struct VendorBucket {
    /// When the guard would be full if nothing were in flight, in sixteenths of a nanosecond.
    full_at: u64,
    /// When the guard was last full: units that come back from then on count one tick late.
    full_until: u64,
    /// Like `full_at`, for the units that the high tier took of its reserve.
    reserve_full_at: u64,
    transit: Transit,
    /// Each slot is marked with the least that the guard has lacked from its loss to the loss of the next slot, in
    /// sixteenths of a nanosecond.
    lost: Lost,
}

impl VendorBucket {
    pub(crate) fn new(spec: &VendorBucketSpec) -> VendorBucket {
        let transit = Transit::new(spec.transit);
        VendorBucket { full_at: 0, full_until: 0, reserve_full_at: 0, transit, lost: Lost::default() }
    }

    /// While units are in flight, the guard lacks at least as many. Must be called before any change.
    fn settle_down(&mut self, spec: &VendorBucketSpec, now: u64) {
        self.lack(spec, now, self.transit.units);
    }

    /// Notes at `now` that the guard lacks at least the units in flight.
    #[inline]
    fn lack(&mut self, spec: &VendorBucketSpec, now: u64, under_way: u32) {
        let least = now.saturating_add(spec.span(under_way));
        if self.full_at <= least {
            (self.full_at, self.full_until) = (least, now);
            self.lost.clear();
        } else {
            self.lost.lower_newest(self.full_at - least);
        }
    }

    fn debit(&mut self, spec: &VendorBucketSpec, now: u64, units: u32) {
        self.settle_down(spec, now);
        self.full_at = self.full_at.saturating_add(spec.span(units));
    }

    /// Takes `units` of the high tier from its reserve, as far as the reserve has them.
    fn debit_reserve(&mut self, spec: &VendorBucketSpec, now: u64, units: u32) {
        if spec.reserve > 0 {
            let whole = spec.span(spec.reserve) as f64 / spec.reserve_share();
            let taken = (spec.span(units) as f64 / spec.reserve_share()) as u64;
            let full_at = self.reserve_full_at.max(now).saturating_add(taken);
            self.reserve_full_at = full_at.min(now.saturating_add(whole as u64));
        }
    }

    /// Ends requests whose transit time has passed. Must be called before any other change at `now`.
    #[inline]
    pub(crate) fn advance(&mut self, spec: &VendorBucketSpec, now: Time) {
        while let Some(lost) = self.lose(spec, now) {
            // These units were in flight until then.
            self.lack(spec, ticks(lost.at), self.transit.units + lost.units);
            self.lost.note(self.transit.before_loss(spec.transit, lost), u64::MAX);
        }
    }

    fn lose(&mut self, spec: &VendorBucketSpec, now: Time) -> Option<Entry> {
        self.transit.lose(spec.transit, now)
    }

    /// Units held back for the high tier, in sixteenths of a nanosecond.
    fn held_back(&self, spec: &VendorBucketSpec, now: u64, high: bool) -> u64 {
        if high || spec.reserve == 0 {
            return 0;
        }
        let owed = self.reserve_full_at.saturating_sub(now) as f64 * spec.reserve_share();
        spec.span(spec.reserve).saturating_sub(owed as u64)
    }

    /// When the guard has room for `units`, judged by its state at `now`.
    fn ready_at(&self, spec: &VendorBucketSpec, now: u64, units: u32, high: bool) -> u64 {
        let slack = spec.span(spec.capacity.saturating_sub(units));
        let after_refill = |ready: u64| if ready > self.full_until { ready.saturating_add(TICK) } else { ready };
        let without = after_refill(self.full_at.saturating_sub(slack));
        if high || spec.reserve == 0 {
            return without;
        }
        let held = self.held_back(spec, now, high);
        // The reserve and the bucket refill at the same time, so their common lack shrinks at the difference of their
        // rates until the reserve is full.
        let lacking = (self.full_at.max(now) - now).saturating_add(held).saturating_sub(slack);
        // Float to integer casts saturate: at a rate of zero, the units never fit.
        let soon = (lacking as f64 / (1.0 - spec.reserve_share())).ceil() as u64;
        let with = if now.saturating_add(soon) <= self.reserve_full_at {
            now.saturating_add(soon)
        } else {
            self.full_at.saturating_add(spec.span(spec.reserve)).saturating_sub(slack)
        };
        without.max(if lacking == 0 { now } else { after_refill(with) })
    }

    fn blocked_by_transit(&self, spec: &VendorBucketSpec, now: u64, units: u32, high: bool) -> bool {
        let held = self.held_back(spec, now, high);
        let under_way = spec.span(self.transit.units).saturating_add(spec.span(units));
        under_way.saturating_add(held) > spec.span(spec.capacity)
    }

    #[inline(never)]
    pub(crate) fn has_room(&mut self, spec: &VendorBucketSpec, now: Time, units: u32, high: bool) -> bool {
        self.advance(spec, now);
        self.free(spec, now, units, high) == Free::Now
    }

    /// When `units` fit.
    pub(crate) fn free(&self, spec: &VendorBucketSpec, now: Time, units: u32, high: bool) -> Free {
        let now_ticks = ticks(now.as_nanos());
        let ready = self.ready_at(spec, now_ticks, units, high);
        let ready_ns = Time::from_nanos(ready.div_ceil(SUBDIVISION));
        if self.blocked_by_transit(spec, now_ticks, units, high) {
            // Every request in flight ends at its transit time at the latest, and then its units come back.
            let back =
                self.transit.all_lost_at(spec.transit).saturating_add(spec.span(spec.capacity).div_ceil(SUBDIVISION));
            let latest = Time::from_nanos(back.saturating_add(TICK / SUBDIVISION)).max(ready_ns);
            return Free::OnSettle(latest);
        }
        if ready <= now_ticks { Free::Now } else { Free::At(ready_ns) }
    }

    pub(crate) fn only_reserve_lacks(&self, spec: &VendorBucketSpec, now: Time, units: u32) -> bool {
        self.free(spec, now, units, true) == Free::Now
    }

    /// Counts a request of `units` granted at `now`.
    #[inline(never)]
    pub(crate) fn take(&mut self, spec: &VendorBucketSpec, now: Time, units: u32, high: bool) {
        let now_ticks = ticks(now.as_nanos());
        self.debit(spec, now_ticks, units);
        if high {
            self.debit_reserve(spec, now_ticks, units);
        }
        self.transit.take(now, units, high);
    }

    /// Ends a request granted at `granted`, because it was answered or failed at `now`.
    #[inline(never)]
    pub(crate) fn end(&mut self, spec: &VendorBucketSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        self.settle_down(spec, ticks(now.as_nanos()));
        self.transit.leave(granted, units, high);
    }

    /// Moves a request granted at `granted` to `now`, when it has started: its transit time begins there.
    pub(crate) fn restart(&mut self, spec: &VendorBucketSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        if self.transit.is_same_slot(granted, now) {
            return;
        }
        self.settle_down(spec, ticks(now.as_nanos()));
        if !self.transit.leave(granted, units, high) {
            // Its transit time passed before the start, and it was counted as taken: it is taken once more.
            self.debit(spec, ticks(now.as_nanos()), units);
        }
        self.transit.take(now, units, high);
    }

    /// Removes a request granted at `granted` that was never sent.
    pub(crate) fn give_back(&mut self, spec: &VendorBucketSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        self.settle_down(spec, ticks(now.as_nanos()));
        if self.transit.leave(granted, units, high) {
            self.full_at = self.full_at.saturating_sub(spec.span(units));
        }
    }

    /// Removes `units` of a request granted at `granted`, because the vendor states that it did not count them. Call
    /// before the request's end.
    pub(crate) fn refund(&mut self, spec: &VendorBucketSpec, now: Time, granted: Time, units: u32, high: bool) {
        self.advance(spec, now);
        self.settle_down(spec, ticks(now.as_nanos()));
        let span = spec.span(units);
        let back = match self.transit.leave(granted, units, high) {
            true => span,
            false => self.lost.leave_lowest(self.transit.width, granted, units, high, span),
        };
        self.full_at = self.full_at.saturating_sub(back);
    }

    /// Counts `units` more, because a request took more than expected.
    pub(crate) fn owe(&mut self, spec: &VendorBucketSpec, now: Time, units: u32) {
        self.debit(spec, ticks(now.as_nanos()), units);
    }

    /// Counts `units` that another process was granted and that arrived at `at`. They empty the bucket at most, because
    /// the vendor's own bucket cannot hold less than nothing.
    #[cold]
    pub(crate) fn replay(&mut self, spec: &VendorBucketSpec, now: Time, at: Time, units: u32, high: bool) {
        self.advance(spec, now);
        // What was lacking when these units arrived is not known.
        self.lost.clear();
        let (now, at) = (ticks(now.as_nanos()), ticks(at.min(now).as_nanos()));
        let (before, reserve_before) = (self.full_at, self.reserve_full_at);
        self.debit(spec, at, units);
        let empty = now.saturating_add(spec.span(spec.capacity.saturating_add(self.transit.units)));
        self.full_at = self.full_at.min(empty.max(before));
        if high {
            self.debit_reserve(spec, at, units);
            self.reserve_full_at = self.reserve_full_at.max(reserve_before);
        }
    }

    /// Whether no taken unit is missing any more.
    pub(crate) fn is_empty(&self, now: Time) -> bool {
        let now = ticks(now.as_nanos());
        self.transit.units == 0 && self.full_at.saturating_add(TICK) <= now && self.reserve_full_at <= now
    }

    /// Missing units, including those in flight.
    pub(crate) fn units(&self, spec: &VendorBucketSpec, now: Time) -> u32 {
        let missing = self.full_at.saturating_sub(ticks(now.as_nanos())).div_ceil(spec.interval);
        u32::try_from(missing).unwrap_or(u32::MAX).max(self.transit.units)
    }

    /// Units in flight.
    pub(crate) fn under_way(&self) -> u32 {
        self.transit.units
    }

    /// Adopts another capacity and rate: missing units stay missing.
    pub(crate) fn change(&mut self, old: &VendorBucketSpec, new: &VendorBucketSpec, now: Time) {
        let now_ticks = ticks(now.as_nanos());
        self.settle_down(old, now_ticks);
        let missing = self.full_at.saturating_sub(now_ticks).div_ceil(old.interval);
        self.full_at = now_ticks.saturating_add(new.interval.saturating_mul(missing));
        if old.interval != new.interval {
            self.lost.change_marks(|lacked| (lacked / old.interval).saturating_mul(new.interval));
        }
        self.reserve_full_at = 0;
    }
}
