//! Applies what responses say about limits: refusals and pauses, and the reports of remaining units (`reports.rs`).

use std::time::Duration;

use super::endpoint::EndpointHash;
use super::keys::{LaneKey, PermitKey};
use super::need::Need;
use super::notices::Noticed;
use super::origin::{Origin, Target};
use super::slab::Key;
use super::throttle::{LaneThrottle, Passed, Refused, Report, Wait};
use super::{Engine, Whose};
use crate::pace::Counting;
use crate::time::Time;

/// What a response says about limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feedback {
    /// The vendor accepted the request.
    Passed(Option<Report>),
    /// The vendor accepted the request and asks for a wait before the next, in nanoseconds.
    PassedFor(u64, Option<Report>),
    /// The exchange failed.
    Failed,
    /// The vendor closed the connection before it processed the request.
    Disowned,
    /// The vendor refused the request for now.
    Refused(Wait, Option<Report>),
    /// The vendor refused the request for a limit of this scope.
    RefusedFor(Whose, Wait, Option<Report>),
}

impl Feedback {
    fn report(&self) -> Option<&Report> {
        match self {
            Feedback::Passed(report)
            | Feedback::PassedFor(_, report)
            | Feedback::Refused(_, report)
            | Feedback::RefusedFor(_, _, report) => report.as_ref(),
            Feedback::Failed | Feedback::Disowned => None,
        }
    }
}

/// The result of applying a response.
#[derive(Default)]
pub struct FeedbackEffect {
    /// What is left of the tightest limit of the endpoint, as (remaining, limit).
    pub headroom: Option<(u32, u32)>,
    pub notices: Vec<Noticed>,
    /// How long the answer took.
    pub took: Duration,
}

/// An exchange that was answered.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub(super) permit: PermitKey,
    pub(super) origin: Origin,
    pub(super) granted: Time,
    pub(super) need: Need,
    endpoint: EndpointHash,
}

/// The error of a stated reset: it is rounded to a second, and so is the `Date` that it is counted from.
const RESET_ERROR_NS: u64 = 2_000_000_000;
/// If several limits may be full, a refusal cuts only the rates that are at least this share as full as the fullest.
const FULL_AS: f64 = 0.9;

impl Engine {
    /// Reports the response headers or, with `whole`, the complete response, which ends the exchange. `besides` holds
    /// the reports about limits other than the one in `word`.
    #[inline]
    pub fn answered_with(
        &mut self,
        now: Time,
        key: PermitKey,
        word: Feedback,
        besides: &[Report],
        whole: bool,
    ) -> FeedbackEffect {
        let now = self.tick(now);
        let Some(permit) = self.permits.get(key) else { return FeedbackEffect::default() };
        let (lane, endpoint, took) = (permit.lane(), permit.origin.endpoint, now.since(permit.granted()));
        // The permit may hold slots of an account that its lane has left.
        let took_others = permit.origin.holders != [Key::NONE; 2];
        if whole && word == Feedback::Passed(None) && self.waiters.queued() == 0 && !took_others {
            let of = self.lanes.get_mut(lane);
            if of.is_some_and(|lane| !lane.has_others(endpoint) && lane.is_at_full_speed()) {
                return FeedbackEffect { headroom: self.finished_alone(now, key), notices: Vec::new(), took };
            }
        }
        let notices = self.on_response(now, key, word, besides);
        for report in besides.iter().chain(word.report()) {
            if !matches!(word, Feedback::Refused(..) | Feedback::RefusedFor(..)) {
                self.window_ends(now, key, report, RESET_ERROR_NS);
            }
        }
        match whole {
            true => self.finished(now, key),
            false => self.answered(now, key),
        }
        FeedbackEffect { headroom: self.headroom(now, lane, endpoint), notices, took }
    }

    /// Applies what response headers say. Call before [`answered`](Self::answered).
    #[inline]
    pub(crate) fn on_response(
        &mut self,
        now: Time,
        key: PermitKey,
        word: Feedback,
        besides: &[Report],
    ) -> Vec<Noticed> {
        let now = self.tick(now);
        let Some(exchange) = self.exchange(key) else { return Vec::new() };
        if word == Feedback::Passed(None) && besides.is_empty() && !self.is_throttled(&exchange.origin) {
            return Vec::new();
        }
        let besides = self.one_of_each_limit(&exchange.origin, word.report(), besides);
        self.apply_feedback(now, &exchange, word);
        for report in &besides {
            self.apply_report(now, &exchange, report);
        }
        self.note_changes(now, &exchange.origin);
        self.notices.take()
    }

    fn exchange(&self, key: PermitKey) -> Option<Exchange> {
        let permit = self.permits.get(key).filter(|permit| permit.is_started())?;
        let (origin, need) = (permit.origin, permit.need());
        let of_lane = self.lanes.get(origin.lane).map(|lane| lane.plan.endpoint_hash(origin.endpoint));
        let endpoint = of_lane.unwrap_or(origin.endpoint_hash);
        Some(Exchange { permit: key, origin, granted: permit.granted(), need, endpoint })
    }

    /// Whether a response has changed the lane, or a limit that the request took from.
    fn is_throttled(&mut self, origin: &Origin) -> bool {
        if self.lanes.get(origin.lane).is_some_and(|lane| lane.throttle.is_some()) {
            return true;
        }
        let mut is_throttled = false;
        self.each_cell(origin, |cell, _| is_throttled |= cell.is_throttled());
        is_throttled
    }

    #[cold]
    fn apply_feedback(&mut self, now: Time, exchange: &Exchange, word: Feedback) {
        let lane = exchange.need.lane;
        match word {
            Feedback::Passed(report) => {
                let has_probed = self.passed(now, exchange);
                if let Some(report) = report {
                    self.apply_report(now, exchange, &report);
                }
                self.wake_after(exchange, has_probed);
            }
            Feedback::PassedFor(wait, report) => {
                let has_probed = self.passed(now, exchange);
                if let Some(report) = report {
                    self.apply_report(now, exchange, &report);
                }
                let until = now.plus_nanos(wait);
                let is_new = self.lane_throttle(lane).is_some_and(|throttle| {
                    throttle.set_whose(None);
                    throttle.wait_until(now, until, until)
                });
                self.wake_after(exchange, has_probed);
                if is_new {
                    self.paused(lane);
                }
            }
            Feedback::Failed | Feedback::Disowned => {
                let Some(throttle) = self.lane_throttle(lane) else { return };
                let is_new = word == Feedback::Failed || throttle.is_disowned_anew(now, exchange.granted);
                let Exchange { permit, granted, endpoint, .. } = *exchange;
                match is_new.then(|| throttle.failed(now, permit, granted, endpoint)).flatten() {
                    Some(_) => self.paused(lane),
                    None => self.wake_lane(lane),
                }
                // The response says nothing about a limit, so another request probes the limits' pauses.
                self.ended_unheard(&exchange.origin, permit);
            }
            Feedback::Refused(wait, report) => self.refused(now, exchange, None, wait, report.as_ref()),
            Feedback::RefusedFor(whose, wait, report) => {
                self.refused(now, exchange, Some(whose), wait, report.as_ref())
            }
        }
    }

    /// The state that responses have set for a lane as a whole; made if there is none.
    pub(super) fn lane_throttle(&mut self, lane: LaneKey) -> Option<&mut LaneThrottle> {
        self.lanes.get_mut(lane).map(|lane| &mut **lane.throttle.get_or_insert_default())
    }

    /// Ends the pauses that this request was to probe, because the vendor accepted it. Returns whether it was to probe any.
    fn passed(&mut self, now: Time, exchange: &Exchange) -> bool {
        let Exchange { permit, origin, granted, endpoint, .. } = *exchange;
        let passed = Passed { permit, granted, endpoint };
        let mut has_probed = false;
        self.each_cell(&origin, |cell, spec| {
            let pace = cell.pace(spec);
            if let Some(throttle) = cell.throttle_mut() {
                has_probed |= throttle.passed(now, &passed, &pace);
            }
        });
        if let Some(lane) = self.lanes.get_mut(origin.lane)
            && let Some(throttle) = &mut lane.throttle
        {
            has_probed |= throttle.passed(now, &passed, &lane.plan.pace);
        }
        has_probed
    }

    /// Pauses the limits that a refusal is about, for all lanes that share them.
    fn refused(&mut self, now: Time, exchange: &Exchange, whose: Option<Whose>, wait: Wait, received: Option<&Report>) {
        let Exchange { permit, origin, granted, need, endpoint } = *exchange;
        let about = received.and_then(|report| self.limit_of(&origin, report));
        let report = received.map(|report| self.with_figure(&origin, about, report));
        // Whether the reported remaining units are too few for this request.
        let lacks = |target: &Target| {
            let units = self.spec_at(&origin, *target).map_or(1, |spec| spec.units(need.cost));
            report.is_some_and(|report| report.remaining < u64::from(units))
        };
        let empty = about.filter(lacks);
        let mut targets = self.refused_limits(&origin, whose, empty);
        let unproven = targets.len();
        targets.retain(|target| self.is_believed(&origin, *target));
        let only_the_lane = targets.is_empty() || targets.len() < unproven;
        let witness = self.witness(permit);
        let mut until = Time::ZERO;
        let stated = if let Wait::Stated(wait) = wait { now.plus_nanos(wait) } else { Time::ZERO };
        let rates: Vec<Target> = targets.iter().copied().filter(|target| self.is_rate(&origin, *target)).collect();
        let paused_before = self.pauses_of(&origin, &targets, endpoint);
        let fullest = self.fullest(&origin, &rates);
        let fullest_of_all = self.fullest(&origin, &targets);
        for (number, target) in targets.iter().enumerate() {
            let is_shared = matches!(target, Target::Shared(..));
            let Some((cell, spec)) = self.limit_at(&origin, *target) else { continue };
            let units = spec.units(need.cost);
            let pace = cell.pace(spec);
            let books = cell.books(spec, now);
            let used = cell.used(spec, now, now.minus_nanos(spec.pace.window_ns / 4));
            let fullness = cell.fullness(spec, now);
            let is_full = cell.may_be_full(spec, now) && fullness >= FULL_AS * fullest;
            let says_empty = empty == Some(*target);
            let throttle = cell.throttle_or_new();
            let has_been_refused = throttle.has_been_refused(now, &pace);
            let is_reported = throttle.is_reported(now, &pace);
            let wait = match (wait, witness) {
                (Wait::Stated(wait), Some(by)) if is_shared => {
                    Wait::Stated(throttle.believed_wait(now, by.tenant, wait, by.most_ns))
                }
                (wait, _) => wait,
            };
            // Among several candidates (slots are among them only if they may be full), a rate that is hardly used
            // learns nothing.
            let is_meant = targets.len() == 1 || is_full || says_empty;
            // The vendor reports more than half of a window as remaining: another limit refused, or the refusal was an
            // accident. If the window is long, this is more certain than any number of refusals.
            let says_room = pace.counting == Counting::Windows
                && about == Some(*target)
                && report.is_some_and(|report| report.says_room());
            let in_use = match has_been_refused {
                true => is_meant || fullest < 0.5,
                // If all slots may be in use as well, a rate is blamed at first only if it is used as far as its pace
                // goes.
                false => {
                    is_meant && !says_room && (says_empty || fullness >= FULL_AS * fullest_of_all.min(pace.share()))
                }
            };
            let refused = Refused { permit, granted, endpoint, wait, in_use };
            let (this, of_the_rate) = throttle.refused(now, &refused, &pace);
            until = until.max(this);
            // Events report one pause per refusal: that of the widest limit that may be meant.
            match only_the_lane || number + 1 < targets.len() {
                true => throttle.is_told_elsewhere(now),
                false => throttle.is_unnamed(targets.len() > 1),
            }
            let unsure = books.under_way;
            let passed = used.map(|(all, late)| (all.saturating_sub(unsure), late.saturating_sub(unsure)));
            let mut notices = [None; 3];
            if let Some(report) = report.filter(|_| about == Some(*target)) {
                notices[..2].copy_from_slice(&cell.report(spec, now, granted, units, &report));
            }
            if of_the_rate && !(says_empty && is_reported) && !(says_room && pace.is_long()) {
                notices[2] = cell.throttle_or_new().cut(now, passed, in_use, &pace);
            }
            notices.into_iter().flatten().for_each(|notice| self.note(&origin, *target, notice));
        }
        if let Some(report) = received.filter(|_| about.is_none_or(|target| !self.is_believed(&origin, target))) {
            self.apply_report(now, exchange, report);
        }
        if let (Some(target), Some(report)) = (about.filter(|target| targets.contains(target)), report) {
            self.bound_report(now, permit, &origin, target, &report);
        }
        // The lane waits for as long as the vendor said, even if others need not, if it has left the account that was
        // refused, or if a tenant at another host joins and what was said of the shared limit is discarded.
        let has_left = self.lanes.get(origin.lane).is_some_and(|lane| lane.shared != origin.holders);
        let may_be_doubted = stated > now && targets.iter().any(|target| self.is_of_a_chosen_host(&origin, *target));
        if only_the_lane || has_left || may_be_doubted || stated > until {
            self.lane_refused(now, exchange, whose, wait, only_the_lane);
        }
        let longer = self.longer_paused(&origin, &targets, endpoint, &paused_before);
        self.stopped(&origin, &longer);
    }

    /// Applies a refusal to the lane that was refused alone.
    fn lane_refused(&mut self, now: Time, exchange: &Exchange, whose: Option<Whose>, wait: Wait, unexplained: bool) {
        let Exchange { permit, origin, granted, endpoint, .. } = *exchange;
        let Some(lane) = self.lanes.get(origin.lane) else { return };
        let is_of_all = matches!(whose, Some(Whose::Account | Whose::Vendor));
        let stands_already = is_of_all && self.groups_wait_until(origin.lane, lane) > now;
        let Some(lane) = self.lanes.get_mut(origin.lane) else { return };
        let pace = lane.plan.pace;
        let throttle = lane.throttle.get_or_insert_default();
        let refused = Refused { permit, granted, endpoint, wait, in_use: true };
        match (whose, wait) {
            (_, Wait::Stated(wait)) if !unexplained => {
                let until = now.plus_nanos(wait);
                throttle.wait_until(now, until, until);
            }
            (Some(Whose::Endpoint), Wait::Stated(wait)) if endpoint != EndpointHash::NONE => {
                if !throttle.endpoint_refused(now, &refused, wait) {
                    throttle.refused(now, &refused, &pace);
                }
            }
            _ => drop(throttle.refused(now, &refused, &pace)),
        }
        throttle.set_whose(whose);
        if !unexplained || stands_already {
            throttle.is_told_elsewhere(now);
        }
        self.paused(origin.lane);
    }

    /// Lets the requests ask again that may go because of what a response said. A report changes limits of its own
    /// request alone; the end of a pause may let requests to other endpoints go, too.
    fn wake_after(&mut self, exchange: &Exchange, has_probed: bool) {
        if has_probed {
            self.wake_limits_below(exchange);
        } else if self.waiters.queued() > 0 {
            self.wake_all(&exchange.origin, true);
        }
    }

    /// Lets all requests ask again that wait for a limit of this exchange.
    fn wake_limits_below(&mut self, exchange: &Exchange) {
        if self.waiters.queued() > 0 {
            self.wake_lane(exchange.origin.lane);
            for holder in exchange.origin.holders {
                self.wake_holder(holder);
            }
        }
    }

    /// Called when a permit ends without feedback. If it was to probe the end of a pause, another request probes
    /// instead.
    pub(super) fn ended_unheard(&mut self, origin: &Origin, permit: PermitKey) {
        let now = self.now;
        let mut was = false;
        self.each_cell(origin, |cell, _| {
            was |= cell.throttle_mut().is_some_and(|throttle| throttle.ended(now, permit));
        });
        if let Some(throttle) = self.lanes.get_mut(origin.lane).and_then(|lane| lane.throttle.as_mut()) {
            was |= throttle.ended(now, permit);
        }
        if was {
            self.wake_lane(origin.lane);
            for holder in origin.holders {
                self.wake_holder(holder);
            }
        }
    }
}
