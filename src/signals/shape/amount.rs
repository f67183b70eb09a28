//! Parses a limit or a remaining count, and the forms that vendors add to it.

use std::time::Duration;

use memchr::memchr;
use smallvec::SmallVec;

use crate::signals::json;
use crate::signals::moment::{self, Now, SECOND};
use crate::signals::number::{self, Decimal, bare};
use crate::signals::structured;
use crate::signals::windows::{Name, Quota, Quotas, Window};

use crate::signals::word::Word;

/// The value has commas that may separate items of a list or thousands.
pub(super) struct Undecidable;

#[derive(Default)]
pub(super) struct Amount {
    pub(super) count: Option<u64>,
    /// The used count of `12/40`.
    pub(super) used: Option<u64>,
    pub(super) window: Option<Duration>,
    /// The value is a negative number, such as `-3`.
    pub(super) is_negative: bool,
    /// Further quotas: `10, 100;w=60, 1000;w=3600`.
    pub(super) others: Quotas,
}

impl Amount {
    /// A malformed value counts as absent. An ambiguous comma is an error: then no figure of the family can be trusted.
    pub(super) fn read(line: Option<(&[u8], u128)>) -> Result<Amount, Undecidable> {
        let Some((text, _)) = line else { return Ok(Amount::default()) };
        let text = bare(text);
        if let Some(number) = Decimal::read(text) {
            return Ok(Amount { count: number.count(), ..Amount::default() });
        }
        if let Some((used, limit)) = halves(text) {
            return Ok(Amount { count: Some(limit), used: Some(used), ..Amount::default() });
        }
        let listed = text.contains(&b',');
        if !listed && !text.contains(&b';') {
            let is_negative = text.strip_prefix(b"-").is_some_and(|rest| Decimal::read(rest).is_some());
            return Ok(Amount { is_negative, ..Amount::default() });
        }
        let mut members = structured::Members::new();
        match structured::list(text, &mut members).map(|()| &*members) {
            Some([first, rest @ ..]) => {
                let others: Quotas = rest.iter().filter_map(structured::quota).collect();
                if others.len() < rest.len() {
                    return Err(Undecidable);
                }
                let count = structured::count(first.bare.as_ref());
                Ok(Amount { count, window: structured::window(first), others, ..Amount::default() })
            }
            _ if listed => Err(Undecidable),
            _ => Ok(Amount::default()),
        }
    }
}

impl Amount {
    /// Makes the quota to which a reset belongs the first one. The drafts put it there, but a reset beyond the length
    /// of the first window belongs to a longer one: the shortest that is long enough.
    pub(super) fn put_first(&mut self, reset: Option<Duration>) {
        let (Some(count), Some(window), Some(reset)) = (self.count, self.window, reset) else { return };
        let fits = |quota: &&mut Quota| quota.window >= reset;
        if window < reset
            && let Some(owner) = self.others.iter_mut().filter(fits).min_by_key(|quota| quota.window)
        {
            let first = std::mem::replace(owner, Quota { limit: count, window });
            (self.count, self.window) = (Some(first.limit), Some(first.window));
        }
    }
}

/// Parses a count of digits only, if the header is present. An error says that the value has another form.
pub(super) fn plain(line: Option<(&[u8], u128)>) -> Result<Option<u64>, Undecidable> {
    line.map(|(text, _)| number::plain(text).ok_or(Undecidable)).transpose()
}

/// Splits three headers that list limits, remaining counts and resets of several windows by position: `1, 15000`. All
/// three must have the same number of items, which distinguishes them from numbers with commas between thousands.
pub(super) fn parallel(lines: [Option<(&[u8], u128)>; 3]) -> Option<SmallVec<[[&[u8]; 3]; 4]>> {
    let [limit, remaining, reset] = lines.map(|line| line.map_or(&b""[..], |(text, _)| text));
    if !(limit.contains(&b',') && remaining.contains(&b',') && reset.contains(&b',')) {
        return None;
    }
    let mut lists = [limit, remaining, reset].map(|text| text.split(|b| *b == b',').map(<[u8]>::trim_ascii));
    let mut found = SmallVec::new();
    loop {
        match lists.each_mut().map(Iterator::next) {
            [Some(limit), Some(remaining), Some(reset)] if found.len() < MAX_FIELDS => {
                // A list with parameters is read by `Amount::read`.
                Decimal::read(limit)?;
                found.push([limit, remaining, reset]);
            }
            [None, None, None] => return Some(found),
            _ => return None,
        }
    }
}

/// Two counts with a slash between.
fn halves(text: &[u8]) -> Option<(u64, u64)> {
    let at = memchr(b'/', text)?;
    let count = |part: &[u8]| Decimal::read(part.trim_ascii()).and_then(Decimal::count);
    Some((count(text.get(..at)?)?, count(text.get(at + 1..)?)?))
}

/// Whether the value has the form `12/40`: used count and limit.
pub(super) fn is_use(text: &[u8]) -> bool {
    halves(bare(text)).is_some()
}

/// Whether the value has the form `total=10; remaining=0; resets=35` or is a JSON object. The keys are words of header
/// names.
pub(super) fn is_pairs(text: &[u8]) -> bool {
    text.first() == Some(&b'{') || (text.contains(&b'=') && fields(text).any(|(word, _)| word.is_role()))
}

pub(super) fn pairs(text: &[u8], now: &Now) -> Window {
    let mut window = Window::default();
    if text.first() == Some(&b'{') {
        let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).unwrap_or_default();
        for (key, value) in members.iter().take(MAX_FIELDS) {
            let value = json::text(value).unwrap_or_default();
            match Word::of(&key.to_ascii_lowercase()) {
                Word::Label(_) => window.name = window.name.or_else(|| Name::new(&value)),
                word => figure(&mut window, word, value.as_bytes(), now),
            }
        }
        return window;
    }
    for (word, value) in fields(text) {
        figure(&mut window, word, value, now);
    }
    window
}

fn figure(window: &mut Window, word: Word, value: &[u8], now: &Now) {
    let count = || Decimal::read(value).and_then(Decimal::count);
    match word {
        Word::Limit => window.limit = window.limit.or_else(count),
        Word::Remaining => window.remaining = window.remaining.or_else(count),
        Word::Used => window.used = window.used.or_else(count),
        Word::Reset => window.reset_in = window.reset_in.or_else(|| moment::reset(value, SECOND, now)),
        Word::Length => window.window = window.window.or_else(|| moment::length(value, SECOND)),
        _ => {}
    }
}

/// The most fields that are read of one value.
const MAX_FIELDS: usize = 16;

fn fields(text: &[u8]) -> impl Iterator<Item = (Word, &[u8])> {
    let parts = text.split(|b| matches!(b, b';' | b',' | b'&')).take(MAX_FIELDS);
    parts.filter_map(|part| {
        let at = part.iter().position(|b| *b == b'=')?;
        let key = std::str::from_utf8(part.get(..at)?.trim_ascii()).ok()?;
        // One or two letters are parameters of structured fields (`w=60`), not words.
        let word = if key.len() > 2 { Word::of(key) } else { Word::Other };
        Some((word, bare(part.get(at + 1..)?)))
    })
}
