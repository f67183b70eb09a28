use super::*;

#[test]
fn requests_over_http2_are_for_a_path() {
    let request = |version| {
        let builder = Request::builder().version(version).uri("https://gateway:8099/acme/v/a?b=c");
        let mut request = builder.body(()).unwrap();
        as_over_http1(&mut request);
        request
    };
    let over_http2 = request(Version::HTTP_2);
    assert_eq!(
        (over_http2.uri().to_string(), &over_http2.headers()[HOST]),
        ("/acme/v/a?b=c".to_owned(), &HeaderValue::from_static("gateway:8099"))
    );
    let proxied = request(Version::HTTP_11);
    assert!(proxied.uri().scheme().is_some() && proxied.headers().is_empty());
}

#[test]
fn ambiguous_heads_are_refused() {
    let status = |given: &[(&'static str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            headers.append(*name, value.parse().unwrap());
        }
        check(&Method::POST, &headers).err().map_or(200, |problem| problem.status.as_u16())
    };
    for (given, expected) in [
        (&[][..], 200),
        (&[("host", "gateway:8099"), ("transfer-encoding", "Chunked ")], 200),
        (&[("host", "[::1]:8099")], 200),
        (&[("host", "")], 200),
        (&[("transfer-encoding", "gzip, chunked")], 501),
        (&[("transfer-encoding", "chunked"), ("transfer-encoding", "gzip")], 501),
        (&[("host", "a"), ("host", "b")], 400),
        (&[("host", "a"), ("host", "a")], 400),
        (&[("host", "user@evil.example")], 400),
        (&[("host", "a b\"><script>")], 400),
        (&[("host", "gateway/path")], 400),
    ] {
        assert_eq!(status(given), expected, "{given:?}");
    }
    assert_eq!(check(&Method::CONNECT, &HeaderMap::new()).unwrap_err().status, 405);
}

#[test]
fn flags_are_true_or_false() {
    let take = |value: &str| {
        let mut headers = HeaderMap::from_iter([(http::HeaderName::from_static("x-flag"), value.parse().unwrap())]);
        let taken = take_flag(&mut headers, "x-flag").map_err(|problem| problem.status.as_u16());
        assert!(headers.is_empty());
        taken
    };
    assert_eq!((take("true"), take("TRUE"), take("false")), (Ok(true), Ok(true), Ok(false)));
    assert_eq!((take("1"), take("")), (Err(400), Err(400)));
    assert!(matches!(take_flag(&mut HeaderMap::new(), "x-flag"), Ok(false)));
}
