//! What an answer says about limits, and what is to be made of it.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use super::{Job, notices};
use crate::clock::{Time, nanos};
use crate::config::base_url::host_is_the_vendors;
use crate::config::{self, Limit, LimitKind, Rate, Unit};
use crate::core::Core;
use crate::dispatch::PermitGuard;
use crate::engine::plan::EndpointId;
use crate::engine::throttle::{About, Label, Report, Wait};
use crate::engine::{Feedback, FeedbackEffect, Whose};
use crate::events::EventKind;
use crate::metrics::Series;
use crate::request::response::Headroom;
use crate::retry::{self, Class};
use crate::route::Route;
use crate::signals::{self, MAX_BODY, ResetMeans, Scope, Signals, WaitFrom, Window};
use crate::transport::Answer;

/// A refusal's body comes with its headers, or is not waited for: the lane does not know of it yet.
const REFUSAL_BODY: Duration = Duration::from_millis(250);

/// Windows of one answer that limits hear of. Vendors state one to three.
const MAX_REPORTS: usize = 8;

/// What an answer says is left, by window.
pub(super) type Reports = SmallVec<[Report; 1]>;

/// What an answer means to the limits.
pub(super) struct Reading {
    pub(super) feedback: Feedback,
    /// What is left of other limits than the one that `feedback` is about.
    pub(super) besides: Reports,
    /// The vendor refused, for now.
    pub(super) is_refusal: bool,
    /// How long to wait before the next request, as the vendor or its entry says, a little later at random.
    pub(super) told: Option<Duration>,
}

/// Reads answers for the limits that requests of one tenant to one endpoint count in.
#[derive(Clone, Copy)]
pub(super) struct AnswerReader<'a> {
    pub(super) core: &'a Core,
    pub(super) route: &'a Arc<Route>,
    pub(super) endpoint: EndpointId,
    pub(super) series: &'a Series,
    /// The number of the send, where one made the exchange.
    pub(super) request: Option<u64>,
}

impl Job {
    #[inline]
    pub(super) fn reader<'a>(&'a self, core: &'a Core) -> AnswerReader<'a> {
        let (route, series) = (&self.route, self.running.series());
        AnswerReader { core, route, endpoint: self.endpoint, series, request: Some(self.id) }
    }

    /// Reads an answer. Of its body as much is read ahead as may decide, and only where it may.
    pub(super) async fn signals(&self, answer: &mut Answer, wall: SystemTime) -> Signals {
        let dialect = &*self.route.vendor.dialect;
        let (status, headers) = (answer.status, &answer.headers);
        let signals = signals::read(dialect, status, headers, b"", wall);
        let knows = signals.throttled && signals.wait_from == Some(WaitFrom::Header) && dialect.is_plain();
        if knows || !signals::wants_body(dialect, status, headers) || !is_text(answer) {
            return signals;
        }
        let ahead = if status.as_u16() < 400 {
            answer.body.peek(MAX_BODY).await;
            answer.body.ahead()
        } else {
            let _ = tokio::time::timeout(REFUSAL_BODY, answer.body.peek(MAX_BODY)).await;
            answer.body.ahead()
        };
        signals::read(dialect, status, &answer.headers, ahead, wall)
    }

    /// What the limits are to hear, if nothing is to be decided about this answer: it is the caller's.
    pub(super) fn plain(&self, core: &Core, answer: &Answer, held: &PermitGuard) -> Option<(Feedback, Reports)> {
        let status = answer.status.as_u16();
        if status >= 500 || matches!(status, 401 | 408 | 425 | 429) || core.egress.classifier(&self.route).is_some() {
            return None;
        }
        let dialect = &*self.route.vendor.dialect;
        if signals::wants_body(dialect, answer.status, &answer.headers) {
            return None;
        }
        if dialect.is_plain() && !signals::is_refusal(answer.status) && !signals::may_be_in(&answer.headers) {
            return Some((Feedback::Passed(None), Reports::new()));
        }
        let signals = signals::read(dialect, answer.status, &answer.headers, b"", core.clock.wall());
        if signals.throttled {
            return None;
        }
        self.settle(core, held, &signals);
        let reader = self.reader(core);
        let (report, besides) = reader.reports(&signals);
        Some((reader.passed(answer.status, &signals, report), besides))
    }
}

impl AnswerReader<'_> {
    /// What an answer means, whatever its status is, where the vendor's dialect or the program's classifier says so.
    pub(super) fn class(&self, status: StatusCode, headers: &HeaderMap, signals: &Signals) -> Option<Class> {
        let class = self.core.egress.classifier(self.route).and_then(|classifier| classifier.classify(status, headers));
        class.or(match signals.throttled {
            true => Some(Class::RateLimited),
            // The vendor's dialect says that this status is no refusal here, so a retry would not help.
            false if signals::is_refusal(status) => Some(Class::Rejected),
            false => None,
        })
    }

    /// What an answer means to the limits. `backoff`: the wait after a refusal that states none.
    pub(super) fn read(
        &self,
        status: StatusCode,
        signals: &Signals,
        class: Option<Class>,
        backoff: Duration,
    ) -> Reading {
        let policy = &self.route.vendor.retry;
        let is_refusal = class == Some(Class::RateLimited);
        let told = signals.wait().or(policy.default_wait.filter(|_| is_refusal));
        let told = told.map(|wait| retry::later(wait, &mut fastrand::Rng::new()));
        let is_final = matches!(class, Some(Class::Success | Class::Rejected));
        let (report, besides) = self.reports(signals);
        let wait = told.map_or(Wait::Guess { most: nanos(backoff) }, |told| Wait::Stated(nanos(told)));
        let whose = signals.scope.map(|scope| match scope {
            Scope::Endpoint => Whose::Endpoint,
            Scope::Tenant => Whose::Lane,
            Scope::Account => Whose::Account,
            Scope::Vendor => Whose::Vendor,
        });
        let feedback = match (is_refusal, whose) {
            (true, Some(whose)) => Feedback::RefusedFor(whose, wait, report),
            (true, None) => Feedback::Refused(wait, report),
            // A failure that states a wait pauses the lane like a refusal.
            (false, _) if signals.retry_after.is_some() && !is_final && status.is_server_error() => {
                Feedback::Refused(Wait::Stated(nanos(told.unwrap_or(backoff))), report)
            }
            (false, _) if status.is_server_error() && !is_final => Feedback::Failed,
            (false, _) => self.passed(status, signals, report),
        };
        Reading { feedback, besides, is_refusal, told }
    }

    /// Reports the effect of feedback on the limits. Returns the headroom.
    pub(super) fn effect(&self, effect: FeedbackEffect) -> Option<Headroom> {
        let FeedbackEffect { headroom, notices, took } = effect;
        self.route.answered_in(took);
        for noticed in notices {
            notices::tell(self.core, self.route, self.series, self.request, noticed);
        }
        if let Some(headroom) = headroom {
            self.series.headroom(&self.route.id, headroom);
        }
        headroom.map(Headroom::of)
    }

    /// What the limits are to hear of an answer that is no refusal. One that did what was asked may ask to be left alone all
    /// the same. Beside a 202 or a redirect a wait is about where to look next, and no time is a place that was filled.
    fn passed(&self, status: StatusCode, signals: &Signals, report: Option<Report>) -> Feedback {
        let is_done = status.is_success() && status != StatusCode::ACCEPTED;
        match signals.retry_after.filter(|wait| is_done && !wait.is_zero()) {
            Some(wait) => Feedback::PassedFor(nanos(wait.min(self.route.vendor.retry.max_pause)), report),
            None => Feedback::Passed(report),
        }
    }

    /// A refusal for an account, or for all who call the vendor, holds for their other lanes in this process too. Where a
    /// limit of that scope is configured, it stands as a whole; otherwise all lanes do.
    /// `told`: as long as the lane that was refused waits, where the vendor said it.
    pub(super) fn spread(&self, signals: &Signals, now: Time, told: Option<Duration>) {
        let Some(scope @ (Scope::Account | Scope::Vendor)) = signals.scope else { return };
        let vendor = &self.route.vendor;
        let endpoint = vendor.endpoints.get(self.endpoint.place());
        let mut limits = vendor.limits.iter().chain(endpoint.into_iter().flat_map(|endpoint| &endpoint.limits));
        let is_known = limits.any(|limit| match (&limit.kind, limit.scope) {
            (LimitKind::Rate(_), config::Scope::Account) => scope == Scope::Account,
            (LimitKind::Rate(_), config::Scope::Vendor) => scope == Scope::Vendor,
            _ => false,
        });
        if is_known || !host_is_the_vendors(&vendor.base_url) {
            return;
        }
        let guessed = || {
            let place = self.core.registry.dispatch.find(self.route)?;
            place.shard.look(|engine, now| engine.paused_until(now, place.lane)).filter(|until| *until < Time::MAX)
        };
        if let Some(until) = told.map(|wait| now + wait).or_else(guessed) {
            self.core.registry.dispatch.pause_group(self.route, scope, until);
        }
    }

    /// What the engine is to know of each window: of that with the least left, and of the others. What contradicts the
    /// vendor's entry is said.
    fn reports(&self, signals: &Signals) -> (Option<Report>, Reports) {
        let mut reports = Reports::new();
        if signals.windows.is_empty() {
            return (None, reports);
        }
        self.compare_limits(signals);
        let full = self.route.vendor.dialect.reset_means() == ResetMeans::Full;
        let windows = signals.windows.iter().filter_map(|window| self.report(window, full));
        reports.extend(windows.take(MAX_REPORTS));
        // The products of two u64 fit into a u128.
        let left = |report: &Report| (u128::from(report.remaining) << 64) / u128::from(report.limit.max(1));
        reports.sort_by_key(|report| (left(report), Reverse(report.reset_ns)));
        let first = (!reports.is_empty()).then(|| reports.remove(0));
        (first, reports)
    }

    fn report(&self, window: &Window, full: bool) -> Option<Report> {
        let share = window.used.filter(|_| window.is_share).zip(self.configured_limit(window));
        let (limit, remaining) = match (window.limit, window.remaining, window.used) {
            // Percentages of a limit that is configured, rounded down: at least so much is used.
            _ if share.is_some() => share.map(|(used, limit)| (limit, left_of(limit, used)))?,
            (Some(limit), remaining, _) => (limit, remaining.unwrap_or(limit)),
            (None, remaining, used) => {
                let configured = self.configured_limit(window);
                match (configured, remaining, used) {
                    (Some(limit), Some(remaining), _) => (limit, remaining),
                    (Some(limit), None, Some(used)) => (limit, limit.saturating_sub(used)),
                    // Nothing is left of a limit that is not configured: the lane waits for its reset.
                    (None, Some(0), _) if window.reset_in.is_some() => (1, 0),
                    _ => return None,
                }
            }
        };
        let mut reset = window.reset_in;
        if full && window.is_exhausted() {
            // A unit comes back long before all have.
            reset = reset.map(|reset| reset / u32::try_from(limit).unwrap_or(u32::MAX).max(1));
        }
        let name = window.name.as_deref().unwrap_or_default();
        let about = About { name: Label::of(name), is_special: is_special(name), window_ns: window.window.map(nanos) };
        Some(Report { about, limit, remaining, reset_ns: reset.map(nanos) })
    }

    /// The figure of the configured limit that a window speaks of which does not state its own: one of this request's whose
    /// name is a part of the window's, or that has its length, or the only one that there is.
    fn configured_limit(&self, window: &Window) -> Option<u64> {
        let vendor = &self.route.vendor;
        let endpoint = vendor.endpoints.get(self.endpoint.place());
        let limits = vendor.limits.iter().chain(endpoint.into_iter().flat_map(|endpoint| &endpoint.limits));
        let rates: SmallVec<[(&str, &Rate); 4]> = limits
            .filter_map(|limit| match &limit.kind {
                LimitKind::Rate(rate) => Some((&*limit.name, rate)),
                LimitKind::Concurrency { .. } => None,
            })
            .collect();
        let only = |found: &mut dyn Iterator<Item = &(&str, &Rate)>| match (found.next(), found.next()) {
            (Some((_, rate)), None) => Some(u64::from(rate.limit)),
            _ => None,
        };
        // Headers write hyphens where entries write underscores.
        let plain = |name: &str| name.to_ascii_lowercase().replace('_', "-");
        let name = window.name.as_deref().unwrap_or_default().to_ascii_lowercase();
        let words = plain(&name);
        let named = |(limit, _): &&(&str, &Rate)| words.contains(&plain(limit));
        if let Some(limit) = only(&mut rates.iter().filter(named)) {
            return Some(limit);
        }
        if is_special(&name) {
            return None;
        }
        let fits = |(_, rate): &&(&str, &Rate)| window.window.is_none_or(|length| length == rate.window);
        only(&mut rates.iter().filter(fits))
    }

    /// Says where the vendor states another limit than its entry.
    fn compare_limits(&self, signals: &Signals) {
        let vendor = &self.route.vendor;
        for window in &signals.windows {
            let Some((limit, rate, stated)) = matching(window, &vendor.limits, signals.windows.len()) else { continue };
            let configured = u64::from(rate.limit);
            if stated != configured && stated > 0 && self.route.may_log_limits(self.core.clock.now()) {
                self.stated_limit(&limit.name, configured, stated);
            }
        }
    }

    /// The vendor states another limit than its entry.
    fn stated_limit(&self, limit: &Arc<str>, configured: u64, stated: u64) {
        let (tenant, vendor) = (&*self.route.id, &*self.route.vendor.name);
        if stated > configured {
            let message = "the vendor allows more than is configured: the plan may be a larger one";
            tracing::info!(tenant, vendor, limit = &**limit, configured, stated, "{message}");
        } else {
            let message = "the vendor allows less than is configured, which is kept to: correct the limit";
            tracing::warn!(tenant, vendor, limit = &**limit, configured, stated, "{message}");
        }
        let kind = || EventKind::LimitStated { limit: limit.clone(), configured, stated };
        self.core.telemetry.feed.tell_for(self.request, self.route, kind);
    }
}

/// The configured limit that a window of a response is about: the one with its name; or with its length; or the only one,
/// where there is but one of each. Requests are not tokens: a window of another name says nothing about them.
fn matching<'l>(window: &Window, limits: &'l [Limit], windows: usize) -> Option<(&'l Limit, &'l Rate, u64)> {
    let stated = window.limit?;
    let rates = limits.iter().filter_map(|limit| match &limit.kind {
        LimitKind::Rate(rate) if rate.unit == Unit::Requests => Some((limit, rate)),
        _ => None,
    });
    let name = window.name.as_deref().unwrap_or("requests");
    if let Some((limit, rate)) = rates.clone().find(|(limit, _)| limit.name.eq_ignore_ascii_case(name)) {
        let is_same =
            window.window.is_none_or(|length| length == rate.window) && (window.name.is_some() || windows == 1);
        return is_same.then_some((limit, rate, stated));
    }
    if is_special(name) {
        return None;
    }
    let is_only = windows == 1 && rates.clone().count() == 1;
    let mut fitting = rates.filter(|(_, rate)| window.window.map_or(is_only, |length| length == rate.window));
    match (fitting.next(), fitting.next()) {
        (Some((limit, rate)), None) => Some((limit, rate, stated)),
        _ => None,
    }
}

/// What is left of a limit of which so many percent are used, rounded down: the fewer units of the two that it may be.
fn left_of(limit: u64, percent: u64) -> u64 {
    let next = percent.saturating_add(1).min(100);
    if percent == 0 { limit } else { limit - limit.saturating_mul(next).div_ceil(100).min(limit) }
}

/// A window's name that is neither a period's nor a word for requests: `tokens`.
fn is_special(name: &str) -> bool {
    let means_requests = name.contains("request") || name.contains("call_count");
    !name.is_empty() && !means_requests && !signals::is_period(name)
}

/// Bodies of other types say nothing about limits, or are a stream without an end.
fn is_text(answer: &Answer) -> bool {
    let Some(media) = answer.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()) else { return true };
    let media = media.to_ascii_lowercase();
    !media.starts_with("text/event-stream") && ["json", "text", "xml"].iter().any(|kind| media.contains(kind))
}
