use http::HeaderValue;

use super::*;

fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let value = |value: &[u8]| HeaderValue::from_bytes(value).unwrap();
    pairs.iter().map(|&(name, bytes)| (HeaderName::from_static(name), value(bytes))).collect()
}

fn as_sent(headers: &HeaderMap) -> KeptHeaders {
    kept(headers, str::to_owned)
}

#[test]
fn headers_with_credentials_and_for_others_are_left_out() {
    for name in [
        "location",
        "date",
        "idempotency-key",
        "x-ratelimit-remaining-tokens",
        "x-request-id",
        "x-ms-continuationtoken",
        "sync-token",
    ] {
        assert_eq!(as_sent(&headers(&[(name, &b"a"[..])])).get(name), Some("a"));
    }
    for name in [
        "set-cookie",
        "www-authenticate",
        "x-subject-token",
        "x-csrf-token",
        "x-api-key",
        "connection",
        "transfer-encoding",
        "proxy-status",
        "content-security-policy-report-only",
        "access-control-allow-origin",
        "strict-transport-security",
    ] {
        assert!(as_sent(&headers(&[(name, &b"a"[..])])).is_empty(), "{name}");
    }
    let odd = as_sent(&headers(&[("x-a", &b"\xff"[..]), ("x-b", "é".as_bytes())]));
    assert_eq!((odd.get("x-a"), odd.get("X-B")), (None, Some("é")));
    assert_eq!(format!("{odd:?}"), r#"{"x-b"}"#);
}

#[test]
fn kept_headers_are_bounded_and_none_is_cut() {
    let long = vec![b'a'; 10 << 10];
    let mut sent = headers(&[("x-long", &long[..])]);
    for number in 0..100 {
        sent.insert(HeaderName::try_from(format!("x-{number}")).unwrap(), HeaderValue::from_static("a"));
    }
    sent.extend(headers(&[("location", &long[..])]));
    let kept = as_sent(&sent);
    assert_eq!((kept.iter().count(), kept.get("location").map(str::len)), (MOST, Some(long.len())));
    assert_eq!(kept.get("x-long"), None, "it has no room beside the location");
}

#[test]
fn queries_of_urls_are_removed() {
    for (sent, shown) in [
        ("https://v.example/a?b=1#c", "https://v.example/a"),
        ("/a#access=1", "/a"),
        (r#"</a?p=2>; rel="next", </b#x>; rel="last""#, r#"</a>; rel="next", </b>; rel="last""#),
        (r#"W/"7""#, r#"W/"7""#),
    ] {
        assert_eq!(without_queries(sent), shown);
    }
}
