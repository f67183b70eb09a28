//! Tests of paths of the gateway.

use proptest::prelude::*;

use super::*;

#[test]
fn paths_name_tenant_and_vendor() {
    let named = |tenant, vendor, rest| Ok(Named { tenant, vendor, rest });
    for (path, expected) in [
        ("/acme/stripe/v1/charges?limit=3", named(Some("acme"), "stripe", "/v1/charges?limit=3")),
        ("/acme/stripe", named(Some("acme"), "stripe", "")),
        ("/acme/stripe?x=/a", named(Some("acme"), "stripe", "?x=/a")),
        ("/@/stripe/", named(None, "stripe", "/")),
        ("/acme/stripe//host", named(Some("acme"), "stripe", "//host")),
    ] {
        assert_eq!(by_path(path), expected, "{path}");
    }
    for bad in [
        "",
        "/",
        "/acme",
        "/acme/",
        "/acme?x",
        "//stripe/x",
        "//evil.example/acme/stripe",
        "/%61cme/stripe",
        "/acme/@/x",
        "/~/livez",
        "/../stripe/x",
        "/acme/../x",
        "/a cme/stripe",
        "*",
        "acme/stripe",
        "/acme\\stripe/x",
        "/ü/stripe",
    ] {
        assert!(by_path(bad).is_err(), "{bad}");
    }
}

#[test]
fn base_path_is_stripped_once() {
    let base = Url::parse("https://api.example/v1").unwrap();
    for (rest, path, had_base) in [
        ("/chat", "/chat", false),
        ("/v1/chat", "/chat", true),
        ("/v1/v1/chat", "/v1/chat", true),
        ("/v10/chat", "/v10/chat", false),
        ("/v1", "/", true),
        ("/v1?x=1", "/?x=1", true),
        ("", "/", false),
        ("?x=1", "/?x=1", false),
    ] {
        assert_eq!(below(&base, rest), Ok((path.into(), had_base)), "{rest}");
    }
    let bare = Url::parse("https://api.example").unwrap();
    assert_eq!(below(&bare, "/v1/chat"), Ok(("/v1/chat".into(), false)));
    for bad in
        ["//evil.example/x", "/v1//evil.example", "/..%2fadmin", "/a/../b", "/..;/x", "/a\\b", "/a%0d%0ab", "/{a}"]
    {
        assert!(below(&base, bad).is_err(), "{bad}");
    }
}

proptest! {
    /// Whatever path a caller writes, the sent URL is at the vendor's host and below its base path.
    #[test]
    fn paths_never_leave_the_base(path in "(/acme/stripe)?[/.%;@\\\\?#a-f0-9v:~ü-]{0,40}", with_base: bool) {
        let base = Url::parse(if with_base { "https://api.example/v1" } else { "https://api.example" }).unwrap();
        if let Ok(named) = by_path(&path)
            && let Ok((below, _)) = below(&base, named.rest)
        {
            let url = target::join(&base, &below, "").unwrap();
            prop_assert_eq!(url.origin(), base.origin());
            let inside = url.path().strip_prefix(base.path().trim_end_matches('/'));
            prop_assert!(inside.is_some_and(|inside| inside.starts_with('/')), "{}", url);
            prop_assert!(url.as_str().ends_with(&*below), "{} {}", url, below);
        }
    }
}
