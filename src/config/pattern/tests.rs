use super::*;

#[test]
fn patterns_match_whole_paths() {
    for (pattern, path, expected) in [
        ("/search/*", "/search/code", true),
        ("/search/*", "/search", false),
        ("/search/*", "/search/code/more", false),
        ("/search/*", "//search//code/", true),
        ("/search/**", "/search", true),
        ("/search/**", "/search/a/b", true),
        ("/search/**", "/searching", false),
        ("/**", "/", true),
        ("/**", "", true),
        ("/", "/", true),
        ("/", "/a", false),
        ("/repos/*/*/issues", "/repos/o/r/issues", true),
        ("/repos/*/*/issues", "/repos/o/issues", false),
    ] {
        assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
    }
}

#[test]
fn more_literal_pattern_is_greater() {
    let mut patterns = ["/**", "/a/**", "/a", "/*", "/a/*", "/a/b", "/*/b"];
    patterns.sort_by(|a, b| compare(b, a));
    assert_eq!(patterns, ["/a/b", "/a/*", "/a/**", "/a", "/*/b", "/*", "/**"]);
}

#[test]
fn malformed_patterns_are_refused() {
    for bad in ["", "search", "/a//b", "/a/**/b", "/a*", "/a?x=1", "/a b", "/../x", "/a\n"] {
        assert!(check(bad).is_err(), "{bad:?}");
    }
    for good in ["/", "/**", "/a/*/c", "/a/", "/graphql.json"] {
        assert!(check(good).is_ok(), "{good:?}");
    }
}
