//! Decides which headers of an incoming request are passed on to the vendor.

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, HeaderName};

use crate::config::{AuthScheme, CONNECTION_HEADERS};
use crate::transport::auth::header_of;

/// Removes the headers that belong to the caller's connection, and the headers that the vendor's `auth` sets: every SDK
/// sets some credential, and the tenant's credential replaces it. A vendor with `auth = "none"` gets the caller's
/// credential.
///
/// A [`Request`](crate::Request) with such a header is refused when it is sent, because its author wrote the header by
/// mistake. An SDK cannot know better.
pub(crate) fn strip(headers: &mut HeaderMap, auth: &AuthScheme) {
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    let proxys: Vec<HeaderName> = headers.keys().filter(|name| name.as_str().starts_with("proxy-")).cloned().collect();
    for name in proxys {
        headers.remove(name);
    }
    if *auth != AuthScheme::None {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
    }
    // An entry with an invalid header name is ignored here: sending the request fails because of it.
    if let Ok(Some(name)) = header_of(auth) {
        headers.remove(name);
    }
}

/// Returns the headers that `Connection` names: they are for the next hop alone (RFC 9110, section 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let names = headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(auth: AuthScheme, given: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        strip(&mut headers, &auth);
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
        left
    }

    const SDK: [(&str, &str); 16] = [
        ("host", "api.example"),
        ("content-length", "5"),
        ("transfer-encoding", "chunked"),
        ("connection", "keep-alive, X-Hop"),
        ("connection", "x-other-hop,,\u{fc}"),
        ("x-hop", "1"),
        ("x-other-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
        ("proxy-authorization", "Basic x"),
        ("proxy-connection", "keep-alive"),
        ("accept", "application/json"),
        ("user-agent", "sdk/1"),
    ];

    #[test]
    fn headers_of_the_connection_are_dropped() {
        assert_eq!(stripped(AuthScheme::Bearer, &SDK), ["accept", "user-agent"]);
        assert_eq!(stripped(AuthScheme::None, &SDK), ["accept", "user-agent"]);
    }

    #[test]
    fn headers_of_the_vendors_auth_are_dropped() {
        let given =
            [("authorization", "Bearer the SDK's"), ("cookie", "a=b"), ("x-api-key", "the SDK's"), ("x-version", "1")];
        let own = AuthScheme::Header { name: "X-Api-Key".into(), prefix: "".into() };
        for (auth, left) in [
            (AuthScheme::Bearer, &["x-api-key", "x-version"][..]),
            (AuthScheme::Basic, &["x-api-key", "x-version"]),
            (AuthScheme::Query { name: "key".into() }, &["x-api-key", "x-version"]),
            (own, &["x-version"]),
            (AuthScheme::None, &["authorization", "cookie", "x-api-key", "x-version"]),
        ] {
            assert_eq!(stripped(auth.clone(), &given), left, "{auth:?}");
        }
    }

    /// `Connection: authorization` removes the caller's `Authorization`, and must not remove or add anything else.
    #[test]
    fn connection_header_removes_named_headers_only() {
        let given = [("connection", "authorization"), ("authorization", "Bearer x"), ("x-kept", "1")];
        assert_eq!(stripped(AuthScheme::None, &given), ["x-kept"]);
    }
}
