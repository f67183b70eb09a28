//! Tests of links in JSON bodies.

use http::HeaderName;
use proptest::prelude::*;

use super::*;

const OWN: &str = "http://127.0.0.1:8099/acme/github";

fn links(auth: AuthScheme) -> JsonLinks {
    let base = Url::parse("https://api.example/v3").unwrap();
    JsonLinks::new(&Back { base: &base, path: "/users", auth: &auth, own: &Own::sample() })
}

/// In pieces of this length.
fn rewrite_in_pieces(mut links: JsonLinks, body: &[u8], length: usize) -> Vec<u8> {
    let mut out: Vec<u8> = body.chunks(length).flat_map(|piece| links.piece(piece)).collect();
    out.extend(links.rest());
    out
}

fn rewritten(body: &str) -> String {
    let whole = rewrite_in_pieces(links(AuthScheme::None), body.as_bytes(), usize::MAX);
    for length in [1, 2, 3, 7] {
        assert_eq!(
            rewrite_in_pieces(links(AuthScheme::None), body.as_bytes(), length),
            whole,
            "{body} in pieces of {length}"
        );
    }
    String::from_utf8(whole).unwrap()
}

#[test]
fn vendor_urls_in_json_lead_back() {
    for (given, expected) in [
        (r#"{"next":"https://api.example/v3/items?page=2"}"#, format!(r#"{{"next":"{OWN}/items?page=2"}}"#)),
        (r#"["https://api.example/v3"]"#, format!(r#"["{OWN}"]"#)),
        (r#"["https://api.example/v3?a=%22#top"]"#, format!(r#"["{OWN}?a=%22#top"]"#)),
        (r#"["https:\/\/api.example\/v3\/x"]"#, format!(r#"["{}"]"#, format!("{OWN}/x").replace('/', "\\/"))),
        (r#"["HTTPS://API.example:443/v3/x"]"#, format!(r#"["{OWN}/x"]"#)),
        (r#"["https:\u002f/api.example/v3/\u00e9"]"#, format!(r#"["{OWN}/é"]"#)),
        // A template stays one.
        (
            r#"{"url": "https://api.example/v3/repos{/owner}{?page}" , "n":1.0e2}"#,
            format!(r#"{{"url": "{OWN}/repos{{/owner}}{{?page}}" , "n":1.0e2}}"#),
        ),
    ] {
        assert_eq!(rewritten(given), expected, "{given}");
    }
}

#[test]
fn urls_of_other_lanes_are_emptied() {
    for (given, expected) in [
        (r#"{"next":"http://127.0.0.1:8099/@/stripe/x"}"#, r#"{"next":""}"#.to_owned()),
        (r#"["http:\/\/127.0.0.1:8099\/eu-1\/github"]"#, r#"[""]"#.to_owned()),
        (r#"["https://a@127.0.0.1:8099/acme/github/../stripe"]"#, r#"[""]"#.to_owned()),
        (r#"["http://127.0.0.1:8099/acme/github/x?a=b#c"]"#, format!(r#"["{OWN}/x?a=b#c"]"#)),
        (r#"["http://b.example\\@127.0.0.1:8099/@/x"]"#, r#"["http://b.example/@127.0.0.1:8099/@/x"]"#.to_owned()),
        (r#"["http://127.0.0.1:80/@/stripe"]"#, r#"["http://127.0.0.1:80/@/stripe"]"#.to_owned()),
    ] {
        assert_eq!(rewritten(given), expected, "{given}");
    }
}

#[test]
fn all_else_stays() {
    for body in [
        r#"{"a":"see https://api.example/v3/x","b":"\"https://api.example/v3/x\""}"#,
        r#"["https://api.example/v30/x","https://evil.example/v3","http://api.example/v3/x"]"#,
        r#"["https://api.example@evil.example/v3/x","https://api.example/v3/../admin","/v3/x"]"#,
        r#"["https://api.example/v3/x\ud800"]"#,
        r#"["https://api.example/v3/x"#,
        r#"{"a":"h","b":"ht\"tp","c":"http","d":"","e":"\\","f":"http\\"}"#,
        "https://api.example/v3/x",
        "",
    ] {
        assert_eq!(rewritten(body), body);
    }
    let long = format!(r#"["https://api.example/v3/{}","https://api.example/v3/y"]"#, "x".repeat(LONGEST));
    let new = rewritten(&long);
    assert!(new.starts_with(r#"["https://api.example/v3/xx"#) && new.ends_with(&format!(r#"x","{OWN}/y"]"#)));
}

#[test]
fn query_key_stays_at_the_gateway() {
    for (given, expected) in [
        (r#"["https://api.example/v3/x?key=s3cr3t&page=2"]"#, format!(r#"["{OWN}/x?page=2"]"#)),
        // Also where the URL is not below the base URL.
        (r#"["http://api.example/v3/x?key=s3cr3t&page=2"]"#, r#"["http://api.example/v3/x?page=2"]"#.to_owned()),
        (r#"["https:\/\/b.example\/{x}?k%65y=s3cr3t#a"]"#, r#"["https:\/\/b.example\/{x}#a"]"#.to_owned()),
        (r#"["https://b.example/x?k\ney=s3cr3t"]"#, r#"["https://b.example/x"]"#.to_owned()),
        (r#"["https://b.example/x?keys=1"]"#, r#"["https://b.example/x?keys=1"]"#.to_owned()),
    ] {
        let auth = AuthScheme::Query { name: "key".into() };
        let new = rewrite_in_pieces(links(auth), given.as_bytes(), 5);
        assert_eq!(String::from_utf8(new).unwrap(), expected, "{given}");
    }
}

#[test]
fn json_alone_is_rewritten() {
    let is = |status: u16, given: &[(&'static str, &'static str)]| {
        let headers = given.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        is_json(StatusCode::from_u16(status).unwrap(), &headers.collect())
    };
    assert!(is(200, &[("content-type", "application/json; charset=utf-8")]));
    assert!(is(404, &[("content-type", "Application/Problem+JSON")]));
    for (status, given) in [
        (200, &[][..]),
        (200, &[("content-type", "text/html")]),
        (200, &[("content-type", "text/event-stream")]),
        (206, &[("content-type", "application/json")]),
        (200, &[("content-type", "application/json"), ("content-encoding", "br")]),
    ] {
        assert!(!is(status, given), "{given:?}");
    }
}

proptest! {
    /// The output does not depend on how a body is split into pieces; a body without a URL of the vendor stays
    /// unchanged.
    #[test]
    fn bodies_of_any_kind_go_through(body in "[\\\\\"{}:,htp/ é.]{0,60}", length in 1_usize..9) {
        let whole = rewrite_in_pieces(links(AuthScheme::None), body.as_bytes(), usize::MAX);
        prop_assert_eq!(&rewrite_in_pieces(links(AuthScheme::None), body.as_bytes(), length), &whole);
        prop_assert_eq!(whole, body.as_bytes());
    }

    /// The output of a JSON body is JSON with the same values, except for the URLs.
    #[test]
    fn json_stays_json(values in proptest::collection::vec("https://api\\.example/v3/[ -~]{0,20}|[ -~]{0,20}", 0..6)) {
        let body = serde_json::to_vec(&values).unwrap();
        let new: Vec<String> = serde_json::from_slice(&rewrite_in_pieces(links(AuthScheme::None), &body, 3)).unwrap();
        prop_assert_eq!(new.len(), values.len());
        for (new, old) in new.iter().zip(&values) {
            prop_assert!(new == old || (old.starts_with("https://api.example/v3") && new.starts_with(OWN)), "{} {}", old, new);
        }
    }
}
