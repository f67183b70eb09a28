//! The console's responses: the headers of every response, and the forms that a body has.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, SET_COOKIE};
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use super::files::File;
use super::sessions;
use crate::error::{Error, ErrorKind};
use crate::ingress::gateway::answer::GatewayBody;

/// The content security policy: the page loads nothing but the console's own files, and no other page may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

pub(super) type Reply = Response<GatewayBody>;

/// A failed call: a status, and a sentence for the user.
#[derive(Debug)]
pub(super) struct Failed(pub(super) StatusCode, pub(super) String);

impl Failed {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Failed {
        Failed(status, why.into())
    }

    /// Translates an error of the client. Messages of the client hold no credential.
    pub(super) fn of(error: &Error) -> Failed {
        let status = match error.kind() {
            ErrorKind::UnknownTenant | ErrorKind::UnknownVendor | ErrorKind::Retired => StatusCode::NOT_FOUND,
            ErrorKind::InvalidRequest => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failed(status, error.to_string())
    }
}

fn with(status: StatusCode, media_type: &'static str, body: GatewayBody) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, media_type),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("content-security-policy"), POLICY),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
        (HeaderName::from_static("x-frame-options"), "DENY"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// A response with a file of the page. The file belongs to this version of the program, so the browser must not cache
/// it.
pub(super) fn of_file(file: File) -> Reply {
    with(StatusCode::OK, file.media_type, GatewayBody::own(Bytes::from_static(file.text.as_bytes())))
}

/// A response with JSON that is serialized already.
pub(super) fn bytes(json: Bytes) -> Reply {
    with(StatusCode::OK, "application/json", GatewayBody::own(json))
}

/// A response with a value as JSON.
pub(super) fn value(value: &impl Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(json) => bytes(json.into()),
        // Only a map whose keys are no strings cannot be serialized.
        Err(error) => failed(&Failed::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

pub(super) fn failed(Failed(status, why): &Failed) -> Reply {
    let body = json!({ "error": why }).to_string();
    with(*status, "application/json", GatewayBody::own(body.into()))
}

/// A response to a method that the call does not have; `allowed` are those that it has.
pub(super) fn method(allowed: &'static str) -> Reply {
    let why = format!("the call has another method: {allowed}");
    let mut reply = failed(&Failed::new(StatusCode::METHOD_NOT_ALLOWED, why));
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    reply
}

/// A response about a conflict, with the number of letters that there are.
pub(super) fn conflict(why: &str, count: u64) -> Reply {
    let body = json!({ "error": why, "count": count }).to_string();
    with(StatusCode::CONFLICT, "application/json", GatewayBody::own(body.into()))
}

/// A response with a stream of events.
pub(super) fn events(body: GatewayBody) -> Reply {
    let mut reply = with(StatusCode::OK, "text/event-stream", body);
    // Without this header a proxy would hold events back, to send many at once.
    reply.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// A redirect from the page's path without a slash at its end to the path with one, wherever the console is mounted.
pub(super) fn slash() -> Reply {
    let mut reply = with(StatusCode::PERMANENT_REDIRECT, "text/plain", GatewayBody::own(Bytes::new()));
    reply.headers_mut().insert(LOCATION, HeaderValue::from_static("console/"));
    reply
}

/// Sets the cookie of a session. An empty `id` removes the cookie.
pub(super) fn set_session(reply: &mut Reply, id: &str, is_secure: bool) {
    let lasts = if id.is_empty() { 0 } else { sessions::LASTS.as_secs() };
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{}={id}; HttpOnly; SameSite=Strict; Max-Age={lasts}{secure}", sessions::NAME);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().insert(SET_COOKIE, cookie);
    }
}
