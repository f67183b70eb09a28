//! URLs in a vendor's answer, in the form in which the caller came.
//!
//! Pagination follows `Link: <https://api.github.com/…?page=2>` to where it leads. Left as it is, that is past the gateway,
//! straight to the vendor, with the caller's token as its credential. So what lies below the vendor's base URL leads back
//! here; other URLs are left alone.

use http::header::{CONTENT_LOCATION, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION};
use reqwest::Url;

use crate::transport::target;

const OPERATION_LOCATION: HeaderName = HeaderName::from_static("operation-location");

/// Rewrites the headers that hold URLs: what lies below `base` is then below `own`, which has no slash at its end.
pub(super) fn rewrite(headers: &mut HeaderMap, base: &Url, own: &str) {
    for name in [LOCATION, CONTENT_LOCATION, OPERATION_LOCATION] {
        each(headers, &name, |text| reference(text, base, own));
    }
    each(headers, &LINK, |text| links(text, base, own));
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

/// A URL, or a path from the root of the vendor's host, in the caller's form; none where it stays as it is.
fn reference(text: &str, base: &Url, own: &str) -> Option<String> {
    let text = text.trim();
    let (plain, fragment) = text.split_once('#').map_or((text, None), |(plain, fragment)| (plain, Some(fragment)));
    // A relative path means the same at the gateway. `//host` names a host.
    let url = match plain.starts_with('/') {
        true => base.join(plain).ok()?,
        false => Url::parse(plain).ok()?,
    };
    let below = target::relative(base, &url).ok()?;
    let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
    Some(format!("{own}{below}{fragment}"))
}

/// The value of a `Link` header, with what stands between `<` and `>` outside of quotes rewritten.
fn links(text: &str, base: &Url, own: &str) -> Option<String> {
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
                match reference(inside, base, own) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: &str = "http://127.0.0.1:8099/acme/github";

    fn base() -> Url {
        Url::parse("https://api.example/v3").unwrap()
    }

    fn rewritten(name: &'static str, value: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        rewrite(&mut headers, &base(), OWN);
        headers[name].to_str().unwrap().to_owned()
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
                ("//evil.example/v3", "//evil.example/v3"),
                ("/v3/../admin", "/v3/../admin"),
                ("/other", "/other"),
                ("?page=2", "?page=2"),
                ("next", "next"),
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
    fn each_of_several_headers_is_rewritten() {
        let mut headers = HeaderMap::new();
        headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/a>; rel=next"));
        headers.append(LINK, HeaderValue::from_bytes(b"<\xfc>").unwrap());
        headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/b>; rel=last"));
        rewrite(&mut headers, &base(), OWN);
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
        fn any_link_header_is_read(text in "[<>\\\\\"a;=, é-]{0,60}") {
            let _ = links(&text, &base(), OWN);
            let with = format!("<https://api.example/v3/x>{text}");
            let first = format!("<{OWN}/x>");
            prop_assert!(links(&with, &base(), OWN).is_some_and(|new| new.starts_with(&first)));
        }
    }
}
