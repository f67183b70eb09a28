//! Derives from a header's name what its value is: which figure, of which window, in which unit.
//!
//! Vendors use the same few words in any order: `X-RateLimit-Remaining-Tokens`, `X-RateLimit-Tokens-Remaining`,
//! `X-Daily-Requests-Left`. So a name is read as a set of words around the marker `ratelimit`. Two headers belong to
//! one window only if the marker, everything before it and the window's name are the same.

use std::time::Duration;

use memchr::memchr_iter;

use super::words::{Role, Title, Words};

use crate::signals::word::{MILLISECOND, SECOND, Word, is_counted, is_parallel, is_window, period};

/// How certain it is that a header describes a limit on requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Certainty {
    /// Its name contains `ratelimit`.
    Certain,
    /// A limit or a count of requests: certain together with a remaining or used count.
    Counted,
    /// A limit on concurrent requests.
    Parallel,
    /// Certain if limit, remaining count and reset are all present.
    Triple,
}

#[derive(Debug, PartialEq)]
pub(super) struct Meaning<'a> {
    /// The part of the name that all headers of one window share.
    pub(super) family: &'a str,
    pub(super) role: Role,
    pub(super) name: Option<Title<'a>>,
    /// The window's length, if the window's name states it.
    pub(super) length: Option<Duration>,
    /// The unit of a bare number that is a time, in nanoseconds.
    pub(super) unit: u64,
    pub(super) certainty: Certainty,
}

impl<'a> Meaning<'a> {
    /// The meaning of a header that describes no window.
    fn alone(header: &'a str, role: Role, unit: u64) -> Meaning<'a> {
        Meaning { family: header, role, name: None, length: None, unit, certainty: Certainty::Certain }
    }
}

const MAX_LENGTH: usize = 96;

/// The meaning of the header `name`, which is in lower case.
pub(super) fn meaning(name: &str) -> Option<Meaning<'_>> {
    // `X-` begins a header's name. After another word (`My-X-RateLimit-Limit`), the header is a copy of another
    // server's.
    if name.len() > MAX_LENGTH || name.contains("-x-") {
        return None;
    }
    if let Some(known) = common(name) {
        return Some(known);
    }
    if is_cost(name) {
        return Some(Meaning::alone(name, Role::Cost, SECOND));
    }
    by_words(name)
}

fn by_words(name: &str) -> Option<Meaning<'_>> {
    match marker(name) {
        Some((begin, end)) => certain(name, begin, end),
        None => counted(name),
    }
}

/// Whether the header states the cost of this one request.
fn is_cost(name: &str) -> bool {
    const ENDS: [&str; 6] =
        ["request-charge", "request-cost", "query-cost", "resource-unit", "resource-units", "x-complexity"];
    ENDS.iter().any(|end| name.ends_with(end))
}

/// The quick path for the most common names, which need not be split: `x-ratelimit-limit`, `x-ratelimit-limit-tokens`.
fn common(name: &str) -> Option<Meaning<'_>> {
    if name == "retry-after" {
        return Some(Meaning::alone(name, Role::Wait, SECOND));
    }
    let plain = name.strip_prefix("x-").unwrap_or(name);
    let rest = plain.strip_prefix("ratelimit").or_else(|| plain.strip_prefix("rate-limit"))?;
    let family = name.get(..name.len() - rest.len())?;
    let rest = match rest {
        "" => "",
        _ => rest.strip_prefix('-').filter(|rest| !rest.is_empty())?,
    };
    let (role, of) = match rest.bytes().position(|b| b == b'-') {
        Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
        None => (rest, ""),
    };
    let role = match role {
        "limit" => Role::Limit,
        "remaining" => Role::Remaining,
        "reset" => Role::Reset,
        "used" => Role::Used,
        "resource" if of.is_empty() => Role::Label(1),
        "policy" if of.is_empty() => Role::Policy,
        "" => Role::Field,
        _ => return None,
    };
    // Any other ending has to be split into words.
    let is_name = || of.bytes().all(|b| b.is_ascii_lowercase()) && Word::listed(of).is_none();
    if !of.is_empty() && (!is_name() || Word::compound(of).is_some()) {
        return None;
    }
    Some(Meaning { family, role, name: Title::of(of), length: None, unit: SECOND, certainty: Certainty::Certain })
}

/// The unit that a header's name states, in nanoseconds; a second if it states none.
pub(in crate::signals) fn unit(name: &str) -> u128 {
    let mut units = words(name).filter_map(|word| match Word::of(word) {
        Word::Unit(unit) => Some(unit),
        _ => None,
    });
    u128::from(units.next().unwrap_or(SECOND))
}

/// The range of the marker `ratelimit` in one of its spellings.
fn marker(name: &str) -> Option<(usize, usize)> {
    let bytes = name.as_bytes();
    let (begin, mut end) = memchr_iter(b'r', bytes).find_map(|at| {
        let rest = bytes.get(at..)?.strip_prefix(b"rate")?;
        let limit: &[u8] = [&b"limit"[..], b"-limit", b"_limit"].into_iter().find(|limit| rest.starts_with(limit))?;
        Some((at, at + 4 + limit.len()))
    })?;
    let rest = name.get(end..).unwrap_or_default();
    if rest == "s" || rest.starts_with("s-") {
        end += 1;
    }
    let rest = name.get(end..).unwrap_or_default();
    // `x-ratelimited` is another word.
    (rest.is_empty() || rest.starts_with(['-', '_'])).then_some((begin, end))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    // An underscore is part of a window's name, unless all words are separated by underscores or are known words.
    let between = if text.bytes().any(|b| b == b'-') { '-' } else { '_' };
    text.split(between).filter(|word| !word.is_empty()).flat_map(|word| {
        let is_compound = word.contains('_') && word.split('_').all(|part| Word::listed(part).is_some());
        word.split(if is_compound { '_' } else { '-' })
    })
}

fn certain(name: &str, begin: usize, end: usize) -> Option<Meaning<'_>> {
    let (before, rest) = (name.get(..begin)?, name.get(end..)?);
    let mut read = Words::default();
    for word in words(rest) {
        match Word::compound(word).filter(|_| Word::of(word) == Word::Other) {
            Some((stem, role)) => {
                let named = period(stem).map_or(Word::Other, Word::Period);
                read.add_as(stem, named)?;
                read.add_as("", role)?;
            }
            None => read.add(word)?,
        }
    }
    let (role, unit) = match read.role() {
        None if read.words.is_empty() => (Role::Field, SECOND),
        None if rest == "-policy" => (Role::Policy, SECOND),
        None if read.are_periods() => (Role::Limit, SECOND),
        None => (Role::Unknown, SECOND),
        Some(found) => found,
    };
    let (mut name_of, mut length) = read.window(role);
    if name_of.is_none()
        && let Some(word) = before.split('-').find(|word| is_window(word))
    {
        (name_of, length) = (Title::of(word), period(word).flatten());
    }
    Some(Meaning { family: name.get(..end)?, role, name: name_of, length, unit, certainty: Certainty::Certain })
}

/// Reads a name without the marker: its role is the last word apart from units and fillers.
fn counted(name: &str) -> Option<Meaning<'_>> {
    let mut read = Words::default();
    for word in words(name) {
        read.add(word)?;
    }
    let (_, unit) = read.role()?;
    let at = read.last_role().filter(|at| read.is_last(*at))?;
    let (text, word) = *read.all().get(at)?;
    let role = match word {
        // AWS counts milliseconds in `x-amz-retry-after`.
        Word::Wait if name.starts_with("x-amz-") && !read.has_unit() => {
            return Some(Meaning::alone(name, Role::Wait, MILLISECOND));
        }
        Word::Wait => return Some(Meaning::alone(name, Role::Wait, unit)),
        Word::Limit => Role::Limit,
        Word::Remaining => Role::Remaining,
        Word::Used => Role::Used,
        _ => Role::Reset,
    };
    // Only units and fillers follow, and none of them contains the word.
    let family = name.get(..name.rfind(text)?)?.trim_end_matches(['-', '_']);
    if family.is_empty() || family == "x" {
        return None;
    }
    let (certainty, name_of, length) = family_of(family, read.before(at));
    Some(Meaning { family, role, name: name_of, length, unit, certainty })
}

/// The certainty of a family without the marker, and the window that it names.
fn family_of<'a>(family: &'a str, words: &[(&str, Word)]) -> (Certainty, Option<Title<'a>>, Option<Duration>) {
    let mut certainty = Certainty::Triple;
    let mut first_period = None;
    for (text, word) in words {
        let stem = text.strip_suffix("limit");
        first_period = first_period.or_else(|| stem.map_or(word.period(), period));
        if is_parallel(text) {
            certainty = Certainty::Parallel;
        } else if certainty == Certainty::Triple && (stem.is_some() || is_counted(text)) {
            certainty = Certainty::Counted;
        }
    }
    let length = first_period.flatten();
    let inner = family.strip_prefix("x-").unwrap_or(family);
    let name = match inner.strip_suffix("limit") {
        _ if certainty == Certainty::Triple => length.and_then(|_| Title::of(inner)),
        Some(base) => Title::of(base.trim_end_matches('-')),
        None => Title::of(inner),
    };
    (certainty, name, length)
}

#[cfg(test)]
mod tests;
