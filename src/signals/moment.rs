//! Parses a value that names a moment or a wait into the time until then.
//!
//! Vendors write seconds, milliseconds, moments since 1970 in four units, durations and dates under the same names. A
//! number's size decides: it is a moment since 1970 if it lies within 31 days of now, and seconds from now otherwise.

use std::cell::OnceCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{AGE, DATE, HeaderValue};
use jiff::Timestamp;
use jiff::tz::Offset;

use super::date;
use super::number::{Decimal, MAX_DIGITS, bare, clock, duration, from_nanos, in_words};

/// Longer stated waits are cut to this, and longer resets are ignored: a wait is an instruction, a reset an estimate.
/// Vendors really send waits of up to 25 days.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(31 * 24 * 3600);

/// A reset that passed longer ago is left out: the server's clocks disagree, or it never renews the reset. Within this time
/// it may seem past only because resets and dates are whole seconds.
const JUST_PASSED: Duration = Duration::from_secs(2);

pub(super) const MILLISECOND: u128 = 1_000_000;
pub(super) const SECOND: u128 = 1_000_000_000;

/// The units in which vendors write moments since 1970.
const UNITS: [u128; 4] = [SECOND, MILLISECOND, 1_000, 1];

/// Smaller numbers are no moments of this century in any unit since 1970: this one is in 1998.
const FIRST_MOMENT: u64 = 900_000_000;

/// The longest text with several waits or with a date that is read, in bytes.
const MAX_LIST: usize = 256;

/// The longest window length that is accepted: a year.
pub(super) const MAX_LENGTH: Duration = Duration::from_secs(366 * 86_400);

/// When the response was made. Computed only when a value needs it: most waits are plain seconds.
pub(super) struct Now<'a> {
    headers: &'a HeaderMap,
    received: SystemTime,
    nanos: OnceCell<i128>,
}

impl<'a> Now<'a> {
    pub(super) fn new(headers: &'a HeaderMap, received: SystemTime) -> Now<'a> {
        Now { headers, received, nanos: OnceCell::new() }
    }

    /// Nanoseconds since 1970 by the server's clock, or by the client's if the response has no `Date`.
    ///
    /// Moments in a response are by the server's clock, so measuring them from `Date` cancels any difference between
    /// the clocks. A cache's `Age` says how long ago `Date` was.
    fn nanos(&self) -> i128 {
        *self.nanos.get_or_init(|| {
            let client = || match self.received.duration_since(UNIX_EPOCH) {
                Ok(since) => nanos(since),
                Err(before) => -nanos(before.duration()),
            };
            let date = self.headers.get(DATE).and_then(|value| date::read(bare(value.as_bytes()), || year(client())));
            date.map_or_else(client, |date| date.saturating_add(self.age()))
        })
    }

    /// A quick check without parsing the date: the client's clock, and the first digit of the year in an HTTP date.
    /// Only
    /// `true` is certain.
    fn is_this_century(&self) -> bool {
        let client = self.received.duration_since(UNIX_EPOCH).is_ok_and(|since| since.as_secs() > 1_000_000_000);
        let begins = |date: &HeaderValue| date.len() == 29 && date.as_bytes().get(12) == Some(&b'2');
        client && self.headers.get(DATE).is_none_or(begins)
    }

    fn age(&self) -> i128 {
        let age = self.headers.get(AGE).and_then(|value| Decimal::read(bare(value.as_bytes())));
        // No cache keeps such a response for a month; a larger `Age` would only move waits into the past.
        let age = age.map(|age| from_nanos(age.nanos(SECOND))).filter(|age| *age <= MAX_WAIT);
        age.map_or(0, nanos)
    }

    /// The time until `moment`; zero when that is in the past.
    fn until(&self, moment: i128) -> Duration {
        from_nanos(u128::try_from(moment.saturating_sub(self.nanos())).unwrap_or(0))
    }

    /// The time until a reset at `moment`: zero if that has just passed, and at most 31 days.
    fn until_reset(&self, moment: i128) -> Option<Duration> {
        let from_now = moment.saturating_sub(self.nanos());
        (-nanos(JUST_PASSED)..=nanos(MAX_WAIT)).contains(&from_now).then(|| self.until(moment))
    }

    /// The moment that `number` is, as seconds, milliseconds, microseconds or nanoseconds since 1970, if that lies within
    /// 31 days of now, before or after.
    fn epoch(&self, number: Decimal) -> Option<i128> {
        if number.is_below(FIRST_MOMENT) && self.is_this_century() {
            return None;
        }
        // Read in smaller units it would be even earlier.
        let seconds = i128::try_from(number.nanos(SECOND)).unwrap_or(i128::MAX);
        if seconds < self.nanos().saturating_sub(nanos(MAX_WAIT)) {
            return None;
        }
        UNITS.into_iter().find_map(|unit| {
            let moment = i128::try_from(number.nanos(unit)).ok()?;
            let distance = moment.saturating_sub(self.nanos()).unsigned_abs();
            (distance <= MAX_WAIT.as_nanos()).then_some(moment)
        })
    }

    /// Whether `number` is a moment since [`FIRST_MOMENT`] that passed more than 31 days ago. Servers send such a moment
    /// again and again if they never renew it.
    fn is_long_past(&self, number: Decimal) -> bool {
        let past = nanos(Duration::from_secs(FIRST_MOMENT))..self.nanos().saturating_sub(nanos(MAX_WAIT));
        UNITS.into_iter().any(|unit| i128::try_from(number.nanos(unit)).is_ok_and(|moment| past.contains(&moment)))
    }

    fn date(&self, text: &[u8]) -> Option<i128> {
        // The year only decides the century of a two-digit year.
        date::read(text, || year(self.nanos()))
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn year(nanos: i128) -> i16 {
    Offset::UTC.to_datetime(Timestamp::from_nanosecond(nanos).unwrap_or_default()).year()
}

/// Parses the reset of a window. A reset is the server's estimate: one that is far away, long past or unclear is ignored,
/// and so is 0, which servers send as a placeholder.
///
/// `unit` is the unit of a bare number that is no moment, in nanoseconds.
pub(super) fn reset(text: &[u8], unit: u128, now: &Now) -> Option<Duration> {
    let text = bare(text);
    if let Some(number) = Decimal::read(text) {
        return reset_number(number, unit, now);
    }
    match duration(text).or_else(|| clock(text)) {
        Some(wait) => (!wait.is_zero() && wait <= MAX_WAIT).then_some(wait),
        None => now.until_reset(now.date(text)?),
    }
}

pub(super) fn reset_number(number: Decimal, unit: u128, now: &Now) -> Option<Duration> {
    let wait = from_nanos(number.nanos(unit));
    if wait.is_zero() {
        return None;
    }
    match now.epoch(number) {
        Some(moment) => now.until_reset(moment),
        None => (wait <= MAX_WAIT).then_some(wait),
    }
}

/// Parses an explicit instruction to wait. `unit` is the unit of a bare number, in nanoseconds. Waits above 31 days are
/// cut to 31 days, and a moment that has passed is a wait of zero.
///
/// Proxies join the values of several lines by commas; the longest one counts then.
pub(super) fn hint(text: &[u8], unit: u128, now: &Now) -> Option<Duration> {
    let text = bare(text);
    let wait = one_hint(text, unit, now).or_else(|| longest_hint(text, unit, now))?;
    Some(wait.min(MAX_WAIT))
}

/// The longest of several values with commas between them: `30, 120`. `None` if any of them is malformed.
fn longest_hint(text: &[u8], unit: u128, now: &Now) -> Option<Duration> {
    if text.len() > MAX_LIST || !text.contains(&b',') {
        return None;
    }
    // A date has a comma of its own, behind its weekday.
    let is_weekday = |part: &[u8]| std::str::from_utf8(part).is_ok_and(date::is_weekday);
    let values = text.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|part| !is_weekday(part));
    values
        .map(|value| one_hint(bare(value), unit, now))
        .try_fold(Duration::ZERO, |longest, wait| Some(longest.max(wait?)))
}

fn one_hint(text: &[u8], unit: u128, now: &Now) -> Option<Duration> {
    let wait = match Decimal::read(text) {
        Some(number) => {
            let wait = from_nanos(number.nanos(unit));
            // Seconds come first, unlike in a reset: RFC 9110 defines `Retry-After` so, whatever the clock.
            if wait <= MAX_WAIT {
                wait
            } else if now.is_long_past(number) {
                Duration::ZERO
            } else {
                now.epoch(number).map_or(MAX_WAIT, |moment| now.until(moment))
            }
        }
        // Too many digits for a number: an instruction to wait all the same.
        None if text.len() > MAX_DIGITS && text.iter().all(u8::is_ascii_digit) => MAX_WAIT,
        None if unit == MILLISECOND => clock(text)?,
        None => match duration(text).or_else(|| clock(text)) {
            Some(wait) => wait,
            None => match now.date(text) {
                Some(date) => now.until(date),
                None if is_beyond_dates(text, now) => MAX_WAIT,
                None => return None,
            },
        },
    };
    Some(wait)
}

/// Whether `text` is a date in the year 9999 or in one of more than four digits, which parsers of dates do not accept.
fn is_beyond_dates(text: &[u8], now: &Now) -> bool {
    if text.len() > MAX_LIST {
        return false;
    }
    let is_far = |digits: &[u8]| digits.len() > 4 || digits == b"9999";
    let mut at = 0;
    for run in text.split(|b| !b.is_ascii_digit()) {
        if is_far(run) {
            let (before, rest) = (text.get(..at).unwrap_or_default(), text.get(at + run.len()..).unwrap_or_default());
            let before = before.strip_suffix(b"+").unwrap_or(before);
            return now.date(&[before, b"9998", rest].concat()).is_some();
        }
        at += run.len() + 1;
    }
    false
}

/// Parses the length of a window.
pub(super) fn length(text: &[u8], unit: u128) -> Option<Duration> {
    let text = bare(text);
    let length = match Decimal::read(text) {
        Some(number) => from_nanos(number.nanos(unit)),
        None => duration(text).or_else(|| in_words(text))?,
    };
    (!length.is_zero() && length <= MAX_LENGTH).then_some(length)
}

/// The time until the next multiple of `period` since 1970: for a day, until midnight UTC.
pub(super) fn until_next(period: Duration, now: &Now) -> Option<Duration> {
    let period = i128::try_from(period.as_nanos()).ok().filter(|period| *period > 0)?;
    let past = now.nanos().rem_euclid(period);
    Some(from_nanos((period - past).unsigned_abs()))
}
