//! A limit's figures, as the engine enforces them.

use std::sync::Arc;

use super::calendar::Calendar;
use super::guard::GuardSpec;
use super::token_bucket::BucketSpec;
use crate::cost::{Cost, Measure};
use crate::pace::Pace;

/// A limit as the engine enforces it. Immutable; shared by every lane with the same limit.
#[derive(Clone, PartialEq, Debug)]
pub struct LimitSpec {
    pub name: Arc<str>,
    pub kind: LimitKind,
    pub measure: Measure,
    /// Whether the bucket starts empty if nothing is known about past use.
    pub starts_spent: bool,
    pub pace: Pace,
    /// When the limit's windows end, if they end by a calendar. The guard is then a log of fixed windows.
    pub calendar: Option<Calendar>,
    /// Set if several processes share the limit's units, so that this process uses only those that it holds.
    pub pooled: Option<Pooled>,
}

/// How processes share a limit's units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pooled {
    /// The longest that a request takes until its slot is free, in nanoseconds.
    pub lasts_ns: u64,
    /// The units with which a process goes on when its lease has ended and the store does not answer.
    pub floor: Option<FloorPart>,
}

/// The part of a limit that processes hold under a longer lease than the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloorPart {
    /// The share of all processes together, in millionths of the limit.
    pub millionths: u32,
    /// The number of processes that divide it.
    pub processes: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LimitKind {
    Rate { bucket: BucketSpec, guard: GuardSpec },
    Slots { limit: u32 },
}

impl LimitSpec {
    /// Whether a cell of this limit begins with all units used.
    pub(crate) fn counts_as_used_up(&self) -> bool {
        self.starts_spent && self.pooled.is_none()
    }

    /// Whether this is a rate, and not a number of slots.
    pub(crate) fn is_rate(&self) -> bool {
        matches!(self.kind, LimitKind::Rate { .. })
    }

    #[inline]
    pub(crate) fn units(&self, cost: Cost) -> u32 {
        self.measure.units(cost)
    }

    /// Whether the vendor counts in windows of this many units that begin at times of its own.
    pub(crate) fn counts_windows_of(&self, units: u64) -> bool {
        matches!(&self.kind, LimitKind::Rate { guard, .. } if guard.counts_windows_of(units))
    }

    /// The most units that one request of a tier can take.
    pub(crate) fn largest(&self, high: bool) -> u32 {
        match self.kind {
            LimitKind::Rate { bucket, guard } => {
                bucket.capacity.min(guard.limit() - if high { 0 } else { guard.reserve().min(guard.limit()) })
            }
            LimitKind::Slots { limit } => limit,
        }
    }

    /// The longest time that a request takes to arrive, in nanoseconds, if units are counted from its start.
    pub(crate) fn transit_ns(&self) -> Option<u64> {
        match &self.kind {
            LimitKind::Rate { guard: GuardSpec::Off, .. } | LimitKind::Slots { .. } => None,
            LimitKind::Rate { guard, .. } => Some(guard.counts_for().1),
        }
    }

    /// Units that only the high tier may use, until it has used as many.
    pub(super) fn reserve(&self) -> u32 {
        match &self.kind {
            LimitKind::Rate { guard, .. } => guard.reserve(),
            LimitKind::Slots { .. } => 0,
        }
    }

    /// The stricter of two configurations of a limit that several tenants share: the one with the lower rate, or fewer
    /// slots. Of equal rates, it is the one with fewer units. A calendar's bucket refills at once, so its rate is that of
    /// the limit's figure in its window.
    pub(crate) fn stricter(&self, other: &LimitSpec) -> LimitSpec {
        let allowed = |spec: &LimitSpec| match spec.kind {
            LimitKind::Rate { guard, .. } if spec.calendar.is_some() => (1e9 / spec.pace.unit_ns as f64, guard.limit()),
            LimitKind::Rate { bucket, guard } => (bucket.per_second(), guard.limit()),
            LimitKind::Slots { limit } => (limit as f64, limit),
        };
        if allowed(other) < allowed(self) { other.clone() } else { self.clone() }
    }
}
