//! The guard of a rate limit: a copy of the vendor's own counting, at the vendor's own figure.

use super::free::Free;
use super::vendor_bucket::{VendorBucket, VendorBucketSpec};
use super::window_counter::{CounterSpec, WindowCounter};
use super::window_log::{LogSpec, WindowLog};
use crate::time::Time;

/// The vendor's algorithm and figures. Immutable; shared by every lane with the same limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum GuardSpec {
    /// Windows at any phase, fixed or sliding.
    Log(LogSpec),
    /// Two fixed windows, the older one weighted.
    Counter(CounterSpec),
    /// A token bucket or a leaky one.
    Bucket(VendorBucketSpec),
    /// No guard; used only to show what guards prevent.
    Off,
}

impl GuardSpec {
    /// The most units that count at once.
    pub(crate) fn limit(&self) -> u32 {
        match self {
            GuardSpec::Log(spec) => spec.limit,
            GuardSpec::Counter(spec) => spec.limit,
            GuardSpec::Bucket(spec) => spec.capacity,
            GuardSpec::Off => u32::MAX,
        }
    }

    /// Units of the limit that only the high tier may use, until it has used as many.
    pub(crate) fn reserve(&self) -> u32 {
        match self {
            GuardSpec::Log(spec) => spec.reserve,
            GuardSpec::Counter(spec) => spec.reserve,
            GuardSpec::Bucket(spec) => spec.reserve,
            GuardSpec::Off => 0,
        }
    }
}

impl GuardSpec {
    /// The guard of a process that holds `units` of the limit's `total`. `units` is at least 1.
    pub(super) fn part(&self, (units, total): (u32, u32)) -> GuardSpec {
        let reserve = u64::from(self.reserve()) * u64::from(units) / u64::from(total.max(1));
        let reserve = u32::try_from(reserve).unwrap_or(u32::MAX);
        match *self {
            GuardSpec::Log(spec) => GuardSpec::Log(spec.part(units, reserve)),
            GuardSpec::Counter(spec) => GuardSpec::Counter(CounterSpec { limit: units, reserve, ..spec }),
            GuardSpec::Bucket(spec) => GuardSpec::Bucket(spec.part(units, reserve)),
            GuardSpec::Off => GuardSpec::Off,
        }
    }

    /// How long a unit counts after its request has arrived, and the longest time that a request takes to arrive, in
    /// nanoseconds.
    pub(super) fn counts_for(&self) -> (u64, u64) {
        match self {
            GuardSpec::Log(spec) => (spec.window, spec.transit),
            // A unit counts for nearly two windows, and its end is rounded up to a slot.
            GuardSpec::Counter(spec) => (spec.window.saturating_mul(2).saturating_add(spec.slot), spec.transit),
            GuardSpec::Bucket(spec) => spec.counts_for(),
            GuardSpec::Off => (0, 0),
        }
    }

    /// Whether the vendor counts in fixed windows of this many units.
    pub(crate) fn counts_windows_of(&self, units: u64) -> bool {
        match self {
            GuardSpec::Log(spec) => spec.fixed && u64::from(spec.limit) == units,
            GuardSpec::Counter(spec) => u64::from(spec.published) == units,
            GuardSpec::Bucket(_) | GuardSpec::Off => false,
        }
    }
}

/// What one request of a tier took, and when it was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) granted: Time,
    pub(super) units: u32,
    pub(super) high: bool,
}

/// The state of one guard. Made with the first request, and dropped when nothing counts in it.
#[derive(Clone, Debug)]
pub(super) enum Guard {
    Log(Box<WindowLog>),
    Counter(Box<WindowCounter>),
    Bucket(Box<VendorBucket>),
}

/// Evaluates `$then` with the state and its own specification. A plan never pairs a guard with the specification of
/// another kind, because [`Guard::change`] replaces the guard.
macro_rules! paired {
    ($guard:expr, $spec:expr, ($state:ident, $own:ident) => $then:expr, else $other:expr) => {
        match ($guard, $spec) {
            (Guard::Log($state), GuardSpec::Log($own)) => $then,
            (Guard::Counter($state), GuardSpec::Counter($own)) => $then,
            (Guard::Bucket($state), GuardSpec::Bucket($own)) => $then,
            _ => $other,
        }
    };
}

impl Guard {
    #[cold]
    pub(super) fn new(spec: &GuardSpec) -> Option<Guard> {
        match spec {
            GuardSpec::Log(spec) => Some(Guard::Log(WindowLog::boxed(spec))),
            GuardSpec::Counter(spec) => Some(Guard::Counter(Box::new(WindowCounter::new(spec)))),
            GuardSpec::Bucket(spec) => Some(Guard::Bucket(Box::new(VendorBucket::new(spec)))),
            GuardSpec::Off => None,
        }
    }

    #[inline(always)]
    pub(super) fn has_room(&mut self, spec: &GuardSpec, now: Time, units: u32, high: bool) -> bool {
        paired!(self, spec, (state, own) => state.has_room(own, now, units, high), else true)
    }

    /// When `units` fit.
    #[inline]
    pub(super) fn free(&mut self, spec: &GuardSpec, now: Time, units: u32, high: bool) -> Free {
        match (self, spec) {
            (Guard::Log(log), GuardSpec::Log(spec)) => {
                log.advance(spec, now);
                log.free(spec, now, units, high)
            }
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.free(spec, now, units, high),
            (Guard::Bucket(bucket), GuardSpec::Bucket(spec)) => {
                bucket.advance(spec, now);
                bucket.free(spec, now, units, high)
            }
            _ => Free::Now,
        }
    }

    /// Whether `units` of a lower tier would fit if the high tier had no reserve. Call after [`free`](Self::free).
    pub(super) fn only_reserve_lacks(&mut self, spec: &GuardSpec, now: Time, units: u32) -> bool {
        match (self, spec) {
            (Guard::Log(log), GuardSpec::Log(spec)) => log.only_reserve_lacks(spec, units),
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.only_reserve_lacks(spec, now, units),
            (Guard::Bucket(bucket), GuardSpec::Bucket(spec)) => bucket.only_reserve_lacks(spec, now, units),
            _ => false,
        }
    }

    #[inline(always)]
    pub(super) fn take(&mut self, spec: &GuardSpec, taken: Taken) {
        let Taken { granted, units, high } = taken;
        paired!(self, spec, (state, own) => state.take(own, granted, units, high), else ());
    }

    /// Moves a request to `now`, because its exchange starts later than its grant.
    pub(super) fn restart(&mut self, spec: &GuardSpec, now: Time, taken: Taken) {
        let Taken { granted, units, high } = taken;
        paired!(self, spec, (state, own) => {
            state.advance(own, now);
            state.restart(own, now, granted, units, high);
        }, else ());
    }

    /// The vendor has responded, or the exchange has failed.
    #[inline(always)]
    pub(super) fn end(&mut self, spec: &GuardSpec, now: Time, taken: Taken) {
        let Taken { granted, units, high } = taken;
        paired!(self, spec, (state, own) => state.end(own, now, granted, units, high), else ());
    }

    /// Removes a request that was never sent.
    pub(super) fn give_back(&mut self, spec: &GuardSpec, now: Time, taken: Taken) {
        let Taken { granted, units, high } = taken;
        match (self, spec) {
            (Guard::Log(log), GuardSpec::Log(spec)) => {
                log.advance(spec, now);
                log.give_back(granted, units, high);
            }
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.give_back(spec, now, granted, units, high),
            (Guard::Bucket(bucket), GuardSpec::Bucket(spec)) => bucket.give_back(spec, now, granted, units, high),
            _ => {}
        }
    }

    /// Removes `units` of a request, because the vendor states that it did not count them: also if the transit time has
    /// passed. Call before the request's end.
    pub(super) fn refund(&mut self, spec: &GuardSpec, now: Time, taken: Taken) {
        let Taken { granted, units, high } = taken;
        paired!(self, spec, (state, own) => state.refund(own, now, granted, units, high), else ());
    }

    /// Counts a request of another process, which ended when it was granted. It may be older than requests already
    /// counted.
    pub(super) fn replay(&mut self, spec: &GuardSpec, now: Time, taken: Taken) {
        let Taken { granted, units, high } = taken;
        paired!(self, spec, (state, own) => state.replay(own, now, granted, units, high), else ());
    }

    /// Counts `units` more, because the vendor counted more than the guard did.
    pub(super) fn owe(&mut self, spec: &GuardSpec, now: Time, units: u32) {
        paired!(self, spec, (state, own) => state.owe(own, now, units), else ());
    }

    /// Notes that one of the vendor's windows ends between `from` and `to`.
    pub(super) fn window_ends(&mut self, spec: &GuardSpec, now: Time, from: Time, to: Time) {
        match (self, spec) {
            (Guard::Log(log), GuardSpec::Log(spec)) if spec.fixed => log.ends(spec, now, from, to),
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.begins(spec, from, to),
            _ => {}
        }
    }

    /// Whether nothing counts any more, so that the guard equals a new one.
    pub(super) fn rests(&mut self, spec: &GuardSpec, now: Time) -> bool {
        paired!(&mut *self, spec, (state, own) => state.advance(own, now), else ());
        match (&*self, spec) {
            (Guard::Log(log), GuardSpec::Log(spec)) => log.rests(spec, now),
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.rests(spec, now),
            (Guard::Bucket(bucket), _) => bucket.is_empty(now),
            _ => true,
        }
    }

    /// Units that count now, including requests in flight.
    #[inline(always)]
    pub(super) fn units(&mut self, spec: &GuardSpec, now: Time) -> u32 {
        paired!(&mut *self, spec, (state, own) => state.advance(own, now), else ());
        match (self, spec) {
            (Guard::Log(log), _) => log.units(),
            (Guard::Counter(counter), GuardSpec::Counter(spec)) => counter.units(spec, now),
            (Guard::Bucket(bucket), GuardSpec::Bucket(spec)) => bucket.units(spec, now),
            _ => 0,
        }
    }

    /// Units of requests in flight.
    pub(super) fn under_way(&self) -> u32 {
        match self {
            Guard::Log(log) => log.under_way(),
            Guard::Counter(counter) => counter.under_way(),
            Guard::Bucket(bucket) => bucket.under_way(),
        }
    }

    /// Units of requests that are in flight or ended after `since`; `None` if that is not known.
    pub(super) fn units_since(&self, since: Time) -> Option<u32> {
        match self {
            Guard::Log(log) => Some(log.units_since(since)),
            Guard::Counter(counter) => Some(counter.units_since(since)),
            Guard::Bucket(_) => None,
        }
    }

    /// Adopts a changed limit: used units stay used. Returns a guard to replace this one if the kind of limit has
    /// changed.
    pub(super) fn change(&mut self, old: &GuardSpec, new: &GuardSpec, now: Time) -> Option<Guard> {
        match (&mut *self, old, new) {
            // Requests whose old transit time has passed are counted by it before the new one applies.
            (Guard::Log(log), GuardSpec::Log(old), GuardSpec::Log(new)) => {
                log.advance(old, now);
                log.change(old, new, now);
                None
            }
            (Guard::Counter(counter), GuardSpec::Counter(old), GuardSpec::Counter(new)) => {
                counter.advance(old, now);
                counter.change(old, new);
                None
            }
            (Guard::Bucket(bucket), GuardSpec::Bucket(old), GuardSpec::Bucket(new)) => {
                bucket.advance(old, now);
                bucket.change(old, new, now);
                None
            }
            _ => {
                // When the requests in flight arrive is unknown, so all units count as if they were in flight from now
                // on.
                let units = self.units(old, now);
                let mut other = Guard::new(new)?;
                other.take(new, Taken { granted: now, units, high: false });
                Some(other)
            }
        }
    }
}
