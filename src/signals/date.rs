//! Dates as vendors write them.
//!
//! Date parsers are strict and vendors are not: a weekday is wrong, the case differs, the zone is missing, or the year
//! comes before or after the time. So the words are put into the order of RFC 2822 here, and jiff parses the result.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::Offset;

/// The longest date that is read, in bytes: longer than any date with the name of its zone.
const MAX_LENGTH: usize = 96;

const MAX_WORDS: usize = 8;

const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

const WEEKDAYS: [&[u8; 3]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];

/// Nanoseconds since 1970 of a date in a header: the three forms of HTTP, ISO 8601, and the output of JavaScript's
/// `Date.toString()` and of `date`. A date without a zone is UTC.
///
/// `near` returns the clock's year, which only two-digit years need: the result is at most 50 years after it.
pub(super) fn read(text: &[u8], near: impl FnOnce() -> i16) -> Option<i128> {
    if let Some(date) = preferred(text) {
        return Some(date);
    }
    if text.len() > MAX_LENGTH || !text.is_ascii() {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    let iso = text.as_bytes().get(4) == Some(&b'-') && text.starts_with(|c: char| c.is_ascii_digit());
    if iso { iso_8601(text) } else { words(text, near) }
}

/// The preferred form of an HTTP date, with `_` for the characters that vary.
const PREFERRED: &[u8; 29] = b"___, __ ___ ____ __:__:__ GMT";

/// `Thu, 15 Jan 2026 12:00:00 GMT`.
fn preferred(text: &[u8]) -> Option<i128> {
    let text: &[u8; 29] = text.try_into().ok()?;
    let fits = |(byte, form): (&u8, &u8)| *form == b'_' || byte == form;
    if !text.iter().zip(PREFERRED).all(fits) || !begins_a_weekday(text.first_chunk()?) {
        return None;
    }
    let two = |at: usize| two_digits(*text.get(at)?, *text.get(at + 1)?);
    let month = (1..).zip(MONTHS).find(|(_, known)| known.as_slice() == &text[8..11])?.0;
    let year = 100 * i16::from(two(12)?) + i16::from(two(14)?);
    let date = DateTime::new(year, month, two(5)?, two(17)?, two(20)?, two(23)?, 0).ok()?;
    Offset::UTC.to_timestamp(date).ok().map(Timestamp::as_nanosecond)
}

fn two_digits(tens: u8, ones: u8) -> Option<i8> {
    let digit = |b: u8| b.is_ascii_digit().then_some((b & 15) as i8);
    Some(10 * digit(tens)? + digit(ones)?)
}

fn iso_8601(text: &str) -> Option<i128> {
    let with_zone = text.parse::<Timestamp>().ok();
    // Without a zone it is UTC, the only zone of HTTP. It may be wrong by the server's offset.
    let utc = || Offset::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok();
    with_zone.or_else(utc).map(Timestamp::as_nanosecond)
}

fn words(text: &str, near: impl FnOnce() -> i16) -> Option<i128> {
    // JavaScript appends the zone's name in parentheses.
    let text = match text.split_once(" (") {
        Some((date, name)) if name.ends_with(')') => date,
        _ => text,
    };
    let mut found = [""; MAX_WORDS];
    let mut count = 0;
    for word in text.split_ascii_whitespace() {
        *found.get_mut(count)? = word;
        count += 1;
    }
    let mut words = &found[..count];
    if let [first, rest @ ..] = words
        && is_weekday(first.trim_end_matches(','))
    {
        words = rest;
    }
    let date = match *words {
        [month, day, year, time, ref zone @ ..] if is_word(month) && time.contains(':') => {
            rearranged(day, month, full_year(year)?, time, zone)
        }
        [month, day, time, year] if is_word(month) => rearranged(day, month, full_year(year)?, time, &[]),
        [month, day, time, zone, year] if is_word(month) => rearranged(day, month, full_year(year)?, time, &[zone]),
        [day, month, year, time, ref zone @ ..] => rearranged(day, month, full_year(year)?, time, zone),
        [date, time, ref zone @ ..] => {
            let (day, rest) = date.split_once('-')?;
            let (month, year) = rest.split_once('-')?;
            let year = if year.len() == 2 { nearest_year(year, near())? } else { full_year(year)? };
            rearranged(day, month, year, time, zone)
        }
        _ => None,
    };
    date.map(Timestamp::as_nanosecond)
}

fn rearranged(day: &str, month: &str, year: i16, time: &str, zone: &[&str]) -> Option<Timestamp> {
    let zone = match *zone {
        [] => "GMT",
        [zone] => offset(zone)?,
        _ => return None,
    };
    if !is_number(day) || !is_word(month) || !time.bytes().all(|b| b.is_ascii_digit() || b == b':') {
        return None;
    }
    let text = format!("{day} {month} {year:04} {time} {zone}");
    let read = DateTimeParser::new().parse_timestamp(text).ok()?;
    // jiff reads a leap second as the second before it, which would be early.
    let leap = i64::from(time.ends_with(":60") && time.len() > 5);
    Timestamp::from_second(read.as_second().saturating_add(leap)).ok()
}

/// Parses `GMT`, or an offset, before which JavaScript writes `GMT`. Other names are ambiguous: several zones share
/// them.
fn offset(zone: &str) -> Option<&str> {
    let rest = match zone.get(..3) {
        Some(name) if name.eq_ignore_ascii_case("gmt") || name.eq_ignore_ascii_case("utc") => &zone[3..],
        _ if zone.eq_ignore_ascii_case("z") => "",
        _ => zone,
    };
    match rest {
        "" => Some("GMT"),
        _ if rest.starts_with(['+', '-']) && is_number(&rest[1..]) => Some(rest),
        _ => None,
    }
}

fn full_year(year: &str) -> Option<i16> {
    if year.len() == 4 && is_number(year) { year.parse().ok() } else { None }
}

/// RFC 9110, section 5.6.7: a two-digit year that seems to be more than 50 years ahead is the latest past year with the
/// same digits.
fn nearest_year(digits: &str, near: i16) -> Option<i16> {
    let year: i16 = if is_number(digits) { digits.parse().ok()? } else { return None };
    let year = near.saturating_sub(near.rem_euclid(100)).saturating_add(year);
    Some(match year.saturating_sub(near) {
        51.. => year.saturating_sub(100),
        ..-49 => year.saturating_add(100),
        _ => year,
    })
}

pub(super) fn is_weekday(word: &str) -> bool {
    is_word(word) && word.as_bytes().first_chunk().is_some_and(begins_a_weekday)
}

fn begins_a_weekday(three: &[u8; 3]) -> bool {
    WEEKDAYS.iter().any(|day| day.eq_ignore_ascii_case(three))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphabetic())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
