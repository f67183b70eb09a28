//! Rewrites the URLs in a vendor's response to the form in which the caller addressed the gateway.
//!
//! Pagination follows `Link: <https://api.github.com/…?page=2>` to the URL it names. Unchanged, that URL would bypass
//! the gateway and go straight to the vendor, with the caller's token as its credential. So URLs below the vendor's
//! base URL are rewritten to the gateway.
//!
//! Resolved against the gateway's URL, a relative reference could mean another tenant or vendor, so it is resolved
//! against the URL that was sent to the vendor. If the result is not below the base URL, it becomes the vendor's
//! absolute URL, which bypasses the gateway. Other URLs stay.
//!
//! A vendor that takes its key in the query may repeat the query in these URLs, also behind another scheme, host or
//! path. The key must reach neither the caller nor that host, so it is removed from the query of every URL.

use http::header::{CONTENT_LOCATION, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION};
use url::Url;

use crate::config::AuthScheme;
use crate::ingress::without_credential;
use crate::transport::target;

const OPERATION_LOCATION: HeaderName = HeaderName::from_static("operation-location");

/// What is needed to rewrite the URLs of a response.
pub(super) struct Back<'a> {
    /// The vendor's base URL.
    pub(super) base: &'a Url,
    /// The path and query of the request, below the base URL.
    pub(super) path: &'a str,
    pub(super) auth: &'a AuthScheme,
    /// The base URL as the caller addresses it at the gateway, without a trailing slash.
    pub(super) own: &'a str,
}

/// Rewrites the headers that hold URLs.
pub(super) fn rewrite(headers: &mut HeaderMap, back: &Back<'_>) {
    for name in [LOCATION, CONTENT_LOCATION, OPERATION_LOCATION] {
        each(headers, &name, |text| back.reference(text));
    }
    each(headers, &LINK, |text| back.links(text));
}

fn each(headers: &mut HeaderMap, name: &HeaderName, rewritten: impl Fn(&str) -> Option<String>) {
    let http::header::Entry::Occupied(mut entry) = headers.entry(name) else { return };
    for value in entry.iter_mut() {
        let new = value.to_str().ok().and_then(&rewritten).and_then(|text| HeaderValue::from_str(&text).ok());
        if let Some(new) = new {
            *value = new;
        }
    }
}

/// Returns an absolute URL in the caller's form, or `None` if it must stay unchanged. If the URL begins with the base
/// URL exactly as the vendor's entry writes it, the rest keeps its spelling, because it may be a template.
pub(super) fn absolute(base: &Url, auth: &AuthScheme, own: &str, text: &str) -> Option<String> {
    let (plain, fragment) = text.split_once('#').map_or((text, ""), |(plain, _)| (plain, &text[plain.len()..]));
    let url = Url::parse(plain).ok()?;
    let Ok(relative) = target::relative(base, &url) else {
        return Some(format!("{}{fragment}", without_key(plain, &url, auth)?));
    };
    let written = plain.strip_prefix(base.as_str().trim_end_matches('/'));
    let is_below = |rest: &&str| (rest.is_empty() || rest.starts_with(['/', '?'])) && is_plain(rest);
    let rest = written.filter(is_below).unwrap_or(relative);
    Some(format!("{own}{}{fragment}", without_credential(rest, auth)))
}

/// Returns an absolute URL, not below the base URL, without the vendor's key; `None` if it does not hold the key.
fn without_key(text: &str, url: &Url, auth: &AuthScheme) -> Option<String> {
    // URL parsers drop control bytes, and such a byte in the key's name would hide the key here.
    let text = if is_plain(text) { text } else { url.as_str() };
    let new = without_credential(text, auth);
    (new != text).then(|| new.into_owned())
}

/// Whether it means the same behind another base URL: it has no dot segment, which would lead to another tenant's path
/// of the gateway, and nothing that URL parsers drop or replace.
fn is_plain(rest: &str) -> bool {
    let is_dots = |part: &str| matches!(part.trim().to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..");
    let path = rest.split('?').next().unwrap_or_default();
    !rest.contains(|letter: char| letter.is_control() || letter == '\\') && !path.split('/').any(is_dots)
}

impl Back<'_> {
    /// Returns a reference in the caller's form, or `None` if it must stay unchanged.
    fn reference(&self, text: &str) -> Option<String> {
        let text = text.trim();
        let (plain, fragment) = text.split_once('#').map_or((text, None), |(plain, fragment)| (plain, Some(fragment)));
        if plain.is_empty() {
            return None;
        }
        let (url, is_relative) = match Url::parse(plain) {
            Ok(url) => (url, false),
            Err(_) => (self.sent()?.join(plain).ok()?, true),
        };
        let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
        match target::relative(self.base, &url) {
            Ok(below) => Some(format!("{}{}{fragment}", self.own, without_credential(below, self.auth))),
            Err(_) if is_relative => Some(format!("{}{fragment}", without_credential(url.as_str(), self.auth))),
            Err(_) => Some(format!("{}{fragment}", without_key(plain, &url, self.auth)?)),
        }
    }

    /// The URL that was sent, without the credential.
    fn sent(&self) -> Option<Url> {
        Url::parse(&format!("{}{}", self.base.as_str().trim_end_matches('/'), self.path)).ok()
    }

    /// Rewrites the URL references of a `Link` header: the text between `<` and `>` outside quotes.
    fn links(&self, text: &str) -> Option<String> {
        let (mut out, mut rest, mut is_quoted, mut changed) = (String::with_capacity(text.len()), text, false, false);
        while let Some(at) = rest.find(['<', '"', '\\']) {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            let mut letters = after.chars();
            let mark = letters.next()?;
            out.push(mark);
            rest = letters.as_str();
            match mark {
                '"' => is_quoted = !is_quoted,
                '\\' if is_quoted => {
                    out.extend(letters.next());
                    rest = letters.as_str();
                }
                '<' if !is_quoted => {
                    let Some((inside, after)) = rest.split_once('>') else { break };
                    match self.reference(inside) {
                        Some(new) => {
                            changed = true;
                            out.push_str(&new);
                        }
                        None => out.push_str(inside),
                    }
                    out.push('>');
                    rest = after;
                }
                _ => {}
            }
        }
        out.push_str(rest);
        changed.then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: &str = "http://127.0.0.1:8099/acme/github";

    fn base() -> Url {
        Url::parse("https://api.example/v3").unwrap()
    }

    fn back<'a>(base: &'a Url, auth: &'a AuthScheme) -> Back<'a> {
        Back { base, path: "/users/7?a=b", auth, own: OWN }
    }

    fn rewritten(name: &'static str, value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        rewrite(&mut headers, &back(&base(), &AuthScheme::None));
        headers[name].to_str().unwrap().to_owned()
    }

    #[test]
    fn dot_segments_reach_no_other_gateway_path() {
        let base = Url::parse("https://api.example/").unwrap();
        for given in
            ["/../stripe/x", "/./stripe/x", "/%2E%2e/stripe/x", "/a/..\\stripe/x", "/..\t/stripe/x", "/str\nipe/x"]
        {
            let found = absolute(&base, &AuthScheme::None, OWN, &format!("https://api.example{given}"));
            assert_eq!(found.as_deref(), Some("http://127.0.0.1:8099/acme/github/stripe/x"), "{given:?}");
        }
        let kept = absolute(&base, &AuthScheme::None, OWN, "https://api.example/{owner}?until=..");
        assert_eq!(kept.as_deref(), Some("http://127.0.0.1:8099/acme/github/{owner}?until=.."));
    }

    #[test]
    fn urls_of_the_vendor_lead_back() {
        for name in ["location", "content-location", "operation-location"] {
            for (given, expected) in [
                ("https://api.example/v3/user?a=b", "http://127.0.0.1:8099/acme/github/user?a=b"),
                ("https://API.example:443/v3/user", "http://127.0.0.1:8099/acme/github/user"),
                ("https://api.example/v3/user#top", "http://127.0.0.1:8099/acme/github/user#top"),
                ("https://api.example/v3", "http://127.0.0.1:8099/acme/github"),
                ("/v3/user", "http://127.0.0.1:8099/acme/github/user"),
                // These stay.
                ("https://api.example/v30/user", "https://api.example/v30/user"),
                ("https://api.example/other", "https://api.example/other"),
                ("http://api.example/v3/user", "http://api.example/v3/user"),
                ("https://evil.example/v3/user", "https://evil.example/v3/user"),
                ("https://api.example@evil.example/v3", "https://api.example@evil.example/v3"),
                ("//evil.example/v3", "https://evil.example/v3"),
                // Relative references resolve against the sent URL, and never lead to another place at the gateway.
                ("?page=2", "http://127.0.0.1:8099/acme/github/users/7?page=2"),
                ("8", "http://127.0.0.1:8099/acme/github/users/8"),
                ("../x", "http://127.0.0.1:8099/acme/github/x"),
                ("../../../eu-1/n/x", "https://api.example/eu-1/n/x"),
                ("/v3/../admin", "https://api.example/admin"),
                ("/eu-1/n/x", "https://api.example/eu-1/n/x"),
                ("", ""),
            ] {
                assert_eq!(rewritten(name, given), expected, "{given}");
            }
        }
        assert_eq!(rewritten("x-location", "https://api.example/v3/user"), "https://api.example/v3/user");
    }

    #[test]
    fn links_lead_back_and_their_parameters_stay() {
        let own = OWN;
        for (given, expected) in [
            (
                "<https://api.example/v3/r?page=2>; rel=\"next\", <https://api.example/v3/r?page=9>; rel=\"last\"",
                format!("<{own}/r?page=2>; rel=\"next\", <{own}/r?page=9>; rel=\"last\""),
            ),
            (
                "<https://api.example/v3/a>; title=\"<https://api.example/v3/b> \\\" <\"; rel=next",
                format!("<{own}/a>; title=\"<https://api.example/v3/b> \\\" <\"; rel=next"),
            ),
            ("<https://evil.example/x>; rel=next", "<https://evil.example/x>; rel=next".to_owned()),
            ("<https://api.example/v3/a", "<https://api.example/v3/a".to_owned()),
            ("<>; rel=next", "<>; rel=next".to_owned()),
        ] {
            assert_eq!(rewritten("link", given), expected);
        }
    }

    #[test]
    fn query_key_stays_at_the_gateway() {
        let (base, auth) = (base(), AuthScheme::Query { name: "key".into() });
        let back = back(&base, &auth);
        for (given, expected) in [
            ("https://api.example/v3/next?key=s3cr3t&page=2", format!("{OWN}/next?page=2")),
            ("?page=2&k%65y=s3cr3t", format!("{OWN}/users/7?page=2")),
            ("/other?key=s3cr3t", "https://api.example/other".to_owned()),
            // Also where the URL is not below the base URL.
            ("http://api.example/v3/next/?key=s3cr3t&page=2", "http://api.example/v3/next/?page=2".to_owned()),
            ("https://www.api.example/x?key=s3cr3t", "https://www.api.example/x".to_owned()),
            ("https://api.example/v30?key=s3cr3t#top", "https://api.example/v30#top".to_owned()),
            ("https://a@api.example/v3?a&key=s3cr3t&b=", "https://a@api.example/v3?a&b=".to_owned()),
            ("//www.api.example/x?key=s3cr3t", "https://www.api.example/x".to_owned()),
            ("https://b.example/?k%65y=s3cr3t&key=s3cr3t&key&page=2&%6Bey=", "https://b.example/?page=2".to_owned()),
            ("https://b.example/x?k\te\ty=s3cr3t", "https://b.example/x".to_owned()),
        ] {
            assert_eq!(back.reference(given), Some(expected), "{given}");
        }
        for kept in ["https://b.example/x?keys=1&a=key#key=2", "https://b.example/key=1", "http://api.example/v3"] {
            assert_eq!(back.reference(kept), None, "{kept}");
        }
        let links = "<http://api.example/v3/r?key=s3cr3t&page=2>; rel=next, <https://b.example/?page=9>; rel=last";
        assert_eq!(back.links(links), Some(links.replace("key=s3cr3t&", "")));
    }

    #[test]
    fn several_headers_are_all_rewritten() {
        let mut headers = HeaderMap::new();
        headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/a>; rel=next"));
        headers.append(LINK, HeaderValue::from_bytes(b"<\xfc>").unwrap());
        headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/b>; rel=last"));
        rewrite(&mut headers, &back(&base(), &AuthScheme::None));
        let all: Vec<_> = headers.get_all(LINK).iter().map(HeaderValue::as_bytes).collect();
        let expected = [
            format!("<{OWN}/a>; rel=next").into_bytes(),
            b"<\xfc>".to_vec(),
            format!("<{OWN}/b>; rel=last").into_bytes(),
        ];
        assert_eq!(all, expected);
    }

    proptest! {
        /// Any value is read to its end, and a URL of the vendor's between `<` and `>` never stays.
        #[test]
        fn link_headers_are_all_read(text in "[<>\\\\\"a;=, é-]{0,60}") {
            let (base, auth) = (base(), AuthScheme::None);
            let back = back(&base, &auth);
            let _ = back.links(&text);
            let with = format!("<https://api.example/v3/x>{text}");
            let first = format!("<{OWN}/x>");
            prop_assert!(back.links(&with).is_some_and(|new| new.starts_with(&first)));
        }
    }
}
