use super::*;

#[test]
fn nested_gateway_takes_loopback_alone() {
    let check = |host: &str, uri: &'static str| {
        let headers = [(HOST, host.parse().unwrap())].into_iter().collect();
        Door::unknown().refuse_browsers(&headers, &Uri::from_static(uri)).is_ok()
    };
    for host in ["localhost", "LOCALHOST:3000", "127.0.0.1:80", "[::1]", "[::1]:8443"] {
        assert!(check(host, "/a/b"), "{host}");
    }
    for host in ["evil.example", "evil.example:80", "10.0.0.1", "localhost.evil.example", "127.0.0.1:x", "", ":80"] {
        assert!(!check(host, "/a/b"), "{host}");
    }
    assert!(!check("evil.example", "http://evil.example/a/b"));
}

#[test]
fn pages_and_other_hosts_are_refused() {
    let door = Door { host: "127.0.0.1:8099".into(), ..Door::default() };
    let check = |given: &[(&'static str, &'static str)], uri: &'static str| {
        let headers = given.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        door.refuse_browsers(&headers.collect(), &Uri::from_static(uri)).is_ok()
    };
    for host in ["127.0.0.1:8099", "localhost:8099", "LOCALHOST:8099", "[::1]:8099"] {
        assert!(check(&[("host", host)], "/a/b"), "{host}");
    }
    for host in ["evil.example:8099", "evil.example", "127.0.0.1", "127.0.0.1:80", ""] {
        assert!(!check(&[("host", host)], "/a/b"), "{host}");
    }
    assert!(!check(&[], "/a/b"));
    let plain = Door { host: "127.0.0.1:80".into(), ..Door::default() };
    for (host, is_fine) in [("localhost", true), ("127.0.0.1", true), ("127.0.0.1:80", true), ("evil.example", false)] {
        let headers = [(HOST, host.parse().unwrap())].into_iter().collect();
        assert_eq!(plain.refuse_browsers(&headers, &"/a/b".parse().unwrap()).is_ok(), is_fine, "{host}");
    }
    let fine = ("host", "localhost:8099");
    assert!(!check(&[fine, ("origin", "http://localhost:8099")], "/a/b"));
    assert!(!check(&[fine, ("origin", "null")], "/a/b"));
    assert!(check(&[fine, ("sec-fetch-site", "none")], "/a/b"));
    for site in ["cross-site", "same-site", "same-origin"] {
        assert!(!check(&[fine, ("sec-fetch-site", site)], "/a/b"), "{site}");
    }
    assert!(check(&[("host", "api.example")], "http://api.example/x"), "a forward proxy's request names the vendor");
}
