//! Detects requests of browsers that another site may have caused. The rule is that of Go's `CrossOriginProtection`,
//! but stricter if a cookie identifies the user.
//!
//! A browser attaches cookies to requests that other sites cause. `SameSite=Strict` stops that in the browsers that
//! support it. This rule does not rely on it, and needs no secret in the page: a browser states where a request comes
//! from, and no script can change that.

use http::header::{HOST, HeaderMap, ORIGIN};
use http::{Method, Uri};

const SITE: &str = "sec-fetch-site";

/// Whether no other site can have caused a request. With `by_browser`, a cookie identifies the user, or the request
/// logs a user in, so the request must state where it comes from.
pub(super) fn is_own(method: &Method, headers: &HeaderMap, by_browser: bool) -> bool {
    let is_safe = matches!(*method, Method::GET | Method::HEAD);
    let site = headers.get(SITE).map(|site| site.as_bytes());
    match site {
        Some(b"same-origin") => true,
        // The user typed the address or opened a bookmark. The browser shows the response, and no script reads it.
        Some(b"none") => is_safe,
        Some(_) => false,
        None => match headers.get(ORIGIN) {
            Some(origin) => origin.to_str().is_ok_and(|origin| is_host(origin, headers)),
            None => is_safe || !by_browser,
        },
    }
}

/// Whether an origin is the address that the request was made to.
fn is_host(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let named = origin.parse::<Uri>().ok();
    match (host, named.as_ref().and_then(Uri::authority)) {
        (Some(host), Some(named)) => named.as_str().eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// Whether a request was made to this machine, where a cookie needs no TLS.
pub(super) fn is_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests;
