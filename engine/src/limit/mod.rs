//! A limit: a rate or a number of slots. A rate has a shape (a token bucket that spends the budget evenly) and a guard
//! (a copy of the vendor's own counting, at the vendor's own figure).
//!
//! The shape alone is not safe: a bucket of 80 that refills 80 a minute lets 159 requests into one of the vendor's
//! minutes. The guard alone is safe, but grants a whole window's requests at once and then none until the window ends.

mod calendar;
pub(crate) mod free;
mod full;
pub mod guard;
mod holding;
mod lost;
mod lower;
mod overdraft;
mod pooled_cell;
mod reserve;
mod slots;
pub(crate) mod spec;
mod take;
#[cfg(test)]
mod tests;
mod throttled;
pub mod token_bucket;
mod transit;
pub mod vendor_bucket;
pub mod window_counter;
mod window_end;
pub mod window_log;

use super::cost::Cost;
use super::throttle::Throttle;
use crate::time::Time;
pub use calendar::Calendar;
pub use free::BlockedBy;
pub(crate) use free::{Free, Room};
use guard::{Guard, Taken};
use holding::Holding;
pub use holding::{Figures, Floor, Got, Wish};
pub use spec::{FloorPart, LimitKind, LimitSpec, Pooled};
pub use take::{PriorUse, Take};
use token_bucket::Bucket;

/// The state of one limit for one holder: a lane, an account or a vendor.
#[derive(Clone, Debug)]
pub struct Cell {
    state: State,
    /// State that only few limits need, boxed so that it does not enlarge every cell.
    beside: Option<Box<Beside>>,
    /// The holder's plan version from which on this limit exists: earlier grants are not counted here. 0 for slots,
    /// which count everything in flight at the holder, even if it is older than the limit.
    pub(crate) since: u32,
}

/// State that only few limits need.
#[derive(Clone, Debug, Default)]
struct Beside {
    /// What the vendor's responses have changed.
    throttle: Option<Box<Throttle>>,
    /// The units that this process holds of a limit that several processes share.
    holding: Option<Box<Holding>>,
}

#[derive(Clone, Debug)]
enum State {
    Rate {
        bucket: Bucket,
        guard: Option<Guard>,
    },
    Slots {
        used: u32,
        /// Grants nothing yet: a change of the configuration is in progress, and not all requests in flight are
        /// counted.
        gathers: bool,
    },
}

/// Subtracts one from a count of what is in flight. If the count is zero, an end was reported to a limit from which
/// nothing was taken: a debug build panics, and a release build keeps the zero.
#[inline(always)]
pub(crate) fn one_less(count: &mut u32) {
    match count.checked_sub(1) {
        Some(left) => *count = left,
        None => debug_assert!(false, "an end that nothing was taken for"),
    }
}

impl Cell {
    /// A limit of which nothing is used. For slots, the holder sets how many are taken
    /// ([`set_slots`](Self::set_slots)).
    pub(crate) fn new(spec: &LimitSpec, now: Time, since: u32) -> Cell {
        let beside = Beside::of(spec);
        match &spec.kind {
            LimitKind::Rate { bucket, .. } => {
                let bucket = if spec.counts_as_used_up() { Bucket::empty(bucket, now) } else { Bucket::full() };
                Cell { state: State::Rate { bucket, guard: None }, beside, since }
            }
            LimitKind::Slots { .. } => Cell { state: State::Slots { used: 0, gathers: false }, beside, since: 0 },
        }
    }

    /// Whether a request fits: [`room`](Self::room) without the reasons.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, spec: &LimitSpec, now: Time, cost: Cost, high: bool) -> bool {
        let units = spec.units(cost);
        if self.is_pooled() && self.held_room(spec, now, units).is_some() {
            return false;
        }
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                let fits = guard.as_mut().is_none_or(|guard| guard.has_room(mirrored, now, units, high));
                fits && bucket.fits(shape, now, units)
            }
            (State::Slots { used, gathers }, LimitKind::Slots { limit }) => *used < *limit && !*gathers,
            _ => true,
        }
    }

    /// Whether a request fits, and if not, until when. The later of bucket and guard decides. Notes at a pooled limit
    /// that a request was stopped.
    #[inline]
    pub(crate) fn room(&mut self, spec: &LimitSpec, now: Time, cost: Cost, high: bool) -> Room {
        let units = spec.units(cost);
        if !self.is_pooled() {
            return self.own_room(spec, now, units, high);
        }
        let room = self.pooled_room(spec, now, units, high);
        if let (Room::No { .. }, Some(holding)) = (room, self.holding_mut()) {
            holding.stop(units);
        }
        room
    }

    #[inline]
    fn own_room(&mut self, spec: &LimitSpec, now: Time, units: u32, high: bool) -> Room {
        if spec.calendar.is_some() {
            self.mark_end(spec, now);
        }
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                let ready = bucket.ready_at(shape, units);
                let mut free = Free::Now;
                let mut reserve = false;
                if let Some(guard) = guard {
                    free = guard.free(mirrored, now, units, high);
                    reserve = free != Free::Now && !high && guard.only_reserve_lacks(mirrored, now, units);
                }
                let lack = if reserve { BlockedBy::Reserve } else { BlockedBy::Window };
                match free {
                    Free::Now if ready <= now => Room::Yes,
                    Free::Now => Room::No { free: Free::At(ready), lack: BlockedBy::Budget },
                    // The bucket alone never blocks the high tier's reserve: only the guard's reason is the reserve.
                    Free::At(at) if at < ready => Room::No { free: Free::At(ready), lack: BlockedBy::Budget },
                    Free::At(at) => Room::No {
                        free: Free::At(at),
                        lack: if ready > now && lack == BlockedBy::Reserve { BlockedBy::Budget } else { lack },
                    },
                    Free::OnSettle(latest) => Room::No { free: Free::OnSettle(latest.max(ready)), lack },
                }
            }
            (State::Slots { used, gathers }, LimitKind::Slots { limit }) => {
                if *used < *limit && !*gathers {
                    Room::Yes
                } else {
                    Room::No { free: Free::OnSettle(Time::MAX), lack: BlockedBy::Slots }
                }
            }
            // A plan never pairs a cell with a limit of another kind: `change` replaces the cell.
            _ => Room::Yes,
        }
    }

    /// Takes units after [`room`](Self::room) has confirmed that they are there. `due` is when the request could have
    /// been granted: a timer that fires late must not cost a small bucket its rate.
    #[inline(always)]
    pub(crate) fn take(&mut self, spec: &LimitSpec, take: Take, due: Time) {
        let units = spec.units(take.cost);
        let at_once = if let State::Slots { used, .. } = self.state { used.saturating_add(1) } else { 0 };
        if let Some(holding) = self.holding_mut() {
            holding.take(take.tier, units, at_once);
        }
        let full = spec;
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                let charged = if due < take.granted {
                    bucket.ready_at(shape, units).max(due).min(take.granted)
                } else {
                    take.granted
                };
                bucket.take(shape, charged, units);
                if guard.is_none() {
                    *guard = Guard::new(mirrored);
                }
                if let Some(guard) = guard {
                    guard.take(mirrored, take.taken(units));
                }
                if full.calendar.is_some() {
                    self.mark_end(full, take.granted);
                }
            }
            (State::Slots { used, .. }, _) => *used += 1,
            _ => {}
        }
    }

    /// Moves the guard's count of a request to `now`, because its exchange starts later than its grant.
    pub(crate) fn start(&mut self, spec: &LimitSpec, take: Take, now: Time) {
        let spec = in_force(&self.beside, spec);
        if let (State::Rate { guard, .. }, LimitKind::Rate { guard: mirrored, .. }) = (&mut self.state, &spec.kind) {
            // The guard may have forgotten the grant, and been dropped, before the start.
            if guard.is_none() {
                *guard = Guard::new(mirrored);
            }
            if let Some(guard) = guard {
                guard.restart(mirrored, now, take.taken(spec.units(take.cost)));
            }
        }
    }

    /// Ends the interval for which the guard counts the request: the vendor has responded, or the exchange has failed.
    #[inline(always)]
    pub(crate) fn answer(&mut self, spec: &LimitSpec, take: Take, now: Time) {
        let spec = in_force(&self.beside, spec);
        if let (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) =
            (&mut self.state, &spec.kind)
        {
            guard.end(mirrored, now, take.taken(spec.units(take.cost)));
        }
    }

    /// The permit has ended. `answers`: no response was reported before, so the end counts as the response too.
    #[inline(always)]
    pub(crate) fn end(&mut self, spec: &LimitSpec, take: Take, now: Time, answers: bool) {
        if answers || spec.measure.lasts_to_the_end() {
            self.answer(spec, take, now);
        }
        self.finish();
    }

    /// Frees the slot: the response has been read or dropped.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if let State::Slots { used, .. } = &mut self.state {
            one_less(used);
        }
    }

    /// Undoes a grant whose request was never sent.
    pub(crate) fn give_back(&mut self, spec: &LimitSpec, take: Take, now: Time) {
        let units = spec.units(take.cost);
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                bucket.give_back(shape, units);
                if let Some(guard) = guard {
                    guard.give_back(mirrored, now, take.taken(units));
                }
            }
            (State::Slots { used, .. }, _) => one_less(used),
            _ => {}
        }
    }

    /// Applies the actual cost of a request. Missing units are taken now, surplus units are given back. Whatever cost
    /// is stated, the limit ends at most one capacity below empty: otherwise a vendor's mistake would stop all who
    /// share the limit for ever. Returns by how much this delays the next unit, in nanoseconds.
    pub(crate) fn correct(&mut self, spec: &LimitSpec, take: Take, actual: Cost, now: Time) -> u64 {
        let taken = spec.units(take.cost);
        // A higher cost is a mistake of its source, and would stop the lane for ever.
        let actual = spec.units(actual).min(spec.largest(true).max(taken));
        if actual == taken {
            return 0;
        }
        if actual > taken && self.is_pooled() {
            return self.overdraw(spec, actual - taken, now);
        }
        let spec = in_force(&self.beside, spec);
        let (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) =
            (&mut self.state, &spec.kind)
        else {
            return 0;
        };
        if let Some(more) = actual.checked_sub(taken) {
            let next = |bucket: &Bucket| bucket.ready_at(shape, 1).max(now);
            let before = next(bucket);
            bucket.owe(shape, now, more);
            if guard.is_none() {
                *guard = Guard::new(mirrored);
            }
            if let Some(guard) = guard {
                let most = mirrored.limit().saturating_mul(2).saturating_sub(guard.units(mirrored, now));
                guard.owe(mirrored, now, more.min(most));
            }
            return next(bucket).as_nanos() - before.as_nanos();
        }
        let less = taken - actual;
        bucket.give_back(shape, less);
        if let Some(guard) = guard {
            guard.refund(mirrored, now, take.taken(less));
        }
        0
    }

    /// Counts what another process used. Whether there was room does not matter, because it has happened.
    pub(crate) fn replay(&mut self, spec: &LimitSpec, past: &PriorUse, now: Time) {
        if self.is_pooled() {
            // The pool's store knows what was used.
            return;
        }
        let (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) =
            (&mut self.state, &spec.kind)
        else {
            return;
        };
        let units = past.units(spec.measure);
        if units == 0 || spec.is_over(past.at, now) {
            return;
        }
        bucket.replay(shape, now, past.at, units);
        if guard.is_none() {
            *guard = Guard::new(mirrored);
        }
        if let Some(guard) = guard {
            guard.replay(mirrored, now, Taken { granted: past.at, units, high: past.high });
        }
        if spec.calendar.is_some() {
            self.mark_end(spec, now);
        }
    }

    /// Notes that one of the vendor's windows for this limit ends between `from` and `to`.
    pub(crate) fn window_ends(&mut self, spec: &LimitSpec, now: Time, from: Time, to: Time) {
        let spec = in_force(&self.beside, spec);
        if let (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) =
            (&mut self.state, &spec.kind)
        {
            guard.window_ends(mirrored, now, from, to);
        }
    }

    /// Drops an empty guard to free its memory. Returns whether the cell equals a new one.
    pub(crate) fn rest(&mut self, spec: &LimitSpec, now: Time) -> bool {
        let is_throttled = !self.forget_throttle(spec, now);
        let is_held = self.holding().is_some_and(|holding| holding.units > 0 || holding.was_asked(now));
        let spec = in_force(&self.beside, spec);
        let rests = match (&mut self.state, &spec.kind) {
            (State::Rate { bucket, guard }, LimitKind::Rate { bucket: shape, guard: mirrored }) => {
                if guard.as_mut().is_some_and(|guard| guard.rests(mirrored, now)) {
                    *guard = None;
                }
                guard.is_none() && bucket.is_full(shape, now)
            }
            (State::Slots { used, .. }, _) => *used == 0,
            _ => true,
        };
        rests && !is_throttled && !is_held
    }

    /// The remaining units by the guard or the slots, as (remaining, limit), in the vendor's units.
    #[inline(always)]
    pub(crate) fn remaining(&mut self, spec: &LimitSpec, now: Time) -> (u32, u32) {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { guard, .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                let used = guard.as_mut().map_or(0, |guard| guard.units(mirrored, now));
                (mirrored.limit().saturating_sub(used), mirrored.limit())
            }
            (State::Slots { used, .. }, LimitKind::Slots { limit }) => (limit.saturating_sub(*used), *limit),
            _ => (0, 0),
        }
    }

    /// Units that count now, and those of them that were counted after `since`; `None` if that is not known.
    pub(crate) fn used(&mut self, spec: &LimitSpec, now: Time, since: Time) -> Option<(u32, u32)> {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { guard: None, .. }, LimitKind::Rate { .. }) => Some((0, 0)),
            (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                Some((guard.units(mirrored, now), guard.units_since(since)?))
            }
            _ => None,
        }
    }

    /// Adopts a changed limit of the same name: used units stay used, and nothing is credited.
    pub(crate) fn change(&mut self, old: &LimitSpec, new: &LimitSpec, now: Time, version: u32) {
        let before = self.beside.clone();
        self.change_holding(old, new);
        self.change_calendar(old, new, now);
        let (full, after) = (new, self.beside.clone());
        let (old, new) = (in_force(&before, old), in_force(&after, new));
        self.change_throttle(old, new, now);
        match (&mut self.state, &old.kind, &new.kind) {
            (
                State::Rate { bucket, guard },
                LimitKind::Rate { bucket: from, guard: old_guard },
                LimitKind::Rate { bucket: to, guard: new_guard },
            ) => {
                if from != to {
                    bucket.change(from, to, now);
                }
                if let Some(inside) = guard
                    && let Some(other) = inside.change(old_guard, new_guard, now)
                {
                    *guard = Some(other);
                }
            }
            (State::Slots { .. }, _, LimitKind::Slots { .. }) => {}
            _ => {
                // Earlier permits do not end in a new rate. If one of them probes a pause, the next request probes it.
                self.rename_permits(now, &[]);
                *self = Cell { beside: self.beside.take(), ..Cell::new(full, now, version) };
            }
        }
    }

    /// Whether nothing counts here.
    pub(crate) fn is_new(&self) -> bool {
        match &self.state {
            State::Rate { guard, .. } => guard.is_none(),
            State::Slots { used, .. } => *used == 0,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_untouched(&self) -> bool {
        match &self.state {
            State::Rate { guard, .. } => match guard {
                None => true,
                Some(Guard::Log(log)) => log.is_empty(),
                Some(Guard::Counter(counter)) => counter.is_empty(),
                Some(Guard::Bucket(bucket)) => bucket.is_empty(Time::MAX),
            },
            State::Slots { used, .. } => *used == 0,
        }
    }
}

/// The limit's specification, reduced to the units that this process holds if the limit is pooled.
#[inline(always)]
fn in_force<'a>(beside: &'a Option<Box<Beside>>, spec: &'a LimitSpec) -> &'a LimitSpec {
    match beside {
        None => spec,
        Some(beside) => beside.in_force(spec),
    }
}
