//! The words of which the names of such headers are made.

use std::time::Duration;

use crate::signals::moment::{MILLISECOND, SECOND};

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
    /// `retry`, which is a wait if `after` or `in` follows.
    Retry,
    Length,
    /// The header holds the window's name. The smaller rank goes before the larger.
    Label(u8),
    /// A unit of time and nothing else.
    Unit(u128),
    /// A period, which is a window's name and says its length if that is fixed: a month's is not.
    Period(Option<Duration>),
    Per,
    /// Says nothing of its own: `after`, `in`, `time`.
    Filler,
    Other,
}

impl Word {
    pub(super) fn of(text: &str) -> Word {
        match text {
            "limit" | "limits" | "max" | "maximum" | "quota" | "total" | "allowed" | "capacity" | "ceiling" => {
                Word::Limit
            }
            "remaining" | "remain" | "remains" | "left" | "available" => Word::Remaining,
            "used" | "usage" | "count" | "consumed" | "observed" | "current" | "running" => Word::Used,
            "reset" | "resets" | "until" | "resetat" | "resetin" | "resetsin" | "resetsat" | "resettime"
            | "resetafter" | "resetdate" => Word::Reset,
            "retryafter" | "retryin" => Word::Wait,
            "retry" => Word::Retry,
            "window" | "interval" | "period" | "windowsize" | "timewindow" => Word::Length,
            "name" => Word::Label(0),
            "resource" => Word::Label(1),
            "bucket" => Word::Label(2),
            "group" => Word::Label(3),
            "category" => Word::Label(4),
            "type" => Word::Label(5),
            "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => Word::Unit(MILLISECOND),
            "s" | "sec" | "secs" | "seconds" => Word::Unit(SECOND),
            "per" | "this" => Word::Per,
            "after" | "in" | "at" | "on" | "time" | "timestamp" | "epoch" | "unix" | "utc" | "date" | "size"
            | "length" | "x" => Word::Filler,
            _ => match period(text) {
                Some(length) => Word::Period(length),
                None => Word::Other,
            },
        }
    }

    /// Two words in one, behind the marker: `dailylimit`, `userremaining`. The first names the window.
    pub(super) fn compound(text: &str) -> Option<(&str, Word)> {
        const ENDS: [(&str, Word); 4] =
            [("limit", Word::Limit), ("remaining", Word::Remaining), ("reset", Word::Reset), ("used", Word::Used)];
        let (stem, word) = ENDS.iter().find_map(|(end, word)| Some((text.strip_suffix(end)?, *word)))?;
        (stem.len() >= 3).then_some((stem, word))
    }

    /// Says what a figure is.
    pub(super) fn is_role(self) -> bool {
        matches!(self, Word::Limit | Word::Remaining | Word::Used | Word::Reset | Word::Wait)
    }
}

/// What is counted in requests, whatever else the header's name says.
pub(super) fn is_counted(word: &str) -> bool {
    matches!(word, "request" | "requests" | "call" | "calls" | "hits" | "queries" | "apicalls" | "apirequests")
}

/// Whose or which window, where it stands in front of the rest.
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

/// Too many at once.
pub(super) fn is_parallel(word: &str) -> bool {
    matches!(word, "concurrency" | "concurrent" | "parallel")
}

/// The length that a period's name states: `daily`, `24hour`, `1m`. `Some(None)` for a period without a fixed one.
pub(in crate::signals) fn period(text: &str) -> Option<Option<Duration>> {
    let seconds = match text {
        "second" | "secondly" => 1,
        "minute" | "minutely" | "min" => MINUTE,
        "hour" | "hourly" => HOUR,
        "day" | "daily" | "today" => DAY,
        "week" | "weekly" => 7 * DAY,
        "month" | "monthly" | "year" | "yearly" => return Some(None),
        _ => return counted(text).map(Some),
    };
    Some(Some(Duration::from_secs(seconds)))
}

/// `24hour`, `10s`, and the end of `HighCostGet30Min`.
fn counted(text: &str) -> Option<Duration> {
    let unit_at = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    let number_at = text.get(..unit_at)?.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text.get(number_at..unit_at)?.parse().ok()?;
    let length = unit_seconds(text.get(unit_at..)?)?.checked_mul(number)?;
    (length > 0 && length <= 366 * DAY).then(|| Duration::from_secs(length))
}

/// The seconds of a unit as people write it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_names_state() {
        for (text, expected) in [
            ("daily", Some(Some(DAY))),
            ("24hour", Some(Some(DAY))),
            ("1m", Some(Some(60))),
            ("10s", Some(Some(10))),
            ("highcostget30min", Some(Some(1800))),
            ("month", Some(None)),
            ("0s", None),
            ("tokens", None),
            ("5", None),
            ("", None),
            ("99999999999999999999d", None),
            ("9999999d", None),
            ("µs", None),
        ] {
            let expected = expected.map(|length| length.map(Duration::from_secs));
            assert_eq!(period(text), expected, "{text}");
        }
    }
}
