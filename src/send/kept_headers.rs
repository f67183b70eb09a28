//! Which headers of a vendor's response are kept: one rule for receipts, replies, dead letters and the results of runs.

use http::{HeaderMap, HeaderName};

use super::Outgoing;
use super::credential_headers::is_credential;
use crate::config::{AuthScheme, CONNECTION_HEADERS};
use crate::dead_letter::KeptHeaders;
use crate::route::Authorization;

/// The most headers that are kept of a response.
const MOST: usize = 64;
/// The most bytes of their names and values.
const MOST_BYTES: usize = 16 << 10;

impl Outgoing {
    /// The headers that are kept of the response to a delivered job; none where the program does not get the response.
    pub(super) fn kept_of_delivery(&mut self, headers: &HeaderMap) -> KeptHeaders {
        let known = self.take_authorization();
        match self.stored.as_ref().is_some_and(|stored| stored.has_reader) {
            true => self.kept_of_response(headers, known.as_deref(), true),
            false => KeptHeaders::default(),
        }
    }

    /// The headers that are kept of a response, without the secrets of its request, which `known` holds. `has_queries`
    /// keeps the queries of URLs.
    pub(super) fn kept_of_response(
        &self,
        headers: &HeaderMap,
        known: Option<&Authorization>,
        has_queries: bool,
    ) -> KeptHeaders {
        let scheme = &self.route.vendor.auth;
        let url = match scheme {
            AuthScheme::Basic => self.prepared.url(&self.route).map(String::from).unwrap_or_default(),
            _ => String::new(),
        };
        kept(headers, |value| {
            let shown = known.map_or_else(|| value.to_owned(), |known| known.conceal(scheme, value, false, &url));
            if has_queries { shown } else { without_queries(&shown) }
        })
    }
}

/// The headers that are kept, each value as `shown` returns it.
fn kept(headers: &HeaderMap, shown: impl Fn(&str) -> String) -> KeptHeaders {
    let mut found: Vec<_> =
        headers.iter().filter(|(name, _)| !is_for_others(name.as_str()) && !is_secret(name)).collect();
    // Where not all have room, these have it first.
    found.sort_by_key(|(name, _)| !says_what_follows(name.as_str()));
    let (mut pairs, mut room) = (Vec::new(), MOST_BYTES);
    for (name, value) in found {
        // In a value that is not UTF-8 no secret would be found.
        let Ok(value) = std::str::from_utf8(value.as_bytes()) else { continue };
        let value = shown(value);
        if let Some(left) = room.checked_sub(name.as_str().len() + value.len())
            && pairs.len() < MOST
        {
            room = left;
            pairs.push((name.to_string(), value));
        }
    }
    KeptHeaders::new(pairs)
}

/// Whether a header is for the connection or for a browser.
fn is_for_others(name: &str) -> bool {
    let begins = |begin: &&str| name.starts_with(begin);
    CONNECTION_HEADERS.contains(&name)
        || ["access-control-", "content-security-", "cross-origin-", "proxy-"].iter().any(begins)
        || matches!(name, "alt-svc" | "nel" | "permissions-policy" | "report-to" | "strict-transport-security")
}

/// Whether the name of a response's header says that it carries a credential. Words are searched for, unlike in the
/// names of a request's headers: a header that is left out by mistake stops no request.
fn is_secret(name: &HeaderName) -> bool {
    let text = name.as_str();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    is_credential(name)
        || has(&["authenticat", "authorization", "cookie", "password", "secret"])
        // A token by which the next page is asked for is no credential.
        || text.ends_with("token") && !has(&["continuation", "next-token", "page-token", "sync-token"])
}

/// Whether a header says what the caller does next, or by which name the vendor knows the request.
fn says_what_follows(name: &str) -> bool {
    let words = ["location", "rate-limit", "ratelimit", "request-id", "requestid"];
    matches!(name, "content-type" | "etag" | "link" | "retry-after") || words.iter().any(|word| name.contains(word))
}

/// Removes the queries and fragments of the URLs in a value. They may repeat those of the request.
fn without_queries(value: &str) -> String {
    let (mut shown, mut rest) = (String::new(), value);
    while let Some(at) = rest.find(['?', '#']) {
        shown.push_str(&rest[..at]);
        rest = rest[at..].find('>').map_or("", |end| &rest[at + end..]);
    }
    shown + rest
}

#[cfg(test)]
mod tests;
