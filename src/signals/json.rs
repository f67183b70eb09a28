//! Single values out of a JSON text that may be cut off, by pointers.
//!
//! The text is a stranger's and may be long: what is not asked for is passed over without being kept, and what comes
//! before the place where the text is cut or breaks off is found all the same. Nesting is bounded by serde_json.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memmem};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// More places that a pointer with `*` fits are not looked at.
const MAX_FOUND: usize = 64;

/// A JSON pointer (RFC 6901), of which a step may be `*`: any member, any item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Any,
    Key(String),
}

/// A value, and the keys that stood where the pointer has a `*`.
pub(super) struct Found {
    pub(super) keys: Vec<String>,
    pub(super) value: Value,
}

impl Pointer {
    /// Reads `/error/code`; the empty pointer is the whole text.
    pub(crate) fn parse(text: &str) -> Option<Pointer> {
        let mut steps = text.split('/');
        if steps.next() != Some("") {
            return None;
        }
        let step = |text: &str| match text {
            "*" => Step::Any,
            _ => Step::Key(text.replace("~1", "/").replace("~0", "~")),
        };
        Some(Pointer(steps.map(step).collect()))
    }

    /// All that is found, in the order of the text.
    pub(super) fn find(&self, json: &[u8]) -> Vec<Found> {
        let mut found = Vec::new();
        if self.cannot_be_in(json) {
            return found;
        }
        let mut keys = Vec::new();
        let walk = Walk { steps: &self.0, keys: &mut keys, found: &mut found };
        // An error says that the text is cut off, or no JSON: what was found before it counts.
        let _ = walk.deserialize(&mut serde_json::Deserializer::from_slice(json));
        found
    }

    /// A key is nowhere in the text, and cannot be there in disguise: then the text need not be parsed.
    fn cannot_be_in(&self, json: &[u8]) -> bool {
        let is_index = |key: &str| key.bytes().all(|b| b.is_ascii_digit());
        let last = self.0.iter().rev().find_map(|step| match step {
            Step::Key(key) if !is_index(key) => Some(key.as_bytes()),
            _ => None,
        });
        last.is_some_and(|key| memmem::find(json, key).is_none() && memchr(b'\\', json).is_none())
    }

    /// The same in a value.
    pub(super) fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(value, |value, step| match (step, value) {
            (Step::Key(key), Value::Object(members)) => members.get(key),
            (Step::Key(key), Value::Array(items)) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// A member's key, as it stands in the text where nothing is escaped.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

struct Walk<'w> {
    steps: &'w [Step],
    keys: &'w mut Vec<String>,
    found: &'w mut Vec<Found>,
}

impl Walk<'_> {
    /// What to do with the member `key`: the steps below it, if it is on the way.
    fn enter<E>(&mut self, key: &str, go: impl FnOnce(Walk<'_>) -> Result<(), E>) -> Option<Result<(), E>> {
        let steps = self.steps;
        let (step, rest) = steps.split_first()?;
        let is_any = *step == Step::Any;
        let fits = match step {
            Step::Any => true,
            Step::Key(own) => own == key,
        };
        if !fits || self.found.len() >= MAX_FOUND {
            return None;
        }
        if is_any {
            self.keys.push(key.to_owned());
        }
        let result = go(Walk { steps: rest, keys: self.keys, found: self.found });
        if is_any {
            self.keys.pop();
        }
        Some(result)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.steps.is_empty() {
            let value = Value::deserialize(deserializer)?;
            self.found.push(Found { keys: self.keys.clone(), value });
            return Ok(());
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            match self.enter(&key, |walk| map.next_value_seed(walk)) {
                Some(result) => result?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        for at in 0_usize.. {
            let mut ended = false;
            let key = at.to_string();
            let entered = self.enter(&key, |walk| {
                ended = items.next_element_seed(walk)?.is_none();
                Ok(())
            });
            match entered {
                Some(result) => result?,
                None => ended = items.next_element::<IgnoredAny>()?.is_none(),
            }
            if ended {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A value that stands alone, as text.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pointer: &str, json: &str) -> Vec<(String, String)> {
        let found = Pointer::parse(pointer).unwrap().find(json.as_bytes());
        found.into_iter().map(|found| (found.keys.join(" "), found.value.to_string())).collect()
    }

    #[test]
    fn what_stands_at_a_pointer() {
        let json = r#"{"a":{"b":[{"c":1},{"c":"two"},3]},"d/e":true,"f":null}"#;
        let at = |pointer: &str| find(pointer, json).into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(at("/a/b/0/c"), ["1"]);
        assert_eq!(at("/d~1e"), ["true"]);
        assert_eq!(find("/a/b/*/c", json), [("0".into(), "1".into()), ("1".into(), "\"two\"".into())]);
        assert_eq!(find("/*/b/2", json), [("a".into(), "3".into())]);
        for none in ["/a/c", "/a/b/9", "/f/x", "/a/b/0/c/d"] {
            assert!(at(none).is_empty(), "{none}");
        }
        assert_eq!(Pointer::parse("a"), None);
    }

    #[test]
    fn a_text_that_breaks_off_is_read_up_to_there() {
        assert_eq!(find("/error/code", r#"{"error":{"code":7},"data":[1,2"#), [("".into(), "7".into())]);
        assert_eq!(find("/error/code", r#"{"data":[1,2"#), []);
        assert_eq!(find("/a", r#"{"a":"cut"#), []);
        assert_eq!(find("/a", &"[".repeat(100_000)), []);
    }
}
