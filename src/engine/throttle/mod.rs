//! What makes a lane slower than its limits: what its vendor says is left, and what it refuses.
//!
//! | heard | done |
//! |---|---|
//! | little is left | grants are spaced out: 3/4, 1/2, 1/4 of the lane's rate below 30, 20, 10 % |
//! | very little is left | below 10 % the low tier waits, below 5 % the normal tier too; each gets one grant a window |
//! | nothing is left | the lane waits for the reset, or for one unit where units come back one by one |
//! | five failures in a row, or five connections closed over unprocessed requests | the lane is left alone for a second, longer each time; then one request goes alone |
//! | a refusal | the lane waits as long as it was told, or longer each time; then one request goes alone |
//! | the same endpoint again, while others pass | that endpoint alone waits |
//! | a refusal without a word about what is left | the lane's own rate is cut to what did pass, and grows again |
//! | others take of the same limit | what is believed to be left shrinks as they take it |
//!
//! The spacing is between grants, so a full bucket does not get around it; a lane that was refused, or shares its key,
//! sends no bursts for some windows. A report may make a lane slower than its limits, never faster.

mod endpoint;
mod learned;
mod pause;
mod told;

use super::limit::Lack;
use super::limit::window_log::Free;
use super::plan::{EndpointId, Pace};
use super::slab::Key;
use super::turns::Need;
use crate::clock::Time;
use learned::Learned;
use pause::Pause;
pub(crate) use told::Report;
use told::{News, Reports};

/// The least that a lane waits when nothing is left, in nanoseconds.
const LEAST_PAUSE: u64 = 1_000_000_000;
/// A tier that waits for scarcity to end gets a grant at least this often, in nanoseconds.
const TIER_TURN: u64 = 60_000_000_000;
/// Failures in a row after which a lane is left alone.
const FAILURES: u32 = 5;
/// The longest that it is then, in nanoseconds.
const LONGEST_OPEN: u64 = 30_000_000_000;
/// Where nobody says how long to wait, this part of a window is tried first.
const FIRST_GUESS: u64 = 4;
/// Windows without bursts after a refusal.
const CALM: u64 = 10;
/// Endpoints that wait for themselves. Above it the lane waits as a whole.
const MOST_ENDPOINTS: usize = 64;

/// How a lane slows down on what its vendor reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Bands,
    /// What is left, spread over the time until the reset.
    Pace,
    Off,
}

/// What somebody should know.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Notice {
    /// Grants are spaced out.
    Slower { remaining_pct: u64, delay_ns: u64 },
    /// Nothing goes before this moment.
    Exhausted { until: Time },
    /// The vendor takes requests again.
    Recovered,
    /// The vendor takes fewer than its limit says: somebody else uses the key, or the limit is another.
    Yielded { per_window: u64 },
}

/// Whether a request may go as far as the vendor's word is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    Shut(Free, Lack),
}

/// One lane's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    lane: Pause,
    /// An operator's pause; it ends by an operator's word alone.
    held: bool,
    /// Whose refusal paused the lane.
    refused_by: Option<EndpointId>,
    /// Failures without an answer of another kind in between.
    failures: u32,
    /// When the vendor last closed a connection with requests on it that it had not processed.
    disowned_at: Time,
    /// The last refusal that paused the lane, the units that had passed in the window before it, and whether that is
    /// exactly what the vendor took.
    refused_at: Option<(Time, f64, bool)>,
    /// The first of the refusals that followed each other: the lane stands since then.
    stands_since: Time,
    /// How long to wait where nobody says how long, in nanoseconds, and what is known to be too short.
    guess: u64,
    too_short: u64,
    /// When the pause of the lane began: refusals of what went before it say nothing new.
    paused_at: Time,
    /// Refusals without an answer of another kind in between.
    refusals: u32,
    endpoints: Vec<(EndpointId, Pause, u32)>,
    reports: Reports,
    /// Somebody was told that others use the key.
    yields: bool,
    learned: Option<Learned>,
    /// Whose refusal cut the rate last, and what it was before. If that endpoint turns out to refuse while others pass,
    /// the cut was for nothing.
    cut_for: Option<(EndpointId, Option<Learned>)>,
    /// After a pause the rate grows back from a tenth: since when, and over how many nanoseconds.
    ramp: Option<(Time, u64)>,
    /// Until then grants are spaced out even at the full rate.
    calm_until: Time,
    /// The limit that the vendor states over the lane's window, which is less than the lane goes by, and until when that
    /// is believed.
    stated: Option<(u64, Time)>,
    /// The next grant is not before this moment.
    next: Time,
    /// The last grant of the normal and the low tier.
    last: [Time; 2],
}

impl Throttle {
    /// Nothing in here changes what happens from `now` on.
    pub(crate) fn is_idle(&self, now: Time, pace: &Pace) -> bool {
        let over = |pause: Pause| pause.is_long_over(now);
        !self.held
            && over(self.lane)
            && self.endpoints.iter().all(|(_, pause, _)| over(*pause))
            && self.reports.told.is_none_or(|told| told.until <= now)
            && self.calm_until <= now
            && self.stated.is_none_or(|(_, until)| until <= now)
            && self.learned.is_none_or(|mut learned| {
                learned.advance(now, pace);
                learned.is_full(pace)
            })
            && self.ramp.is_none_or(|(since, over)| since.plus_nanos(over) <= now)
            && self.next <= now
    }

    fn endpoint(&self, endpoint: EndpointId) -> Option<&(EndpointId, Pause, u32)> {
        self.endpoints.iter().find(|(id, ..)| *id == endpoint)
    }

    fn endpoint_mut(&mut self, endpoint: EndpointId) -> Option<&mut (EndpointId, Pause, u32)> {
        self.endpoints.iter_mut().find(|(id, ..)| *id == endpoint)
    }

    /// Whether a request to `endpoint` may go as far as that endpoint is concerned. `others`: requests to other
    /// endpoints wait too, and rather one of them is to find out whether the lane is open.
    pub(crate) fn endpoint_gate(&self, now: Time, endpoint: EndpointId, others: bool) -> Gate {
        if others && self.refused_by == Some(endpoint) && self.lane != Pause::Over {
            let soon = self.lane.until().max(now).plus_nanos(LEAST_PAUSE);
            return Gate::Shut(Free::OnSettle(soon), Lack::Probe);
        }
        self.endpoint(endpoint).map_or(Gate::Open, |(_, pause, _)| pause.gate(now))
    }

    /// Whether anything may go.
    pub(crate) fn gate(&self, now: Time, tier: u8, cost: u32, pace: &Pace) -> Gate {
        if self.held {
            return Gate::Shut(Free::OnSettle(Time::MAX), Lack::Held);
        }
        let lane = self.lane.gate(now);
        if lane != Gate::Open {
            return lane;
        }
        if let Some(told) = self.reports.told.filter(|told| told.until > now) {
            let free = told.free(now, cost, pace);
            if free > now {
                return Gate::Shut(Free::At(free), Lack::Reported);
            }
            let scarce = (tier == 2 && told.percent < 10) || (tier == 1 && told.percent < 5);
            if scarce && pace.mode == Mode::Bands {
                let turn = self.last[tier as usize - 1].plus_nanos(pace.window_ns.clamp(1, TIER_TURN));
                if turn > now {
                    return Gate::Shut(Free::At(turn.min(told.until)), Lack::Scarce);
                }
            }
        }
        match self.next > now {
            true => Gate::Shut(Free::At(self.next), Lack::Throttled),
            false => Gate::Open,
        }
    }

    /// A request goes, which was due at `due`.
    pub(in crate::engine) fn take(&mut self, due: Time, now: Time, need: &Need, permit: Key, pace: &Pace) {
        let Need { tier, endpoint, cost, .. } = *need;
        let cost = cost.points;
        self.reports.granted(cost);
        if tier > 0 {
            self.last[tier as usize - 1] = now;
        }
        if matches!(self.lane, Pause::Until(_)) {
            self.lane = Pause::Probing(permit);
            self.stand_still(now);
        }
        if let Some((_, pause @ Pause::Until(_), _)) = self.endpoint_mut(endpoint) {
            *pause = Pause::Probing(permit);
        }
        self.forget_past(now);
        if let Some(spacing) = self.spacing(now, pace) {
            self.next = self.next.max(due).plus_nanos(spacing.saturating_mul(cost as u64));
        }
    }

    fn forget_past(&mut self, now: Time) {
        self.reports.forget_past(now);
        if self.ramp.is_some_and(|(since, over)| since.plus_nanos(over) <= now) {
            self.ramp = None;
        }
    }

    /// Nanoseconds between grants of one unit; none where the limits alone decide.
    pub(in crate::engine) fn spacing(&mut self, now: Time, pace: &Pace) -> Option<u64> {
        let unit = pace.unit_ns;
        let mut spacing = if now < self.calm_until { unit } else { 0 };
        if let Some(told) = self.reports.told {
            spacing = match told.spacing {
                Some(spacing) => spacing,
                None if told.share < 100 => unit.saturating_mul(100) / told.share.max(1),
                None => spacing,
            };
        }
        if let Some((since, over)) = self.ramp {
            let passed = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
            let share = (10 + passed.saturating_mul(90) / over.max(1)).min(100);
            spacing = spacing.max(unit.saturating_mul(100) / share);
        }
        if let Some((stated, _)) = self.stated.filter(|(_, until)| *until > now) {
            spacing = spacing.max(unit.saturating_mul(pace.limit) / stated.max(1));
        }
        if let Some(learned) = &mut self.learned {
            learned.advance(now, pace);
            spacing = spacing.max(learned.spacing(pace));
            if learned.is_full(pace) {
                self.learned = None;
            }
        }
        (spacing > 0).then_some(spacing)
    }

    fn calm_down(&mut self, now: Time, pace: &Pace) {
        self.calm_until = self.calm_until.max(now.plus_nanos(pace.window_ns.min(TIER_TURN).saturating_mul(CALM)));
    }

    /// A response to what was granted at `granted` told what is left, while `in_flight` others were under way.
    pub(crate) fn report(
        &mut self,
        now: Time,
        granted: Time,
        in_flight: u32,
        report: Report,
        pace: &Pace,
    ) -> Option<Notice> {
        if let Some(stated) = report.stated.filter(|stated| (1..pace.limit).contains(stated)) {
            // Each answer states it again; the plan may change while none comes.
            let until = now.plus_nanos(pace.window_ns.saturating_mul(CALM));
            self.stated = Some((stated, until));
        } else if granted >= self.reports.told_of() {
            self.stated = None;
        }
        let news = self.reports.hear(now, granted, in_flight, report, pace);
        let others = self.reports.others(pace);
        if others.is_some() {
            self.calm_down(now, pace);
        }
        let yields = others.filter(|_| !self.yields);
        self.yields = others.is_some();
        if let Some(others) = yields {
            return Some(Notice::Yielded { per_window: report.limit.saturating_sub(others) });
        }
        match news? {
            News::Slower { percent } => {
                let delay_ns = self.spacing(now, pace).unwrap_or(0);
                Some(Notice::Slower { remaining_pct: percent, delay_ns })
            }
            News::Exhausted => {
                self.calm_down(now, pace);
                let until = self.reports.told.map_or(now, |told| told.free(now, 1, pace));
                Some(Notice::Exhausted { until })
            }
        }
    }

    /// The vendor refused what was granted at `granted`. `wait`: how long to wait, as the vendor said, or at most, as
    /// nobody said. Returns when to go on, and whether it says something about the lane's rate: one that came with a
    /// wait may be an accident, and one of an endpoint that is refused while others pass is its own.
    pub(crate) fn refused(
        &mut self,
        now: Time,
        permit: Key,
        granted: Time,
        endpoint: EndpointId,
        wait: Wait,
        pace: &Pace,
    ) -> (Time, bool) {
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let first = if self.guess > 0 { self.guess } else { window / FIRST_GUESS };
        let doubled = |refusals: u32, most: u64| first.saturating_mul(1 << refusals.min(20)).min(most);
        let until = |refusals: u32| match wait {
            Wait::Told(wait) => now.plus_nanos(wait),
            Wait::Guess { most } => now.plus_nanos(doubled(refusals, most)),
        };
        let full = self.endpoints.len() >= MOST_ENDPOINTS;
        if let Some((_, pause, refusals)) = self.endpoint_mut(endpoint)
            && *pause == Pause::Probing(permit)
        {
            let until = until(*refusals);
            *refusals = refusals.saturating_add(1);
            *pause = Pause::Until(until);
            if self.lane != Pause::Probing(permit) && !full {
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
            if matches!(wait, Wait::Told(_)) {
                self.lane = Pause::Until(self.lane.until().max(until));
            }
            return (self.lane.until().max(now), false);
        }
        // Who goes alone shows whether the pause is over, and nothing about a rate.
        let alone = self.lane == Pause::Probing(permit);
        if self.refusals == 0 {
            self.stands_since = now;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.lane = Pause::Until(until.max(self.lane.until()));
        (self.refused_by, self.paused_at) = (Some(endpoint), now);
        self.calm_down(self.lane.until(), pace);
        (self.lane.until(), !alone)
    }

    /// A pause ends. A rate does not grow in it: nothing was sent that could have shown that there is room.
    fn stand_still(&mut self, now: Time) {
        if let Some(learned) = &mut self.learned {
            learned.stand_still(now, self.paused_at);
        }
    }

    /// The vendor closed a connection before it processed what was granted at `granted`. Returns whether that is a failure of
    /// its own: one closed connection ends many exchanges at once.
    pub(crate) fn is_disowned_anew(&mut self, now: Time, granted: Time) -> bool {
        let is_new = granted >= self.disowned_at;
        self.disowned_at = if is_new { now } else { self.disowned_at };
        is_new
    }

    /// The vendor failed. After a row of failures the lane is left alone, longer each time, and then tried by one.
    pub(crate) fn failed(&mut self, now: Time, permit: Key, endpoint: EndpointId) -> Option<Time> {
        let probed = self.lane == Pause::Probing(permit);
        // What was under way when the pause began failed by the same cause. Counted, a hundred of them would make the next
        // pause the longest.
        if !probed && self.lane != Pause::Over {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if !probed && self.failures < FAILURES {
            return None;
        }
        let wait = (LEAST_PAUSE << self.failures.saturating_sub(FAILURES).min(5)).min(LONGEST_OPEN);
        self.lane = Pause::Until(now.plus_nanos(wait));
        (self.refused_by, self.paused_at) = (Some(endpoint), now);
        Some(now.plus_nanos(wait))
    }

    /// The vendor takes fewer than the limits say: `passed` units in the last window and its last quarter; none where
    /// that is not known. A refusal of a lane that was hardly used, and that came with a wait, may be an
    /// accident: the second within some windows is none.
    pub(crate) fn cut(&mut self, now: Time, passed: Option<(u32, u32)>, wait: Wait, pace: &Pace) -> Option<Notice> {
        if pace.window_ns == 0 {
            return None;
        }
        let full = pace.window_ns as f64 / pace.unit_ns.max(1) as f64;
        let allowed = self.learned.map_or(full, |learned| learned.rate()).min(full);
        // Half of what is allowed at least: a lane that was hardly used shows nothing by what passed.
        // What goes in one go meets one of the vendor's windows: the count is what it takes. Had the lane been sending
        // evenly, its last window would hold what is allowed, whatever the vendor's limit is.
        let (passed, late) = passed.map_or((allowed, 0.0), |(all, late)| (all.into(), late.into()));
        let exact = pace.regrows || late >= 0.9 * passed;
        let idle = passed < allowed / 2.0;
        let passed = passed.clamp(allowed / 2.0, allowed);
        let recent = |at: Time| now.since(at).as_nanos() < u128::from(CALM) * u128::from(pace.window_ns);
        let before = self.refused_at.replace((now, passed, exact)).filter(|(at, ..)| recent(*at));
        if matches!(wait, Wait::Told(_)) && before.is_none() && self.learned.is_none() && idle {
            return None;
        }
        let (passed, exact) = match before {
            Some((_, before, exactly)) if before < passed => (before.max(allowed / 2.0), exactly),
            _ => (passed, exact),
        };
        let cost = self.lane.until().since(now).as_nanos() as u64;
        self.cut_for = self.refused_by.map(|endpoint| (endpoint, self.learned));
        let learned = Learned::refused(self.learned, now, allowed, passed, exact, cost);
        self.learned = Some(learned);
        self.next = self.next.max(now);
        Some(Notice::Yielded { per_window: learned.rate() as u64 })
    }

    /// The vendor took what this permit stood for.
    pub(crate) fn passed(&mut self, now: Time, permit: Key, endpoint: EndpointId, pace: &Pace) -> Option<Notice> {
        self.failures = 0;
        if self.endpoint(endpoint).is_some_and(|(_, pause, _)| *pause == Pause::Probing(permit)) {
            self.cut_for = self.cut_for.filter(|(of, _)| *of != endpoint);
        }
        self.endpoints.retain(|(id, pause, _)| !(*id == endpoint && *pause == Pause::Probing(permit)));
        if self.lane != Pause::Probing(permit) {
            return None;
        }
        self.lane = Pause::Over;
        let stood = u64::try_from(now.since(self.stands_since).as_nanos()).unwrap_or(u64::MAX);
        if self.refusals > 0 {
            self.sufficed(stood, pace);
        }
        self.refusals = 0;
        let over = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        // A rate that was cut is no burst.
        self.ramp = self.learned.is_none().then(|| (now, stood.min(over).min(30 * LEAST_PAUSE)));
        self.next = now;
        // Whose refusal it was has yet to show that it is open.
        if let Some(refused_by) = self.refused_by.take()
            && refused_by != endpoint
            && self.endpoint(refused_by).is_none()
            && self.endpoints.len() < MOST_ENDPOINTS
        {
            self.endpoints.push((refused_by, Pause::Until(now), 1));
        }
        Some(Notice::Recovered)
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

    /// The permit has ended without an answer: if it was to find something out, another will. Returns whether it was.
    pub(crate) fn ended(&mut self, now: Time, permit: Key) -> bool {
        let mut was = false;
        let pauses = self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.lane]);
        for pause in pauses.filter(|pause| **pause == Pause::Probing(permit)) {
            *pause = Pause::Until(now);
            was = true;
        }
        if was {
            self.next = self.next.min(now);
        }
        was
    }

    /// An operator's pause.
    pub(crate) fn hold(&mut self) {
        self.held = true;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Ends every pause, an operator's or not.
    pub(crate) fn resume(&mut self) {
        (self.held, self.lane, self.refused_by, self.refusals) = (false, Pause::Over, None, 0);
        self.endpoints.clear();
    }

    /// Until when nothing goes to this endpoint, because of the vendor's word.
    pub(crate) fn paused_until(&self, endpoint: EndpointId) -> Time {
        let endpoint = self.endpoint(endpoint).map_or(Time::ZERO, |(_, pause, _)| pause.until());
        self.lane.until().max(endpoint)
    }
}

/// How long to wait after a refusal, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// As the vendor said: not a moment less.
    Told(u64),
    /// Nobody said: a window, doubled each time, at most so long.
    Guess { most: u64 },
}
