//! Translates what a response says about limits into feedback for the engine.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use smallvec::SmallVec;

use super::window_limit::{self, is_special, matching};
use super::{Outgoing, notices};
use crate::clock::{Time, nanos};
use crate::config::base_url::host_is_the_vendors;
use crate::config::{self, Limit, LimitKind};
use crate::core::Core;
use crate::dispatch::PermitGuard;
use crate::engine::plan::EndpointId;
use crate::engine::throttle::{About, Label, Report, Says, Wait};
use crate::engine::{Feedback, FeedbackEffect, Whose};
use crate::request::Headroom;
use crate::retry::{self, Class};
use crate::route::Route;
use crate::signals::{self, MAX_BODY, ResetMeans, Scope, Signals, WaitFrom, Window};
use crate::telemetry::events::EventKind;
use crate::telemetry::metrics::Series;
use crate::transport::Answer;

/// The longest wait for the body of an error response. A refusal's body usually arrives with its headers, and until the
/// wait ends the lane does not know of the refusal.
const REFUSAL_BODY: Duration = Duration::from_millis(250);

/// The most windows of one response that are reported to the engine. Vendors state one to three.
const MAX_REPORTS: usize = 8;

/// The remaining units that a response states, one report for each window.
pub(super) type Reports = SmallVec<[Report; 1]>;

/// What a response means to the limits.
pub(super) struct Reading {
    pub(super) feedback: Feedback,
    /// Reports about limits other than the one that `feedback` is about.
    pub(super) besides: Reports,
    /// The vendor refused the request for now, or a part of it.
    pub(super) is_refusal: bool,
    /// The wait before the next request, as stated by the vendor or, for a refusal, by its entry, plus a random
    /// supplement.
    pub(super) told: Option<Duration>,
}

/// Reads responses for the limits that requests of one tenant to one endpoint count in.
#[derive(Clone, Copy)]
pub(super) struct AnswerReader<'a> {
    pub(super) core: &'a Core,
    pub(super) route: &'a Arc<Route>,
    pub(super) endpoint: EndpointId,
    pub(super) series: &'a Series,
    /// The number of the send; `None` if the program made the exchange itself.
    pub(super) request: Option<u64>,
}

impl Outgoing {
    #[inline]
    pub(super) fn reader<'a>(&'a self, core: &'a Core) -> AnswerReader<'a> {
        let (route, series) = (&self.route, self.running.series());
        AnswerReader { core, route, endpoint: self.endpoint, series, request: Some(self.id) }
    }

    /// Reads what a response says about limits. Reads the beginning of the body ahead only if it may decide the result.
    /// If the caller goes away meanwhile, a refusal counts by its status and headers.
    pub(super) async fn signals(
        &self,
        core: &Core,
        answer: &mut Answer,
        held: &PermitGuard,
        wall: SystemTime,
    ) -> Signals {
        let dialect = &*self.route.vendor.dialect;
        let (status, headers) = (answer.status, &answer.headers);
        let signals = signals::read(dialect, status, headers, b"", wall);
        let is_refusal = signals.throttled;
        let knows = is_refusal && signals.wait_from == Some(WaitFrom::Header);
        // By its headers alone an error may be a refusal, and its body may state the wait.
        let lacks_wait = is_refusal && !knows && status.as_u16() >= 400;
        let wanted = signals::wants_body(dialect, status, headers) || lacks_wait;
        if (knows && dialect.is_plain()) || !wanted || !is_text(answer) {
            return signals;
        }
        self.warn_of_coding(&answer.headers);
        let Answer { headers, body, .. } = answer;
        let mut unread = Unread { request: self, core, held, status, headers, signals: &signals, is_refusal };
        if status.as_u16() < 400 {
            body.peek(MAX_BODY).await;
        } else {
            let _ = tokio::time::timeout(REFUSAL_BODY, body.peek(MAX_BODY)).await;
        }
        unread.is_refusal = false;
        drop(unread);
        signals::read(dialect, status, headers, body.ahead(), wall)
    }

    /// Warns, once for each vendor, of a body that is wanted and has a coding that the transport has not decoded. No
    /// request asks for one, so the vendor chose it by itself.
    fn warn_of_coding(&self, headers: &HeaderMap) {
        if let Some(coding) = headers.get(CONTENT_ENCODING)
            && coding.as_bytes() != b"identity"
            && self.route.may_log_coding()
        {
            let (tenant, vendor) = (&*self.route.id, &*self.route.vendor.name);
            let message =
                "the vendor sends bodies in a coding that is not decoded: what they state of limits is not seen";
            tracing::warn!(tenant, vendor, ?coding, "{message}");
        }
    }

    /// The feedback for a response that goes to the caller without further decisions. `None` if the response has to be
    /// classified: it may be a refusal or a failure, or a classifier or the body decides.
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

/// A response whose body is being read ahead. If it is dropped, the caller has gone away before the body decided, and a
/// refusal is reported by its status and headers.
struct Unread<'a> {
    request: &'a Outgoing,
    core: &'a Core,
    held: &'a PermitGuard,
    status: StatusCode,
    headers: &'a HeaderMap,
    /// What the headers say.
    signals: &'a Signals,
    /// By its headers the response is a refusal. Cleared once the body has been read.
    is_refusal: bool,
}

impl Drop for Unread<'_> {
    fn drop(&mut self) {
        if !self.is_refusal {
            return;
        }
        let (reader, signals) = (self.request.reader(self.core), self.signals);
        let retries = self.request.past.as_ref().map_or(0, |past| past.tried.retries);
        let backoff = retry::backoff(&self.request.route.vendor.retry, retries + 1, &mut fastrand::Rng::new());
        let class = reader.class(self.status, self.headers, signals);
        let Reading { feedback, besides, is_refusal, told } = reader.read(self.status, signals, class, backoff);
        // The program's classifier may know better than the status.
        if is_refusal {
            let now = self.core.clock.now();
            self.request.refused(self.core, signals.wait(), Some(self.status.as_u16()));
            reader.effect(now, self.held.on_response(now, feedback, &besides));
            reader.spread(signals, now, told);
        }
    }
}

impl AnswerReader<'_> {
    /// The class that the program's classifier or else the response's signals give to a response; `None` if its status
    /// decides.
    pub(super) fn class(&self, status: StatusCode, headers: &HeaderMap, signals: &Signals) -> Option<Class> {
        self.core.egress.class_of(self.route, status, headers).or(match signals.throttled {
            true => Some(Class::RateLimited),
            // The vendor's dialect says that this status is no refusal here, so a retry would not help.
            false if signals::is_refusal(status) => Some(Class::Rejected),
            false => None,
        })
    }

    /// Interprets a response for the limits. `backoff`: the wait after a refusal that states none.
    pub(super) fn read(
        &self,
        status: StatusCode,
        signals: &Signals,
        class: Option<Class>,
        backoff: Duration,
    ) -> Reading {
        let policy = &self.route.vendor.retry;
        // The refused part of a batch says as much about the limits as the refusal of a whole request.
        let is_refusal = class == Some(Class::RateLimited) || (class.is_none() && signals.refused_in_part);
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

    /// Reports the effect that feedback at `now` has on the limits. Returns the headroom.
    pub(super) fn effect(&self, now: Time, effect: FeedbackEffect) -> Option<Headroom> {
        let FeedbackEffect { headroom, notices, took } = effect;
        self.route.answered_in(took);
        for noticed in notices {
            notices::tell(self.core, self.route, self.series, self.request, noticed);
        }
        if let Some(headroom) = headroom {
            self.series.headroom(headroom);
            let (vendor, tenant) = (&self.route.vendor.name, &self.route.id);
            if let Some(advice) = self.core.telemetry.meters.headroom(vendor, tenant, now, headroom) {
                tracing::warn!(
                    vendor = &**vendor,
                    tenant = &*advice.tenant,
                    average_pct = advice.average_pct,
                    "little headroom for minutes: a higher plan at the vendor, or batching, would help"
                );
            }
        }
        headroom.map(Headroom::of)
    }

    /// The feedback for a response that is neither a refusal nor a failure. A successful response may ask for a wait,
    /// too. With a 202 or a redirect, the wait says when to fetch the result, so it does not concern the limits. A wait
    /// of zero is a placeholder.
    fn passed(&self, status: StatusCode, signals: &Signals, report: Option<Report>) -> Feedback {
        let is_done = status.is_success() && status != StatusCode::ACCEPTED;
        let asked = signals.retry_after.filter(|wait| !wait.is_zero());
        match asked.filter(|_| is_done) {
            Some(wait) => Feedback::PassedFor(nanos(wait.min(self.route.vendor.retry.max_pause)), report),
            None => Feedback::Passed(report),
        }
    }

    /// Extends a refusal for an account, or for all callers of the vendor, to the other lanes concerned in this
    /// process. If a rate limit of that scope is configured, the engine pauses that limit. Otherwise this pauses all
    /// lanes of the account or vendor, unless a tenant's variables may select a host outside the vendor's domain.
    /// `told`: the wait of the refused lane, if the vendor stated it.
    pub(super) fn spread(&self, signals: &Signals, now: Time, told: Option<Duration>) {
        self.spread_to_group(signals, now, told);
        // Of several pauses that a refusal begins or lengthens, a notice tells of one at most.
        self.core.registry.pause_changed(self.route);
    }

    fn spread_to_group(&self, signals: &Signals, now: Time, told: Option<Duration>) {
        let Some(scope @ (Scope::Account | Scope::Vendor)) = signals.scope else { return };
        let is_known = self.limits().any(|limit| match (&limit.kind, limit.scope) {
            (LimitKind::Rate(_), config::Scope::Account) => scope == Scope::Account,
            (LimitKind::Rate(_), config::Scope::Vendor) => scope == Scope::Vendor,
            _ => false,
        });
        if is_known || !host_is_the_vendors(&self.route.vendor.base_url) {
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

    /// The reports for the engine: that of the window with the smallest share left, and those of the other windows; last
    /// those that do not say what is left. Also logs limits that contradict the vendor's entry.
    fn reports(&self, signals: &Signals) -> (Option<Report>, Reports) {
        let mut reports = Reports::new();
        if signals.windows.is_empty() {
            return (None, reports);
        }
        self.compare_limits(signals);
        let full = self.route.vendor.dialect.reset_means() == ResetMeans::Full;
        let counts_slots = || self.limits().any(|limit| matches!(limit.kind, LimitKind::Concurrency { .. }));
        // Our own count of slots is exact. A response counts requests as under way that have been answered since.
        let windows = signals.windows.iter().filter(|window| !window.is_parallel || !counts_slots());
        reports.extend(windows.filter_map(|window| self.report(window, full)).take(MAX_REPORTS));
        // The products of two u64 fit into a u128.
        let left = |report: &Report| (u128::from(report.remaining) << 64) / u128::from(report.limit.max(1));
        reports.sort_by_key(|report| (report.says == Says::Limit, left(report), Reverse(report.reset_ns)));
        let first = (!reports.is_empty()).then(|| reports.remove(0));
        (first, reports)
    }

    fn report(&self, window: &Window, full: bool) -> Option<Report> {
        let share = window.used.filter(|_| window.is_share).zip(self.configured_limit(window));
        let (limit, remaining, says) = match (window.limit, window.remaining, window.used) {
            // The vendor states percentages of a configured limit, rounded down: at least this share is used.
            _ if share.is_some() => share.map(|(used, limit)| (limit, left_of(limit, used), Says::Remaining))?,
            (Some(limit), Some(remaining), _) => (limit, remaining, Says::Both),
            (Some(limit), None, _) => (limit, limit, Says::Limit),
            (None, remaining, used) => {
                let configured = self.configured_limit(window);
                let (limit, remaining) = match (configured, remaining, used) {
                    (Some(limit), Some(remaining), _) => (limit, remaining),
                    (Some(limit), None, Some(used)) => (limit, limit.saturating_sub(used)),
                    // The engine finds the limit by its reset; if it finds none, the lane waits for the reset.
                    (None, Some(0), _) if window.reset_in.is_some() => (0, 0),
                    _ => return None,
                };
                (limit, remaining, Says::Remaining)
            }
        };
        let mut reset = window.reset_in;
        if full && window.is_exhausted() {
            // The vendor states when all units are available again; the first unit is available much earlier.
            reset = reset.map(|reset| reset / u32::try_from(limit).unwrap_or(u32::MAX).max(1));
        }
        let name = window.name.as_deref().unwrap_or_default();
        let (is_special, window_ns) = (is_special(name), window.window.map(nanos));
        let about = About { name: Label::of(name), is_special, window_ns, is_parallel: window.is_parallel };
        Some(Report { about, limit, remaining, reset_ns: reset.map(nanos), says })
    }

    /// See [`window_limit::configured`]. A limit of requests at once has no rate's figure.
    fn configured_limit(&self, window: &Window) -> Option<u64> {
        let name = window.name.as_deref().unwrap_or_default();
        let of_rates = || window_limit::configured(name, window.window, self.limits());
        (!window.is_parallel).then(of_rates).flatten()
    }

    /// The limits that requests to this endpoint count in.
    fn limits(&self) -> impl Iterator<Item = &Limit> {
        let vendor = &self.route.vendor;
        let endpoint = vendor.endpoints.get(self.endpoint.place());
        vendor.limits.iter().chain(endpoint.into_iter().flat_map(|endpoint| &endpoint.limits))
    }

    /// Reports limits in a response that differ from the vendor's entry.
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

    /// Logs that the vendor states another limit than its entry, and emits the event.
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

/// The remaining units of a limit of which `percent` are used. The vendor rounds the percentage down, so this assumes
/// one percent more.
fn left_of(limit: u64, percent: u64) -> u64 {
    let next = percent.saturating_add(1).min(100);
    if percent == 0 { limit } else { limit - limit.saturating_mul(next).div_ceil(100).min(limit) }
}

/// Whether the body has a type that may state limits. Bodies of other types do not, or are endless streams.
fn is_text(answer: &Answer) -> bool {
    let Some(media) = answer.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()) else { return true };
    let media = media.to_ascii_lowercase();
    !media.starts_with("text/event-stream") && ["json", "text", "xml"].iter().any(|kind| media.contains(kind))
}
