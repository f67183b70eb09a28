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
mod tests {
    use super::*;

    fn headers(given: &[(&'static str, &'static str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn other_sites_are_refused() {
        let host = ("host", "127.0.0.1:8099");
        let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
        for (method, given, by_browser, expected) in [
            (&post, vec![host, (SITE, "same-origin")], true, true),
            (&post, vec![host, (SITE, "same-site")], true, false),
            (&post, vec![host, (SITE, "cross-site")], true, false),
            (&post, vec![host, (SITE, "cross-site")], false, false),
            (&post, vec![host, (SITE, "none")], true, false),
            (&get, vec![host, (SITE, "none")], true, true),
            (&get, vec![host, (SITE, "same-origin")], true, true),
            (&get, vec![host, (SITE, "cross-site")], true, false),
            (&get, vec![host, (SITE, "same-site")], true, false),
            // Browsers that do not send `Sec-Fetch-Site`.
            (&post, vec![host, ("origin", "http://127.0.0.1:8099")], true, true),
            (&post, vec![host, ("origin", "HTTP://127.0.0.1:8099")], true, true),
            (&post, vec![host, ("origin", "http://127.0.0.1:8098")], true, false),
            (&post, vec![host, ("origin", "http://evil.example")], true, false),
            (&post, vec![host, ("origin", "http://evil.example")], false, false),
            (&post, vec![host, ("origin", "null")], true, false),
            (&post, vec![("origin", "http://127.0.0.1:8099")], true, false),
            (&post, vec![host], true, false),
            (&delete, vec![host], true, false),
            (&get, vec![host], true, true),
            // A program with a token, which is no browser.
            (&post, vec![host], false, true),
            // A request whose headers contradict each other is refused.
            (&post, vec![host, ("origin", "http://127.0.0.1:8099"), (SITE, "cross-site")], true, false),
        ] {
            assert_eq!(is_own(method, &headers(&given), by_browser), expected, "{method} {given:?} {by_browser}");
        }
    }

    #[test]
    fn loopback_is_told_by_the_host() {
        for host in ["127.0.0.1:8099", "127.0.0.1", "localhost:1", "[::1]:8099", "127.9.9.9"] {
            assert!(is_loopback(&headers(&[("host", host)])), "{host}");
        }
        for host in ["", "10.0.0.1:8099", "localhost.evil.example", "127.0.0.1.evil.example:1", "[fe80::1]:1"] {
            assert!(!is_loopback(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_loopback(&HeaderMap::new()));
    }
}
