use super::*;

#[test]
fn prefix_ends_before_the_next_key() {
    assert_eq!(end_of(b"ic/"), b"ic0");
    assert_eq!(end_of(b"a\xff"), b"b");
    assert_eq!(end_of(b"\xff"), [0]);
    assert_eq!(end_of(b""), [0]);
}

#[test]
fn range_is_read() {
    let found =
        read(br#"{"header":{"revision":"9"},"kvs":[{"key":"aWMvYQ==","mod_revision":"7","value":"YQ=="}]}"#).unwrap();
    assert_eq!(found.texts, [("etcd:ic/a".to_owned(), "a".to_owned())]);
    assert!(read(br#"{"header":{}}"#).unwrap().texts.is_empty());
    assert!(read(b"oops").is_err());
}
