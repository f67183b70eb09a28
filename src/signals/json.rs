//! Finds single values by JSON pointers in a text that may be truncated.
//!
//! The text is untrusted and may be long: values that no pointer selects are skipped without being stored, and values
//! before the end of a truncated text are still found. serde_json bounds the nesting.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use compact_str::{CompactString, ToCompactString};
use memchr::memchr;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The most values that one pointer finds, by its `*` or by repeated keys.
pub(super) const MAX_FOUND: usize = 64;
/// The most pointers that one pass over a text looks up: each takes one bit of a `u32`.
pub(crate) const MAX_POINTERS: usize = 32;

/// A JSON pointer (RFC 6901) in which a step may be `*`: any member or item.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    steps: Vec<Step>,
    /// Distinguishes most pointers without comparing their steps, many of which the pointers of one vendor have in
    /// common.
    hash: u64,
    /// Searches a text for the pointer's last key.
    last: Option<Box<Finder<'static>>>,
}

/// A pointer as a readable path: `errors[].code`.
pub(super) fn path(pointer: &Pointer) -> String {
    let mut path = String::new();
    for step in &pointer.steps {
        match step {
            Step::Any => path.push_str("[]"),
            Step::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
        }
    }
    path
}

impl PartialEq for Pointer {
    fn eq(&self, other: &Pointer) -> bool {
        std::ptr::eq(self, other) || (self.hash == other.hash && self.steps == other.steps)
    }
}

impl Eq for Pointer {}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Any,
    Key(String),
}

/// A value, and the keys that matched each `*` of the pointer.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) keys: Vec<String>,
    pub(super) value: Value,
}

impl Pointer {
    /// Whether the values at the pointer may each stand for a part of a batch: it has a `*`, and not below a key `error`
    /// or `errors`, whose members are the errors of one request.
    pub(super) fn lists_parts(&self) -> bool {
        let any = self.steps.iter().position(|step| *step == Step::Any);
        let is_of_errors = |step: &Step| match step {
            Step::Key(key) => key.eq_ignore_ascii_case("error") || key.eq_ignore_ascii_case("errors"),
            Step::Any => false,
        };
        any.is_some_and(|any| !self.steps.iter().take(any).any(is_of_errors))
    }

    /// Parses `/error/code`; the empty pointer selects the whole text.
    pub(crate) fn parse(text: &str) -> Option<Pointer> {
        let mut steps = text.split('/');
        if steps.next() != Some("") {
            return None;
        }
        let step = |text: &str| match text {
            "*" => Step::Any,
            _ => Step::Key(text.replace("~1", "/").replace("~0", "~")),
        };
        let steps: Vec<Step> = steps.map(step).collect();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let is_index = |key: &str| key.bytes().all(|b| b.is_ascii_digit());
        let last = steps.iter().rev().find_map(|step| match step {
            Step::Key(key) if !is_index(key) => Some(Box::new(Finder::new(key).into_owned())),
            _ => None,
        });
        Some(Pointer { steps, hash: hasher.finish(), last })
    }

    /// Whether a key of the pointer is certainly not in the text, not even escaped, so that parsing is unnecessary.
    fn cannot_be_in(&self, json: &[u8]) -> bool {
        self.last.as_ref().is_some_and(|key| key.find(json).is_none() && memchr(b'\\', json).is_none())
    }

    /// The value at this pointer.
    pub(super) fn get<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(value, |value, step| match (step, value) {
            (Step::Key(key), Value::Object(members)) => members.get(key),
            (Step::Key(key), Value::Array(items)) => items.get(key.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

/// A member's key, borrowed from the text unless it has escapes.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);

/// The values at each pointer, in the order of the text. Pointers beyond [`MAX_POINTERS`] find nothing.
///
/// One pass over a valid text finds all of them. In a truncated or malformed text a value that one pointer selects may
/// hide an error that another would have skipped, so each pointer then gets a pass of its own.
pub(super) fn find(pointers: &[&Pointer], json: &[u8]) -> Vec<(usize, Found)> {
    if pointers.iter().all(|pointer| pointer.cannot_be_in(json)) {
        return Vec::new();
    }
    let mut found = Vec::with_capacity(pointers.len());
    let all = (0..MAX_POINTERS).zip(pointers).fold(0, |all, (at, _)| all | 1 << at);
    if walk(pointers, all, json, &mut found).is_err() && pointers.len() > 1 {
        found.clear();
        for pointer in of(all) {
            // The text is truncated or no JSON: values found before the error count.
            let _ = walk(pointers, 1 << pointer, json, &mut found);
        }
    }
    found
}

/// Whether the text is JSON from its beginning to its end: it was neither cut nor broken off.
pub(super) fn is_whole(json: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(json).is_ok()
}

fn walk(pointers: &[&Pointer], on_way: u32, json: &[u8], found: &mut Vec<(usize, Found)>) -> serde_json::Result<()> {
    let walk = Walk { pointers, on_way, depth: 0, keys: &mut Vec::new(), found };
    match std::str::from_utf8(json) {
        Ok(json) => walk.deserialize(&mut serde_json::Deserializer::from_str(json)),
        Err(_) => walk.deserialize(&mut serde_json::Deserializer::from_slice(json)),
    }
}

/// The indices of the set bits.
fn of(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        usize::try_from(lowest).ok()
    })
}

/// A place in the text.
struct Walk<'w> {
    pointers: &'w [&'w Pointer],
    /// One bit for each pointer whose first steps lead here.
    on_way: u32,
    /// The number of steps to this place.
    depth: usize,
    /// The keys on the way that matched a `*` of some pointer, with their depths.
    keys: &'w mut Vec<(usize, String)>,
    found: &'w mut Vec<(usize, Found)>,
}

impl Walk<'_> {
    fn step(&self, pointer: usize) -> Option<&Step> {
        self.pointers.get(pointer)?.steps.get(self.depth)
    }

    fn has_enough(&self, pointer: usize) -> bool {
        self.found.len() >= MAX_FOUND && self.found.iter().filter(|(of, _)| *of == pointer).count() >= MAX_FOUND
    }

    /// The place of a member or an item below this one, if some pointer leads there. `is` compares the member's key
    /// with a pointer's key; `text` returns the member's key.
    fn below(&mut self, is: impl Fn(&str) -> bool, text: impl FnOnce() -> String) -> Option<Walk<'_>> {
        let mut on_way = 0;
        let mut is_any = false;
        for pointer in of(self.on_way) {
            let fits = match self.step(pointer) {
                Some(Step::Any) => true,
                Some(Step::Key(own)) => is(own),
                None => false,
            };
            if fits && !self.has_enough(pointer) {
                on_way |= 1 << pointer;
                is_any |= self.step(pointer) == Some(&Step::Any);
            }
        }
        if on_way == 0 {
            return None;
        }
        // Drops the keys of earlier members.
        let depth = self.depth;
        self.keys.truncate(self.keys.partition_point(|(at, _)| *at < depth));
        if is_any {
            self.keys.push((depth, text()));
        }
        Some(Walk { pointers: self.pointers, on_way, depth: depth + 1, keys: self.keys, found: self.found })
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let ended = of(self.on_way).filter(|pointer| self.step(*pointer).is_none());
        let ended = ended.fold(0, |ended, pointer| ended | 1 << pointer);
        if ended == 0 {
            return deserializer.deserialize_any(self);
        }
        let value = Value::deserialize(deserializer)?;
        for at in of(ended) {
            let Some(Pointer { steps, .. }) = self.pointers.get(at) else { continue };
            let own = self.keys.iter().filter(|(depth, _)| steps.get(*depth) == Some(&Step::Any));
            let keys = own.map(|(_, key)| key.clone()).collect();
            self.found.push((at, Found { keys, value: value.clone() }));
        }
        let on_way = self.on_way & !ended;
        if on_way != 0 {
            // A value that was parsed cannot be malformed.
            let _ = Walk { on_way, ..self }.deserialize(&value);
        }
        Ok(())
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key::<Text<'de>>()? {
            match self.below(|own| own == key, || key.clone().into_owned()) {
                Some(below) => map.next_value_seed(below)?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        for at in 0_usize.. {
            let is_item = match self.below(|own| own.parse() == Ok(at), || at.to_string()) {
                Some(below) => items.next_element_seed(below)?.is_some(),
                None => items.next_element::<IgnoredAny>()?.is_some(),
            };
            if !is_item {
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

/// A scalar value as text.
pub(super) fn text(value: &Value) -> Option<CompactString> {
    match value {
        Value::String(text) => Some(CompactString::new(text)),
        Value::Number(number) => {
            Some(number.as_u64().map_or_else(|| number.to_compact_string(), |n| n.to_compact_string()))
        }
        Value::Bool(is) => Some(is.to_compact_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
