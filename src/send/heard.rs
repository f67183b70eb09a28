//! What an answer says about limits, and what is to be made of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::Job;
use crate::client::Inner;
use crate::clock::{Time, nanos};
use crate::config::{Limit, LimitKind, Rate, Unit};
use crate::dispatch::plan::pace;
use crate::engine::Word;
use crate::engine::throttle::Report;
use crate::events::EventKind;
use crate::signals::{self, MAX_BODY, ResetMeans, Scope, Signals, WaitFrom, Window};
use crate::transport::Answer;

/// A refusal's body comes with its headers, or is not waited for: the lane does not know of it yet.
const REFUSAL_BODY: Duration = Duration::from_millis(250);

impl Job {
    /// Reads an answer. Of its body as much is read ahead as may decide, and only where it may.
    pub(super) async fn signals(&self, answer: &mut Answer, wall: SystemTime) -> Signals {
        let dialect = &*self.tenant.vendor.dialect;
        let (status, headers) = (answer.status, &answer.headers);
        let signals = signals::read(dialect, status, headers, b"", wall);
        let knows = signals.throttled && signals.wait_from == Some(WaitFrom::Header) && dialect.is_plain();
        if knows || !dialect.wants_body(status) || !is_text(answer) {
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

    /// What the lane is to hear of an answer that is no refusal. One that did what was asked may ask to be left alone all
    /// the same. Beside a 202 or a redirect a wait is about where to look next, and no time is a place that was filled.
    pub(super) fn passed(&self, inner: &Inner, status: StatusCode, signals: &Signals) -> Word {
        let report = self.report(inner, signals);
        let is_done = status.is_success() && status != StatusCode::ACCEPTED;
        match signals.retry_after.filter(|wait| is_done && !wait.is_zero()) {
            Some(wait) => Word::PassedFor(nanos(wait.min(self.tenant.vendor.retry.max_pause)), report),
            None => Word::Passed(report),
        }
    }

    /// A refusal for an account, or for all who call the vendor, holds for their other lanes in this process too.
    /// `told`: as long as the lane that was refused waits, where the vendor said it.
    pub(super) fn spread(&self, inner: &Inner, signals: &Signals, now: Time, told: Option<Duration>) {
        let Some(scope @ (Scope::Account | Scope::Vendor)) = signals.scope else { return };
        let guessed = || {
            let place = inner.dispatch.find(&self.tenant)?;
            place.shard.look(|engine, now| engine.paused_until(now, place.lane)).filter(|until| *until < Time::MAX)
        };
        if let Some(until) = told.map(|wait| now + wait).or_else(guessed) {
            inner.dispatch.pause_group(&self.tenant, scope, until);
        }
    }

    /// What the engine is to know: the window with the least left. What contradicts the vendor's entry is said.
    pub(super) fn report(&self, inner: &Inner, signals: &Signals) -> Option<Report> {
        if signals.windows.is_empty() {
            return None;
        }
        let stated = self.stated(inner, signals);
        let full = self.tenant.vendor.dialect.reset_means() == ResetMeans::Full;
        let left = signals.tightest().map(|window| (window, window.limit.unwrap_or(0)));
        // Nothing is left of a window whose limit is not said: until its reset.
        let spent = || {
            let spent = signals.windows.iter().filter(|window| window.is_exhausted() && window.reset_in.is_some());
            let last = spent.max_by_key(|window| window.reset_in)?;
            Some((last, pace(&self.tenant.vendor).limit.max(1)))
        };
        let left = match left {
            Some((window, _)) if window.is_exhausted() => left,
            left => spent().or(left),
        };
        let Some((window, limit)) = left else {
            let limit = stated?;
            return Some(Report { limit, remaining: limit, reset_ns: None, stated });
        };
        let mut reset = window.reset_in;
        if full && window.is_exhausted() {
            // A unit comes back long before all have.
            reset = reset.map(|reset| reset / u32::try_from(limit).unwrap_or(u32::MAX).max(1));
        }
        Some(Report { limit, remaining: window.remaining?, reset_ns: reset.map(nanos), stated })
    }

    /// The limit that the vendor states over the window of the lane's slowest one, if it is the lower.
    fn stated(&self, inner: &Inner, signals: &Signals) -> Option<u64> {
        let vendor = &self.tenant.vendor;
        let mut lower = None;
        for window in &signals.windows {
            let Some((limit, rate, stated)) = matching(window, &vendor.limits, signals.windows.len()) else { continue };
            let configured = u64::from(rate.limit);
            if stated == configured || stated == 0 {
                continue;
            }
            let slowest = pace(vendor);
            if stated < configured && nanos(rate.window) == slowest.window_ns && configured == slowest.limit {
                lower = Some(lower.map_or(stated, |known: u64| known.min(stated)));
            }
            if vendor.doubted.may_say(inner.clock.now()) {
                self.stated_limit(inner, &limit.name, configured, stated);
            }
        }
        lower
    }

    /// The vendor states another limit than its entry.
    #[cold]
    fn stated_limit(&self, inner: &Inner, limit: &Arc<str>, configured: u64, stated: u64) {
        let (tenant, vendor) = (&*self.tenant.id, &*self.tenant.vendor.name);
        if stated > configured {
            let message = "the vendor allows more than is configured: the plan may be a larger one";
            tracing::info!(tenant, vendor, limit = &**limit, configured, stated, "{message}");
        } else {
            let message = "the vendor allows less than is configured, which is kept to: correct the limit";
            tracing::warn!(tenant, vendor, limit = &**limit, configured, stated, "{message}");
        }
        inner.feed.tell(self.id, &self.tenant, || EventKind::LimitStated { limit: limit.clone(), configured, stated });
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
    if window.name.is_some() && !name.contains("request") && !signals::is_period(name) {
        return None;
    }
    let is_only = windows == 1 && rates.clone().count() == 1;
    let mut fitting = rates.filter(|(_, rate)| window.window.map_or(is_only, |length| length == rate.window));
    match (fitting.next(), fitting.next()) {
        (Some((limit, rate)), None) => Some((limit, rate, stated)),
        _ => None,
    }
}

/// Bodies of other types say nothing about limits, or are a stream without an end.
fn is_text(answer: &Answer) -> bool {
    let Some(media) = answer.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok()) else { return true };
    let media = media.to_ascii_lowercase();
    !media.starts_with("text/event-stream") && ["json", "text", "xml"].iter().any(|kind| media.contains(kind))
}
