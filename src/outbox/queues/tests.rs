use super::*;

#[test]
fn request_is_due_for_any_time() {
    let ms = Duration::from_millis;
    let cases = [(None, None), (Some(1), None), (Some(0), Some(ms(0))), (Some(-7), Some(ms(7)))];
    for (after_ms, expected) in cases {
        assert_eq!(due_for(after_ms), expected, "{after_ms:?}");
    }
    // A row can be edited by hand.
    assert_eq!(due_for(Some(i64::MIN)), Some(ms(i64::MAX.unsigned_abs())));
}

#[test]
fn published_status_of_earlier_versions_is_read() {
    let lane = || vec![serde_json::json!({ "tenant": "acme" })];
    let none = Vec::<Value>::new;
    assert_eq!(lists_of("[{\"tenant\":\"acme\"}]"), [lane(), none(), none(), none()]);
    let source = vec![serde_json::json!({ "name": "vendors.toml" })];
    let status = "{\"lanes\":[{\"tenant\":\"acme\"}],\"config_sources\":[{\"name\":\"vendors.toml\"}]}";
    assert_eq!(lists_of(status), [lane(), source, none(), none()]);
    assert_eq!(lists_of("{"), [none(), none(), none(), none()]);
}
