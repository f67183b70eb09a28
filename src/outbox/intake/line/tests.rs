use super::*;

fn error_text(text: &str) -> String {
    Line::read(text.as_bytes(), SystemTime::UNIX_EPOCH).expect_err("it must be refused")
}

#[test]
fn line_error_names_its_column() {
    assert_eq!(error_text("{\"tenant\": "), "not JSON: EOF while parsing a value (column 11)");
    assert!(
        error_text("{\"tenant\":\"a\",\"vendor\":\"v\",\"path\":\"/\"}")
            .starts_with("not a job: missing field `method`")
    );
    let unknown = error_text("{\"tenant\":\"a\",\"vendro\":\"v\"}");
    assert!(unknown.starts_with("not a job: unknown field `vendro`, expected one of"), "{unknown}");
    let secret =
        error_text("{\"tenant\":\"a\",\"vendor\":\"v\",\"method\":\"GET\",\"path\":\"/\",\"cost\":\"hunter2\"}");
    assert!(secret.starts_with("not a job: a cost is a number of points"), "{secret}");
    let job = |rest: &str| format!("{{\"tenant\":\"a\",\"vendor\":\"v\",\"path\":\"/\",{rest}}}");
    assert!(error_text(&job("\"method\":\"GET\",\"priority\":\"urgent\"")).contains("`high`, `normal`, `low`"));
    assert_eq!(error_text(&job("\"method\":\"P OST\"")), "\"P OST\" is no method; write \"POST\"");
    assert!(error_text(&job("\"method\":\"GET\",\"deadline\":\"soon\"")).contains("\"2h\""));
}

#[test]
fn only_an_object_is_a_job() {
    for (text, is) in [
        ("[]", "an array"),
        (" [\"acme\", \"v\"]", "an array"),
        ("\"hunter2\"", "a text"),
        ("17", "a number"),
        ("false", "true or false"),
        ("null", "null"),
    ] {
        assert_eq!(error_text(text), format!("not a job: {is}; write an object, {{\"tenant\":…}}"));
    }
    for text in ["", "no job", "[1"] {
        assert!(error_text(text).starts_with("not JSON: "), "{text}");
    }
}

#[test]
fn lane_is_read_without_the_rest() {
    let lane = |text: &str| Line::lane(text.as_bytes());
    let named = Some(("a".to_owned(), "v".to_owned()));
    assert_eq!(lane(r#" {"tenant":"a","vendor":"v","method":"GET","path":"/","body":[{"tenant":"b"}]}"#), named);
    assert_eq!(lane(r#"{"vendor":"v","unknown":1,"tenant":"\u0061"}"#), named);
    let bad =
        r#"["a","v"] {"tenant":"a"} {"tenant":"a","vendor":1} {"tenant":"a","vendor":"v","tenant":"b"} {"tenant":"#;
    for text in bad.split(' ') {
        assert_eq!(lane(text), None, "{text}");
    }
}

#[test]
fn deadlines_are_times_from_now_or_moments() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let at = |text: &str| until(&Deadline::Text(text.to_owned()), now).map(|left| left.as_secs());
    assert_eq!(at("2h"), Ok(7_200));
    assert_eq!(at("1970-01-01T00:20:00Z"), Ok(200));
    assert_eq!(at("1970-01-01T00:00:00Z"), Ok(0), "it has passed");
    assert_eq!(until(&Deadline::Seconds(90), now), Ok(Duration::from_secs(90)));
}
