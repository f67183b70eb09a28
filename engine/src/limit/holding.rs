//! What this process holds of a limit whose units several processes share.
//!
//! The units of a pooled limit are in one place each: held by one process under a lease, or in the pool that a store keeps. A
//! process counts by the same bucket and the same guard as for a limit of its own, with the units that it holds in place of the
//! vendor's figure, and only until its lease ends. With none it sends nothing.
//!
//! What the vendor reports is seen as of a limit of that size too. The others use no more than they hold, so the vendor never
//! has less left than this process's own count says, unless a stranger uses the limit as well: `min(remaining, held)` is
//! compared with the units held.

use std::sync::Arc;

use super::guard::{Guard, GuardSpec};
use super::{Beside, BlockedBy, Cell, Free, LimitKind, LimitSpec, Room, State, in_force};
use crate::pace::Pace;
use crate::throttle::Report;
use crate::tier::Tier;
use crate::time::Time;

/// Units that this process holds of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    units: u32,
    /// The limit as it is for these units; none while there are no units.
    spec: Option<Arc<LimitSpec>>,
    /// The lease's end: nothing is granted or started from then on.
    until: Time,
    /// What the process may keep, as the store said last.
    keep: u32,
    /// Units of which the store wants to hear at once that they have been used: there are too few for each process to keep some.
    travels: bool,
    /// Units taken since the last look, by tier.
    taken: [u32; 3],
    /// Units taken between two looks, by tier, smoothed.
    rate: [f32; 3],
    /// A request is stopped here: none has gone since.
    stopped: bool,
    /// The most that one of these needs at once.
    need: u32,
    /// A request was stopped since the last look, though it may not wait.
    asked: bool,
    /// The store let the process keep all that it wanted.
    met: bool,
    /// What was wanted at the last look, by tier, while requests waited.
    wanted: [u32; 3],
    looked_at: Time,
    /// When something was wanted last.
    wanted_at: Time,
}

/// What a process wants of a pooled limit, and what it gives back.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Units that it holds, without those that it gives back here.
    pub claim: u32,
    /// Units given back, each with the time until they count nowhere any more, in nanoseconds.
    pub returned: Vec<(u64, u32)>,
    /// Units that it would use, by tier.
    pub want: [u32; 3],
    /// The most that one waiting request needs.
    pub need: u32,
    pub figures: Figures,
    /// Requests wait, and nothing of what is held is free.
    pub is_starved: bool,
}

/// What of a limit must be the same in all processes that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Units in all.
    pub units: u32,
    /// How long a unit counts after the last moment at which its request may have arrived, in nanoseconds.
    pub again_ns: u64,
    /// The longest that a request is on its way to the vendor, in nanoseconds. Of requests at once: the longest that one takes.
    pub transit_ns: u64,
    /// A used unit may be handed to another process before it is free again.
    pub travels: bool,
}

/// What the store gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Got {
    /// Units, each with the time until they count nowhere any more, in nanoseconds.
    pub units: Vec<(u64, u32)>,
    /// What the process may keep.
    pub keep: u32,
    /// Used units are to be given back at once.
    pub travels: bool,
    /// Everything that was held is gone: the lease had ended.
    pub is_lost: bool,
    /// Shares of the tiers among this process's requests, by what all processes have waiting.
    pub weights: [u32; 3],
}

impl Holding {
    pub(super) fn none() -> Holding {
        Holding {
            units: 0,
            spec: None,
            until: Time::ZERO,
            keep: u32::MAX,
            travels: false,
            taken: [0; 3],
            rate: [0.0; 3],
            stopped: false,
            need: 0,
            asked: false,
            met: true,
            wanted: [0; 3],
            looked_at: Time::ZERO,
            wanted_at: Time::ZERO,
        }
    }

    /// The limit as it is for the units held.
    #[inline]
    pub(super) fn in_force<'a>(&'a self, spec: &'a LimitSpec) -> &'a LimitSpec {
        self.spec.as_deref().unwrap_or(spec)
    }

    fn has_ended(&self, now: Time) -> bool {
        self.units == 0 || now >= self.until
    }

    /// Whether the units held stop a request, whatever is in use.
    #[inline]
    pub(super) fn stops(&mut self, now: Time, units: u32) -> bool {
        let stops = self.has_ended(now) || units > self.units;
        if stops {
            self.stop(units);
        }
        stops
    }

    /// A request that needs so many units was stopped here.
    pub(super) fn stop(&mut self, units: u32) {
        (self.stopped, self.asked) = (true, true);
        self.need = self.need.max(units);
    }

    #[inline]
    pub(super) fn take(&mut self, tier: Tier, units: u32) {
        (self.stopped, self.need) = (false, 0);
        let taken = &mut self.taken[tier.index()];
        *taken = taken.saturating_add(units);
    }

    fn set_units(&mut self, spec: &LimitSpec, units: u32) {
        self.units = units.min(spec.total());
        self.spec = (self.units > 0).then(|| Arc::new(spec.of_units(self.units)));
    }

    /// Something is held, or was wanted a moment ago.
    pub(super) fn is_in_use(&self) -> bool {
        self.units > 0 || self.asked
    }

    /// The same after a change of the configuration: the units held stay, as far as there are so many.
    pub(super) fn changed(&self, new: &LimitSpec) -> Box<Holding> {
        let mut changed = self.clone();
        changed.set_units(new, self.units);
        Box::new(changed)
    }

    /// What is wanted by tier, in units: what is in use, what waits, and what is taken until the next look.
    fn want(&mut self, now: Time, used: u32, queued: [u32; 3], most: u32) -> [u32; 3] {
        let sum: f32 = self.rate.iter().sum();
        let mut want = [0u32; 3];
        for (tier, want) in want.iter_mut().enumerate() {
            let of_used = if sum > 0.0 { used as f32 * self.rate[tier] / sum } else { 0.0 };
            // Half as much again, so that what comes in between need not wait for the store. Float to integer casts saturate.
            let soon = if self.rate[tier] > 0.0 { (self.rate[tier] * 1.5).ceil() as u32 + 1 } else { 0 };
            *want = (of_used.ceil() as u32).saturating_add(soon).saturating_add(queued[tier]).min(most);
            // While requests wait, what is in use goes up and down with the bursts of a window: the units are needed all the same.
            let before = self.wanted[tier];
            *want = if queued[tier] > 0 { (before - before / 16).max(*want) } else { *want };
        }
        self.wanted = want;
        if want.iter().any(|want| *want > 0) {
            self.wanted_at = now;
        }
        want
    }

    fn look(&mut self, now: Time) {
        for (rate, taken) in self.rate.iter_mut().zip(&mut self.taken) {
            *rate = (*rate + std::mem::take(taken) as f32) / 2.0;
            // A tier that takes nothing is forgotten after a few looks.
            if *rate < 0.05 {
                *rate = 0.0;
            }
        }
        self.looked_at = now;
    }
}

impl LimitSpec {
    /// Units that the processes share.
    pub(crate) fn total(&self) -> u32 {
        match self.kind {
            LimitKind::Rate { guard, .. } => guard.limit(),
            LimitKind::Slots { limit } => limit,
        }
    }

    fn figures(&self) -> Figures {
        let units = self.total();
        match self.kind {
            LimitKind::Rate { guard, .. } => {
                let (again_ns, transit_ns) = guard.counts_for();
                Figures { units, again_ns, transit_ns, travels: matches!(guard, GuardSpec::Log(_)) }
            }
            LimitKind::Slots { .. } => Figures {
                units,
                again_ns: 0,
                transit_ns: self.pooled.map_or(0, |pooled| pooled.lasts_ns),
                travels: false,
            },
        }
    }

    /// The same limit with so many units, at least one, of its total.
    fn of_units(&self, units: u32) -> LimitSpec {
        let of = (units, self.total().max(1));
        let kind = match self.kind {
            LimitKind::Rate { bucket, guard } => LimitKind::Rate { bucket: bucket.part(of), guard: guard.part(of) },
            LimitKind::Slots { .. } => LimitKind::Slots { limit: units },
        };
        LimitSpec { kind, pace: self.pace.part(of), ..self.clone() }
    }
}

impl Beside {
    /// What a new limit has.
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

    /// The configuration has changed: units that are held stay, if the limit is pooled still.
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

    /// The limit's pace, for the units that this process holds.
    pub(crate) fn pace(&self, spec: &LimitSpec) -> Pace {
        in_force(&self.beside, spec).pace
    }

    /// A lease has ended: what was granted under it and has not started may not start any more.
    pub(crate) fn has_no_lease(&self, now: Time) -> bool {
        self.holding().is_some_and(|holding| holding.has_ended(now))
    }

    /// What the vendor reports, as of a limit of the units held; none where there are none.
    pub(super) fn as_held(&self, spec: &LimitSpec, report: &Report) -> Option<Report> {
        let Some(holding) = self.holding() else { return Some(*report) };
        let (units, total) = (u64::from(holding.units), u64::from(spec.total().max(1)));
        let limit = u128::from(report.limit) * u128::from(units) / u128::from(total);
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        (units > 0).then(|| Report { limit, remaining: report.remaining.min(units), ..*report })
    }

    /// The holding lets no request through: why, and until when.
    pub(super) fn held_room(&mut self, now: Time, units: u32) -> Option<Room> {
        let stops = self.holding_mut()?.stops(now, units);
        stops.then_some(Room::No { free: Free::OnSettle(Time::MAX), lack: BlockedBy::NotHeld })
    }

    /// Requests wait, and the store may have units for them: there are none that are free here, and what was wanted last was given.
    pub(crate) fn is_starved(&mut self, spec: &LimitSpec, now: Time) -> bool {
        let Some(Holding { units, stopped: true, need, met, .. }) = self.holding() else { return false };
        let (units, need, met) = (*units, *need, *met);
        units == 0 || (units < spec.total() && met && (need > units || self.in_use(spec, now) >= units))
    }

    /// What this process holds, wants and gives back of a pooled limit; none where it holds and wants nothing. What it gives back
    /// is not its any more from now on, whatever becomes of the call to the store. `queued`: requests that wait, by tier.
    pub(crate) fn wish(&mut self, spec: &LimitSpec, now: Time, queued: [u32; 3]) -> Option<Wish> {
        let total = spec.total();
        let used = self.in_use(spec, now);
        let is_starved = self.is_starved(spec, now);
        let holding = self.holding_mut()?;
        let since = holding.looked_at;
        let every = now.as_nanos().saturating_sub(since.as_nanos());
        holding.look(now);
        // Of requests that cost more than one the dearest stands for all. One that does not wait is asked for once.
        let asked = std::mem::take(&mut holding.asked);
        let queued = match queued {
            [0, 0, 0] if asked => [0, 1, 0],
            queued => queued.map(|requests| if asked || holding.stopped { requests } else { 0 }),
        };
        let waits = queued != [0; 3];
        let need = if waits { holding.need } else { 0 };
        let want = holding.want(now, used, queued.map(|requests| requests.saturating_mul(need.max(1))), total);
        let sum = want.iter().fold(0u32, |sum, want| sum.saturating_add(*want));
        let is_idle = sum == 0 && now > holding.wanted_at.plus_nanos(2 * every);
        let keep = if is_idle { 0 } else { holding.keep.min(sum.max(used)) };
        let (held, is_long) = (holding.units, spec.pace.window_ns >= LONG);
        let travels = holding.travels || is_long;
        let mut returned = Vec::new();
        let free = held.saturating_sub(keep).min(held.saturating_sub(used));
        if free > 0 {
            returned.push((0, free));
        }
        let mut claim = held - free;
        let most = if travels { claim } else { claim.saturating_sub(keep) };
        if most > 0 {
            let ended = self.withdraw(spec, now, if travels { since } else { Time::ZERO }, most);
            claim -= ended.iter().map(|(_, units)| *units).sum::<u32>();
            returned.extend(ended);
        }
        if claim != held {
            self.resize(spec, claim, now);
        }
        if claim == 0 && returned.is_empty() && sum == 0 {
            return None;
        }
        Some(Wish { claim, returned, want, need, figures: spec.figures(), is_starved })
    }

    /// Gives back all units that are held: those in use with the time for which they may count. None where there are none.
    pub(crate) fn give_all(&mut self, spec: &LimitSpec, now: Time) -> Option<Wish> {
        let used = self.in_use(spec, now);
        let held = self.holding()?.units;
        if held == 0 {
            return None;
        }
        let figures = spec.figures();
        let free = held.saturating_sub(used);
        let mut returned = self.withdraw(spec, now, Time::ZERO, held - free);
        let ended = returned.iter().map(|(_, units)| *units).sum::<u32>();
        for (free_in, units) in [(0, free), (figures.again_ns.saturating_add(figures.transit_ns), held - free - ended)]
        {
            if units > 0 {
                returned.push((free_in, units));
            }
        }
        self.resize(spec, 0, now);
        Some(Wish { claim: 0, returned, want: [0; 3], need: 0, figures, is_starved: false })
    }

    /// Takes what the store gave. Returns whether requests wait for units here.
    pub(crate) fn hold(&mut self, spec: &LimitSpec, now: Time, got: &Got, until: Time) -> bool {
        let total = spec.total();
        let Some(holding) = self.holding_mut() else { return false };
        let waits = holding.stopped;
        holding.until = until;
        holding.keep = got.keep;
        let wanted = holding.wanted.iter().fold(0u32, |sum, want| sum.saturating_add(*want));
        holding.met = got.keep >= wanted.min(total);
        holding.travels = got.travels;
        let before = if got.is_lost { 0 } else { holding.units };
        let more = got.units.iter().fold(0u32, |sum, (_, units)| sum.saturating_add(*units));
        let units = before.saturating_add(more);
        if units != holding.units {
            self.resize(spec, units, now);
        }
        for (free_in, units) in got.units.iter().filter(|(free_in, _)| *free_in > 0) {
            self.bring_in(spec, now, *free_in, *units);
        }
        waits
    }

    /// Goes over to another number of units: what is in use stays in use.
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
                // The kind of the guard stays: nothing takes its place.
                let _ = guard.change(old_guard, new_guard, now);
            }
        }
    }

    /// Units of the guard or the slots that count now.
    fn in_use(&mut self, spec: &LimitSpec, now: Time) -> u32 {
        let spec = in_force(&self.beside, spec);
        match (&mut self.state, &spec.kind) {
            (State::Rate { guard: Some(guard), .. }, LimitKind::Rate { guard: mirrored, .. }) => {
                guard.units(mirrored, now)
            }
            (State::Slots { used, .. }, _) => *used,
            _ => 0,
        }
    }

    /// Takes out units that ended after `since`: with the time for which they still count.
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

    /// Units come in that another process has used: they count for so long.
    fn bring_in(&mut self, spec: &LimitSpec, now: Time, free_in: u64, units: u32) {
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
    }
}

/// Of windows of this length and more, in nanoseconds, used units are given back at once: a process that is killed would keep
/// them from the others for so long.
const LONG: u64 = 3_600_000_000_000;
