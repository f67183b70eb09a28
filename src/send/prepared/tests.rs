use super::*;

#[test]
fn caller_asks_for_no_coding_but_gzip() {
    for (given, left) in [
        (&["gzip"][..], Some("gzip")),
        (&["identity"], Some("identity")),
        (&["GZIP;q=0.5, identity"], Some("GZIP;q=0.5, identity")),
        (&["identity;q=1, *;q=0"], Some("identity;q=1, *;q=0")),
        (&["gzip, br; Q=0.000"], Some("gzip, br; Q=0.000")),
        (&[""], Some("")),
        (&[], None),
        (&["br"], None),
        (&["gzip, br"], None),
        (&["gzip, br;q=0.01"], None),
        (&["gzip", "zstd"], None),
        (&["gzip;q=1.0, *;q=0.5"], None),
        (&["deflate"], None),
        (&["\u{fc}"], None),
    ] {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let mut ranged = headers.clone();
        accept_only_readable(&mut headers);
        assert_eq!(headers.get(ACCEPT_ENCODING).map(|value| value.as_bytes()), left.map(str::as_bytes), "{given:?}");
        // A range of the content as it is, where the coding asked for cannot be read.
        ranged.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        accept_only_readable(&mut ranged);
        let expected = left.or((!given.is_empty()).then_some("identity"));
        assert_eq!(ranged.get(ACCEPT_ENCODING).map(|value| value.as_bytes()), expected.map(str::as_bytes));
    }
}
