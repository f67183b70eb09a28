//! Tests of base URLs.

use super::*;

fn filled(template: &str, value: &str) -> Result<String, String> {
    fill(template, &BTreeMap::from([("v".to_owned(), value.to_owned())])).map(|url| url.to_string())
}

#[test]
fn value_cannot_change_the_host() {
    let template = "https://{v}.myshopify.com/admin";
    assert_eq!(filled(template, "acme").unwrap(), "https://acme.myshopify.com/admin");
    for evil in [
        "evil.com/",
        "evil.com#",
        "evil.com?",
        "a@evil.com",
        "evil.com\\",
        "a:b",
        "",
        "-a",
        "a-",
        ".",
        "..",
        "a.b",
        "a/b",
        "%2e",
        "a\r\nb",
        "é",
        "{v}",
        "a b",
        "evil。com",
        "\0",
    ] {
        assert!(filled(template, evil).is_err(), "{evil:?}");
    }
    assert!(filled(template, &"a".repeat(64)).is_err());
}

#[test]
fn host_variable_is_no_address() {
    let template = "https://{v}:8443/api";
    assert!(filled(template, "git.example.com").is_err(), "with a port the variable is a label only");
    let template = "https://{v}/api";
    assert_eq!(filled(template, "git.example.com").unwrap(), "https://git.example.com/api");
    for evil in ["169.254.169.254", "localhost", "0x7f.1", "2130706433", "a..b", ".a.b", "a.b.", "a.b/c", "a.b:1"] {
        assert!(filled(template, evil).is_err(), "{evil:?}");
    }
}

#[test]
fn path_segment_stays_one() {
    let template = "https://api.example.com/{v}/v1";
    assert_eq!(filled(template, "2026-01.x").unwrap(), "https://api.example.com/2026-01.x/v1");
    for evil in ["..", ".", "a/b", "a?b", "%2e%2e", ""] {
        assert!(filled(template, evil).is_err(), "{evil:?}");
    }
}

#[test]
fn templates_are_checked() {
    for good in [
        "https://a.example",
        "http://localhost:1/x",
        "http://127.0.0.1:80",
        "http://[::1]:9/",
        "https://{a}.b.example:8443/{c}",
    ] {
        assert_eq!(check(good, false), Ok(()), "{good}");
    }
    for bad in [
        "",
        "a.example",
        "ftp://a",
        "https://",
        "https:///x",
        "https://u:p@a.example",
        "https://a.example?x",
        "https://a.example#x",
        "http://a.example",
        "https://a.{b}",
        "https://{a",
        "https://a}",
        "https://{}.x",
        "https://{a b}.x",
        "https://a:{p}/",
        "https://a /",
        "https://a/../b",
        "https://a/..;x/b",
        "https://a\\b",
        "http://127.0.0.1.evil.example",
        "https://{a}@evil.example",
    ] {
        assert!(check(bad, false).is_err(), "{bad}");
    }
    assert_eq!(check("http://a.example", true), Ok(()));
}

#[test]
fn url_must_lie_below_its_base() {
    let base = Url::parse("https://api.example.com/v1").unwrap();
    let rest = |url: &str| below(&base, &Url::parse(url).unwrap()).map(str::to_owned);
    assert_eq!(rest("https://api.example.com/v1/a?b").as_deref(), Some("/a"));
    assert_eq!(rest("https://API.example.com:443/v1").as_deref(), Some("/"));
    for other in [
        "https://api.example.com/v10",
        "http://api.example.com/v1",
        "https://api.example.com.evil/v1",
        "https://u@api.example.com/v1",
    ] {
        assert_eq!(rest(other), None, "{other}");
    }
}
