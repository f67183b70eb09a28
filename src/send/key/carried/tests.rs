use super::*;

fn body(text: &'static str) -> Request {
    Request::post("v", "/pay").body(text)
}

fn put(request: &mut Request, carrier: &KeyCarrier, key: &str) -> Result<(), &'static str> {
    fit(request, carrier, key).map(|fit| fit.put(request, key))
}

#[test]
fn added_member_leaves_other_bytes_unchanged() {
    let carrier = KeyCarrier::Body("key".into());
    for (before, after) in [
        ("{}", r#"{"key":"a\"\\1"}"#),
        (" {\n} ", " {\"key\":\"a\\\"\\\\1\"\n} "),
        (r#"{"z":1.10,"a":12345678901234567890123}"#, r#"{"key":"a\"\\1","z":1.10,"a":12345678901234567890123}"#),
        (r#"{"nested":{"key":"other"}}"#, r#"{"key":"a\"\\1","nested":{"key":"other"}}"#),
    ] {
        let mut request = body(before);
        assert_eq!(find(&request, &carrier), Carried::Nothing, "{before}");
        put(&mut request, &carrier, "a\"\\1").unwrap();
        let written = request.body_bytes().unwrap().clone();
        assert_eq!(written, after);
        assert_eq!(serde_json::from_slice::<Value>(&written).unwrap()["key"], "a\"\\1");
        assert_eq!(find(&request, &carrier), Carried::Key("a\"\\1".into()));
    }
}

#[test]
fn json_objects_alone_take_a_key() {
    let carrier = KeyCarrier::Body("key".into());
    for text in ["", "[]", "{", "{}{}", "a=b", "\"{}\"", "{\"a\":}"] {
        assert!(put(&mut body(text), &carrier, "k").is_err(), "{text}");
    }
    let nested: String = "{\"a\":".repeat(100_000);
    assert!(put(&mut Request::post("v", "/pay").body(nested), &carrier, "k").is_err());
}

#[test]
fn query_parameters_are_found_in_both_places() {
    let carrier = KeyCarrier::Query("requestid".into());
    let mut request = Request::post("v", "/pay?minorversion=65").query("other", "requestid");
    assert_eq!(find(&request, &carrier), Carried::Nothing);
    put(&mut request, &carrier, "a&b").unwrap();
    assert_eq!(request.parts.query, "other=requestid&requestid=a%26b");
    assert_eq!(find(&request, &carrier), Carried::Key("a&b".into()));
    let in_path = Request::post("v", "/pay?a=1&requestid=x%2Fy");
    assert_eq!(find(&in_path, &carrier), Carried::Key("x/y".into()));
    assert_eq!(find(&Request::post("v", "/pay?requestid="), &carrier), Carried::Other);
}
