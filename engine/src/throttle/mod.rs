//! Slows a limit below its configured figures, by what the vendor reports as remaining and by what it refuses.
//!
//! Each limit has one [`Throttle`], stored beside its count: all lanes that share the limit share the throttle. What
//! belongs to no known limit is kept per lane ([`LaneThrottle`]).
//!
//! | input | effect | file |
//! |---|---|---|
//! | `bands`: few units remain | grants are spaced out: 3/4, 1/2, 1/4 of the limit's rate below 30, 20, 10 % | `quota.rs` |
//! | `bands`: very few remain | the low tier waits below 10 %, the normal tier below 5 %; both get one grant a window | `quota.rs` |
//! | `bands`: no units remain | all requests wait for the reset, or for one unit if units come back one by one | `quota.rs`, `pause.rs` |
//! | `adaptive`: the vendor counts more than our count explains | others keep their share, and grants are spaced out | `others.rs`, `foreign.rs` |
//! | five failures of a lane in a row | the lane pauses for a second, longer each time; then one request probes it | `lane_throttle.rs` |
//! | a connection closed over unprocessed requests | counts as one failure, however many requests it carried | `lane_throttle.rs` |
//! | a refusal | the limit is paused for the stated wait, or longer each time; then one request probes it | `refusal.rs`, `pause.rs` |
//! | another refusal of the same endpoint, while others pass | only that endpoint waits | `endpoint.rs` |
//! | a refusal of a limit in use that does not say what remains | the rate is cut to what passed, and grows again | `learned.rs` |
//! | other clients use the same limit | the estimate of the remaining units shrinks as they use it | `others.rs` |
//!
//! The spacing applies between grants, so a full bucket does not bypass it. A limit that was refused, or that other
//! clients use, allows no bursts for some windows. A report may make a limit slower than its figures, never faster.

mod announced;
mod bound;
mod changes;
mod edge;
mod endpoint;
mod foreign;
mod lane_throttle;
mod learned;
mod others;
mod pause;
mod quota;
mod recent;
mod refusal;
mod report;
mod spacing;
mod stated;
mod vendor_figure;
mod window_change;

use super::endpoint::EndpointHash;
use super::limit::free::BlockedBy;
use super::limit::free::Free;
pub use super::pace::Mode;
use super::pace::Pace;
use super::pace::{LEAST_PAUSE, LONGEST_BELIEF, TIER_TURN};
use crate::keys::PermitKey;
use crate::tier::Tier;
use crate::time::Time;
pub(crate) use announced::Change;
pub use announced::Notice;
pub(crate) use bound::ToldBy;
pub(crate) use lane_throttle::{Discovered, LaneThrottle};
use learned::Learned;
pub(crate) use pause::Gate;
use pause::Pause;
use quota::{QuotaEvent, QuotaTracker};
pub(crate) use refusal::{Passed, Refused};
use report::VendorFigure;
pub use report::{About, Label, Report, Says};
pub(crate) use report::{Books, Fit};

/// Number of failures in a row after which a lane is paused.
const FAILURES: u32 = 5;
/// The longest pause after failures, in nanoseconds.
const LONGEST_OPEN: u64 = 30_000_000_000;
/// A limit is reported regularly if its last report is younger than the window divided by this.
const REGULARLY: u64 = 4;
/// Number of windows without bursts after a refusal.
const CALM: u64 = 10;
/// A witness is remembered for this long after the pause that it caused, in nanoseconds, because the next refusal comes
/// only after the pause.
const WITNESS_MEMORY: u64 = 900_000_000_000;
/// Number of endpoints that can be paused separately. Above it, the whole limit is paused.
const MAX_ENDPOINTS: usize = 64;

/// A request that is granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) permit: PermitKey,
    pub(crate) tier: Tier,
    pub(crate) endpoint: EndpointHash,
    /// The request's cost in units of the limit.
    pub(crate) units: u32,
}

/// What slows one limit below its figures.
#[derive(Clone, Debug, Default)]
pub struct Throttle {
    /// The pause of all requests that count against this limit.
    pause: Pause,
    /// The endpoint whose refusal began the pause.
    refused_by: Option<EndpointHash>,
    /// The endpoint whose failures began the last pause, unless the vendor has asked for a wait since.
    failed_at: Option<EndpointHash>,
    /// The tenant, as a hash, whose refusal asked for a longer wait than was believed, and when the pause for it ends.
    witness: Option<(u64, Time)>,
    /// Two tenants, as hashes, in responses to whom the vendor reported that little is left, and until when that holds.
    told_little: [Option<(u64, Time)>; 2],
    /// The last refusal: when it came, the units that had passed in the window before it, and whether these are exactly
    /// what the vendor accepted.
    refused_at: Option<(Time, f64, bool)>,
    /// When the first of the refusals in a row paused the limit.
    stands_since: Time,
    /// The first pause if the vendor states no wait, in nanoseconds, and a length that is known to be too short.
    guess: u64,
    too_short: u64,
    /// When the pause began: refusals of requests granted earlier say nothing new.
    paused_at: Time,
    /// When the last pause ended.
    went_on_at: Time,
    /// Refusals in a row, without a response of another kind in between.
    refusals: u32,
    /// Whether one of these refusals came while the limit was in use, so that they may be about its rate.
    in_use: bool,
    endpoints: Vec<(EndpointHash, Pause, u32)>,
    quota: QuotaTracker,
    /// The remaining units by the vendor's last report, and since when later grants are recorded for it.
    figure: Option<VendorFigure>,
    figure_since: Time,
    /// The pauses that events have announced.
    announced: announced::Announced,
    /// Whether anything else was received that may slow the limit down.
    pub(crate) acts: bool,
    /// Whether an event has announced that other clients use the key.
    yields: bool,
    learned: Option<Learned>,
    /// The endpoint whose refusal last cut the rate, and the learned rate before that. If only that endpoint turns out
    /// to be refused, the cut is undone.
    cut_for: Option<(EndpointHash, Option<Learned>)>,
    /// After a pause the rate grows back from a tenth: since when, and over how many nanoseconds.
    ramp: Option<(Time, u64)>,
    /// Until this moment grants are spaced out even at the full rate.
    calm_until: Time,
    /// A vendor's figure that is less than the limit's own, in units per window, and until when it is believed.
    stated: Option<(u64, Time)>,
    /// The special name by which the vendor reported this limit with its own figure: the vendor means this limit by it,
    /// whatever figure it reports later.
    called: Label,
    /// No grant before this moment.
    next: Time,
    /// The last grant that spaced the next one out: from when its spacing counts, and its units.
    spaced: Option<(Time, u32)>,
    /// Set if no second tenant has confirmed the last report, which may be wrong: until when the report may stop the limit,
    /// and for how many nanoseconds a grant that the report spaces out may delay the next one.
    doubted: Option<(Time, u64)>,
    /// Set if the last report came while no other tenant's lane shared the limit: whose it is.
    unbounded: Option<ToldBy>,
    /// When the normal and the low tier got their last grants.
    last: [Time; 2],
}

impl Throttle {
    /// Whether this throttle changes no decision from `now` on, so that it can be dropped.
    pub(crate) fn is_idle(&self, now: Time, pace: &Pace) -> bool {
        let over = |pause: Pause| pause.is_long_over(now);
        over(self.pause)
            && self.endpoints.iter().all(|(_, pause, _)| over(*pause))
            && self.quota.told.is_none_or(|told| told.until <= now)
            && self.figure.is_none_or(|figure| figure.until <= now)
            && self.witness.is_none_or(|(_, until)| until.plus_nanos(WITNESS_MEMORY) <= now)
            && self.told_little.iter().flatten().all(|(_, until)| *until <= now)
            && self.calm_until <= now
            && self.stated.is_none_or(|(_, until)| until <= now)
            && self.learned.is_none_or(|mut learned| {
                learned.advance(now, pace);
                learned.is_full(pace)
            })
            && self.ramp.is_none_or(|(since, over)| since.plus_nanos(over) <= now)
            && self.next <= now
    }

    fn endpoint(&self, endpoint: EndpointHash) -> Option<&(EndpointHash, Pause, u32)> {
        self.endpoints.iter().find(|(id, ..)| *id == endpoint)
    }

    fn endpoint_mut(&mut self, endpoint: EndpointHash) -> Option<&mut (EndpointHash, Pause, u32)> {
        self.endpoints.iter_mut().find(|(id, ..)| *id == endpoint)
    }

    /// Whether the pauses of `endpoint` allow a grant. `others`: requests to other endpoints wait too. One of them is a
    /// better probe than the endpoint that was refused, so that endpoint waits for a second after the pause. It does
    /// not wait longer, because the other requests may be blocked by something else.
    pub(crate) fn endpoint_gate(&self, now: Time, endpoint: EndpointHash, others: bool) -> Gate {
        if others
            && self.refused_by == Some(endpoint)
            && let Pause::Until(until) = self.pause
            && now < until.plus_nanos(LEAST_PAUSE)
        {
            return Gate::Shut(Free::OnSettle(until.plus_nanos(LEAST_PAUSE)), BlockedBy::Probe);
        }
        self.endpoint(endpoint).map_or(Gate::Open, |(_, pause, _)| pause.gate(now))
    }

    /// Whether the throttle allows a grant of this tier and cost.
    pub(crate) fn gate(&self, now: Time, tier: Tier, units: u32, pace: &Pace) -> Gate {
        let gate = self.pause.gate(now);
        if gate != Gate::Open {
            return gate;
        }
        if let Some(told) = self.quota.told.filter(|told| told.until > now) {
            let believed = self.doubted.map_or(Time::MAX, |(until, _)| until);
            let free = told.free(now, units, pace).min(believed);
            if free > now {
                return Gate::Shut(Free::At(free), BlockedBy::Reported);
            }
            let scarce = (tier == Tier::Low && told.percent < 10) || (tier == Tier::Normal && told.percent < 5);
            if scarce && pace.mode == Mode::Bands {
                let turn = self.last[tier.index() - 1].plus_nanos(pace.window_ns.clamp(1, TIER_TURN));
                if turn > now {
                    return Gate::Shut(Free::At(turn.min(told.until)), BlockedBy::Scarce);
                }
            }
        }
        match self.next > now && !self.pause.wants_another_probe(now) {
            true => Gate::Shut(Free::At(self.next), BlockedBy::Throttled),
            false => Gate::Open,
        }
    }

    /// Units to keep free beyond what our own count holds, because other clients hold them or because the vendor's
    /// limit is lower than configured, and until when they are as many: the lower limit is believed for a while.
    pub(crate) fn held(&self, now: Time, pace: &Pace) -> (u32, Time) {
        if pace.mode != Mode::Adaptive {
            return (0, Time::MAX);
        }
        let stated = self.stated.filter(|(stated, until)| *until > now && *stated < pace.limit);
        let (less, until) = stated.map_or((0, Time::MAX), |(stated, until)| (pace.limit - stated, until));
        (self.quota.held(now, pace).saturating_add(u32::try_from(less).unwrap_or(u32::MAX)), until)
    }

    /// Whether responses regularly report the remaining units, and not only refusals do.
    pub(crate) fn is_reported(&self, now: Time, pace: &Pace) -> bool {
        now.since(self.quota.told_of()).as_nanos() < u128::from(pace.window_ns / REGULARLY)
    }

    /// Units of the vendor's count that our own count does not explain, as of the last response.
    pub(crate) fn unexplained(&self) -> u32 {
        self.quota.unexplained()
    }

    /// Counts a grant, which was due at `due`.
    pub(crate) fn take(&mut self, due: Time, now: Time, going: &Going, pace: &Pace) {
        let Going { permit, tier, endpoint, units } = *going;
        self.quota.granted(now, units, pace);
        self.granted_of_figure(units);
        if !tier.is_high() {
            self.last[tier.index() - 1] = now;
        }
        if self.pause.granted(now, permit) {
            self.pause_ended(now);
        }
        if let Some((_, pause, _)) = self.endpoint_mut(endpoint) {
            pause.granted(now, permit);
        }
        self.forget_past(now);
        self.space(due, now, units, pace);
    }

    fn forget_past(&mut self, now: Time) {
        self.quota.forget_past(now);
        if self.ramp.is_some_and(|(since, over)| since.plus_nanos(over) <= now) {
            self.ramp = None;
        }
    }

    pub(super) fn calm_down(&mut self, now: Time, pace: &Pace) {
        self.calm_until = self.calm_until.max(now.plus_nanos(pace.window_ns.min(TIER_TURN).saturating_mul(CALM)));
    }

    /// Whether the vendor has reported this limit by this name.
    pub(crate) fn is_called(&self, about: &About) -> bool {
        !about.name.is_empty() && self.called == about.name
    }

    /// Remembers the name of a report that has the limit's own figure.
    pub(crate) fn learn_name(&mut self, about: &About) {
        self.called = about.name;
    }

    /// Applies a report in the response to a request granted at `granted`. `books` is our own count at that time,
    /// without that request among those in flight. Returns the notices other than those about pauses.
    pub(crate) fn report(
        &mut self,
        now: Time,
        granted: Time,
        books: Books,
        report: &Report,
        pace: &Pace,
    ) -> [Option<Notice>; 2] {
        if report.says != Says::Remaining {
            self.believe_limit(now, granted, report.limit, pace);
        }
        if report.says == Says::Limit {
            // What an earlier response has said of the remaining units holds.
            self.space_anew(now, pace);
            return [None; 2];
        }
        self.note_figure(now, granted, books.under_way, report, pace);
        let is_overtaken = granted < self.quota.told_of();
        let event = self.quota.on_report(now, granted, books, report, pace);
        // Without a throttle, only the reset ends a pause that an empty report began.
        if !is_overtaken && (pace.mode != Mode::Off || report.remaining == 0) {
            self.note_emptiness(now, report, pace);
        }
        let others = self.quota.others(pace);
        if others.is_some() {
            self.calm_down(now, pace);
        }
        let yields = others.filter(|_| !self.yields);
        self.yields = others.is_some();
        let yields = yields.map(|others| Notice::Yielded { per_window: report.limit.saturating_sub(others) });
        let slower = match event {
            Some(QuotaEvent::Slower { percent }) => {
                let delay_ns = self.spacing(now, pace).unwrap_or(0);
                Some(Notice::Slower { remaining_pct: percent, delay_ns })
            }
            Some(QuotaEvent::Exhausted) => {
                self.calm_down(now, pace);
                None
            }
            None => None,
        };
        if !is_overtaken {
            self.doubted = None;
            self.space_anew(now, pace);
        }
        [yields, slower]
    }

    /// Applies the limit that the response to a request granted at `granted` states.
    fn believe_limit(&mut self, now: Time, granted: Time, stated: u64, pace: &Pace) {
        if (1..pace.limit).contains(&stated) {
            // Each response repeats the figure; the vendor's plan may change while no response comes.
            let until = now.plus_nanos(pace.window_ns.saturating_mul(CALM).min(LONGEST_BELIEF));
            self.stated = Some((stated, until));
        } else if granted >= self.quota.told_of() {
            self.stated = None;
        }
    }

    /// The permit has ended without a response. If it was the last probe, the next request is the probe instead. Returns
    /// whether it was.
    pub(crate) fn ended(&mut self, now: Time, permit: PermitKey) -> bool {
        let mut was = false;
        for pause in self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.pause]) {
            was |= pause.ended(now, permit);
        }
        if was {
            self.next = self.next.min(now);
        }
        was
    }

    /// Ends every pause, and the wait of a lane that has used more of a shared limit than was there. Forgets what
    /// refusals have taught.
    pub(crate) fn resume(&mut self) {
        (self.pause, self.refused_by, self.refusals) = (Pause::Over, None, 0);
        (self.quota.told, self.figure, self.announced.empty_until) = (None, None, Time::ZERO);
        (self.learned, self.cut_for, self.refused_at) = (None, None, None);
        (self.ramp, self.calm_until, self.next) = (None, Time::ZERO, Time::ZERO);
        self.endpoints.clear();
    }

    /// For how long other processes must send nothing to this endpoint, in nanoseconds. Pauses after failures are left
    /// out: the requests of other processes may pass.
    pub(crate) fn paused_for(&self, now: Time, endpoint: EndpointHash) -> u64 {
        let of_all = if self.failed_at.is_none() { self.pause.left(now) } else { 0 };
        let of_endpoint = self.endpoint(endpoint).filter(|(of, ..)| self.failed_at != Some(*of));
        of_endpoint.map_or(0, |(_, pause, _)| pause.left(now)).max(of_all)
    }

    /// Until when the vendor's responses pause this endpoint.
    pub(crate) fn paused_until(&self, endpoint: EndpointHash) -> Time {
        let [of_all, of_endpoint] = self.pause_ends(endpoint);
        of_all.max(of_endpoint)
    }

    /// When the pauses of the whole limit and of this endpoint alone end. [`Time::ZERO`] without a pause, and while a
    /// request probes it.
    pub(crate) fn pause_ends(&self, endpoint: EndpointHash) -> [Time; 2] {
        [self.pause.until(), self.endpoint(endpoint).map_or(Time::ZERO, |(_, pause, _)| pause.until())]
    }
}

/// How long to wait after a refusal, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The wait that the vendor stated; never shorter.
    Stated(u64),
    /// The vendor stated no wait: a quarter of a window, doubled with each refusal in a row, at most `most`.
    Guess { most: u64 },
}
