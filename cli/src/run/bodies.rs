//! The bodies of responses in result lines.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

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
    fn body_stands_beside_the_other_fields() {
        let line = |body: Option<&str>| with_body(json!({ "line": 1 }), body.map(str::as_bytes));
        assert_eq!(line(Some("{\"a\": 1.0}")), r#"{"line":1,"body":{"a":1.0}}"#);
        assert_eq!(line(Some("")), r#"{"line":1,"body":null}"#);
        let unknown: Value = serde_json::from_str(&line(None)).unwrap();
        assert_eq!(unknown, json!({ "line": 1, "body": null, "body_kept": false }));
    }
}
