//! The vocabulary of header names that state limits.

use std::time::Duration;

/// Nanoseconds.
pub(super) const MILLISECOND: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// What a word of a header's name means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Word {
    Limit,
    Remaining,
    Used,
    Reset,
    Wait,
    /// `retry`, which means a wait if `after`, `in` or `pushback` follows.
    Retry,
    Length,
    /// The header holds the window's name. A smaller rank takes precedence.
    Label(u8),
    /// A unit of time and nothing else.
    Unit(u64),
    /// A period, which names a window, and its length if that is fixed. A month has none.
    Period(Option<Duration>),
    Per,
    /// A word without a meaning of its own: `after`, `in`, `time`.
    Filler,
    Other,
}

impl Word {
    pub(super) fn of(text: &str) -> Word {
        match Word::listed(text) {
            Some(word) => word,
            None => counted(text).map_or(Word::Other, |length| Word::Period(Some(length))),
        }
    }

    /// The meaning of `text`, if the table lists it.
    pub(super) fn listed(text: &str) -> Option<Word> {
        let mut at = place(text.as_bytes());
        loop {
            let (word, meaning) = WORDS.get(usize::from(*PLACES.get(at)?))?;
            if *word == text {
                return Some(*meaning);
            }
            at = (at + 1) % PLACES.len();
        }
    }

    /// Splits a compound after the marker: `dailylimit`, `userremaining`. The first part names the window.
    pub(super) fn compound(text: &str) -> Option<(&str, Word)> {
        const ENDS: [(&str, Word); 4] =
            [("limit", Word::Limit), ("remaining", Word::Remaining), ("reset", Word::Reset), ("used", Word::Used)];
        let (stem, word) = ENDS.iter().find_map(|(end, word)| Some((text.strip_suffix(end)?, *word)))?;
        (stem.len() >= 3).then_some((stem, word))
    }

    /// The length of the period, if the word is a period.
    pub(super) fn period(self) -> Option<Option<Duration>> {
        match self {
            Word::Period(length) => Some(length),
            _ => None,
        }
    }

    /// Whether the word names a kind of figure.
    pub(super) fn is_role(self) -> bool {
        matches!(self, Word::Limit | Word::Remaining | Word::Used | Word::Reset | Word::Wait)
    }
}

/// Whether the word says that requests are counted.
pub(super) fn is_counted(word: &str) -> bool {
    matches!(word, "request" | "requests" | "call" | "calls" | "hits" | "queries" | "apicalls" | "apirequests")
}

/// Whether the word names a window when it precedes the marker.
pub(super) fn is_window(word: &str) -> bool {
    matches!(
        word,
        "app"
            | "method"
            | "user"
            | "org"
            | "organization"
            | "account"
            | "tenant"
            | "global"
            | "burst"
            | "read"
            | "write"
            | "search"
            | "endpoint"
            | "ip"
            | "token"
            | "tokens"
            | "requests"
            | "concurrency"
            | "concurrent"
    ) || period(word).is_some()
}

/// Whether the word names a concurrency limit.
pub(super) fn is_parallel(word: &str) -> bool {
    ["concurrency", "concurrent", "parallel"].iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether a window's name is that of a concurrency limit: `concurrent-requests`.
pub(super) fn names_parallel(name: &str) -> bool {
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(is_parallel)
}

/// The length that a period's name states: `daily`, `24hour`, `1m`. `Some(None)` for a period of varying length.
pub(in crate::signals) fn period(text: &str) -> Option<Option<Duration>> {
    Word::of(text).period()
}

/// Parses a number with a unit: `24hour`, `10s`, and the end of `HighCostGet30Min`.
fn counted(text: &str) -> Option<Duration> {
    let bytes = text.as_bytes();
    let number_ends = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let number_at = bytes.iter().take(number_ends).rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    let number: u64 = text.get(number_at..number_ends)?.parse().ok()?;
    let length = unit_seconds(text.get(number_ends..)?)?.checked_mul(number)?;
    (length > 0 && length <= 366 * DAY).then(|| Duration::from_secs(length))
}

/// The seconds in a unit, by its names in prose.
pub(in crate::signals) fn unit_seconds(unit: &str) -> Option<u64> {
    const UNITS: [(&[&str], u64); 4] = [
        (&["s", "sec", "secs", "second", "seconds"], 1),
        (&["m", "min", "mins", "minute", "minutes"], MINUTE),
        (&["h", "hr", "hrs", "hour", "hours"], HOUR),
        (&["d", "day", "days"], DAY),
    ];
    let known = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(unit));
    UNITS.iter().find(|(names, _)| known(names)).map(|(_, seconds)| *seconds)
}

/// All known words, sorted.
static WORDS: [(&str, Word); 87] = [
    ("after", Word::Filler),
    ("allowed", Word::Limit),
    ("at", Word::Filler),
    ("available", Word::Remaining),
    ("bucket", Word::Label(2)),
    ("capacity", Word::Limit),
    ("category", Word::Label(4)),
    ("ceiling", Word::Limit),
    ("consumed", Word::Used),
    ("count", Word::Used),
    ("current", Word::Used),
    ("daily", of(DAY)),
    ("date", Word::Filler),
    ("day", of(DAY)),
    ("epoch", Word::Filler),
    ("group", Word::Label(3)),
    ("hour", of(HOUR)),
    ("hourly", of(HOUR)),
    ("in", Word::Filler),
    ("interval", Word::Length),
    ("left", Word::Remaining),
    ("length", Word::Filler),
    ("limit", Word::Limit),
    ("limits", Word::Limit),
    ("max", Word::Limit),
    ("maximum", Word::Limit),
    ("millis", Word::Unit(MILLISECOND)),
    ("millisecond", Word::Unit(MILLISECOND)),
    ("milliseconds", Word::Unit(MILLISECOND)),
    ("min", of(MINUTE)),
    ("minute", of(MINUTE)),
    ("minutely", of(MINUTE)),
    ("month", Word::Period(None)),
    ("monthly", Word::Period(None)),
    ("ms", Word::Unit(MILLISECOND)),
    ("msec", Word::Unit(MILLISECOND)),
    ("msecs", Word::Unit(MILLISECOND)),
    ("name", Word::Label(0)),
    ("observed", Word::Used),
    ("on", Word::Filler),
    ("per", Word::Per),
    ("period", Word::Length),
    ("pushback", Word::Filler),
    ("quota", Word::Limit),
    ("remain", Word::Remaining),
    ("remaining", Word::Remaining),
    ("remains", Word::Remaining),
    ("reset", Word::Reset),
    ("resetafter", Word::Reset),
    ("resetat", Word::Reset),
    ("resetdate", Word::Reset),
    ("resetin", Word::Reset),
    ("resets", Word::Reset),
    ("resetsat", Word::Reset),
    ("resetsin", Word::Reset),
    ("resettime", Word::Reset),
    ("resource", Word::Label(1)),
    ("retry", Word::Retry),
    ("retryafter", Word::Wait),
    ("retryin", Word::Wait),
    ("running", Word::Used),
    ("s", Word::Unit(SECOND)),
    ("sec", Word::Unit(SECOND)),
    ("second", of(1)),
    ("secondly", of(1)),
    ("seconds", Word::Unit(SECOND)),
    ("secs", Word::Unit(SECOND)),
    ("size", Word::Filler),
    ("this", Word::Per),
    ("time", Word::Filler),
    ("timestamp", Word::Filler),
    ("timewindow", Word::Length),
    ("today", of(DAY)),
    ("total", Word::Limit),
    ("type", Word::Label(5)),
    ("unix", Word::Filler),
    ("until", Word::Reset),
    ("usage", Word::Used),
    ("used", Word::Used),
    ("utc", Word::Filler),
    ("week", of(7 * DAY)),
    ("weekly", of(7 * DAY)),
    ("window", Word::Length),
    ("windowsize", Word::Length),
    ("x", Word::Filler),
    ("year", Word::Period(None)),
    ("yearly", Word::Period(None)),
];

/// Marks an empty place in [`PLACES`].
const NONE: u8 = u8::MAX;

/// A hash table of indices into [`WORDS`]: each at its [`place`], or at the next free one.
static PLACES: [u8; 256] = {
    let mut places = [NONE; 256];
    let mut word = 0;
    while word < WORDS.len() {
        let mut at = place(WORDS[word].0.as_bytes());
        while places[at] != NONE {
            at = (at + 1) % places.len();
        }
        places[at] = word as u8;
        word += 1;
    }
    places
};

/// The hash of a word, from its length and three of its letters.
const fn place(word: &[u8]) -> usize {
    let [first, .., last] = word else { return word.len() };
    let middle = word[word.len() / 2];
    (11 * *first as usize + 13 * middle as usize + 43 * *last as usize + 31 * word.len()) % 256
}

const fn of(seconds: u64) -> Word {
    Word::Period(Some(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests;
