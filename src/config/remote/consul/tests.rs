use super::*;

#[test]
fn pairs_are_read_in_key_order() {
    let body = br##"[{"LockIndex":0,"Key":"ic/","Flags":0,"Value":null,"CreateIndex":9,"ModifyIndex":9},
        {"Key":"ic/b","Value":"Yg==","ModifyIndex":3},{"Key":"ic/a","Value":"YQ==","ModifyIndex":7}]"##;
    let found = read(body).unwrap();
    let text = |key: &str, text: &str| (key.to_owned(), text.to_owned());
    assert_eq!(found.texts, [text("consul:ic/a", "a"), text("consul:ic/b", "b")]);
}

#[test]
fn malformed_answer_is_described() {
    for (body, expected) in
        [("<html>", "no answer of Consul"), (r#"[{"Key":"ic/a","Value":"/w=="}]"#, "the value of ic/a is no UTF-8")]
    {
        let why = read(body.as_bytes()).err().unwrap().why;
        assert!(why.contains(expected), "{why}");
    }
}
