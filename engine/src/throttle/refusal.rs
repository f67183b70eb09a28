//! What refusals change, and the answer to the request that finds out whether a pause is over.

use super::learned::Learned;
use super::pause::Pause;
use super::{CALM, MAX_ENDPOINTS, Notice, Throttle, WITNESS_MEMORY, Wait};
use crate::endpoint::EndpointHash;
use crate::keys::PermitKey;
use crate::pace::{FIRST_GUESS, LEAST_PAUSE, Pace, TIER_TURN};
use crate::time::Time;

/// A request that the vendor refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) permit: PermitKey,
    pub(crate) granted: Time,
    pub(crate) endpoint: EndpointHash,
    /// How long to wait, as the vendor said, or at most, where it did not say.
    pub(crate) wait: Wait,
    /// The limit is used so much that it may be the one. A refusal of another limit, or an accident, pauses this one and
    /// says nothing about its rate.
    pub(crate) in_use: bool,
}

impl Throttle {
    /// It was refused lately: the second time is no accident.
    pub(crate) fn has_been_refused(&self, now: Time, pace: &Pace) -> bool {
        let lately = u128::from(pace.window_ns.min(TIER_TURN)) * u128::from(CALM);
        self.paused_at > Time::ZERO && now.since(self.paused_at.max(self.went_on_at)).as_nanos() < lately
    }

    /// The vendor refused a request. Returns when to go on, and whether it says something about the rate: one of an endpoint
    /// that is refused while others pass is its own.
    pub(crate) fn refused(&mut self, now: Time, refused: &Refused, pace: &Pace) -> (Time, bool) {
        let Refused { permit, granted, endpoint, wait, in_use } = *refused;
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let first = if self.guess > 0 { self.guess } else { window / FIRST_GUESS };
        let doubled = |refusals: u32, most: u64| first.saturating_mul(1 << refusals.min(20)).min(most);
        let until = |refusals: u32| match wait {
            Wait::Stated(wait) => now.plus_nanos(wait),
            Wait::Guess { most } => now.plus_nanos(doubled(refusals, most)),
        };
        let full = self.endpoints.len() >= MAX_ENDPOINTS;
        if let Some((_, pause, refusals)) = self.endpoint_mut(endpoint)
            && *pause == Pause::Probing(permit)
        {
            let until = until(*refusals);
            *refusals = refusals.saturating_add(1);
            *pause = Pause::Until(until);
            if self.pause != Pause::Probing(permit) && !full {
                if let Some((_, before)) = self.cut_for.take_if(|(of, _)| *of == endpoint) {
                    self.learned = before;
                    self.calm_until = now;
                    self.next = self.next.min(now);
                }
                return (until, false);
            }
        }
        let until = until(self.refusals);
        if granted < self.paused_at {
            // It went before the lane was paused: the same refusal again. What the vendor says holds all the same.
            if matches!(wait, Wait::Stated(_)) {
                self.pause = Pause::Until(self.pause.until().max(until));
            }
            return (self.pause.until().max(now), false);
        }
        // Who goes alone shows whether the pause is over, and nothing about a rate.
        let alone = self.pause == Pause::Probing(permit);
        if !alone {
            self.cut_for = Some((endpoint, self.learned));
        }
        if self.refusals == 0 {
            if in_use {
                self.quota.refused();
            }
            self.stands_since = now;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.pause = Pause::Until(until.max(self.pause.until()));
        (self.refused_by, self.paused_at) = (Some(endpoint), now);
        self.in_use |= in_use;
        if in_use {
            self.calm_down(self.pause.until(), pace);
        }
        (self.pause.until(), !alone)
    }

    /// A pause ends. A rate does not grow in it: nothing was sent that could have shown that there is room.
    pub(super) fn pause_groups(&mut self, now: Time) {
        if let Some(learned) = &mut self.learned {
            learned.pause_groups(now, self.paused_at);
        }
    }

    /// One request is in flight to find out whether the pause is over, and it is this one.
    pub(super) fn is_probed_by(&self, permit: PermitKey) -> bool {
        self.pause == Pause::Probing(permit)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause != Pause::Over
    }

    /// Nothing goes for so long, in nanoseconds, because of an answer about this endpoint.
    pub(super) fn leave_alone(&mut self, now: Time, endpoint: EndpointHash, wait: u64) {
        self.pause = Pause::Until(now.plus_nanos(wait));
        (self.refused_by, self.paused_at) = (Some(endpoint), now);
    }

    /// How long this limit stands because of a refusal of `tenant`'s which asks to wait `wait` nanoseconds: at most `most`,
    /// unless another tenant was refused before. One answer that is wrong does not stop all who share a limit for a month.
    pub(crate) fn believed(&mut self, now: Time, tenant: u64, wait: u64, most: u64) -> u64 {
        if wait <= most {
            return wait;
        }
        match self.witness.filter(|(_, until)| until.plus_nanos(WITNESS_MEMORY) > now) {
            Some((witness, _)) if witness != tenant => wait,
            _ => {
                self.witness = Some((tenant, now.plus_nanos(most)));
                most
            }
        }
    }

    /// The vendor takes fewer than the limits say: `passed` units in the last window and its last quarter; none where
    /// that is not known. A refusal of a limit that was hardly used may be an accident, and so may one of a limit of which
    /// the vendor itself said that something is left: the second within some windows is none. `in_use`: it is no accident,
    /// and it is this limit that was refused for.
    pub(crate) fn cut(&mut self, now: Time, passed: Option<(u32, u32)>, in_use: bool, pace: &Pace) -> Option<Notice> {
        if pace.window_ns == 0 {
            return None;
        }
        let full = pace.window_ns as f64 / pace.unit_ns.max(1) as f64;
        let allowed = self.learned.map_or(full, |learned| learned.rate()).min(full);
        // Half of what is allowed at least: a lane that was hardly used shows nothing by what passed.
        // What goes in one go meets one of the vendor's windows: the count is what it takes. Had the lane been sending
        // evenly, its last window would hold what is allowed, whatever the vendor's limit is.
        let (passed, late) = passed.map_or((allowed, 0.0), |(all, late)| (all.into(), late.into()));
        let exact = pace.counting.regrows() || late >= 0.9 * passed;
        let idle = passed < allowed / 2.0;
        let passed = passed.clamp(allowed / 2.0, allowed);
        let has_room = self.left(now, pace).is_some_and(|(left, ..)| left > 0);
        let went_on_at = self.went_on_at;
        let lately = u128::from(CALM) * u128::from(pace.window_ns);
        let recent = |at: Time| now.since(at.max(went_on_at)).as_nanos() < lately;
        let before = self.refused_at.replace((now, passed, exact)).filter(|(at, ..)| recent(*at));
        let is_first = before.is_none() && self.learned.is_none();
        if !in_use || (is_first && (idle || has_room)) {
            return None;
        }
        let (passed, exact) = match before {
            Some((_, before, exactly)) if before < passed => (before.max(allowed / 2.0), exactly),
            _ => (passed, exact),
        };
        let cost = self.pause.until().since(now).as_nanos() as u64;
        let learned = Learned::refused(self.learned, now, allowed, (passed, exact), cost, is_first);
        self.learned = Some(learned);
        self.next = self.next.max(now);
        Some(Notice::Yielded { per_window: learned.rate() as u64 })
    }

    /// The vendor took what this permit stood for.
    pub(crate) fn passed(&mut self, now: Time, permit: PermitKey, endpoint: EndpointHash, pace: &Pace) {
        if self.endpoint(endpoint).is_some_and(|(_, pause, _)| *pause == Pause::Probing(permit)) {
            self.cut_for = self.cut_for.filter(|(of, _)| *of != endpoint);
        }
        self.endpoints.retain(|(id, pause, _)| !(*id == endpoint && *pause == Pause::Probing(permit)));
        if self.pause != Pause::Probing(permit) {
            return;
        }
        self.pause = Pause::Over;
        let stood = u64::try_from(now.since(self.stands_since).as_nanos()).unwrap_or(u64::MAX);
        if self.refusals > 0 {
            self.sufficed(stood, pace);
        }
        (self.refusals, self.went_on_at) = (0, now);
        let over = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        // A rate that was cut is no burst.
        let ramps = std::mem::take(&mut self.in_use) && self.learned.is_none();
        self.ramp = ramps.then(|| (now, stood.min(over).min(30 * LEAST_PAUSE)));
        self.next = now;
        // Whose refusal it was has yet to show that it is open.
        if let Some(refused_by) = self.refused_by.take()
            && refused_by != endpoint
            && self.endpoint(refused_by).is_none()
            && self.endpoints.len() < MAX_ENDPOINTS
        {
            self.endpoints.push((refused_by, Pause::Until(now), 1));
        }
    }

    /// The lane stood for so long, and that was enough: half of it will be tried next, unless that was too short before.
    fn sufficed(&mut self, stood: u64, pace: &Pace) {
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let first = if self.guess > 0 { self.guess } else { window / FIRST_GUESS };
        let last = first.saturating_mul(1 << (self.refusals - 1).min(20));
        // Within a window it is the window's end that was waited for, which comes sooner or later each time.
        if self.refusals > 1 && stood > window {
            self.too_short = self.too_short.max(first);
        }
        self.guess = (last / 2).max(window / 8).max(self.too_short.saturating_mul(2));
        if let Some(learned) = &mut self.learned {
            learned.paused_for(stood);
        }
    }
}

impl Throttle {
    /// The vendor asks to wait until `until`, and has refused nothing. The lane does so until `later`, unless it waits that
    /// long already. Returns whether it did not.
    pub(crate) fn wait_until(&mut self, now: Time, until: Time, later: Time) -> bool {
        if self.pause.until() >= until || until <= now {
            return false;
        }
        if self.pause.until() <= now {
            (self.stands_since, self.paused_at) = (now, now);
        }
        self.pause = Pause::Until(later);
        true
    }

    /// The lane has used more of a shared limit than was there: it sends nothing before this moment.
    pub(crate) fn pay_back(&mut self, until: Time) {
        self.next = self.next.max(until);
    }

    /// In another engine permits have other keys: pairs of what they were and what they are. What a permit that is not among
    /// them was to find out, another will.
    pub(crate) fn rename_permits(&mut self, now: Time, keys: &[(PermitKey, PermitKey)]) {
        let pauses = self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.pause]);
        for pause in pauses {
            if let Pause::Probing(probe) = pause {
                let found = keys.iter().find(|(before, _)| before == probe);
                *pause = found.map_or(Pause::Until(now), |(_, key)| Pause::Probing(*key));
            }
        }
    }
}
