//! Turns the vendor's response into the one that the caller gets.

use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    TRANSFER_ENCODING, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Response, StatusCode};

use super::answer::GatewayBody;
use super::json_links::{JsonLinks, is_json};
use super::links::{self, Back};
use crate::error::{Delivery, Error, ErrorKind};
use crate::ingress::last_response;
use crate::route::Route;
use crate::send::response::Response as Answer;

/// Refuses a response whose stated length exceeds the vendor's `max_response_bytes`: passed on, its body would break
/// off midway without an explanation.
pub(super) fn fits(answer: Answer, method: &Method, route: &Route) -> Result<Answer, Error> {
    // Without a body, `Content-Length` is that of another response (RFC 9110, section 8.6).
    if *method == Method::HEAD || matches!(answer.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        return Ok(answer);
    }
    match stated_length(answer.headers()).filter(|length| *length > route.vendor.max_response_bytes) {
        None => Ok(answer),
        Some(length) => {
            let most = route.vendor.max_response_bytes;
            let why = format!(
                "the answer has {length} bytes, and {most} are allowed; raise max_response_bytes of the vendor"
            );
            let (tenant, vendor) = (&route.id, &route.vendor.name);
            Err(Error::of_tenant(tenant, vendor, ErrorKind::ResponseTooLarge, Delivery::Delivered, why))
        }
    }
}

/// The length that a response states for its body.
fn stated_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The response for the caller, made from the vendor's, with timing and number of attempts added.
pub(super) fn of_vendor(answer: Answer, back: &Back<'_>, took: Duration) -> Response<GatewayBody> {
    let (attempts, request_id) = (answer.attempts(), answer.request_id());
    let (waited, rest) = (answer.waited(), took.saturating_sub(answer.waited()));
    let (mut parts, body) = Response::from(answer).into_parts();
    prepare(&mut parts.headers, back);
    let mut out = Response::new(GatewayBody::of_vendor(body, stated_length(&parts.headers)));
    *out.status_mut() = parts.status;
    *out.headers_mut() = parts.headers;
    let headers = out.headers_mut();
    let millis = |time: Duration| format!("{}.{:03}", time.as_millis(), time.subsec_micros() % 1000);
    let timing = format!("wait;dur={}, vendor;dur={}", millis(waited), millis(rest));
    for (name, value) in [
        ("server-timing", timing),
        ("integration-attempts", attempts.to_string()),
        ("integration-request-id", request_id.to_string()),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.append(name, value);
        }
    }
    out
}

/// The vendor's last response, if retries ended with one: a direct call would have got the same.
pub(super) fn of_error(error: &Error, back: &Back<'_>, may_act_twice: bool) -> Option<Response<GatewayBody>> {
    let mut out = last_response(error, may_act_twice, |headers| prepare(headers, back))?.map(GatewayBody::own);
    out.headers_mut().insert("integration-attempts", error.attempts().into());
    Some(out)
}

/// The error for a vendor's response that leaves open whether the vendor acted; `None` for all others.
pub(super) fn open_outcome(answer: &Answer, route: &Route) -> Option<Error> {
    if !answer.leaves_open() {
        return None;
    }
    let why = format!(
        "the vendor answered {}, and may have acted on this attempt or an earlier one; look before you send it again",
        answer.status().as_u16()
    );
    Some(route.error(ErrorKind::Status, Delivery::Ambiguous, why))
}

/// Media types, or parts of them, of bodies that come event by event, line by line or part by part, or are played while
/// they come.
const STREAMS: [&str; 10] = [
    "text/event-stream",
    "vnd.amazon.eventstream",
    "ndjson",
    "jsonl",
    "json-seq",
    "json-lines",
    "stream+json",
    "multipart/mixed",
    "audio/",
    "video/",
];

/// Whether a caller that goes away before the end of this response may send its request again although the vendor has
/// acted. A vendor that answers with an error has not acted on this attempt, and what an earlier one left open is
/// remembered anyway. People stop a stream of events or lines on purpose, as of a language model's answer or a spoken text,
/// and may ask the same again.
pub(super) fn is_needed_whole(status: StatusCode, headers: &HeaderMap) -> bool {
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let is_stream = STREAMS.iter().any(|stream| kind.contains(stream));
    has_body && (status.is_success() || status.is_redirection()) && !is_stream
}

/// Takes a response that a browser shows as a page out of the gateway's origin. Otherwise a vendor's script could act
/// at the console, whose session cookie the browser sends along. In a sandbox no script runs, so no service worker is
/// registered either, and no form is sent. SDKs ignore both headers.
pub(super) fn isolate(headers: &mut HeaderMap) {
    // Appended: a browser enforces all policies, the vendor's own too.
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Rewrites the URLs in the body of a response if it is JSON.
pub(super) fn rewrite_json(answer: Response<GatewayBody>, back: &Back<'_>) -> Response<GatewayBody> {
    if !is_json(answer.status(), answer.headers()) {
        return answer;
    }
    let mut answer = answer.map(|body| body.rewritten(JsonLinks::new(back)));
    // These headers describe the vendor's unmodified body. The entity tag stays, because only the vendor compares it.
    for name in ["content-md5", "digest", "content-digest", "repr-digest", "accept-ranges"] {
        answer.headers_mut().remove(HeaderName::from_static(name));
    }
    answer.headers_mut().remove(CONTENT_LENGTH);
    answer
}

/// Removes the headers of the connection to the vendor and those reserved for the gateway, and rewrites the URLs.
fn prepare(headers: &mut HeaderMap, back: &Back<'_>) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let ours: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("integration-")).cloned().collect();
    // A `Content-Length` beside a `Transfer-Encoding` is invalid (RFC 9112, section 6.3), and hyper would send it on.
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let fixed = [CONNECTION, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];
    for name in named.into_iter().chain(ours).chain(fixed) {
        headers.remove(name);
    }
    links::rewrite(headers, back);
}

#[cfg(test)]
mod tests;
