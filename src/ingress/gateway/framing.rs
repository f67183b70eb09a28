//! Checks of every request's head. A head that two programs can read differently lets a request slip past one of them
//! (request smuggling).

use http::header::{HOST, HeaderMap, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Method, Request, StatusCode, Uri, Version};

use super::problem::Problem;

/// The methods of requests that are passed on to vendors, in the form of an `Allow` header. Only `CONNECT` is refused;
/// methods that few APIs have, such as `TRACE`, are passed on without being named here.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Brings the URI of a request over HTTP/2 into the form that it has over HTTP/1: HTTP/2 states scheme and authority of
/// every request, HTTP/1 only of those to a forward proxy.
pub(super) fn as_over_http1<B>(request: &mut Request<B>) {
    if request.version() < Version::HTTP_2 {
        return;
    }
    let Some(authority) = request.uri().authority().cloned() else { return };
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
        request.headers_mut().entry(HOST).or_insert(host);
    }
}

/// Refuses a tunnel, a body in a transfer coding that would get lost, and an invalid `Host`.
///
/// # Errors
/// The error says what to send instead.
pub(super) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if *method == Method::CONNECT {
        let why = "a tunnel cannot be paced from outside, because its TLS hides the requests; use http:// as the SDK's base \
                   URL, or the base URL of the gateway";
        return Err(Problem::method(METHODS, "connect", why));
    }
    // Only `chunked` is decoded on the way: the vendor would get any other coding's bytes without the header that
    // names it.
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(TRANSFER_ENCODING).iter().all(is_chunked) {
        let why =
            "of Transfer-Encoding the gateway takes `chunked` alone; a compressed body is stated by Content-Encoding";
        return Err(Problem::refused(StatusCode::NOT_IMPLEMENTED, "invalid_request", why));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let is_host =
        |host: &HeaderValue| Authority::try_from(host.as_bytes()).is_ok_and(|host| !host.as_str().contains('@'));
    match (hosts.next(), hosts.next()) {
        (None, _) => Ok(()),
        (Some(host), None) if host.is_empty() || is_host(host) => Ok(()),
        _ => {
            let why = "the Host header must stand once, and be a host with or without a port";
            Err(Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why))
        }
    }
}

/// Removes a header whose value is `true` or `false`, and returns the value; `false` if the header is absent.
///
/// # Errors
/// The value is neither.
pub(super) fn take_flag(headers: &mut HeaderMap, name: &'static str) -> Result<bool, Problem> {
    let Some(value) = headers.remove(name) else { return Ok(false) };
    match value.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => {
            let why = format!("the header {name} cannot be read: write true or false");
            Err(Problem::refused(StatusCode::BAD_REQUEST, "invalid_request", why))
        }
    }
}

#[cfg(test)]
mod tests;
