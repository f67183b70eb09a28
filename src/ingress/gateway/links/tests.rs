//! Tests of `links`.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

static LANE: LazyLock<Own> = LazyLock::new(Own::sample);
const OWN: &str = "http://127.0.0.1:8099/acme/github";

fn base() -> Url {
    Url::parse("https://api.example/v3").unwrap()
}

fn back<'a>(base: &'a Url, auth: &'a AuthScheme) -> Back<'a> {
    Back { base, path: "/users/7?a=b", auth, own: &LANE }
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
    for given in ["/../stripe/x", "/./stripe/x", "/%2E%2e/stripe/x", "/a/..\\stripe/x", "/..\t/stripe/x", "/str\nipe/x"]
    {
        let found = absolute(&base, &AuthScheme::None, &LANE, &format!("https://api.example{given}"));
        assert_eq!(found, Ok(Some(format!("{OWN}/stripe/x"))), "{given:?}");
    }
    let kept = absolute(&base, &AuthScheme::None, &LANE, "https://api.example/{owner}?until=..");
    assert_eq!(kept, Ok(Some(format!("{OWN}/{{owner}}?until=.."))));
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
        assert_eq!(back.reference(given), Ok(Some(expected)), "{given}");
    }
    for kept in ["https://b.example/x?keys=1&a=key#key=2", "https://b.example/key=1", "http://api.example/v3"] {
        assert_eq!(back.reference(kept), Ok(None), "{kept}");
    }
    let links = "<http://api.example/v3/r?key=s3cr3t&page=2>; rel=next, <https://b.example/?page=9>; rel=last";
    assert_eq!(back.links(links), Ok(Some(links.replace("key=s3cr3t&", ""))));
}

#[test]
fn several_headers_are_all_rewritten() {
    let mut headers = HeaderMap::new();
    headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/a>; rel=next"));
    headers.append(LINK, HeaderValue::from_bytes(b"<\xfc>").unwrap());
    headers.append(LINK, HeaderValue::from_static("<https://api.example/v3/b>; rel=last"));
    rewrite(&mut headers, &back(&base(), &AuthScheme::None));
    let all: Vec<_> = headers.get_all(LINK).iter().collect();
    assert_eq!(all, [&format!("<{OWN}/a>; rel=next"), &format!("<{OWN}/b>; rel=last")], "the unreadable one is gone");
}

proptest! {
    /// Any value is read to its end or refused, and a URL of the vendor's between `<` and `>` never stays.
    #[test]
    fn link_headers_are_all_read(text in "[<>\\\\\"a;=, é-]{0,60}") {
        let (base, auth) = (base(), AuthScheme::None);
        let back = back(&base, &auth);
        let _ = back.links(&text);
        let with = format!("<https://api.example/v3/x>{text}");
        let first = format!("<{OWN}/x>");
        match back.links(&with) {
            Ok(new) => prop_assert!(new.is_some_and(|new| new.starts_with(&first))),
            Err(why) => prop_assert_eq!(why, UNREADABLE),
        }
    }
}
