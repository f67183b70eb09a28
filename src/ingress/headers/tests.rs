use super::*;

fn stripped(auth: AuthScheme, given: &[(&'static str, &'static str)]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        headers.append(*name, value.parse().unwrap());
    }
    strip(&mut headers, &auth);
    let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
    left.sort();
    left
}

const SDK: [(&str, &str); 16] = [
    ("host", "api.example"),
    ("content-length", "5"),
    ("transfer-encoding", "chunked"),
    ("connection", "keep-alive, X-Hop"),
    ("connection", "x-other-hop,,\u{fc}"),
    ("x-hop", "1"),
    ("x-other-hop", "1"),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("trailer", "x-sum"),
    ("upgrade", "h2c"),
    ("expect", "100-continue"),
    ("proxy-authorization", "Basic x"),
    ("proxy-connection", "keep-alive"),
    ("accept", "application/json"),
    ("user-agent", "sdk/1"),
];

#[test]
fn headers_of_the_connection_are_dropped() {
    assert_eq!(stripped(AuthScheme::Bearer, &SDK), ["accept", "user-agent"]);
    assert_eq!(stripped(AuthScheme::None, &SDK), ["accept", "user-agent"]);
}

#[test]
fn headers_of_the_vendors_auth_are_dropped() {
    let given =
        [("authorization", "Bearer the SDK's"), ("cookie", "a=b"), ("x-api-key", "the SDK's"), ("x-version", "1")];
    let own = AuthScheme::Header { name: "X-Api-Key".into(), prefix: "".into() };
    for (auth, left) in [
        (AuthScheme::Bearer, &["x-api-key", "x-version"][..]),
        (AuthScheme::Basic, &["x-api-key", "x-version"]),
        (AuthScheme::Query { name: "key".into() }, &["x-api-key", "x-version"]),
        (own, &["x-version"]),
        (AuthScheme::None, &["authorization", "cookie", "x-api-key", "x-version"]),
    ] {
        assert_eq!(stripped(auth.clone(), &given), left, "{auth:?}");
    }
}

/// `Connection: authorization` removes the caller's `Authorization`, and must not remove or add anything else.
#[test]
fn connection_header_removes_named_headers_only() {
    let given = [("connection", "authorization"), ("authorization", "Bearer x"), ("x-kept", "1")];
    assert_eq!(stripped(AuthScheme::None, &given), ["x-kept"]);
}
