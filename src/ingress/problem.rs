//! Turns errors of this client into HTTP responses: RFC 9457 problem documents, with the members and headers that SDKs
//! need to show the error's text and to leave out retries that would do harm.
//!
//! The SDKs of OpenAI and Stripe read `error.message` and do not know problem documents; octokit reads JSON only of the
//! exact type `application/json`. The table of statuses follows from which statuses an SDK retries: octokit retries all
//! but 400, 401, 403, 404, 410, 422 and 451, whatever the method.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{Response, StatusCode};
use serde_json::json;

use crate::error::{Delivery, Error, ErrorKind};

/// An error as it is sent to the caller.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The kind of the error, in snake case.
    pub(crate) kind: &'static str,
    pub(crate) detail: Box<str>,
    /// The error type of the `Proxy-Status` header (RFC 9209, section 2.3).
    pub(crate) proxy_error: &'static str,
    pub(crate) retry_after: Option<Duration>,
    /// Whether the caller may send the same request again.
    pub(crate) may_repeat: bool,
    pub(crate) delivery: Delivery,
    pub(crate) request_id: Option<u64>,
    pub(crate) record: Option<Box<Record>>,
    /// The methods of the `Allow` header, where the request's method is refused (RFC 9110, section 15.5.6).
    pub(crate) allowed: Option<&'static str>,
    /// Whether this is the response to a repeated request, which was not sent.
    pub(crate) is_repeated: bool,
}

/// What the store holds of the request.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    /// The id of its dead letter.
    Letter(Box<str>),
    /// The path of the receipt that says whether the store has accepted the request in spite of the error.
    #[cfg(feature = "gateway")]
    Receipt(Box<str>),
}

impl Problem {
    /// Returns the response for `error`. `may_act_twice` says that a second execution does no harm: because of the
    /// method, because of a key, or because the vendor's entry or the caller says so.
    pub(crate) fn of(error: &Error, may_act_twice: bool) -> Problem {
        use ErrorKind as Kind;
        let is_open = matches!(error.delivery(), Delivery::Ambiguous | Delivery::Delivered);
        let (status, proxy_error, may_repeat) = match error.kind() {
            _ if is_open && !may_act_twice => (422, "http_response_incomplete", false),
            Kind::InvalidRequest | Kind::UnknownEndpoint => (400, "http_request_error", false),
            Kind::CostAboveCapacity | Kind::KeyReused => (422, "http_request_denied", false),
            // Not 404: a program that synchronises data would take it to mean that the vendor has deleted the object.
            Kind::UnknownTenant | Kind::UnknownVendor | Kind::Retired => (403, "http_request_denied", false),
            Kind::RetryLater | Kind::NotNow => (429, "http_request_denied", true),
            Kind::QueueFull => (503, "connection_limit_reached", true),
            Kind::Shutdown | Kind::Store => (503, "destination_unavailable", true),
            Kind::Deadline => (504, "connection_timeout", true),
            Kind::Timeout => (504, "http_response_timeout", true),
            Kind::Connect => (502, "destination_unavailable", true),
            Kind::Tls => (502, "tls_certificate_error", false),
            Kind::Credential => (502, "proxy_configuration_error", false),
            Kind::ResponseTooLarge => (502, "http_response_body_size", false),
            Kind::Config => (500, "proxy_configuration_error", false),
            Kind::Protocol | Kind::Decode => (502, "http_protocol_error", true),
            Kind::Exhausted | Kind::Status => (502, "destination_unavailable", true),
        };
        let is_wait = matches!(status, 429 | 503);
        Problem {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
            kind: error.kind().as_str(),
            detail: error.to_string().into(),
            proxy_error,
            retry_after: error.retry_after().or(is_wait.then_some(Duration::from_secs(1))).filter(|_| may_repeat),
            may_repeat,
            delivery: error.delivery(),
            request_id: error.request_id(),
            record: error.letter_id().map(|id| Box::new(Record::Letter(id.into()))),
            allowed: None,
            is_repeated: false,
        }
    }

    /// Builds the response to a request with this `Accept` header.
    pub(crate) fn answer(&self, accept: Option<&HeaderValue>) -> Response<Bytes> {
        let retry_s = self.retry_after.map(|wait| wait.as_millis().div_ceil(1000).max(1));
        let mut document = json!({
            "type": format!("urn:integration-client:{}", self.kind),
            "title": title(self.status),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "kind": self.kind,
            "delivery": self.delivery,
            // SDKs that do not know problem documents read these members.
            "message": self.detail,
            "error": { "type": type_of(self.status), "code": self.kind, "message": self.detail },
        });
        if let Some(id) = self.request_id {
            document["instance"] = format!("urn:integration-client:request:{id}").into();
            document["request_id"] = id.into();
        }
        match self.record.as_deref() {
            Some(Record::Letter(id)) => document["letter_id"] = (**id).into(),
            #[cfg(feature = "gateway")]
            Some(Record::Receipt(path)) => document["receipt"] = (**path).into(),
            None => {}
        }
        if let Some(seconds) = retry_s {
            document["retry_after_s"] = u64::try_from(seconds).unwrap_or(u64::MAX).into();
        }
        let mut answer = Response::new(Bytes::from(document.to_string()));
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        let mut set = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(CONTENT_TYPE, media_type(accept));
        set(HeaderName::from_static("proxy-status"), &format!("integration-client; error={}", self.proxy_error));
        set(HeaderName::from_static("integration-delivery"), self.delivery.as_str());
        if let Some(id) = self.request_id {
            set(HeaderName::from_static("integration-request-id"), &id.to_string());
        }
        if let Some(seconds) = retry_s {
            set(RETRY_AFTER, &seconds.to_string());
        }
        if self.is_repeated {
            set(HeaderName::from_static("integration-repeated"), "true");
        }
        match self.status {
            StatusCode::UNAUTHORIZED => set(WWW_AUTHENTICATE, "Bearer realm=\"integration-client\""),
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => set(PROXY_AUTHENTICATE, "Basic realm=\"integration-client\""),
            _ => {}
        }
        if let Some(methods) = self.allowed {
            set(ALLOW, methods);
        }
        if !self.may_repeat {
            never_repeat(headers);
        }
        answer
    }
}

/// The vendor's last response, if retries ended with one: a direct call would have returned it. `prepare` changes the
/// vendor's headers before this client's own are added.
pub(crate) fn last_response(
    error: &Error,
    may_act_twice: bool,
    prepare: impl FnOnce(&mut HeaderMap),
) -> Option<Response<Bytes>> {
    let is_last = matches!(error.kind(), ErrorKind::Exhausted | ErrorKind::Status);
    let last = error.response().filter(|_| is_last)?;
    let mut answer = Response::new(last.body().clone());
    *answer.status_mut() = last.status();
    let headers = answer.headers_mut();
    *headers = last.headers().clone();
    prepare(headers);
    // Only the beginning of a long body is kept.
    headers.remove(CONTENT_LENGTH);
    set_delivery(headers, error.delivery(), may_act_twice);
    Some(answer)
}

/// Adds to a vendor's response whether the vendor acted, and whether the request may be sent again.
pub(crate) fn set_delivery(headers: &mut HeaderMap, delivery: Delivery, may_act_twice: bool) {
    headers.insert("integration-delivery", HeaderValue::from_static(delivery.as_str()));
    if !may_act_twice && delivery == Delivery::Ambiguous {
        never_repeat(headers);
    }
}

/// Sets the headers that tell some SDKs not to retry the request.
fn never_repeat(headers: &mut HeaderMap) {
    for name in ["x-should-retry", "stripe-should-retry"] {
        headers.insert(name, HeaderValue::from_static("false"));
    }
}

/// Returns the media type of problem documents for callers that accept it, and `application/json` for all others.
fn media_type(accept: Option<&HeaderValue>) -> &'static str {
    const PROBLEM: &str = "application/problem+json";
    match accept.map(|value| value.to_str().unwrap_or_default().trim()) {
        None | Some("*/*") => PROBLEM,
        Some(text) if text.contains(PROBLEM) => PROBLEM,
        Some(_) => "application/json",
    }
}

fn title(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "The request cannot be sent as it is",
        401 | 407 => "No token, or a wrong one",
        403 => "Not allowed",
        405 => "Not possible through the gateway",
        422 => "Not sent again",
        429 => "Not now",
        502 | 504 => "No answer from the vendor",
        503 => "The gateway takes no more now",
        _ => "The gateway has a problem",
    }
}

/// Returns the `type` that the SDKs of OpenAI and Stripe expect in `error`.
fn type_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 407 => "authentication_error",
        429 => "rate_limit_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests;
