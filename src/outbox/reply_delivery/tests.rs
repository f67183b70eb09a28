use super::*;

fn reply(json: &str) -> Reply {
    Reply { number: 7, id: "job".to_owned(), json: json.to_owned() }
}

#[test]
fn reply_says_where_it_goes() {
    let routed = reply(r#"{"id":"job","reply_to":"q","metadata":{"correlation_id":"c"}}"#);
    assert_eq!((routed.reply_to().as_deref(), routed.metadata("correlation_id").as_deref()), (Some("q"), Some("c")));
    assert_eq!(routed.message_id(), "job-7");
    for plain in ["{}", r#"{"metadata":null}"#, "not JSON"] {
        assert_eq!((reply(plain).reply_to(), reply(plain).metadata("correlation_id")), (None, None), "{plain}");
    }
}

#[test]
fn long_reply_goes_without_its_body() {
    let long = reply(&format!(r#"{{"id":"job","body":"{}","body_bytes":1000}}"#, "x".repeat(1_000)));
    assert_eq!(long.json_within(2_000), long.json);
    assert_eq!(long.json_within(500), r#"{"body":null,"body_bytes":1000,"id":"job"}"#);
    assert_eq!(reply("not JSON, and long").json_within(3), "not JSON, and long");
}
