//! Applies refusals, and the response to the probe that finds out whether a pause is over.

use super::learned::Learned;
use super::pause::Pause;
use super::{CALM, MAX_ENDPOINTS, Notice, Throttle, Wait};
use crate::endpoint::EndpointHash;
use crate::keys::PermitKey;
use crate::pace::{FIRST_GUESS, LEAST_PAUSE, LONGEST_CUT, Pace, TIER_TURN};
use crate::time::Time;

/// However many refusals come, the rate of a limit with a long window stays at this share of the full rate: a vendor's
/// outage would otherwise stop all who share the limit, and from nothing the rate would take days to grow back.
const LEAST_OF_LONG: f64 = 0.25;

/// A request that the vendor refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) permit: PermitKey,
    pub(crate) granted: Time,
    pub(crate) endpoint: EndpointHash,
    /// How long to wait: as the vendor stated, or a guess with an upper bound.
    pub(crate) wait: Wait,
    /// Whether the limit is so full that the refusal may be about it. Otherwise the refusal is about another limit or
    /// is an accident: it pauses this limit and says nothing about its rate.
    pub(crate) in_use: bool,
}

/// A request that the vendor accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) permit: PermitKey,
    /// When the permit was granted.
    pub(crate) granted: Time,
    pub(crate) endpoint: EndpointHash,
}

impl Throttle {
    /// Whether the limit was refused lately: a second refusal is no accident.
    pub(crate) fn has_been_refused(&self, now: Time, pace: &Pace) -> bool {
        let lately = u128::from(pace.window_ns.min(TIER_TURN)) * u128::from(CALM);
        self.paused_at > Time::ZERO && now.since(self.paused_at.max(self.went_on_at)).as_nanos() < lately
    }

    /// Applies a refusal. Returns when to go on, and whether the refusal says something about the rate. It does not if
    /// it is about an endpoint that is refused while others pass.
    pub(crate) fn refused(&mut self, now: Time, refused: &Refused, pace: &Pace) -> (Time, bool) {
        let Refused { permit, granted, endpoint, wait, in_use } = *refused;
        self.failed_at = None;
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let first = if self.guess > 0 { self.guess } else { window / FIRST_GUESS };
        let doubled = |refusals: u32, most: u64| first.saturating_mul(1 << refusals.min(20)).min(most);
        let until = |refusals: u32| match wait {
            Wait::Stated(wait) => now.plus_nanos(wait),
            Wait::Guess { most } => now.plus_nanos(doubled(refusals, most)),
        };
        let full = self.endpoints.len() >= MAX_ENDPOINTS;
        if let Some((_, pause, refusals)) = self.endpoint_mut(endpoint)
            && pause.is_probed_by(permit, granted)
        {
            let until = until(*refusals);
            *refusals = refusals.saturating_add(1);
            *pause = Pause::Until(until);
            if !self.pause.is_probed_by(permit, granted) && !full {
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
            // The request was granted before the pause, so this repeats the refusal that began it. A stated wait holds
            // all the same.
            if matches!(wait, Wait::Stated(_)) {
                self.pause = Pause::Until(self.pause.until().max(until));
            }
            return (self.pause.until().max(now), false);
        }
        // A probe shows whether the pause is over, and nothing about a rate.
        let alone = self.pause.is_probed_by(permit, granted);
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

    /// Ends a pause for the learned rate, which does not grow during a pause: nothing was sent that could prove more
    /// room.
    pub(super) fn pause_ended(&mut self, now: Time) {
        if let Some(learned) = &mut self.learned {
            learned.pause_ended(now, self.paused_at);
        }
    }

    /// Whether the request of this permit, which was granted at `granted`, probes the present pause.
    pub(super) fn is_probed_by(&self, permit: PermitKey, granted: Time) -> bool {
        self.pause.is_probed_by(permit, granted)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause != Pause::Over
    }

    /// Pauses for `wait` nanoseconds because requests failed, the last one at this endpoint.
    pub(super) fn leave_alone(&mut self, now: Time, endpoint: EndpointHash, wait: u64) {
        self.pause = Pause::Until(now.plus_nanos(wait));
        (self.refused_by, self.failed_at, self.paused_at) = (Some(endpoint), Some(endpoint), now);
    }

    /// Cuts the rate after a refusal, because the vendor accepts less than the limit says. `passed`: units granted in
    /// the last window and in its last quarter, if known. `in_use`: the refusal is about this limit and is no accident.
    /// A first refusal may be an accident if the limit was hardly used or if the vendor reported remaining units; a
    /// second one within some windows is not, unless these windows are hours or days.
    pub(crate) fn cut(&mut self, now: Time, passed: Option<(u32, u32)>, in_use: bool, pace: &Pace) -> Option<Notice> {
        if pace.window_ns == 0 {
            return None;
        }
        // Two refusals within days may have nothing in common, and a learned rate would take weeks to grow back. If the
        // window is longer than a cut is believed, each refusal counts as a first one.
        let is_ever_first = pace.window_ns > LONGEST_CUT;
        let learned = self.learned.filter(|_| !is_ever_first);
        let full = pace.window_ns as f64 / pace.unit_ns.max(1) as f64;
        let allowed = learned.map_or(full, |learned| learned.rate()).min(full);
        // At least half of the allowed units: if the lane was hardly used, the units that passed show nothing. Units
        // sent in one burst fall into one of the vendor's windows, so their count is what the vendor accepts. If the
        // lane had been sending evenly, its last window would hold the allowed units, whatever the vendor's limit is.
        let (passed, late) = passed.map_or((allowed, 0.0), |(all, late)| (all.into(), late.into()));
        let exact = pace.counting.regrows() || late >= 0.9 * passed;
        let idle = passed < allowed / 2.0;
        let passed = passed.clamp(allowed / 2.0, allowed);
        let has_room = self.left(now, pace).is_some_and(|(left, ..)| left > 0);
        let went_on_at = self.went_on_at;
        let lately = u128::from(CALM) * u128::from(pace.window_ns);
        let recent = |at: Time| !is_ever_first && now.since(at.max(went_on_at)).as_nanos() < lately;
        let before = self.refused_at.replace((now, passed, exact)).filter(|(at, ..)| recent(*at));
        let is_first = before.is_none() && learned.is_none();
        if !in_use || (is_first && (idle || has_room)) {
            return None;
        }
        let (passed, exact) = match before {
            Some((_, before, exactly)) if before < passed => (before.max(allowed / 2.0), exactly),
            _ => (passed, exact),
        };
        let cost = self.pause.until().since(now).as_nanos() as u64;
        let learned = Learned::refused(learned, now, allowed, (passed, exact), cost, is_first);
        let learned = if pace.is_long() { learned.at_least(full * LEAST_OF_LONG) } else { learned };
        self.learned = Some(learned);
        self.next = self.next.max(now);
        Some(Notice::Yielded { per_window: learned.rate() as u64 })
    }

    /// Ends the pauses that this permit probed, because the vendor accepted its request. Returns whether it probed any.
    pub(crate) fn passed(&mut self, now: Time, passed: &Passed, pace: &Pace) -> bool {
        let Passed { permit, granted, endpoint } = *passed;
        let probed_endpoint = self.endpoint(endpoint).is_some_and(|(_, pause, _)| pause.is_probed_by(permit, granted));
        if probed_endpoint {
            self.cut_for = self.cut_for.filter(|(of, _)| *of != endpoint);
            self.endpoints.retain(|(id, ..)| *id != endpoint);
        }
        if !self.pause.is_probed_by(permit, granted) {
            return probed_endpoint;
        }
        self.pause = Pause::Over;
        let stood = u64::try_from(now.since(self.stands_since).as_nanos()).unwrap_or(u64::MAX);
        if self.refusals > 0 {
            self.note_sufficient_pause(stood, pace);
        }
        (self.refusals, self.went_on_at) = (0, now);
        let over = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        // A rate that was cut allows no burst, so it needs no ramp.
        let ramps = std::mem::take(&mut self.in_use) && self.learned.is_none();
        self.ramp = ramps.then(|| (now, stood.min(over).min(30 * LEAST_PAUSE)));
        self.next = now;
        // The endpoint whose refusal began the pause has not passed yet, so it is probed on its own.
        if let Some(refused_by) = self.refused_by.take()
            && refused_by != endpoint
            && self.endpoint(refused_by).is_none()
            && self.endpoints.len() < MAX_ENDPOINTS
        {
            self.endpoints.push((refused_by, Pause::Until(now), 1));
        }
        true
    }

    /// A pause of `stood` nanoseconds was long enough: the next one begins at half of it, unless that was too short
    /// before.
    fn note_sufficient_pause(&mut self, stood: u64, pace: &Pace) {
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let first = if self.guess > 0 { self.guess } else { window / FIRST_GUESS };
        let last = first.saturating_mul(1 << (self.refusals - 1).min(20));
        // A pause shorter than a window ended with the window, which may be near or far, so it says nothing about a
        // length that is too short.
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
    /// Pauses until `later`, because a vendor that refused nothing asks for no requests before `until`. Returns `false`
    /// if `until` has passed or a pause of that length is already in force.
    pub(crate) fn wait_until(&mut self, now: Time, until: Time, later: Time) -> bool {
        if until <= now {
            return false;
        }
        self.failed_at = None;
        if self.pause.until() >= until {
            return false;
        }
        if self.pause.until() <= now {
            (self.stands_since, self.paused_at) = (now, now);
        }
        self.pause = Pause::Until(later);
        true
    }

    /// Replaces the keys of permits that have moved to another engine: pairs of the old key and the new one. If a
    /// probe's permit is not among them, the next request is the probe instead.
    pub(crate) fn rename_permits(&mut self, now: Time, keys: &[(PermitKey, PermitKey)]) {
        let pauses = self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.pause]);
        for pause in pauses {
            if let Pause::Probing(probe) = pause {
                match keys.iter().find(|(before, _)| *before == probe.permit) {
                    Some((_, permit)) => probe.permit = *permit,
                    None => *pause = Pause::Until(now),
                }
            }
        }
    }
}
