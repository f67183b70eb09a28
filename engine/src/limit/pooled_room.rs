//! Which requests the units that this process holds of a pooled limit let through, and what is noted of those that they stop.

use super::holding::{Awaited, Holding};
use super::{BlockedBy, Cell, Free, LimitKind, LimitSpec, Room, State, in_force};
use crate::need::Need;
use crate::throttle::Gate;
use crate::time::Time;

impl Cell {
    /// Why and until when a request is stopped because the units are shared; `None` if it is not. A request that is
    /// larger than the lower tiers' part of the units waits for more of them, and not for a moment.
    pub(super) fn held_room(&mut self, spec: &LimitSpec, now: Time, units: u32) -> Option<Room> {
        let holding = self.holding()?;
        if now < holding.paused_until {
            return Some(Room::No { free: Free::At(holding.paused_until), lack: BlockedBy::Paused });
        }
        if holding.stops(now, units) {
            return Some(Room::No { free: Free::OnSettle(Time::MAX), lack: holding.lack(spec, units) });
        }
        match holding.surplus() {
            0 => None,
            surplus => self.room_beside(spec, now, units, surplus),
        }
    }

    /// Why and until when a request does not fit beside a `surplus` that is left unused to be returned; `None` if it
    /// does.
    #[cold]
    fn room_beside(&mut self, spec: &LimitSpec, now: Time, units: u32, surplus: u32) -> Option<Room> {
        let spec = in_force(&self.beside, spec);
        let (free, lack) = match (&mut self.state, &spec.kind) {
            (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                (guard.free(mirrored, now, units.saturating_add(surplus), true), BlockedBy::Window)
            }
            (State::Slots { used, .. }, LimitKind::Slots { limit }) => {
                let is_full = used.saturating_add(surplus) >= *limit;
                (if is_full { Free::OnSettle(Time::MAX) } else { Free::Now }, BlockedBy::Slots)
            }
            _ => return None,
        };
        let free = match free {
            Free::Now => return None,
            // The store may let this process keep more units at any moment.
            Free::At(at) | Free::OnSettle(at) => Free::OnSettle(at),
        };
        Some(Room::No { free, lack })
    }

    /// Whether a request fits in a pooled limit, and if not, until when.
    #[inline]
    pub(super) fn pooled_room(&mut self, spec: &LimitSpec, now: Time, units: u32, high: bool) -> Room {
        if let Some(room) = self.held_room(spec, now, units) {
            return room;
        }
        match self.own_room(spec, now, units, high) {
            // The store may give this process more units at any moment.
            Room::No { free: Free::At(at), lack } => Room::No { free: Free::OnSettle(at), lack },
            room => room,
        }
    }

    /// [`room`](Self::room) without the note that a request was stopped: no units are wanted for a look.
    pub(crate) fn room_unnoted(&mut self, spec: &LimitSpec, now: Time, need: &Need) -> Room {
        let units = spec.units(need.cost);
        match self.is_pooled() {
            true => self.pooled_room(spec, now, units, need.high()),
            false => self.own_room(spec, now, units, need.high()),
        }
    }

    /// What stops a request here: `Some(true)` if the process holds too few units of a pooled limit, `Some(false)` if
    /// more units would not help, `None` if nothing does.
    pub(crate) fn lacks_units(&mut self, spec: &LimitSpec, now: Time, need: &Need) -> Option<bool> {
        if self.gate(spec, now, need.tier, need.cost) != Gate::Open {
            return Some(false);
        }
        let Room::No { lack, .. } = self.room_unnoted(spec, now, need) else { return None };
        let used = self.in_use(spec, now);
        let are_used = self.holding().is_some_and(|holding| holding.units < spec.total() && holding.units <= used);
        Some(matches!(lack, BlockedBy::NotHeld | BlockedBy::OutOfReach) || (lack != BlockedBy::Paused && are_used))
    }

    /// How many requests like this one could go here beside those under way, with as many units as the store may let the
    /// process keep: all where it was given all that it wanted last.
    pub(crate) fn reach(&mut self, spec: &LimitSpec, now: Time, need: &Need) -> u32 {
        let used = self.in_use(spec, now);
        let Some(holding) = self.holding() else { return u32::MAX };
        let most = if holding.met { spec.total().saturating_sub(holding.out_of_reach) } else { holding.keep };
        most.saturating_sub(used) / spec.units(need.cost).max(1)
    }

    /// Has units wanted for a request that does not wait, if it lacks nothing else (`lacks_units`). Where another
    /// process was told to pause, only the store knows whether that pause still holds, so it is asked in any case.
    pub(crate) fn want_for(&mut self, spec: &LimitSpec, now: Time, need: &Need, lacks_units: bool) {
        let is_told = self.holding().is_some_and(|holding| now < holding.paused_until);
        if (is_told || (lacks_units && self.lacks_units(spec, now, need) == Some(true)))
            && let Some(holding) = self.holding_mut()
        {
            holding.stop(spec.units(need.cost));
        }
    }

    /// Has units wanted here, and kept, for a head that lacks units alone (`lacks_units`), here or at another limit: those of
    /// one request here, and of all that are `stopped` with it where it has room.
    pub(crate) fn await_units(&mut self, spec: &LimitSpec, now: Time, need: &Need, stopped: u32) {
        let lacks_units = self.lacks_units(spec, now, need) == Some(true);
        self.want_for(spec, now, need, lacks_units);
        if let Some(holding) = self.holding_mut() {
            let requests = if lacks_units { 1 } else { stopped };
            holding.awaited = Some(Awaited { at: now, tier: need.tier, units: spec.units(need.cost), requests });
        }
    }

    /// What is noted of stopped requests: whether there are any, the most units of one, and whether one came since the
    /// last call to the store. `None` if the limit is not pooled.
    pub(crate) fn noted_stops(&self) -> Option<(bool, u32, bool)> {
        self.holding().map(|holding| (holding.stopped, holding.need, holding.asked))
    }

    /// Goes back to what [`noted_stops`](Self::noted_stops) has returned.
    pub(crate) fn restore_stops(&mut self, noted: (bool, u32, bool)) {
        if let Some(holding) = self.holding_mut() {
            (holding.stopped, holding.need, holding.asked) = noted;
        }
    }

    /// Whether requests wait and the store may have units for them: none of the units held is free, and the store
    /// granted all that was wanted last.
    pub(crate) fn is_starved(&mut self, spec: &LimitSpec, now: Time) -> bool {
        let Some(Holding { units, stopped: true, need, met, .. }) = self.holding() else { return false };
        let (units, need, met) = (*units, spec.held_for(*need), *met);
        units == 0 || (units < spec.total() && met && (need > units || self.in_use(spec, now) >= units))
    }
}
