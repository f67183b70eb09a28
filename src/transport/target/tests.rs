use super::*;

#[test]
fn ambiguous_paths_are_refused() {
    let bad = [
        "",
        "user",
        "?a=b",
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "/a\\..\\b",
        "/../admin",
        "/a/../b",
        "/a/./b",
        "/a/..",
        "/a/%2e%2e/b",
        "/a/%2E./b",
        "/a/.%2e",
        "/a/..%2fadmin",
        "/a/%2e%2e%5cb",
        "/..;/admin",
        "/a/..;x=1/admin",
        "/a/..;",
        "/.;/x",
        "/a/.;v=1",
        "/a/%2e%2e;/b",
        "/a/..%3b/b",
        "/a/b%2f..;/c",
        "/a b",
        "/a\tb",
        "/a\r\nHost: evil",
        "/a\0",
        "/a#frag",
        "/ü",
        "/a%",
        "/a%2",
        "/a%zz",
        "/a%00",
        "/a%0d%0a",
        "/a?b=c d",
        "/a?b=\r\nx",
        "/a?b#c",
        "/a\u{7f}",
        "/a\"b",
        "/a<b>",
        "/a^b",
        "/a`b",
        "/a{b}",
        "/a|b",
    ];
    for path in bad {
        assert!(check(path).is_err(), "{path:?} was accepted");
    }
}

#[test]
fn good_path_is_sent_as_it_is() {
    let base = base("https://api.example/v1/", false).unwrap();
    let good = [
        "/",
        "/user",
        "/a/b/",
        "/a//b",
        "/projects/group%2Fname",
        "/a?b=c&d[]=e",
        "/Users('id')",
        "/a.b/..c",
        "/...",
        "/a;v=1,2",
        "/a..;v=1/.b;c",
        "/;../a",
        "/%C3%BC",
        "/a?next=https://x.example/%0A",
        "/a?",
        "/@me:x",
    ];
    for path in good {
        assert_eq!(check(path), Ok(()), "{path:?}");
        assert_eq!(join(&base, path, "").unwrap().as_str(), format!("https://api.example/v1{path}"));
    }
    assert_eq!(join(&base, "/a?b=c", "d=e").unwrap().query(), Some("b=c&d=e"));
    assert_eq!(join(&base, "/a", "d=e").unwrap().query(), Some("d=e"));
}

#[test]
fn full_url_must_lie_under_the_base() {
    let base = base("https://api.example/v1", false).unwrap();
    let relative = |text: &str| relative(&base, &Url::parse(text).unwrap()).map(str::to_owned);
    assert_eq!(relative("https://api.example/v1/user?a=b").unwrap(), "/user?a=b");
    assert_eq!(relative("https://API.example:443/v1/user").unwrap(), "/user");
    assert_eq!(relative("https://api.example/v1").unwrap(), "");
    for bad in [
        "http://api.example/v1/user",
        "https://api.example:444/v1/user",
        "https://api.example.evil/v1/user",
        "https://user@api.example/v1/user",
        "https://api.example/v10/user",
        "https://api.example/v1/../admin",
        "https://api.example/v1/user#x",
    ] {
        assert!(relative(bad).is_err(), "{bad} was accepted");
    }
}

#[test]
fn base_url_is_https_or_loopback() {
    for good in
        ["https://a.example", "http://127.0.0.1:8080/x", "http://localhost", "http://[::1]:1/", "http://2130706433"]
    {
        assert!(base(good, false).is_ok(), "{good}");
    }
    for bad in
        ["http://a.example", "http://10.0.0.1", "ftp://a.example", "https://u:p@a.example", "https://a.example?x", "x"]
    {
        assert!(base(bad, false).is_err(), "{bad}");
    }
    assert!(base("http://a.example", true).is_ok());
}
