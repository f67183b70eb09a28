//! Requests that cost more than they were assumed to, at a limit whose units several processes share.
//!
//! The vendor counts such a request in full, whatever this process holds, so the guard does too. The units that the
//! process does not hold are owed to the pool: they are wanted from the store, also if nothing waits, until they have
//! come or the vendor counts them no longer. Otherwise the store would give them to other processes, which would use
//! them again.

use super::guard::Guard;
use super::holding::Holding;
use super::{Cell, LimitKind, LimitSpec, State, in_force};
use crate::time::Time;

impl Cell {
    /// Counts `more` units than a request was assumed to take. Whatever is stated, at most twice the whole limit
    /// counts: otherwise a vendor's mistake would stop the process for ever. Returns how long the units take to come back
    /// that lie beyond the whole limit, in nanoseconds: as long as the whole limit has the units, the process need only
    /// wait for the store.
    pub(super) fn overdraw(&mut self, spec: &LimitSpec, more: u32, now: Time) -> u64 {
        let LimitKind::Rate { bucket: whole, .. } = &spec.kind else { return 0 };
        let before = self.in_use(spec, now);
        let more = more.min(spec.total().saturating_mul(2).saturating_sub(before));
        let held = self.holding().map_or(0, |holding| holding.units);
        let of_held = more.min(held.saturating_sub(before));
        if let (State::Rate { guard, .. }, LimitKind::Rate { guard: mirrored, .. }) =
            (&mut self.state, &in_force(&self.beside, spec).kind)
        {
            if guard.is_none() {
                *guard = Guard::new(mirrored);
            }
            if let Some(guard) = guard {
                guard.owe(mirrored, now, more);
            }
        }
        let charged = self.charge(spec, more, now);
        if let Some(holding) = self.holding_mut() {
            holding.owe(more - of_held, more.saturating_sub(charged));
        }
        // Counted by the limit and not by the bucket, which holds less and has filled again since what was used first.
        let beyond = |used: u32| used.saturating_sub(spec.total());
        whole.nanos(beyond(before.saturating_add(more)) - beyond(before))
    }

    /// Takes units that were used already from the bucket. Returns how many it has taken: the bucket is as large as the
    /// part held, and at the rate of a small part, many units would take many windows to come back.
    pub(super) fn charge(&mut self, spec: &LimitSpec, units: u32, now: Time) -> u32 {
        match (&mut self.state, &in_force(&self.beside, spec).kind) {
            (State::Rate { bucket, .. }, LimitKind::Rate { bucket: shape, .. }) => bucket.owe(shape, now, units),
            _ => 0,
        }
    }

    /// Whether units are owed that the store may have: the process holds none, or was given all that it wanted last.
    pub(crate) fn owes_units(&self) -> bool {
        self.holding().is_some_and(|holding| holding.owed > 0 && (holding.units == 0 || holding.met))
    }
}

impl Holding {
    /// Adds `units` to those owed, of which the bucket lacks `uncharged`.
    fn owe(&mut self, units: u32, uncharged: u32) {
        self.owed = self.owed.saturating_add(units);
        self.uncharged = self.uncharged.saturating_add(uncharged).min(self.owed);
    }

    /// The units that are owed while `used` units count.
    pub(super) fn still_owed(&mut self, used: u32) -> u32 {
        self.owed = self.owed.min(used.saturating_sub(self.units));
        self.uncharged = self.uncharged.min(self.owed);
        self.owed
    }

    /// The store gives `more` units. Returns how many of them are to be taken from the bucket: those that were owed and
    /// that it has not been charged for.
    pub(super) fn pay(&mut self, more: u32) -> u32 {
        let before = self.uncharged;
        self.owed = self.owed.saturating_sub(more);
        self.uncharged = before.min(self.owed);
        before - self.uncharged
    }
}
