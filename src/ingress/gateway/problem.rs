//! Errors of the gateway itself, as HTTP responses, among them the 422 for a repeated request. Those of the client are in
//! `ingress/problem.rs`.

use std::time::Duration;

use http::StatusCode;

use crate::error::Delivery;
use crate::telemetry::Outcome;

pub(super) use crate::ingress::Problem;

impl Problem {
    /// An error found before anything was sent; the same request would fail again.
    pub(super) fn refused(status: StatusCode, kind: &'static str, detail: impl Into<Box<str>>) -> Problem {
        Problem {
            status,
            kind,
            detail: detail.into(),
            proxy_error: "http_request_denied",
            retry_after: None,
            may_repeat: false,
            delivery: Delivery::NotSent,
            request_id: None,
            record: None,
            allowed: None,
            is_repeated: false,
        }
    }

    /// The request's method is none of `allowed`, which is in the form of an `Allow` header.
    pub(super) fn method(allowed: &'static str, kind: &'static str, detail: &str) -> Problem {
        Problem { allowed: Some(allowed), ..Problem::refused(StatusCode::METHOD_NOT_ALLOWED, kind, detail) }
    }

    /// The gateway cannot serve a request now and has not sent it; the caller may repeat it in a second.
    fn not_now(kind: &'static str, proxy_error: &'static str, why: &str) -> Problem {
        let problem = Problem::refused(StatusCode::SERVICE_UNAVAILABLE, kind, why);
        Problem { may_repeat: true, proxy_error, retry_after: Some(Duration::from_secs(1)), ..problem }
    }

    /// The gateway is shutting down.
    pub(super) fn closing() -> Problem {
        let why = "the gateway is shutting down and has not sent the request; send it again";
        Problem::not_now("shutdown", "destination_unavailable", why)
    }

    /// The connection is above the number that the gateway takes.
    pub(super) fn no_connection() -> Problem {
        let why = "the gateway has as many connections as it takes; send the request again";
        Problem::not_now("connections", "connection_limit_reached", why)
    }

    /// The bodies of other requests take all memory that there is for bodies.
    pub(super) fn no_memory() -> Problem {
        let why = "the bodies of other requests take all memory that the gateway has for them; send it again";
        Problem::not_now("body_memory", "proxy_internal_response", why)
    }

    /// Refuses a repetition of a request of which nobody knows whether the vendor acted. `why` is the first one's
    /// outcome.
    pub(super) fn repeated(why: &str) -> Problem {
        let detail = format!(
            "not sent: the same request came in the last ten minutes, and nobody knows whether the vendor acted on it, \
             or will act ({why}). Check at the vendor whether it acted. Then send it with an idempotency key that the \
             vendor reads, or with the header Integration-Send-Again: true"
        );
        let problem = Problem::refused(StatusCode::UNPROCESSABLE_ENTITY, "repeated", detail);
        Problem { delivery: Delivery::Ambiguous, is_repeated: true, ..problem }
    }

    /// How the request ended, for the metrics.
    pub(super) fn outcome(&self) -> Outcome {
        match self.delivery {
            _ if self.kind == "unauthorized" => Outcome::Unauthorized,
            // `delivery` is that of the first request, and this one was not sent.
            _ if self.is_repeated => Outcome::NotSent,
            Delivery::NotSent => Outcome::NotSent,
            Delivery::Rejected | Delivery::Delivered => Outcome::Answered,
            Delivery::Ambiguous => Outcome::Ambiguous,
        }
    }
}

#[cfg(test)]
mod tests;
