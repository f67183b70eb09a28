//! What makes a limit slower than its figures: what the vendor says is left of it, and what it refuses.
//!
//! Each limit has its own [`Throttle`], which lies beside its count: all lanes that share the limit ask the same throttle. What
//! concerns no limit that is known is the lane's own ([`Credential`]).
//!
//! | heard | done |
//! |---|---|
//! | `bands`: little is left | grants are spaced out: 3/4, 1/2, 1/4 of the limit's rate below 30, 20, 10 % |
//! | `bands`: very little is left | below 10 % the low tier waits, below 5 % the normal tier too; each gets one grant a window |
//! | `bands`: nothing is left | all wait for the reset, or for one unit where units come back one by one |
//! | `adaptive`: more is used than our own count explains | what others take is left to them, and grants are spaced out |
//! | five failures in a row, or five connections closed over unprocessed requests | the lane is left alone for a second, longer each time; then one request goes alone |
//! | a refusal | the limit stands as long as it was told, or longer each time; then one request goes alone |
//! | the same endpoint again, while others pass | that endpoint alone waits |
//! | a refusal without a word about what is left, of a limit in use | the rate is cut to what did pass, and grows again |
//! | others take of the same limit | what is believed to be left shrinks as they take it |
//!
//! The spacing is between grants, so a full bucket does not get around it; a limit that was refused, or that others use,
//! takes no bursts for some windows. A report may make a limit slower than its figures, never faster.

mod announced;
mod changes;
mod credential;
mod edge;
mod endpoint;
mod foreign;
mod learned;
mod others;
mod pause;
mod quota;
mod recent;
mod refusal;
mod report;
mod vendor_figure;

use super::endpoint::EndpointHash;
use super::limit::free::BlockedBy;
use super::limit::free::Free;
pub use super::pace::Mode;
use super::pace::Pace;
use super::pace::{LEAST_PAUSE, TIER_TURN};
use crate::keys::PermitKey;
use crate::tier::Tier;
use crate::time::Time;
pub(crate) use announced::Change;
pub use announced::Notice;
pub(crate) use credential::{Credential, Discovered};
use learned::Learned;
pub(crate) use pause::Gate;
use pause::Pause;
use quota::{QuotaEvent, QuotaTracker};
pub(crate) use refusal::Refused;
use report::VendorFigure;
pub use report::{About, Label, Report};
pub(crate) use report::{Books, Fit};

/// Failures in a row after which a lane is left alone.
const FAILURES: u32 = 5;
/// The longest that it is then, in nanoseconds.
const LONGEST_OPEN: u64 = 30_000_000_000;
/// A limit is reported regularly if its last report is younger than the window divided by this.
const REGULARLY: u64 = 4;
/// Windows without bursts after a refusal.
const CALM: u64 = 10;
/// A witness is remembered so long after the pause, in nanoseconds: the next refusal comes only after it.
const WITNESS_MEMORY: u64 = 900_000_000_000;
/// Endpoints that wait for themselves. Above it the lane waits as a whole.
const MAX_ENDPOINTS: usize = 64;

/// A request that goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) permit: PermitKey,
    pub(crate) tier: Tier,
    pub(crate) endpoint: EndpointHash,
    /// In units of the limit.
    pub(crate) units: u32,
}

/// One limit's.
#[derive(Clone, Debug, Default)]
pub struct Throttle {
    /// Of all requests that count here.
    pause: Pause,
    /// Whose refusal paused it.
    refused_by: Option<EndpointHash>,
    /// The tenant whose refusal paused it, as a hash, and when that was.
    witness: Option<(u64, Time)>,
    /// The last refusal that paused it, the units that had passed in the window before it, and whether that is
    /// exactly what the vendor took.
    refused_at: Option<(Time, f64, bool)>,
    /// The first of the refusals that followed each other: the limit stands since then.
    stands_since: Time,
    /// How long to wait where the vendor states none, in nanoseconds, and what is known to be too short.
    guess: u64,
    too_short: u64,
    /// When the pause began: refusals of what went before it say nothing new.
    paused_at: Time,
    /// When the last pause was over.
    went_on_at: Time,
    /// Refusals without an answer of another kind in between.
    refusals: u32,
    /// One of them came while the limit was in use: they may be about its rate.
    in_use: bool,
    endpoints: Vec<(EndpointHash, Pause, u32)>,
    quota: QuotaTracker,
    /// What is left, as the vendor says, and since when what goes is remembered for it.
    figure: Option<VendorFigure>,
    figure_since: Time,
    /// The pauses that events have told of.
    announced: announced::Announced,
    /// Something else was heard, which may slow the limit down.
    pub(crate) acts: bool,
    /// An event has told that others use the key.
    yields: bool,
    learned: Option<Learned>,
    /// Whose refusal slowed the limit down last, and what was learned before. If that endpoint turns out to refuse while
    /// others pass, it was for nothing.
    cut_for: Option<(EndpointHash, Option<Learned>)>,
    /// After a pause the rate grows back from a tenth: since when, and over how many nanoseconds.
    ramp: Option<(Time, u64)>,
    /// Until then grants are spaced out even at the full rate.
    calm_until: Time,
    /// The limit that the vendor states over the window, where that is less than the limit's own, and until when that
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
        over(self.pause)
            && self.endpoints.iter().all(|(_, pause, _)| over(*pause))
            && self.quota.told.is_none_or(|told| told.until <= now)
            && self.figure.is_none_or(|figure| figure.until <= now)
            && self.witness.is_none_or(|(_, until)| until.plus_nanos(WITNESS_MEMORY) <= now)
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

    /// Whether a request to `endpoint` may go as far as that endpoint is concerned. `others`: requests to other
    /// endpoints wait too, and rather one of them is to find out whether the lane is open. They may wait for something
    /// else: a second after the pause the refused endpoint itself goes.
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

    /// Whether anything may go.
    pub(crate) fn gate(&self, now: Time, tier: Tier, units: u32, pace: &Pace) -> Gate {
        let gate = self.pause.gate(now);
        if gate != Gate::Open {
            return gate;
        }
        if let Some(told) = self.quota.told.filter(|told| told.until > now) {
            let free = told.free(now, units, pace);
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
        match self.next > now {
            true => Gate::Shut(Free::At(self.next), BlockedBy::Throttled),
            false => Gate::Open,
        }
    }

    /// Units that are to be left free, beside what our own count holds: others have them, or the vendor's limit is less.
    pub(crate) fn held(&self, now: Time, pace: &Pace) -> u32 {
        if pace.mode != Mode::Adaptive {
            return 0;
        }
        let stated =
            self.stated.filter(|(_, until)| *until > now).map_or(0, |(stated, _)| pace.limit.saturating_sub(stated));
        self.quota.held(now, pace).saturating_add(u32::try_from(stated).unwrap_or(u32::MAX))
    }

    /// Whether the vendor's answers say regularly what is left, and not its refusals alone.
    pub(crate) fn is_reported(&self, now: Time, pace: &Pace) -> bool {
        now.since(self.quota.told_of()).as_nanos() < u128::from(pace.window_ns / REGULARLY)
    }

    /// Units of the vendor's count that ours does not explain, as of the last answer.
    pub(crate) fn unexplained(&self) -> u32 {
        self.quota.unexplained()
    }

    /// A request goes, which was due at `due`.
    pub(crate) fn take(&mut self, due: Time, now: Time, going: &Going, pace: &Pace) {
        let Going { permit, tier, endpoint, units } = *going;
        self.quota.granted(now, units, pace);
        self.granted_of_figure(units);
        if !tier.is_high() {
            self.last[tier.index() - 1] = now;
        }
        if matches!(self.pause, Pause::Until(_)) {
            self.pause = Pause::Probing(permit);
            self.pause_groups(now);
        }
        if let Some((_, pause @ Pause::Until(_), _)) = self.endpoint_mut(endpoint) {
            *pause = Pause::Probing(permit);
        }
        self.forget_past(now);
        if let Some(spacing) = self.spacing(now, pace) {
            self.next = self.next.max(due).plus_nanos(spacing.saturating_mul(u64::from(units)));
        }
    }

    fn forget_past(&mut self, now: Time) {
        self.quota.forget_past(now);
        if self.ramp.is_some_and(|(since, over)| since.plus_nanos(over) <= now) {
            self.ramp = None;
        }
    }

    /// Nanoseconds between grants of one unit; none where the limits alone decide.
    pub(crate) fn spacing(&mut self, now: Time, pace: &Pace) -> Option<u64> {
        let unit = pace.unit_ns;
        let mut spacing = if now < self.calm_until { unit } else { 0 };
        if let Some(told) = self.quota.told {
            spacing = match told.spacing {
                Some(told) => spacing.max(told),
                None if pace.mode == Mode::Bands && told.share < 100 => unit.saturating_mul(100) / told.share.max(1),
                None => spacing,
            };
        }
        if let Some((since, over)) = self.ramp {
            let passed = u64::try_from(now.since(since).as_nanos()).unwrap_or(u64::MAX);
            let share = (10 + passed.saturating_mul(90) / over.max(1)).min(100);
            // Of long windows the first grant would otherwise hold up all that come after the growth.
            spacing = spacing.max((unit.saturating_mul(100) / share).min(over.max(unit)));
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

    pub(super) fn calm_down(&mut self, now: Time, pace: &Pace) {
        self.calm_until = self.calm_until.max(now.plus_nanos(pace.window_ns.min(TIER_TURN).saturating_mul(CALM)));
    }

    /// A response to what was granted at `granted` told what is left, while our own count was `books`, without that request
    /// among what is in flight. Returns what is new, but for pauses.
    pub(crate) fn report(
        &mut self,
        now: Time,
        granted: Time,
        books: Books,
        report: &Report,
        pace: &Pace,
    ) -> [Option<Notice>; 2] {
        self.note_figure(now, granted, books.under_way, report, pace);
        if let Some(stated) = Some(report.limit).filter(|stated| (1..pace.limit).contains(stated)) {
            // Each answer states it again; the plan may change while none comes.
            let until = now.plus_nanos(pace.window_ns.saturating_mul(CALM));
            self.stated = Some((stated, until));
        } else if granted >= self.quota.told_of() {
            self.stated = None;
        }
        let is_overtaken = granted < self.quota.told_of();
        let event = self.quota.on_report(now, granted, books, report, pace);
        // Without a throttle nothing but the reset ends what nothing left began.
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
        [yields, slower]
    }

    /// The permit has ended without an answer: if it was to find something out, another will. Returns whether it was.
    pub(crate) fn ended(&mut self, now: Time, permit: PermitKey) -> bool {
        let mut was = false;
        let pauses = self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.pause]);
        for pause in pauses.filter(|pause| **pause == Pause::Probing(permit)) {
            *pause = Pause::Until(now);
            was = true;
        }
        if was {
            self.next = self.next.min(now);
        }
        was
    }

    /// Ends every pause, an operator's or not.
    pub(crate) fn resume(&mut self) {
        (self.pause, self.refused_by, self.refusals) = (Pause::Over, None, 0);
        (self.quota.told, self.figure, self.announced.empty_until) = (None, None, Time::ZERO);
        self.endpoints.clear();
    }

    /// For how long other processes are to send nothing to this endpoint, in nanoseconds.
    pub(crate) fn paused_for(&self, now: Time, endpoint: EndpointHash) -> u64 {
        let endpoint = self.endpoint(endpoint).map_or(0, |(_, pause, _)| pause.left(now));
        self.pause.left(now).max(endpoint)
    }

    /// Until when nothing goes to this endpoint, because of the vendor's word.
    pub(crate) fn paused_until(&self, endpoint: EndpointHash) -> Time {
        let endpoint = self.endpoint(endpoint).map_or(Time::ZERO, |(_, pause, _)| pause.until());
        self.pause.until().max(endpoint)
    }
}

/// How long to wait after a refusal, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As the vendor said: not a moment less.
    Stated(u64),
    /// The vendor stated none: a quarter of a window, doubled with each refusal in a row, at most `most`.
    Guess { most: u64 },
}
