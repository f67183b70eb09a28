//! A pooled limit, reduced to the units that this process holds: which requests they let through, and which units are
//! wanted, returned and received.

use super::guard::{Guard, GuardSpec};
use super::holding::{FLOOR_RESTS, Got, Holding, Wish};
use super::{Beside, BlockedBy, Cell, Free, LimitKind, LimitSpec, Room, State, in_force};
use crate::endpoint::EndpointHash;
use crate::need::Need;
use crate::pace::Pace;
use crate::throttle::{Gate, Report};
use crate::tier::Tier;
use crate::time::Time;

impl Beside {
    /// The state with which a new limit begins; `None` unless the limit is pooled.
    pub(super) fn of(spec: &LimitSpec) -> Option<Box<Beside>> {
        let holding = Some(Box::new(Holding::none()));
        spec.pooled.is_some().then(|| Box::new(Beside { throttle: None, holding }))
    }

    pub(super) fn in_force<'a>(&'a self, spec: &'a LimitSpec) -> &'a LimitSpec {
        self.holding.as_ref().map_or(spec, |holding| holding.in_force(spec))
    }
}

impl Cell {
    #[inline]
    pub(super) fn holding(&self) -> Option<&Holding> {
        self.beside.as_ref()?.holding.as_deref()
    }

    #[inline]
    pub(super) fn holding_mut(&mut self) -> Option<&mut Holding> {
        self.beside.as_mut()?.holding.as_deref_mut()
    }

    #[inline]
    pub(crate) fn is_pooled(&self) -> bool {
        self.holding().is_some()
    }

    pub(crate) fn holds_units(&self) -> bool {
        self.holding().is_some_and(|holding| holding.units > 0)
    }

    /// Whether the process holds units, or owes some to the pool.
    pub(crate) fn has_dealings(&self) -> bool {
        self.holding().is_some_and(|holding| holding.units > 0 || holding.owed > 0)
    }

    /// The units held are in another engine now, with what was used of them.
    pub(crate) fn let_units_go(&mut self, spec: &LimitSpec, now: Time) {
        if self.holds_units() {
            self.resize(spec, 0, now);
        }
        if let Some(holding) = self.holding_mut() {
            *holding = Holding::none();
        }
    }

    /// Applies a change of the configuration: the units held stay if the limit is still pooled.
    pub(super) fn change_holding(&mut self, old: &LimitSpec, new: &LimitSpec) {
        let Some(beside) = &mut self.beside else {
            self.beside = Beside::of(new);
            return;
        };
        beside.holding = match (old.pooled, new.pooled, &beside.holding) {
            (_, None, _) => None,
            (Some(_), Some(_), Some(holding)) => Some(holding.changed(new)),
            _ => Some(Box::new(Holding::none())),
        };
    }

    /// The limit's pace, reduced to the units that this process holds if the limit is pooled.
    pub(crate) fn pace(&self, spec: &LimitSpec) -> Pace {
        in_force(&self.beside, spec).pace
    }

    /// Until when the vendor's responses to this process or to another pause this endpoint.
    pub(crate) fn paused_until(&self, endpoint: EndpointHash) -> Time {
        let told = self.throttle().map_or(Time::ZERO, |throttle| throttle.paused_until(endpoint));
        told.max(self.holding().map_or(Time::ZERO, |holding| holding.paused_until))
    }

    /// For how long other processes must send nothing to this endpoint, in nanoseconds.
    pub(crate) fn paused_for(&self, now: Time, endpoint: EndpointHash) -> u64 {
        self.throttle().map_or(0, |throttle| throttle.paused_for(now, endpoint))
    }

    /// Ends all pauses, because an operator wants it. The next wish has the store end the pause of another process,
    /// which may be gone.
    pub(crate) fn resume(&mut self) {
        if let Some(throttle) = self.throttle_mut() {
            throttle.resume();
        }
        if let Some(holding) = self.holding_mut() {
            (holding.paused_until, holding.ends_pause) = (Time::ZERO, true);
        }
    }

    /// Whether the lease has ended under which a permit was granted at `granted`: if that permit has not started, it
    /// may not start any more.
    pub(crate) fn has_no_lease(&self, now: Time, granted: Time) -> bool {
        self.holding().is_some_and(|holding| holding.has_ended(now) || granted < holding.ended_at)
    }

    /// Whether the lease was found at `now` to have ended, so that the process goes on with its floor.
    pub(crate) fn fell_to_floor(&self, now: Time) -> bool {
        self.holding().is_some_and(|holding| holding.is_away && holding.ended_at == now)
    }

    /// A vendor's report, reduced to the units that this process holds; `None` if it holds none.
    pub(super) fn as_held(&self, spec: &LimitSpec, report: &Report) -> Option<Report> {
        let Some(holding) = self.holding() else { return Some(*report) };
        let (units, total) = (u64::from(holding.units), u64::from(spec.total().max(1)));
        let limit = u128::from(report.limit) * u128::from(units) / u128::from(total);
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        (units > 0).then(|| Report { limit, remaining: report.remaining.min(units), ..*report })
    }

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

    /// What this process holds, wants and returns of a pooled limit; `None` if it holds and wants nothing, and no
    /// operator has ended its pauses. The returned units no longer belong to it from now on, whether the call to the
    /// store succeeds or not. `queued`: waiting requests by tier. `paused_ns`: for how long the vendor's responses
    /// pause the limit.
    pub(crate) fn wish(&mut self, spec: &LimitSpec, now: Time, queued: [u32; 3], paused_ns: u64) -> Option<Wish> {
        let total = spec.total();
        // A claim renews the lease, so units held under a lease that has ended are returned first.
        let mut returned = if self.holding()?.has_lapsed(now) { self.fall_to_floor(spec, now) } else { Vec::new() };
        let used = self.in_use(spec, now);
        let is_starved = self.is_starved(spec, now);
        let holding = self.holding_mut()?;
        let owed = holding.still_owed(used);
        let since = holding.looked_at;
        let every = now.as_nanos().saturating_sub(since.as_nanos());
        holding.look(now);
        let asked = std::mem::take(&mut holding.asked);
        if asked {
            holding.asked_at = now;
        }
        let waits = queued != [0; 3];
        if !waits && !asked && !holding.is_asked_again(now) {
            (holding.stopped, holding.need) = (false, 0);
        }
        let is_stopped = asked || holding.stopped;
        let requests = if waits { queued } else { [0, 1, 0] };
        let largest = if is_stopped { spec.held_for(holding.need) } else { 0 };
        // Units that stay for another try are worth no turn for a big request.
        let need = if waits || asked { largest } else { 0 };
        let most = if spec.is_long() { (total / 100).max(largest).max(1) } else { total };
        // If requests cost more than one unit, each is counted with the highest cost.
        let each = if is_stopped { largest.max(1) } else { 0 };
        let queued = requests.map(|requests| requests.saturating_mul(each).min(most));
        let at_once = std::mem::take(&mut holding.at_once);
        // Requests that follow one another use the same slot, so the slots wanted are those that are used at once.
        let more = match spec.kind {
            LimitKind::Slots { .. } => at_once.max(used.saturating_add(1)).saturating_sub(used),
            LimitKind::Rate { .. } => u32::MAX,
        };
        let mut want = holding.want(now, used as f32 * spec.per_used(), more, (queued, waits), total);
        let sum = want.iter().fold(0u32, |sum, want| sum.saturating_add(*want));
        let is_idle = sum == 0 && owed == 0 && now > holding.wanted_at.plus_nanos(2 * every);
        let floor = spec.floor();
        // The process holds its floor for as long as the limit may be wanted while the store does not answer. A unit that the
        // store has not granted as a floor is given back like any other, or processes without a floor would get none.
        let rests = now > holding.wanted_at.plus_nanos(FLOOR_RESTS);
        let least = if rests || holding.wanted_at == Time::ZERO { 0 } else { floor.each.min(holding.floor) };
        let (held, travels) = (holding.units, holding.travels);
        let is_away = holding.is_away;
        let ends_pause = std::mem::take(&mut holding.ends_pause);
        let keep = if is_away {
            // All units held belong to the floor.
            held
        } else if is_idle {
            least
        } else {
            holding.keep.min(sum.max(used)).max(least)
        };
        let free = held.saturating_sub(keep).min(held.saturating_sub(used));
        if free > 0 {
            returned.push((0, free));
        }
        let mut claim = held - free;
        let most = if travels && !is_away { claim.saturating_sub(least) } else { claim.saturating_sub(keep) };
        if most > 0 {
            let ended = self.withdraw(spec, now, if travels { since } else { Time::ZERO }, most);
            claim -= ended.iter().map(|(_, units)| *units).sum::<u32>();
            returned.extend(ended);
        }
        if claim != held {
            self.resize(spec, claim, now);
        }
        // Units that are owed are wanted although nothing waits: others would be given them too.
        let wanted = least.max(if owed > 0 { claim.saturating_add(owed).min(total) } else { 0 });
        if sum < wanted {
            let most = (0..3).filter(|tier| want[*tier] > 0).max_by_key(|tier| want[*tier]);
            want[most.unwrap_or(Tier::Normal.index())] += wanted - sum;
        }
        if claim == 0 && returned.is_empty() && want == [0; 3] && !ends_pause {
            return None;
        }
        Some(Wish { claim, returned, want, need, figures: spec.figures(), floor, paused_ns, ends_pause, is_starved })
    }

    /// Keeps the units held for ever: in an engine that simulates the future, no store answers. If none are held, or all
    /// of them are to be given back, the simulation assumes that the process gets what it wants.
    pub(crate) fn hold_on(&mut self) {
        let Some(beside) = &mut self.beside else { return };
        match &mut beside.holding {
            Some(holding) if holding.units > holding.surplus() => (holding.until, holding.is_away) = (Time::MAX, false),
            holding => *holding = None,
        }
    }

    /// Returns all units held, those in use with the time for which they may count; `None` if none are held.
    pub(crate) fn give_all(&mut self, spec: &LimitSpec, now: Time) -> Option<Wish> {
        if self.holding()?.units == 0 {
            return None;
        }
        let (figures, floor) = (spec.figures(), spec.floor());
        let returned = self.shrink_to(spec, now, 0);
        Some(Wish { returned, figures, floor, ..Wish::default() })
    }

    /// The lease has ended: returns all units but the floor.
    fn fall_to_floor(&mut self, spec: &LimitSpec, now: Time) -> Vec<(u64, u32)> {
        let Some(holding) = self.holding_mut() else { return Vec::new() };
        let stays = holding.stays(spec.floor(), now);
        (holding.is_away, holding.ended_at) = (stays > 0, now);
        self.shrink_to(spec, now, stays)
    }

    /// Returns all units but `stay`: the used ones first, so that the process can go on with the free ones.
    fn shrink_to(&mut self, spec: &LimitSpec, now: Time, stay: u32) -> Vec<(u64, u32)> {
        let used = self.in_use(spec, now);
        let held = self.holding().map_or(0, |holding| holding.units);
        let given = held.saturating_sub(stay);
        let mut returned = self.withdraw(spec, now, Time::ZERO, given);
        let ended = returned.iter().map(|(_, units)| *units).sum::<u32>();
        let free = held.saturating_sub(used).min(given - ended);
        let figures = spec.figures();
        let under_way = given - ended - free;
        for (free_in, units) in [(0, free), (figures.again_ns.saturating_add(figures.transit_ns), under_way)] {
            if units > 0 {
                returned.push((free_in, units));
            }
        }
        self.resize(spec, stay, now);
        returned
    }

    /// Applies what the store granted. Returns whether requests wait here for units.
    pub(crate) fn hold(&mut self, spec: &LimitSpec, now: Time, got: &Got, until: Time) -> bool {
        let total = spec.total();
        let Some(holding) = self.holding_mut() else { return false };
        let waits = holding.stopped;
        holding.until = until;
        (holding.is_away, holding.floor, holding.floor_until) = (false, got.floor, got.floor_until);
        // The call was made before the operator ended the pause.
        let is_paused = got.paused_ns > 0 && !holding.ends_pause;
        holding.paused_until = if is_paused { now.plus_nanos(got.paused_ns) } else { Time::ZERO };
        holding.keep = got.keep;
        let wanted = holding.wanted.iter().fold(0u32, |sum, want| sum.saturating_add(*want));
        holding.met = got.keep >= wanted.min(total);
        (holding.travels, holding.is_scarce, holding.out_of_reach) = (got.travels, got.is_scarce, got.out_of_reach);
        let before = if got.is_lost { 0 } else { holding.units };
        let more = got.units.iter().fold(0u32, |sum, (_, units)| sum.saturating_add(*units));
        let (units, uncharged) = (before.saturating_add(more), holding.pay(more));
        if units != holding.units {
            self.resize(spec, units, now);
        }
        if uncharged > 0 {
            self.charge(spec, uncharged, now);
        }
        for (free_in, units) in got.units.iter().filter(|(free_in, _)| *free_in > 0) {
            self.bring_in(spec, now, *free_in, *units);
        }
        waits
    }

    /// Adopts another number of units; units in use stay in use.
    fn resize(&mut self, spec: &LimitSpec, units: u32, now: Time) {
        let Some(holding) = self.beside.as_mut().and_then(|beside| beside.holding.as_mut()) else { return };
        let old = holding.spec.take();
        holding.set_units(spec, units);
        let (old, new) = (old.as_deref().unwrap_or(spec), holding.in_force(spec));
        if let (
            State::Rate { bucket, guard },
            LimitKind::Rate { bucket: from, guard: old_guard },
            LimitKind::Rate { bucket: to, guard: new_guard },
        ) = (&mut self.state, &old.kind, &new.kind)
        {
            bucket.resize(from, to, now);
            if let Some(guard) = guard {
                // The guard's kind stays the same, so `change` never returns a replacement.
                let _ = guard.change(old_guard, new_guard, now);
            }
        }
    }

    /// Units of the guard or the slots that count now.
    pub(super) fn in_use(&mut self, spec: &LimitSpec, now: Time) -> u32 {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                guard.units(mirrored, now)
            }
            (State::Slots { used, .. }, _) => *used,
            _ => 0,
        }
    }

    /// Removes at most `most` units that ended after `since`, each with the time for which it still counts.
    fn withdraw(&mut self, spec: &LimitSpec, now: Time, since: Time, most: u32) -> Vec<(u64, u32)> {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (
                State::Rate { guard: Some(Guard::Log(log)), .. },
                LimitKind::Rate { guard: GuardSpec::Log(mirrored), .. },
            ) => log.withdraw(mirrored, now, since, most),
            _ => Vec::new(),
        }
    }

    /// Counts received units that another process has used, for the next `free_in` nanoseconds.
    fn bring_in(&mut self, spec: &LimitSpec, now: Time, free_in: u64, units: u32) {
        let full = spec;
        let spec = in_force(&self.beside, spec);
        if let (State::Rate { guard, .. }, LimitKind::Rate { guard: mirrored, .. }) = (&mut self.state, &spec.kind) {
            let (again_ns, _) = mirrored.counts_for();
            let at = now.plus_nanos(free_in).minus_nanos(again_ns);
            if guard.is_none() {
                *guard = Guard::new(mirrored);
            }
            if let Some(Guard::Log(log)) = guard
                && let GuardSpec::Log(mirrored) = mirrored
            {
                log.replay(mirrored, now, at, units, false);
            }
        }
        if full.calendar.is_some() {
            self.mark_end(full, now);
        }
    }
}
