use super::*;

#[test]
fn reply_holds_only_storable_parts() {
    let metadata = BTreeMap::from([("order".to_owned(), "17".to_owned())]);
    let headers = KeptHeaders::new(vec![("x-id".to_owned(), "a".to_owned())]);
    let body = Bytes::from_static(b"{\"ok\":true}");
    let answered = Answered {
        id: "1",
        tenant: "acme",
        vendor: "v",
        metadata: &metadata,
        attempts: 2,
        status: 201,
        headers: &headers,
        body: Some(&body),
        wanted: &Wanted { to: None, is_plain: true },
    };
    assert_eq!(
        answered.reply(),
        r#"{"id":"1","tenant":"acme","vendor":"v","metadata":{"order":"17"},"outcome":"done","attempts":2,"status":201,"headers":[["x-id","a"]],"body":"{\"ok\":true}","body_bytes":11}"#
    );
    let sealed = Answered { wanted: &Wanted { to: Some("q".to_owned()), is_plain: false }, ..answered }.reply();
    assert!(sealed.ends_with(r#""status":201,"body":null,"body_bytes":11}"#), "{sealed}");
    assert!(sealed.contains(r#""reply_to":"q","metadata":null"#) && !sealed.contains("17"), "{sealed}");
    let cut = Answered { body: None, ..answered }.reply();
    assert!(cut.ends_with(r#""body":null,"body_bytes":null}"#), "{cut}");
    let long = Bytes::from(vec![b'a'; MAX_BODY + 1]);
    let long = Answered { body: Some(&long), ..answered }.reply();
    assert!(long.contains(r#""body":null,"body_bytes":262145"#), "{long}");
}
