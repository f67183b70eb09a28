//! One tracing span for each send and a child for each attempt, with field names of OpenTelemetry's conventions for
//! HTTP clients. They are at debug level, because they cost a quarter of a bare request, and are made only if a
//! subscriber wants them. Their state is on the heap, so that it does not enlarge the future of a send.

use std::time::Duration;

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, Level, Span};

use super::Outgoing;
use super::events::End;
use crate::BoxFuture;
use crate::clock::millis;
use crate::transport::{Answer, TransportError};

const STATUS: &str = "http.response.status_code";
const ERROR: &str = "error.type";

impl Outgoing {
    /// Opens the span of the send if a subscriber wants it. The level filter usually decides this without making a
    /// span.
    #[inline]
    pub(super) fn open_span(&mut self) {
        if LevelFilter::current() >= Level::DEBUG {
            self.open_debug_span();
        }
    }

    fn open_debug_span(&mut self) {
        let span = tracing::debug_span!(
            "integration_client.send",
            tenant = &*self.route.id,
            vendor = &*self.route.vendor.name,
            endpoint = &*self.label(),
            priority = %self.priority,
            request_id = self.id,
            "http.request.method" = self.prepared.method().as_str(),
            attempts = Empty,
            "http.response.status_code" = Empty,
            "error.type" = Empty,
        );
        if !span.is_disabled() {
            self.span = Some(Box::new(span));
        }
    }

    /// Wraps the exchange in a span of its own, if the send has one.
    #[inline]
    pub(super) fn in_span(
        &self,
        exchange: BoxFuture<'static, Result<Answer, TransportError>>,
        waited: Duration,
    ) -> BoxFuture<'static, Result<Answer, TransportError>> {
        match &self.span {
            None => exchange,
            Some(send) => self.in_attempt_span(send, exchange, waited),
        }
    }

    fn in_attempt_span(
        &self,
        send: &Span,
        exchange: BoxFuture<'static, Result<Answer, TransportError>>,
        waited: Duration,
    ) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let span = tracing::debug_span!(
            parent: send,
            "attempt",
            "otel.kind" = "client",
            attempt = self.tries,
            waited_ms = millis(waited),
            "http.request.method" = self.prepared.method().as_str(),
            "http.request.resend_count" = (self.tries > 1).then(|| self.tries - 1),
            "server.address" = self.route.host(),
            "http.response.status_code" = Empty,
            "error.type" = Empty,
        );
        let ended = span.clone();
        let attempt = async move {
            let result = exchange.await;
            match &result {
                Ok(answer) => {
                    ended.record(STATUS, answer.status.as_u16());
                    if answer.status.as_u16() >= 400 {
                        ended.record(ERROR, answer.status.as_str());
                    }
                }
                Err(error) => drop(ended.record(ERROR, error.kind().as_str())),
            }
            result
        };
        Box::pin(attempt.instrument(span))
    }

    /// Records the result of the send in its span.
    #[inline]
    pub(super) fn close_span(&self, end: End) {
        let Some(span) = &self.span else { return };
        span.record("attempts", self.tries);
        match end {
            Ok(status) => span.record(STATUS, status.as_u16()),
            Err((kind, _)) => span.record(ERROR, kind.as_str()),
        };
    }
}
