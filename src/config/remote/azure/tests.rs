use super::*;

#[test]
fn connection_string_secret_is_not_repeated() {
    let read = Connection::parse("Endpoint=https://x.azconfig.io;Id=abc;Secret=c2VjcmV0PQ==").unwrap();
    assert_eq!((read.endpoint.as_str(), read.id.as_str()), ("https://x.azconfig.io/", "abc"));
    for (text, expected) in [
        ("hunter2", "states no Secret"),
        ("Endpoint=https://x.azconfig.io;Id=abc;Secret=hunter2!", "is not base64"),
        ("Endpoint=ftp://x;Id=abc;Secret=c2Vj", "must begin with https://"),
    ] {
        let why = Connection::parse(text).err().unwrap().why;
        assert!(why.contains(expected) && !why.contains("hunter2"), "{why}");
    }
}
