//! Reports the steps of a send to log, metrics and the client's [events](crate::events): one function for each fact.
//! `docs/RATE_LIMITS.md` lists the log fields.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::Outgoing;
use crate::clock::Time;
use crate::core::Core;
use crate::dead_letter::DeadLetter;
use crate::engine::Refusal;
use crate::error::{Delivery, Error, ErrorKind};
use crate::request::template::template;
use crate::telemetry::events::EventKind;
use crate::transport::{Answer, TransportError};

/// The end of a send or of a claim: the status of its response, or the error.
pub(super) type End = Result<StatusCode, (ErrorKind, Delivery)>;

impl Outgoing {
    /// The request's endpoint, or the template of its path if it has none.
    pub(super) fn label(&self) -> Cow<'_, str> {
        match self.route.vendor.endpoint_name(self.endpoint.place()) {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(template(&self.prepared.path_below_base(&self.route))),
        }
    }

    fn arc_label(&self) -> Arc<str> {
        match self.route.vendor.endpoints.get(self.endpoint.place()) {
            Some(endpoint) => endpoint.name.clone(),
            None => (&*self.label()).into(),
        }
    }

    /// Reports that an exchange begins.
    #[inline]
    pub(super) fn dispatched(&mut self, core: &Core, waited: Duration) {
        self.tries += 1;
        core.telemetry.feed.tell_ordinary(self.id, &self.route, || EventKind::Dispatched {
            endpoint: Some(self.arc_label()),
            priority: self.priority,
            attempt: self.tries,
            waited,
        });
    }

    /// Reports the end of an exchange, with a response or a failure.
    #[inline]
    pub(super) fn exchanged(&self, core: &Core, result: &Result<Answer, TransportError>, ended: Time, began: Time) {
        let took = ended.since(began);
        if result.is_ok() {
            core.telemetry.meters.answered(&self.route.vendor.name, ended, took);
        }
        let end = result.as_ref().map(|answer| answer.status).map_err(TransportError::kind);
        self.running.series().attempt(self.prepared.method(), end, took);
    }

    /// Reports the end of the send.
    #[inline]
    pub(super) fn ended(&mut self, core: &Core, end: End) {
        self.running.ended(end.err().map(|(kind, _)| kind));
        self.close_span(end);
        let elapsed = || core.clock.now().since(self.began);
        let attempts = self.tries;
        let feed = &core.telemetry.feed;
        match end {
            Ok(status) => feed.tell_ordinary(self.id, &self.route, || EventKind::Completed {
                status,
                attempts,
                elapsed: elapsed(),
            }),
            Err((kind, delivery)) => {
                feed.tell(self.id, &self.route, || EventKind::Failed { kind, delivery, attempts, elapsed: elapsed() })
            }
        }
    }

    /// Logs an error that the caller gets.
    pub(super) fn log_failure(&self, core: &Core, error: &Error) {
        core.telemetry.failures.count(error.kind());
        // An immediate request expects refusals, and a dead letter has a log line of its own.
        if error.kind() == ErrorKind::NotNow || error.letter_id().is_some() {
            return;
        }
        let Some(left_out) = core.telemetry.failures.line(core.clock.now()) else { return };
        let (kind, delivery) = (error.kind().as_str(), error.delivery());
        tracing::warn!(
            target: "integration_client::ends",
            tenant = &*self.route.id,
            vendor = &*self.route.vendor.name,
            endpoint = &*self.label(),
            kind,
            delivery = ?delivery,
            attempts = self.tries,
            retry_after_s = error.retry_after().map(|wait| wait.as_secs_f64()),
            left_out = (left_out > 0).then_some(left_out),
            "request failed"
        );
    }

    /// Reports that a stored job waits, because it costs more than a limit holds. The log says so when it `begins` to.
    pub(super) fn costs_too_much(&self, core: &Core, refusal: &Refusal, why: &str, begins: bool, wait: Duration) {
        let (id, now) = (self.stored.as_ref().map(|stored| &*stored.id), core.clock.now());
        if let (Some(id), Refusal::TooExpensive { limit, cost, largest }) = (id, refusal) {
            core.telemetry.costly.waits(id, &self.route, limit, [*cost, *largest], now + wait);
        }
        let Some(left_out) = begins.then(|| core.telemetry.failures.line(now)).flatten() else { return };
        let message = "a stored job waits, for four days at most: it costs more than a limit holds. Raise the limit's figure or \
                       the tenant's `share`, or cancel the job";
        tracing::warn!(
            id,
            tenant = &*self.route.id,
            vendor = &*self.route.vendor.name,
            why,
            left_out = (left_out > 0).then_some(left_out),
            "{message}"
        );
    }

    /// Reports a refusal by the vendor: a response with this status, or a refused HTTP/2 stream.
    pub(super) fn refused(&self, core: &Core, wait: Option<Duration>, status: Option<u16>) {
        let message = match status {
            Some(429) => "429 received".to_owned(),
            Some(status) => format!("refusal received with status {status}"),
            None => "HTTP/2 stream refused".to_owned(),
        };
        self.running.series().refused();
        tracing::warn!(
            tenant = &*self.route.id,
            vendor = &*self.route.vendor.name,
            endpoint = &*self.label(),
            retry_after_s = wait.map(|wait| wait.as_secs_f64()),
            attempt = self.tries,
            "{message}",
        );
        core.telemetry.feed.tell(self.id, &self.route, || EventKind::Refused {
            endpoint: Some(self.arc_label()),
            retry_after: wait,
            attempt: self.tries,
        });
    }

    /// Reports that the request was given up. The sink logs the letter.
    pub(super) fn dead_lettered(&self, core: &Core, letter: &DeadLetter) {
        self.running.series().dead_lettered(letter.reason);
        core.telemetry.feed.tell(self.id, &self.route, || EventKind::DeadLettered {
            id: (*letter.id).into(),
            attempts: self.tries,
            reason: letter.reason,
        });
    }

    /// Reports that the circuit of the request's host was opened or closed.
    pub(super) fn breaker(&self, core: &Core, open: bool) {
        let host = &*self.route.peer();
        if open {
            core.telemetry.metrics.host_opened();
        }
        match open {
            true => tracing::warn!(host, "the host cannot be connected to and is left alone"),
            false => tracing::info!(host, "the host can be connected to again"),
        }
        core.telemetry.feed.tell(self.id, &self.route, || EventKind::Breaker { host: host.into(), open });
    }
}
