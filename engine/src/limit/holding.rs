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

use super::guard::GuardSpec;
use super::spec::{LimitKind, LimitSpec};
use crate::tier::Tier;
use crate::time::Time;

/// Units that this process holds of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    pub(super) units: u32,
    /// The limit as it is for these units; none while there are no units.
    pub(super) spec: Option<Arc<LimitSpec>>,
    /// The lease's end: nothing is granted or started from then on, but for what goes by the floor.
    pub(super) until: Time,
    /// Of the units, those that are held until `floor_until`: with them the process goes on when the store does not answer.
    pub(super) floor: u32,
    pub(super) floor_until: Time,
    /// The lease has ended, and the units held are those of the floor.
    pub(super) is_away: bool,
    /// When the last lease was found to have ended: what was granted before may not start any more.
    pub(super) ended_at: Time,
    /// Another process was told to wait: nothing is granted before.
    pub(super) paused_until: Time,
    /// What the process may keep, as the store said last.
    pub(super) keep: u32,
    /// Units of which the store wants to hear at once that they have been used: there are too few for each process to keep some.
    pub(super) travels: bool,
    /// Units taken since the last look, by tier.
    pub(super) taken: [u32; 3],
    /// Units taken between two looks, by tier, smoothed.
    pub(super) rate: [f32; 3],
    /// A request is stopped here: none has gone since.
    pub(super) stopped: bool,
    /// The most that one of these needs at once.
    pub(super) need: u32,
    /// A request was stopped since the last look, though it may not wait.
    pub(super) asked: bool,
    /// The store let the process keep all that it wanted.
    pub(super) met: bool,
    /// What was wanted at the last look, by tier, while requests waited.
    pub(super) wanted: [u32; 3],
    pub(super) looked_at: Time,
    /// When something was wanted last.
    pub(super) wanted_at: Time,
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
    /// What of the units is to be kept for when the store does not answer.
    pub floor: Floor,
    /// For how long the vendor wants the limit to be left alone, in nanoseconds; 0 where it does not.
    pub paused_ns: u64,
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

/// Units that processes hold under a longer lease than the others, to go on with when the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floor {
    /// Units that one process keeps at most.
    pub each: u32,
    /// Units that all processes together keep at most.
    pub all: u32,
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
    /// For how long another process was told to wait, in nanoseconds.
    pub paused_ns: u64,
    /// Of the units held now: those that are held until `floor_until`, when the rest of the lease has ended.
    pub floor: u32,
    pub floor_until: Time,
}

impl Holding {
    pub(super) fn none() -> Holding {
        Holding {
            units: 0,
            spec: None,
            until: Time::ZERO,
            floor: 0,
            floor_until: Time::ZERO,
            is_away: false,
            ended_at: Time::ZERO,
            paused_until: Time::ZERO,
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

    /// Units are held under a lease that has ended.
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
    pub(super) fn stops(&mut self, now: Time, units: u32) -> bool {
        let stops = self.has_ended(now) || units > self.units;
        if stops {
            self.stop(units);
        }
        stops
    }

    /// A request that needs `units` was stopped at this limit.
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

    pub(super) fn set_units(&mut self, spec: &LimitSpec, units: u32) {
        self.units = units.min(spec.total());
        self.spec = (self.units > 0).then(|| Arc::new(spec.of_units(self.units)));
    }

    /// Something is held, or was wanted a moment ago.
    pub(super) fn is_in_use(&self) -> bool {
        self.units > 0 || self.asked
    }

    /// A copy for the limit as a change of the configuration states it: the process keeps its units, or all of the limit if that is less now.
    pub(super) fn changed(&self, new: &LimitSpec) -> Box<Holding> {
        let mut changed = self.clone();
        changed.set_units(new, self.units);
        changed.floor = self.floor.min(new.floor().each);
        Box::new(changed)
    }

    /// What is wanted by tier, in units: what is in use, what waits, and what is taken until the next look.
    pub(super) fn want(&mut self, now: Time, used: f32, queued: [u32; 3], most: u32) -> [u32; 3] {
        let sum: f32 = self.rate.iter().sum();
        // Where nothing was taken lately, what is in use is put to the first tier that waits.
        let first = queued.iter().position(|requests| *requests > 0);
        let mut want = [0u32; 3];
        for (tier, want) in want.iter_mut().enumerate() {
            let part = if sum > 0.0 { self.rate[tier] / sum } else { f32::from(u8::from(first == Some(tier))) };
            let of_used = used * part;
            // Half as much again, so that what comes in between need not wait for the store. Float to integer casts saturate.
            let soon = if self.rate[tier] > 0.0 { (self.rate[tier] * 1.5).ceil() as u32 + 1 } else { 0 };
            *want = (of_used.ceil() as u32).saturating_add(soon).saturating_add(queued[tier]).min(most);
            // A process whose requests wait uses few units early in a window and all of them late. It would give units back early that
            // it needs late, so while requests wait what it wants falls slowly.
            let before = self.wanted[tier];
            *want = if queued[tier] > 0 { (before - before / 16).max(*want) } else { *want };
        }
        self.wanted = want;
        if want.iter().any(|want| *want > 0) {
            self.wanted_at = now;
        }
        want
    }

    pub(super) fn look(&mut self, now: Time) {
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
    /// How many units a process has to hold for each that it uses: it keeps to 80 % of what it holds, as of a whole limit. Of a long
    /// window no more than its bucket holds comes back in time.
    pub(super) fn per_used(&self) -> f32 {
        let LimitKind::Rate { bucket, guard } = self.kind else { return 1.0 };
        let lower = guard.limit().saturating_sub(guard.reserve());
        let usable = if self.is_long() { lower.min(bucket.capacity) } else { lower };
        guard.limit() as f32 / usable.max(1) as f32
    }

    /// A process that is killed would keep what it holds from the others for so long that it holds little beyond what it uses.
    pub(super) fn is_long(&self) -> bool {
        self.pace.window_ns >= LONG
    }

    /// What is kept of the limit for when the store does not answer. Of a limit that is small for so many processes, the first ones keep a unit.
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

    pub(super) fn figures(&self) -> Figures {
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

    /// This limit as a process counts it that holds `units` of the total; at least one of them.
    fn of_units(&self, units: u32) -> LimitSpec {
        let of = (units, self.total().max(1));
        let kind = match self.kind {
            LimitKind::Rate { bucket, guard } => LimitKind::Rate { bucket: bucket.part(of), guard: guard.part(of) },
            LimitKind::Slots { .. } => LimitKind::Slots { limit: units },
        };
        LimitSpec { kind, pace: self.pace.part(of), ..self.clone() }
    }
}

/// For so long after something was wanted of a limit a process keeps its floor, in nanoseconds.
pub(super) const FLOOR_RESTS: u64 = 600_000_000_000;

/// Of windows of this length and more, in nanoseconds, a process holds little beyond what it uses.
const LONG: u64 = 3_600_000_000_000;
