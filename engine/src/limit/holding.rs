//! The units that this process holds of a limit that several processes share.
//!
//! Each unit of a pooled limit is in one place: held by one process under a lease, or in the pool that a store keeps. A
//! process counts with the same bucket and guard as for a limit of its own, with the units held in place of the
//! vendor's figure, and only until its lease ends. Without units it sends nothing. If the store does not answer, the lease
//! ends, and the process goes on with its floor, if it has one.
//!
//! A vendor's report is reduced to a limit of that size too. Other processes use no more than they hold, so the vendor
//! never has fewer units left than this process's own count says, unless another client uses the limit as well.
//! Therefore `min(remaining, held)` is compared with the units held.

use std::sync::Arc;

use super::free::BlockedBy;
use super::guard::GuardSpec;
use super::spec::{LimitKind, LimitSpec};
use crate::tier::Tier;
use crate::time::Time;

/// Units that this process holds of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(super) units: u32,
    /// The most units that one request may take of those held, whatever its tier.
    largest: u32,
    /// The limit, reduced to these units; `None` if there are none.
    pub(super) spec: Option<Arc<LimitSpec>>,
    /// The end of the lease: from then on, nothing is granted or started except within the floor.
    pub(super) until: Time,
    /// Units of those held that stay until `floor_until`, so that the process can go on when the store does not answer.
    pub(super) floor: u32,
    pub(super) floor_until: Time,
    /// Whether the lease has ended and the units held are those of the floor.
    pub(super) is_away: bool,
    /// When the last lease was found to have ended: permits granted before may not start any more.
    pub(super) ended_at: Time,
    /// Nothing is granted before this moment, because the vendor told another process to wait.
    pub(super) paused_until: Time,
    /// Whether an operator has ended all pauses since the last call to the store.
    pub(super) ends_pause: bool,
    /// Units that the process may keep, by the store's last answer.
    pub(super) keep: u32,
    /// Whether used units are returned to the store at once, because there are too few for each process to keep some.
    pub(super) travels: bool,
    /// Units that requests used beyond those held, because they cost more than they were assumed to, and that the pool
    /// has not given since.
    pub(super) owed: u32,
    /// Those of `owed` that are to be taken from the bucket when they come.
    pub(super) uncharged: u32,
    /// Units taken since the last call to the store, by tier.
    pub(super) taken: [u32; 3],
    /// Units taken between two calls to the store, by tier, smoothed.
    pub(super) rate: [f32; 3],
    /// The most slots that a request found in use since the last call to the store, with its own; 0 for a rate.
    pub(super) at_once: u32,
    /// Whether a request was stopped here, and none has been granted since.
    pub(super) stopped: bool,
    /// The most units that one of the stopped requests takes.
    pub(super) need: u32,
    /// Whether a request was stopped since the last call to the store, even if it does not wait.
    pub(super) asked: bool,
    /// The last call to the store before which a request was stopped.
    pub(super) asked_at: Time,
    /// Whether the store let the process keep all that it wanted.
    pub(super) met: bool,
    /// Whether the processes together want more units than there are, by the store's last answer.
    pub(super) is_scarce: bool,
    /// Units of the limit that the process cannot get, by the store's last answer.
    pub(super) out_of_reach: u32,
    /// Units wanted at the last call to the store, by tier. They fall slowly while requests wait.
    pub(super) wanted: [u32; 3],
    pub(super) looked_at: Time,
    /// When any units were last wanted for requests that wait, or that were granted lately.
    pub(super) wanted_at: Time,
}

/// The units that a process wants of a pooled limit, and those that it returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    /// Units that the process holds, without those that it returns here.
    pub claim: u32,
    /// Returned units, each with the nanoseconds after which it no longer counts anywhere.
    pub returned: Vec<(u64, u32)>,
    /// Units that the process would use, or has used beyond those held, by tier.
    pub want: [u32; 3],
    /// The units that the process must hold for the largest of the waiting requests.
    pub need: u32,
    pub figures: Figures,
    /// The units to keep for when the store does not answer.
    pub floor: Floor,
    /// For how long the vendor's responses pause the limit, in nanoseconds; 0 if they do not.
    pub paused_ns: u64,
    /// Whether an operator has ended all pauses of the limit, that of another process too.
    pub ends_pause: bool,
    /// Whether requests wait and none of the units held is free.
    pub is_starved: bool,
}

/// The figures of a limit that must be the same in all processes that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Units in total.
    pub units: u32,
    /// How long a unit counts after the last moment at which its request may have arrived, in nanoseconds.
    pub again_ns: u64,
    /// The longest time that a request takes to reach the vendor, in nanoseconds. For slots, the longest duration of a
    /// request.
    pub transit_ns: u64,
    /// Whether a used unit may move to another process before it is free again.
    pub travels: bool,
}

/// Units that processes hold under a longer lease than the others, to go on with when the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floor {
    /// The most units that one process keeps.
    pub each: u32,
    /// The most units that all processes together keep.
    pub all: u32,
}

/// What the store granted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Got {
    /// Received units, each with the nanoseconds after which it no longer counts anywhere.
    pub units: Vec<(u64, u32)>,
    /// Units that the process may keep.
    pub keep: u32,
    /// Whether used units must be returned at once.
    pub travels: bool,
    /// Whether all units held are lost, because the lease had ended.
    pub is_lost: bool,
    /// Whether the processes together want more units than there are.
    pub is_scarce: bool,
    /// Shares of the tiers among this process's requests, by what waits in all processes.
    pub weights: [u32; 3],
    /// For how long the vendor told another process to wait, in nanoseconds.
    pub paused_ns: u64,
    /// Units of those held now that stay until `floor_until`, after the rest of the lease has ended.
    pub floor: u32,
    pub floor_until: Time,
    /// Units of the limit, by this process's figure, that it cannot get: another process has a lower figure, or others
    /// keep some as their floors.
    pub out_of_reach: u32,
}

impl Holding {
    pub(super) fn none() -> Holding {
        Holding {
            units: 0,
            largest: 0,
            spec: None,
            until: Time::ZERO,
            floor: 0,
            floor_until: Time::ZERO,
            is_away: false,
            ended_at: Time::ZERO,
            paused_until: Time::ZERO,
            ends_pause: false,
            keep: u32::MAX,
            travels: false,
            owed: 0,
            uncharged: 0,
            taken: [0; 3],
            rate: [0.0; 3],
            at_once: 0,
            stopped: false,
            need: 0,
            asked: false,
            asked_at: Time::ZERO,
            met: true,
            is_scarce: false,
            out_of_reach: 0,
            wanted: [0; 3],
            looked_at: Time::ZERO,
            wanted_at: Time::ZERO,
        }
    }

    /// The limit, reduced to the units held.
    #[inline]
    pub(super) fn in_force<'a>(&'a self, spec: &'a LimitSpec) -> &'a LimitSpec {
        self.spec.as_deref().unwrap_or(spec)
    }

    /// Whether units are held under a lease that has ended.
    pub(super) fn has_lapsed(&self, now: Time) -> bool {
        self.units > 0 && now >= self.ends()
    }

    pub(super) fn has_ended(&self, now: Time) -> bool {
        self.units == 0 || now >= self.ends()
    }

    fn ends(&self) -> Time {
        if self.is_away { self.floor_until } else { self.until }
    }

    /// The units that stay when the lease has ended.
    pub(super) fn stays(&self, floor: Floor, now: Time) -> u32 {
        let lasts = !self.is_away && now < self.floor_until;
        if lasts { self.floor.min(floor.each).min(self.units) } else { 0 }
    }

    /// Whether the units held stop a request, whatever is in use.
    #[inline]
    pub(super) fn stops(&self, now: Time, units: u32) -> bool {
        self.has_ended(now) || units > self.largest.min(self.units.saturating_sub(self.surplus()))
    }

    /// Why the units held stop a request.
    pub(super) fn lack(&self, spec: &LimitSpec, units: u32) -> BlockedBy {
        let most = spec.total().saturating_sub(self.out_of_reach);
        if spec.held_for(units) > most { BlockedBy::OutOfReach } else { BlockedBy::NotHeld }
    }

    /// How many of the units held are not used again once they are free, because the process may not keep so many:
    /// otherwise waiting requests would take each of them again at once, and none could ever be returned. 0 if used
    /// units travel, because those are returned before they are free.
    pub(super) fn surplus(&self) -> u32 {
        if self.met || self.is_away || self.spec.as_deref().is_none_or(LimitSpec::used_units_travel) {
            return 0;
        }
        self.units.saturating_sub(self.keep.max(self.floor))
    }

    /// Notes that a request of `units` was stopped at this limit.
    pub(super) fn stop(&mut self, units: u32) {
        (self.stopped, self.asked) = (true, true);
        self.need = self.need.max(units);
    }

    /// Counts a request that is granted. `at_once`: how many slots are then in use.
    #[inline]
    pub(super) fn take(&mut self, tier: Tier, units: u32, at_once: u32) {
        (self.stopped, self.need) = (false, 0);
        self.at_once = self.at_once.max(at_once);
        let taken = &mut self.taken[tier.index()];
        *taken = taken.saturating_add(units);
    }

    pub(super) fn set_units(&mut self, spec: &LimitSpec, units: u32) {
        self.units = units.min(spec.total());
        self.spec = (self.units > 0).then(|| Arc::new(spec.of_units(self.units)));
        let is_whole = self.units == spec.total();
        self.largest = match &self.spec {
            // Of the whole limit, the high tier may take more than the others.
            Some(_) if is_whole => self.units,
            Some(part) => part.of_lower_tiers().clamp(1, self.units),
            None => 0,
        };
    }

    /// Whether a request was stopped before one of the last calls to the store.
    pub(super) fn was_asked(&self, now: Time) -> bool {
        now < self.asked_at.plus_nanos(ASKED_RESTS)
    }

    /// Whether units stay wanted for a request that was stopped before an earlier call and does not wait. It may be
    /// made again at any moment, and would never find units if they were returned before. Where others lack units,
    /// those that have come stay until the next call only.
    pub(super) fn is_asked_again(&self, now: Time) -> bool {
        self.stopped && self.was_asked(now) && !(self.is_scarce && self.units > 0)
    }

    /// A copy for a limit that a change of the configuration states anew: the process keeps its units, or the whole
    /// limit if that is now smaller.
    pub(super) fn changed(&self, new: &LimitSpec) -> Box<Holding> {
        let mut changed = self.clone();
        changed.set_units(new, self.units);
        changed.floor = self.floor.min(new.floor().each);
        changed.out_of_reach = 0;
        Box::new(changed)
    }

    /// Units wanted by tier: those in use, those that stopped requests need (`queued`), and those expected until the
    /// next call to the store, at most `more`. `waits`: whether the stopped requests wait.
    pub(super) fn want(
        &mut self,
        now: Time,
        used: f32,
        more: u32,
        (queued, waits): ([u32; 3], bool),
        most: u32,
    ) -> [u32; 3] {
        let sum: f32 = self.rate.iter().sum();
        // If nothing was taken lately, the units in use are attributed to the first tier with waiting requests.
        let first = queued.iter().position(|requests| *requests > 0);
        let mut want = [0u32; 3];
        for (tier, want) in want.iter_mut().enumerate() {
            let part = if sum > 0.0 { self.rate[tier] / sum } else { f32::from(u8::from(first == Some(tier))) };
            let of_used = used * part;
            // Half as much again, so that requests that arrive in between need not wait for the store. Float to integer
            // casts saturate.
            let soon = if self.rate[tier] > 0.0 { (self.rate[tier] * 1.5).ceil() as u32 + 1 } else { 0 };
            let soon = soon.min((more as f32 * part).ceil() as u32);
            *want = (of_used.ceil() as u32).saturating_add(soon).saturating_add(queued[tier]).min(most);
            // A process with waiting requests uses few units early in a window and all of them late. To keep it from
            // returning units early that it needs late, what it wants falls slowly while requests wait.
            let before = self.wanted[tier];
            *want = if waits && queued[tier] > 0 { (before - before / 16).max(*want) } else { *want };
            // Units that are kept for another try are no reason to keep a floor.
            let for_another_try = if waits { 0 } else { queued[tier] };
            if *want > for_another_try {
                self.wanted_at = now;
            }
        }
        self.wanted = want;
        want
    }

    pub(super) fn look(&mut self, now: Time) {
        for (rate, taken) in self.rate.iter_mut().zip(&mut self.taken) {
            *rate = (*rate + std::mem::take(taken) as f32) / 2.0;
            // A tier that takes nothing is forgotten after a few calls to the store.
            if *rate < 0.05 {
                *rate = 0.0;
            }
        }
        self.looked_at = now;
    }
}

impl LimitSpec {
    /// The units of the limit that are not reserved for the high tier.
    fn of_lower_tiers(&self) -> u32 {
        match self.kind {
            LimitKind::Rate { guard, .. } => guard.limit().saturating_sub(guard.reserve()),
            LimitKind::Slots { limit } => limit,
        }
    }

    /// How many units a process must hold for a request of `units`: of what it holds, the high tier has the same part
    /// for itself as of the whole limit. That part is rounded down, so one unit is enough for a request of one.
    pub(super) fn held_for(&self, units: u32) -> u32 {
        if units <= 1 {
            return units;
        }
        let (total, lower) = (u64::from(self.total()), u64::from(self.of_lower_tiers().max(1)));
        let held = (u64::from(units) * total).div_ceil(lower).min(total);
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// How many units a process must hold for each that it uses: it uses 80 % of what it holds, as it would of a whole
    /// limit. In a long window, only as many units as the bucket holds come back in time.
    pub(super) fn per_used(&self) -> f32 {
        let LimitKind::Rate { bucket, guard } = self.kind else { return 1.0 };
        let lower = self.of_lower_tiers();
        let usable = if self.is_long() { lower.min(bucket.capacity) } else { lower };
        guard.limit() as f32 / usable.max(1) as f32
    }

    /// Whether the window is so long that a process holds few units beyond those that it uses: if it is killed, the
    /// others would miss them for that long.
    pub(super) fn is_long(&self) -> bool {
        self.pace.window_ns >= LONG
    }

    /// The units kept for when the store does not answer. If the limit is too small for all processes, the first ones
    /// keep one unit each.
    pub(super) fn floor(&self) -> Floor {
        let Some(part) = self.pooled.and_then(|pooled| pooled.floor) else { return Floor::default() };
        let all = u64::from(self.total()) * u64::from(part.millionths.min(1_000_000)) / 1_000_000;
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        Floor { each: (all / part.processes.max(1)).max(all.min(1)), all }
    }

    /// Units that the processes share.
    pub(crate) fn total(&self) -> u32 {
        match self.kind {
            LimitKind::Rate { guard, .. } => guard.limit(),
            LimitKind::Slots { limit } => limit,
        }
    }

    /// Whether a used unit may move to another process before it is free again.
    fn used_units_travel(&self) -> bool {
        matches!(self.kind, LimitKind::Rate { guard: GuardSpec::Log(_), .. })
    }

    pub(super) fn figures(&self) -> Figures {
        let units = self.total();
        match self.kind {
            LimitKind::Rate { guard, .. } => {
                let (again_ns, transit_ns) = guard.counts_for();
                Figures { units, again_ns, transit_ns, travels: self.used_units_travel() }
            }
            LimitKind::Slots { .. } => Figures {
                units,
                again_ns: 0,
                transit_ns: self.pooled.map_or(0, |pooled| pooled.lasts_ns),
                travels: false,
            },
        }
    }

    /// This limit as a process counts it that holds `units` of the total. `units` is at least 1.
    fn of_units(&self, units: u32) -> LimitSpec {
        let of = (units, self.total().max(1));
        let kind = match self.kind {
            LimitKind::Rate { bucket, guard } => LimitKind::Rate { bucket: bucket.part(of), guard: guard.part(of) },
            LimitKind::Slots { .. } => LimitKind::Slots { limit: units },
        };
        LimitSpec { kind, pace: self.pace.part(of), ..self.clone() }
    }
}

/// How long after units were last wanted a process keeps its floor, in nanoseconds.
pub(super) const FLOOR_RESTS: u64 = 600_000_000_000;

/// How long units stay wanted for a request that was stopped and does not wait, in nanoseconds: at least two calls to
/// any store.
const ASKED_RESTS: u64 = 10_000_000_000;

/// The shortest window of which a process holds few units beyond those that it uses, in nanoseconds.
const LONG: u64 = 3_600_000_000_000;
