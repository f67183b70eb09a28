use super::*;

fn headers(given: &[(&'static str, &str)]) -> HeaderMap {
    given.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
}

#[test]
fn tokens_are_found_where_sdks_put_keys() {
    let basic = format!("Basic {}", STANDARD.encode("tok:pass"));
    let own = AuthScheme::Header { name: "x-key".into(), prefix: "Key ".into() };
    let query = AuthScheme::Query { name: "key".into() };
    for (given, in_query, auth, expected) in [
        (vec![("authorization", "Bearer tok")], "", None, vec!["tok"]),
        (vec![("authorization", "token tok")], "", None, vec!["tok"]),
        (vec![("authorization", &*basic)], "", None, vec!["tok", "pass"]),
        (vec![("x-api-key", "tok")], "", None, vec!["tok"]),
        (vec![("x-key", "Key tok")], "", Some(&own), vec!["tok"]),
        (vec![("x-key", "tok")], "", Some(&own), vec!["tok"]),
        (vec![], "a=b&key=tok", Some(&query), vec!["tok"]),
        (vec![], "k%65y=t%2Fo%3D%3D", Some(&query), vec!["t/o=="]),
        (vec![("integration-token", "tok"), ("authorization", "Bearer x")], "", None, vec!["tok"]),
        (vec![("proxy-authorization", &*basic), ("authorization", "AWS4 x")], "", None, vec!["pass"]),
        (vec![("authorization", "")], "", None, vec![]),
        (vec![("authorization", "Basic %%%")], "", None, vec![]),
    ] {
        let found = tokens(&headers(&given), in_query, auth.as_slice());
        let found: Vec<_> = found.iter().map(|token| String::from_utf8_lossy(token)).collect();
        assert_eq!(found, expected, "{given:?}");
    }
    assert_eq!(proxy_user(&headers(&[("proxy-authorization", &basic)])).as_deref(), Some("tok"));
}

#[test]
fn token_is_taken_away_everywhere() {
    let basic = format!("Basic {}", STANDARD.encode("user:the-token"));
    let mut given = headers(&[
        ("authorization", &basic),
        ("x-api-key", "the-token"),
        ("x-any", "prefix the-token suffix"),
        ("integration-token", "another"),
        ("proxy-authorization", "Basic x"),
        ("accept", "*/*"),
    ]);
    remove(&mut given, b"the-token");
    assert_eq!(given.keys().collect::<Vec<_>>(), ["accept"]);
    for (path, expected) in
        [("/x?a=the-token", true), ("/th%65-token", true), ("/x?a=the%2Dtoken", true), ("/the/token%", false)]
    {
        assert_eq!(stands_in(path.as_bytes(), b"the-token"), expected, "{path}");
    }
}
