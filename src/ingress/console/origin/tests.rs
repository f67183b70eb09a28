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
