//! Finds a wait in the body of a refusal: in a member with a well-known name, or in a sentence.
//!
//! Only the body of a refusal is searched. Any other body is the caller's data, whatever words are in it.

use std::time::Duration;

use serde_json::Value;

use super::json;
use super::moment::{self, MILLISECOND, Now, SECOND};
use super::number::{Decimal, from_nanos};
use super::word::unit_seconds;

/// Names of members that hold a wait (in lower case, without `_` and `-`), and the unit of a bare number.
const MEMBERS: [(&str, u128); 12] = [
    ("retryafterms", MILLISECOND),
    ("retryaftermillis", MILLISECOND),
    ("retryaftermilliseconds", MILLISECOND),
    ("retryafter", SECOND),
    ("retryafters", SECOND),
    ("retryafterseconds", SECOND),
    ("retryaftersecs", SECOND),
    ("retryin", SECOND),
    ("retryinseconds", SECOND),
    ("retryinsecs", SECOND),
    // google.rpc.RetryInfo
    ("retrydelay", SECOND),
    ("ratelimitresettime", SECOND),
];

/// Phrases that introduce a wait in a sentence.
const PHRASES: [&str; 4] = ["try again in ", "retry after ", "retry in ", "try again after "];

/// The deepest nesting that is searched.
const MAX_DEPTH: usize = 6;

/// The most values that are searched.
const MAX_VALUES: usize = 256;

/// The longest text that is searched for a phrase, in bytes.
const MAX_TEXT: usize = 2048;

/// The wait that the body of a refusal states: the longest one in a member, or else the longest one in a sentence.
pub(super) fn read(body: &[u8], now: &Now) -> Option<Duration> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let mut waits = (None, None);
    walk(&value, MAX_DEPTH, &mut MAX_VALUES.clone(), now, &mut waits);
    waits.0.or(waits.1)
}

fn walk(value: &Value, depth: usize, left: &mut usize, now: &Now, waits: &mut (Option<Duration>, Option<Duration>)) {
    if depth == 0 || *left == 0 {
        return;
    }
    *left -= 1;
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                if let Some(unit) = unit(key) {
                    let wait = json::text(value).and_then(|text| moment::hint(text.as_bytes(), unit, now));
                    waits.0 = waits.0.max(wait);
                }
                walk(value, depth - 1, left, now, waits);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, depth - 1, left, now, waits)),
        Value::String(text) if text.len() <= MAX_TEXT => {
            let found = PHRASES.iter().filter_map(|phrase| after(text.as_bytes(), phrase, SECOND, now));
            waits.1 = waits.1.max(found.max());
        }
        _ => {}
    }
}

fn unit(key: &str) -> Option<u128> {
    if key.len() > 32 {
        return None;
    }
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    MEMBERS.iter().find(|(name, _)| *name == plain).map(|(_, unit)| *unit)
}

/// The time that follows `phrase` in a sentence: a number with or without a unit, a duration, a date in ISO 8601, or a
/// moment since 1970. Anything else is ignored.
pub(super) fn after(text: &[u8], phrase: &str, unit: u128, now: &Now) -> Option<Duration> {
    let (phrase, length) = (phrase.as_bytes(), phrase.len());
    let at = text.windows(length.max(1)).position(|window| window.eq_ignore_ascii_case(phrase))?;
    let rest = text.get(at + length..)?.trim_ascii_start();
    let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'+' | b'-') || !b.is_ascii();
    let end = rest.iter().position(|b| !part(b)).unwrap_or(rest.len());
    let (word, rest) = rest.split_at_checked(end)?;
    let word = trimmed(word);
    if let Some(number) = Decimal::read(word) {
        let next = rest.trim_ascii_start();
        let end = next.iter().position(|b| !b.is_ascii_alphabetic()).unwrap_or(next.len());
        let next = std::str::from_utf8(next.get(..end)?).ok()?;
        return match next.to_ascii_lowercase().as_str() {
            "" => moment::hint(word, unit, now),
            "ms" | "millisecond" | "milliseconds" => Some(from_nanos(number.nanos(MILLISECOND))),
            // An unknown unit is ignored: it may be attempts or business days.
            next => unit_seconds(next).map(|seconds| from_nanos(number.nanos(u128::from(seconds) * SECOND))),
        }
        .map(|wait| wait.min(moment::MAX_WAIT));
    }
    moment::hint(word, SECOND, now)
}

/// `word` without the punctuation that ends a sentence.
fn trimmed(word: &[u8]) -> &[u8] {
    match word {
        [inner @ .., b'.' | b':' | b'-'] => inner,
        _ => word,
    }
}
