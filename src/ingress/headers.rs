//! Decides which headers of an incoming request are passed on to the vendor.

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, HeaderName};

use crate::config::{AuthScheme, CONNECTION_HEADERS};
use crate::transport::auth::header_of;

/// Removes the headers that belong to the caller's connection, and the headers that the vendor's `auth` sets: every SDK
/// sets some credential, and the tenant's credential replaces it. A vendor with `auth = "none"` gets the caller's
/// credential. Headers that `secret_headers` name are dropped later, when the request is prepared: it carries the
/// client's in their place.
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
mod tests;
