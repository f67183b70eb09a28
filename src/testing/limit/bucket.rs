//! Limits that count in buckets. Levels are in units times `per`, in nanoseconds, so that all arithmetic is exact.

use super::reading::{Reading, Refill};

#[derive(Clone, Debug)]
pub(super) struct Tokens {
    capacity: u32,
    rate: u32,
    per: u64,
    refill: Refill,
    /// The units left, times `per`.
    level: u128,
    /// The time up to which refills have been added.
    at: u64,
}

impl Tokens {
    pub(super) fn new(capacity: u32, rate: u32, per: u64, refill: Refill) -> Tokens {
        let refill = match refill {
            Refill::Lumps { interval_ns, phase_ns } => Refill::Lumps { interval_ns: interval_ns.max(1), phase_ns },
            steady => steady,
        };
        Tokens { capacity, rate, per, refill, level: u128::from(capacity) * u128::from(per), at: 0 }
    }

    fn full(&self) -> u128 {
        u128::from(self.capacity) * u128::from(self.per)
    }

    fn refill(&mut self, at: u64) {
        let refilled_for = match self.refill {
            Refill::Steady => u128::from(at - self.at),
            Refill::Lumps { interval_ns, phase_ns } => {
                let lumps = |t: u64| if t < phase_ns { 0 } else { 1 + (t - phase_ns) / interval_ns };
                u128::from(lumps(at) - lumps(self.at)) * u128::from(interval_ns)
            }
        };
        self.level = (self.level + refilled_for * u128::from(self.rate)).min(self.full());
        self.at = at;
    }

    /// When `missing` units (times `per`) will have been added.
    fn refilled_at(&self, missing: u128) -> u64 {
        let nanos = match self.refill {
            Refill::Steady => u128::from(self.at) + missing.div_ceil(u128::from(self.rate)),
            Refill::Lumps { interval_ns, phase_ns } => {
                let lumps = missing.div_ceil(u128::from(interval_ns) * u128::from(self.rate));
                if lumps == 0 {
                    u128::from(self.at)
                } else {
                    let next = match self.at.checked_sub(phase_ns) {
                        Some(since) => {
                            u128::from(phase_ns) + u128::from(since / interval_ns + 1) * u128::from(interval_ns)
                        }
                        None => u128::from(phase_ns),
                    };
                    next + (lumps - 1) * u128::from(interval_ns)
                }
            }
        };
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    pub(super) fn fits(&mut self, at: u64, cost: u32) -> bool {
        self.refill(at);
        u128::from(cost) * u128::from(self.per) <= self.level
    }

    pub(super) fn count(&mut self, at: u64, cost: u32) {
        self.refill(at);
        self.level = self.level.saturating_sub(u128::from(cost) * u128::from(self.per));
    }

    pub(super) fn reading(&mut self, at: u64) -> Reading {
        self.refill(at);
        let remaining = (self.level / u128::from(self.per)) as u32;
        Reading { limit: self.capacity, remaining, reset_at_ns: self.refilled_at(self.full() - self.level) }
    }

    pub(super) fn fits_at(&mut self, at: u64, cost: u32) -> Option<u64> {
        self.refill(at);
        let missing = (u128::from(cost) * u128::from(self.per)).saturating_sub(self.level);
        (cost <= self.capacity).then(|| self.refilled_at(missing))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Leaky {
    capacity: u32,
    rate: u32,
    per: u64,
    /// The units that have not drained yet, times `per`.
    content: u128,
    /// The time up to which units have drained.
    at: u64,
}

impl Leaky {
    pub(super) fn new(capacity: u32, rate: u32, per: u64) -> Leaky {
        Leaky { capacity, rate, per, content: 0, at: 0 }
    }

    fn brim(&self) -> u128 {
        u128::from(self.capacity) * u128::from(self.per)
    }

    fn drain(&mut self, at: u64) {
        self.content = self.content.saturating_sub(u128::from(at - self.at) * u128::from(self.rate));
        self.at = at;
    }

    fn drained_at(&self, too_much: u128) -> u64 {
        u64::try_from(u128::from(self.at) + too_much.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX)
    }

    pub(super) fn fits(&mut self, at: u64, cost: u32) -> bool {
        self.drain(at);
        self.content + u128::from(cost) * u128::from(self.per) <= self.brim()
    }

    pub(super) fn count(&mut self, at: u64, cost: u32) {
        self.drain(at);
        self.content = (self.content + u128::from(cost) * u128::from(self.per)).min(self.brim());
    }

    pub(super) fn reading(&mut self, at: u64) -> Reading {
        self.drain(at);
        let remaining = ((self.brim() - self.content) / u128::from(self.per)) as u32;
        Reading { limit: self.capacity, remaining, reset_at_ns: self.drained_at(self.content) }
    }

    pub(super) fn fits_at(&mut self, at: u64, cost: u32) -> Option<u64> {
        self.drain(at);
        let wanted = self.content + u128::from(cost) * u128::from(self.per);
        (cost <= self.capacity).then(|| self.drained_at(wanted.saturating_sub(self.brim())))
    }
}
