use super::*;

#[test]
fn caller_asks_for_no_coding_but_gzip() {
    let identity = Some("identity");
    // What is left of the header, and what of that of a request for a range.
    for (given, left, in_part) in [
        (&["gzip"][..], Some("gzip"), identity),
        (&["identity"], identity, identity),
        (&["GZIP;q=0.5, identity"], Some("GZIP;q=0.5, identity"), identity),
        (&["identity;q=1, *;q=0"], Some("identity;q=1, *;q=0"), Some("identity;q=1, *;q=0")),
        (&["gzip;q=0, identity"], Some("gzip;q=0, identity"), Some("gzip;q=0, identity")),
        (&["gzip, br; Q=0.000"], Some("gzip, br; Q=0.000"), identity),
        (&[""], Some(""), Some("")),
        (&[], None, identity),
        (&["br"], None, identity),
        (&["gzip, br"], None, identity),
        (&["gzip, br;q=0.01"], None, identity),
        (&["gzip", "zstd"], None, identity),
        (&["identity", "gzip"], identity, identity),
        (&["gzip;q=1.0, *;q=0.5"], None, identity),
        (&["deflate"], None, identity),
        (&["\u{fc}"], None, identity),
    ] {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let mut ranged = headers.clone();
        accept_only_readable(&mut headers);
        assert_eq!(headers.get(ACCEPT_ENCODING).map(|value| value.as_bytes()), left.map(str::as_bytes), "{given:?}");
        ranged.insert(RANGE, HeaderValue::from_static("bytes=0-9"));
        accept_only_readable(&mut ranged);
        let first = ranged.get(ACCEPT_ENCODING).map(|value| value.as_bytes());
        assert_eq!(first, in_part.map(str::as_bytes), "a range of {given:?}");
        let values = ranged.get_all(ACCEPT_ENCODING).iter().count();
        assert_eq!(values, 1, "a range of {given:?}");
    }
}
