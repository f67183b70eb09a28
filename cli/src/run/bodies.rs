//! The bodies and headers of responses in result lines.

use integration_client::dead_letter::KeptHeaders;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A line with the vendor's response.
#[derive(Serialize)]
struct WithBody {
    #[serde(flatten)]
    about: Value,
    body: Option<Box<RawValue>>,
}

/// A line with a response's body. Without one, `"body_kept": false` says that the null is not the vendor's.
pub(super) fn with_body(mut about: Value, body: Option<&[u8]>) -> String {
    if body.is_none() {
        about["body_kept"] = false.into();
    }
    // Serializing cannot fail, because all keys are strings.
    serde_json::to_string(&WithBody { about, body: body.map(shown) }).unwrap_or_default()
}

/// The headers of a response as an object. The values of one name are joined as HTTP allows (RFC 9110, section 5.3).
pub(super) fn headers(kept: &KeptHeaders) -> Value {
    let mut object = Map::new();
    for (name, value) in kept.iter() {
        match object.get_mut(name) {
            Some(Value::String(before)) => before.extend([", ", value]),
            _ => {
                object.insert(name.to_owned(), value.into());
            }
        }
    }
    object.into()
}

/// The bytes of the headers.
pub(super) fn bytes_of(kept: &KeptHeaders) -> usize {
    kept.iter().map(|(name, value)| name.len() + value.len()).sum()
}

/// A response's body as JSON in one line: JSON is kept as the vendor wrote it, other text becomes a string, an empty
/// body null, and other bytes their number.
fn shown(body: &[u8]) -> Box<RawValue> {
    let json = match std::str::from_utf8(body) {
        Ok("") => Value::Null.to_string(),
        // The parsed value only shows that the text is JSON: it rounds large numbers and drops repeated keys.
        Ok(text) if serde_json::from_str::<Value>(text).is_ok() => without_white_space(text),
        Ok(text) => Value::from(text).to_string(),
        Err(_) => json!({ "bytes": body.len() }).to_string(),
    };
    // It is JSON in any case.
    RawValue::from_string(json).unwrap_or_default()
}

/// Removes the white space between the tokens of a JSON text.
fn without_white_space(json: &str) -> String {
    let (mut is_string, mut is_escaped) = (false, false);
    let is_kept = |letter: &char| {
        is_string ^= *letter == '"' && !is_escaped;
        is_escaped = is_string && *letter == '\\' && !is_escaped;
        is_string || !letter.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_body_keeps_its_numbers_and_keys() {
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        for (body, expected) in [
            (
                "{ \"id\" : 12345678901234567890123,\r\n\t\"a\":1.10, \"a\": 1e2 }",
                r#"{"id":12345678901234567890123,"a":1.10,"a":1e2}"#,
            ),
            (r#"[ "a \" b", "\\", "c\\\" d" , " " ]"#, r#"["a \" b","\\","c\\\" d"," "]"#),
            (" 7 ", "7"),
            ("", "null"),
            ("no\njson", r#""no\njson""#),
            // Nested too deep, and half of a surrogate pair: many readers of JSON refuse both.
            (&*deep, &*format!("\"{deep}\"")),
            (r#"["\ud800"]"#, r#""[\"\\ud800\"]""#),
        ] {
            assert_eq!(shown(body.as_bytes()).get(), expected, "{body}");
        }
        assert_eq!(shown(&[0xff, 0xfe]).get(), r#"{"bytes":2}"#);
    }

    #[test]
    fn values_of_one_header_are_joined() {
        let kept = r#"[["link","</a>"],["etag","7"],["link","</b>"]]"#;
        let kept: KeptHeaders = serde_json::from_str(kept).unwrap();
        assert_eq!(headers(&kept), json!({ "link": "</a>, </b>", "etag": "7" }));
    }

    #[test]
    fn body_stands_beside_the_other_fields() {
        let line = |body: Option<&str>| with_body(json!({ "line": 1 }), body.map(str::as_bytes));
        assert_eq!(line(Some("{\"a\": 1.0}")), r#"{"line":1,"body":{"a":1.0}}"#);
        assert_eq!(line(Some("")), r#"{"line":1,"body":null}"#);
        let unknown: Value = serde_json::from_str(&line(None)).unwrap();
        assert_eq!(unknown, json!({ "line": 1, "body": null, "body_kept": false }));
    }
}
