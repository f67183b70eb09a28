//! Numbers and durations as vendors write them.
//!
//! The text is untrusted: only ASCII digits count, a value is parsed completely or not at all, and no float is
//! involved. So `1e9`, `+30`, `0x1E`, `NaN`, digits of other scripts and `30 minutes` are no numbers here.

use std::time::Duration;

use super::word::unit_seconds;

/// Longer texts are not parsed as numbers.
pub(super) const MAX_DIGITS: usize = 64;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A decimal number without sign or exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Decimal {
    /// Saturated: `u64::MAX` also stands for everything above it.
    whole: u64,
    /// The first nine digits of the fraction.
    nanos: u32,
    /// The fraction has further digits other than 0.
    more: bool,
}

impl Decimal {
    /// Parses all of `text`.
    pub(super) fn read(text: &[u8]) -> Option<Decimal> {
        if let Some(whole) = plain(text) {
            return Some(Decimal::from(whole));
        }
        if text.len() > MAX_DIGITS {
            return None;
        }
        let (whole, fraction) = match text.iter().position(|b| *b == b'.') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &b"0"[..]),
        };
        let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        if !digits(whole) || !digits(fraction) {
            return None;
        }
        let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
        let place = |at: usize| fraction.get(at).map_or(0, |digit| u32::from(digit - b'0'));
        Some(Decimal {
            whole: plain(whole).unwrap_or_else(|| whole.iter().fold(0, add)),
            nanos: (0..9).fold(0, |sum, at| sum * 10 + place(at)),
            more: fraction.iter().skip(9).any(|digit| *digit != b'0'),
        })
    }

    pub(super) fn thousandths(number: u64) -> Decimal {
        let millis = u32::try_from(number % 1000).unwrap_or(0);
        Decimal { whole: number / 1000, nanos: millis * 1_000_000, more: false }
    }

    /// The number as a count, its fraction cut off. `None` for a saturated number, and for a fraction below one, which
    /// is a rate or a share.
    pub(super) fn count(self) -> Option<u64> {
        let is_fraction = self.whole == 0 && (self.nanos > 0 || self.more);
        (self.whole < u64::MAX && !is_fraction).then_some(self.whole)
    }

    pub(super) fn is_below(self, bound: u64) -> bool {
        self.whole < bound
    }

    /// The number as a float, for reports only: no decision uses a float.
    pub(super) fn approximately(self) -> f64 {
        self.whole as f64 + f64::from(self.nanos) / 1e9
    }

    /// The number times `unit` nanoseconds, rounded up so that a wait is never cut short. Saturates.
    pub(super) fn nanos(self, unit: u128) -> u128 {
        // A 128-bit division is slow and rarely needed.
        if self.nanos == 0 && !self.more {
            return u128::from(self.whole).saturating_mul(unit);
        }
        let billionths = u128::from(self.whole) * NANOS_PER_SECOND + u128::from(self.nanos) + u128::from(self.more);
        if unit == NANOS_PER_SECOND {
            return billionths;
        }
        billionths.saturating_mul(unit).div_ceil(NANOS_PER_SECOND)
    }
}

/// The sum of the numbers that are present; `None` if there is none.
pub(super) fn total(parts: impl Iterator<Item = Option<Decimal>>) -> Option<f64> {
    parts.flatten().map(Decimal::approximately).reduce(|sum, part| sum + part)
}

impl From<u64> for Decimal {
    fn from(whole: u64) -> Decimal {
        Decimal { whole, nanos: 0, more: false }
    }
}

/// Parses digits that are certain to fit a `u64`: the quick path for nearly all values.
pub(super) fn plain(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    let mut whole = 0;
    for b in text {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        whole = whole * 10 + u64::from(digit);
    }
    Some(whole)
}

/// Parses a duration as Go prints it: `1m30s`, `2m59.56s`, `9ms`, `850µs`.
pub(super) fn duration(text: &[u8]) -> Option<Duration> {
    let mut rest = text;
    let mut nanos: u128 = 0;
    if text.len() > MAX_DIGITS || text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.')?;
        let (unit, length) = unit(&rest[end..])?;
        nanos = nanos.saturating_add(Decimal::read(&rest[..end])?.nanos(unit));
        rest = &rest[end + length..];
    }
    Some(from_nanos(nanos))
}

/// Parses a duration as .NET prints it: `00:01:30.5000000`, or `1.00:01:30` with days.
pub(super) fn clock(text: &[u8]) -> Option<Duration> {
    if text.len() > MAX_DIGITS {
        return None;
    }
    let mut parts = text.split(|b| *b == b':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || minutes.len() != 2 || seconds.len() < 2 {
        return None;
    }
    let (days, hours) = match hours.iter().position(|b| *b == b'.') {
        Some(at) => (hours.get(..at)?, hours.get(at + 1..)?),
        None => (&b"0"[..], hours),
    };
    let whole = |text: &[u8], most: u64| {
        let number = Decimal::read(text).filter(|_| !text.contains(&b'.'))?;
        (number.whole <= most).then_some(u128::from(number.whole))
    };
    let seconds = Decimal::read(seconds).filter(|seconds| seconds.whole < 60)?.nanos(NANOS_PER_SECOND);
    let minutes = (whole(days, 366)? * 24 + whole(hours, 23)?) * 60 + whole(minutes, 59)?;
    Some(from_nanos(minutes * 60 * NANOS_PER_SECOND + seconds))
}

/// Parses a number with a spelt-out unit: `24 hours`, `30 seconds`.
pub(super) fn in_words(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_DIGITS)?;
    let (number, unit) = text.split_once(' ')?;
    let seconds = u128::from(unit_seconds(unit.trim())?);
    Some(from_nanos(Decimal::read(number.as_bytes())?.nanos(seconds * NANOS_PER_SECOND)))
}

/// The unit at the start of `text` in nanoseconds, and the unit's length in bytes. `ms` is tried before `m`.
fn unit(text: &[u8]) -> Option<(u128, usize)> {
    Some(match text {
        [b'n', b's', ..] => (1, 2),
        [b'u', b's', ..] => (1_000, 2),
        // The micro sign and the Greek letter in UTF-8, and the micro sign in Latin-1.
        [0xc2, 0xb5, b's', ..] | [0xce, 0xbc, b's', ..] => (1_000, 3),
        [0xb5, b's', ..] => (1_000, 2),
        [b'm', b's', ..] => (1_000_000, 2),
        [b's', ..] => (NANOS_PER_SECOND, 1),
        [b'm', ..] => (60 * NANOS_PER_SECOND, 1),
        [b'h', ..] => (3_600 * NANOS_PER_SECOND, 1),
        _ => return None,
    })
}

/// Converts nanoseconds to a duration. Saturates.
pub(super) fn from_nanos(nanos: u128) -> Duration {
    if let Ok(nanos) = u64::try_from(nanos) {
        return Duration::from_nanos(nanos);
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).unwrap_or(u64::MAX);
    let below = u32::try_from(nanos % NANOS_PER_SECOND).unwrap_or(0);
    Duration::new(seconds, below)
}

/// `text` without surrounding white space and one pair of quotes, which libraries for structured fields add.
pub(super) fn bare(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    match text {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
