use super::*;

#[test]
fn response_is_kept_up_to_a_size_of_its_stored_form() {
    let stored = |bytes: usize, byte: u8| KeptResponse::stored("1", KeptHeaders::default(), &vec![byte; bytes].into());
    let kept = stored(MAX_KEPT - 1_000, b'a').unwrap();
    let read: KeptResponse = serde_json::from_slice(&kept).unwrap();
    assert_eq!(read.body().len(), MAX_KEPT - 1_000);
    for (bytes, byte) in [(MAX_KEPT, b'a'), (MAX_KEPT + 1, b'a'), (MAX_KEPT * 4 / 5, 0xff)] {
        assert!(stored(bytes, byte).is_none(), "{bytes} of {byte}");
    }
    // As large as a response may be by default, and no text.
    assert!(stored(8 << 20, 0xff).is_some());
}

#[test]
fn large_response_is_kept_without_its_headers() {
    let pairs = vec![("content-type".to_owned(), "text/plain".to_owned()), ("x-id".to_owned(), "1".repeat(1_000))];
    let kept = |bytes: usize| -> KeptResponse {
        let stored = KeptResponse::stored("1", KeptHeaders::new(pairs.clone()), &vec![b'a'; bytes].into()).unwrap();
        assert!(stored.len() <= MAX_KEPT);
        serde_json::from_slice(&stored).unwrap()
    };
    for (bytes, has_headers) in [(MAX_KEPT - 2_000, true), (MAX_KEPT - 500, false)] {
        let kept = kept(bytes);
        assert_eq!((kept.body().len(), kept.headers().is_empty()), (bytes, !has_headers));
        assert_eq!(kept.content_type(), Some("text/plain"));
    }
}

#[test]
fn response_of_an_earlier_version_has_no_headers() {
    let old: KeptResponse = serde_json::from_str(r#"{"content_type":"text/plain","body":"a"}"#).unwrap();
    assert_eq!((old.content_type(), &old.body()[..]), (Some("text/plain"), &b"a"[..]));
    assert!(old.headers().is_empty());
    let pairs = [("content-type", "text/plain"), ("location", "/jobs/7")];
    let headers = KeptHeaders::new(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
    let new = KeptResponse::stored("1", headers, &Bytes::from_static(b"a")).unwrap();
    let expected =
        r#"{"content_type":"text/plain","headers":[["content-type","text/plain"],["location","/jobs/7"]],"body":"a"}"#;
    assert_eq!(String::from_utf8_lossy(&new), expected);
    let new: KeptResponse = serde_json::from_slice(&new).unwrap();
    assert_eq!((new.content_type(), new.headers().get("Location")), (old.content_type(), Some("/jobs/7")));
}
