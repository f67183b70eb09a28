use super::*;

#[test]
fn gateway_is_found_by_each_of_its_names() {
    let leads = |url: &str, name: &str, path: &str| {
        Name::of(name, path).is_some_and(|name| name.has(&Url::parse(url).unwrap()))
    };
    let is = |url: &str, name: &str| leads(url, name, "");
    for (url, name) in [
        ("http://127.0.0.1:8099/@/github", "127.0.0.1:8099"),
        ("https://u:p@LOCALHOST.:8099", "127.0.0.1:8099"),
        ("http://[::1]:8099/", "localhost:8099"),
        ("http://[::ffff:127.0.0.1]:8099/", "localhost:8099"),
        ("http://0x7f000002:8099/", "0.0.0.0:8099"),
        ("http://0:8099/", "127.0.0.1:8099"),
        ("https://gateway/acme", "gateway"),
        ("http://gateway./acme", "Gateway:80"),
        ("https://internal.example:8443/", "internal.example:8443"),
    ] {
        assert!(is(url, name), "{url} {name}");
    }
    for (url, name) in [
        ("http://127.0.0.1:8098/@/github", "127.0.0.1:8099"),
        ("http://127.0.0.1.example:8099/", "127.0.0.1:8099"),
        ("http://127.0.0.1:8099@b.example/", "127.0.0.1:8099"),
        ("http://127.0.0.1:8099/", "gateway:8099"),
        ("https://gateway/", "gateway:80"),
        ("http://gateway/", ""),
        ("mailto:a@gateway", "gateway"),
    ] {
        assert!(!is(url, name), "{url} {name}");
    }
    for (url, expected) in [
        ("https://api.corp/gw", true),
        ("https://api.corp/billing/../gw/@/github", true),
        ("https://api.corp/billing/jobs/7", false),
        ("https://api.corp/gw2/x", false),
    ] {
        assert_eq!(leads(url, "api.corp", "/gw/"), expected, "{url}");
    }
}
