//! Tests of `reply`.

use url::Url;

use super::*;
use crate::config::AuthScheme;

const OWN: &str = "http://127.0.0.1:8099/acme/github";

/// What the caller gets of a header of the vendor's.
fn prepared(auth: &AuthScheme, name: &'static str, value: impl AsRef<[u8]>) -> Option<String> {
    let (base, own) = (Url::parse("https://api.example/v3").unwrap(), links::Own::sample());
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
    prepare(&mut headers, &Back { base: &base, path: "/users/7", auth, own: &own });
    headers.get(name).map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
}

#[test]
fn no_header_leads_to_another_lane() {
    for name in ["location", "content-location", "operation-location", "refresh", "link"] {
        let around = |url: &str| match name {
            "refresh" => format!("0; url={url}"),
            "link" => format!("<{url}>; rel=\"next\""),
            _ => url.to_owned(),
        };
        let caller_gets = |url: &str| prepared(&AuthScheme::None, name, around(url));
        for url in [
            "http://127.0.0.1:8099/@/stripe/x",
            "http://127.0.0.1:8099/eu-1/github/x#top",
            "http://127.0.0.1:8099/@/stripe/é",
            "http://127.0.0.1:8099/acme/github/../stripe",
            "http://127.0.0.1:8099/acme/github2",
            "http://127.0.0.1:8099/~/receipts/1",
            "https://u@127.0.0.1:8099/acme/github/x",
            "//127.0.0.1:8099/@/stripe",
            "http:127.0.0.1:8099/@/stripe",
            "http:\\\\127.0.0.1:8099\\@\\stripe",
            "http:/@/stripe/x",
        ] {
            assert_eq!(caller_gets(url), None, "{name} {url}");
        }
        for (url, expected) in [
            ("http://127.0.0.1:8099/acme/github/x?a=b#c", "http://127.0.0.1:8099/acme/github/x?a=b#c"),
            ("http://127.0.0.1/@/stripe", "http://127.0.0.1/@/stripe"),
            // All clients read the same host in these.
            ("http:/acme/stripe/x", "http://acme/stripe/x"),
            ("http://b.example\\@127.0.0.1:8099/x", "http://b.example/@127.0.0.1:8099/x"),
        ] {
            assert_eq!(caller_gets(url), Some(around(expected)), "{name} {url}");
        }
    }
}

#[test]
fn links_that_clients_read_differently_are_removed() {
    for value in [
        &b"<https://api.example/v3/a>; title=\", <http://127.0.0.1:8099/@/stripe>; rel=next\""[..],
        b"<https://api.example/v3/a>; title=\"a",
        b"<https://api.example/v3/a; rel=next",
        b"<https://api.example/v3/\xfc>",
    ] {
        assert_eq!(prepared(&AuthScheme::None, "link", value), None, "{}", value.escape_ascii());
    }
}

#[test]
fn urls_of_refreshes_lead_back() {
    for (given, expected) in [
        ("5", "5".to_owned()),
        ("5; url=https://api.example/v3/x", format!("5; url={OWN}/x")),
        ("0;URL = \"https://api.example/v3/x\" y", format!("0; url={OWN}/x")),
        ("5;URL='/eu-1/n/x'", "5; url=https://api.example/eu-1/n/x".to_owned()),
        ("0, ?page=2", format!("0; url={OWN}/users/7?page=2")),
        ("0; url=https://b.example/x", "0; url=https://b.example/x".to_owned()),
        ("0;url=''http://127.0.0.1:8099/@/stripe", "0".to_owned()),
    ] {
        assert_eq!(prepared(&AuthScheme::None, "refresh", given), Some(expected), "{given}");
    }
}

#[test]
fn query_key_is_in_no_header() {
    let auth = AuthScheme::Query { name: "key".into() };
    for (name, given, expected) in [
        ("link", "<https://api.example/v3/x?q=café&key=s3cr3t>", Some(format!("<{OWN}/x?q=caf%C3%A9>"))),
        ("link", "<https://b.example/?a=café&key=s3cr3t>", Some("<https://b.example/?a=café>".to_owned())),
        ("refresh", "0; url=https://b.example/?key=s3cr3t", Some("0; url=https://b.example/".to_owned())),
        ("refresh", "0; https://b.example/?to=%26key%3Ds3cr3t", None),
        ("link", "<https://b.example/x?key=s3cr3t; rel=next", None),
        ("link", "<https://b.example/x>; title=\"<https://b.example/x?key=s3cr3t>; rel=next", None),
        ("link", "<https://b.example/x>; anchor=\"https://b.example/x?a&key=s3cr3t\"", None),
        ("link", "<https://b.example/x>; anchor=\"https://b.example/x?k\\ey=s3cr3t\"", None),
        ("link", "<https://b.example/x>; anchor=\"https://b.example/x?k%65y=s3cr3t\"", None),
        ("location", "https://b.example/x?to=https%3A%2F%2Fb.example%3Fkey%3Ds3cr3t", None),
        ("location", "https://b.example/x?to=%253Fk%2565y%253Ds3cr3t", None),
        ("location", "https://b.example/x#key=s3cr3t", None),
    ] {
        assert_eq!(prepared(&auth, name, given), expected, "{name}: {given}");
    }
    for kept in ["<https://b.example/x?keys=1&a=key>; title=\"key=1\"", "<https://b.example/key=1>"] {
        assert_eq!(prepared(&auth, "link", kept).as_deref(), Some(kept));
    }
    let unreadable = b"https://b.example/\xe9?key=s3cr3t";
    assert_eq!(prepared(&auth, "location", unreadable), None);
}

#[test]
fn streams_alone_may_be_left() {
    for (kind, expected) in [
        ("application/json", true),
        ("application/hal+json; charset=utf-8", true),
        ("multipart/form-data", true),
        ("image/png", true),
        ("text/event-stream", false),
        ("application/x-ndjson", false),
        ("application/stream+json", false),
        ("application/json-lines", false),
        ("Multipart/Mixed; boundary=\"-\"", false),
        ("audio/mpeg", false),
        ("video/mp4", false),
    ] {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        assert_eq!(is_needed_whole(StatusCode::OK, &headers), expected, "{kind}");
    }
}
