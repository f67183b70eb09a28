//! Quotas that reset by a calendar: `resets = "daily America/Los_Angeles"`.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::names::names;
use super::suggest;

/// How often a quota resets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Period {
    /// Every hour, at the stated minute.
    Hourly,
    /// Every day: 23 to 25 hours in time zones with daylight saving time.
    Daily,
    /// Every Monday.
    Weekly,
    /// On the first of every month.
    Monthly,
}

names!(Period { Hourly = "hourly", Daily = "daily", Weekly = "weekly", Monthly = "monthly" });

impl Period {
    /// The length of a window: 31 days for a month; for a day and a week, the length without a change of the clocks.
    pub fn window(self) -> Duration {
        const HOUR: u64 = 3_600;
        Duration::from_secs(match self {
            Period::Hourly => HOUR,
            Period::Daily => 24 * HOUR,
            Period::Weekly => 7 * 24 * HOUR,
            Period::Monthly => 31 * 24 * HOUR,
        })
    }
}

/// When a quota resets, by the calendar and the clocks of a time zone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Resets {
    /// How often the quota resets.
    pub period: Period,
    /// The time of the reset, in minutes after midnight; for an hourly quota, in minutes after the full hour.
    pub minute: u16,
    /// The time zone's name in the IANA database.
    pub zone: Arc<str>,
    /// A number of seconds that divides every window end, in seconds since 1970.
    grid_s: u32,
}

const HELP: &str = "write how often, perhaps a time, and a time zone: \"daily America/Los_Angeles\", \"monthly UTC\", \
                    \"daily 07:00 Europe/Berlin\" or \"rolling\"";
/// The value for a window that does not follow a calendar. A tenant may override its vendor's calendar with it.
pub(super) const ROLLING: &str = "rolling";
/// The number of days, weeks and months whose ends are computed in advance: 6 to 10 years. A program that runs for
/// longer counts rolling windows from then on, which are never shorter.
const DAYS: i64 = 2_200;
const WEEKS: i64 = 520;
const MONTHS: i64 = 120;

impl Resets {
    /// Reads `PERIOD [HH:MM] [ZONE]`.
    pub(super) fn parse(text: &str) -> Result<Resets, String> {
        let mut words = text.split_whitespace();
        let name = words.next().unwrap_or_default();
        let period = Period::parse(name).ok_or_else(|| {
            let hint = suggest::nearest(name, Period::NAMES.iter().copied().chain([ROLLING]));
            let hint = hint.map_or(String::new(), |near| format!("did you mean `{near}`? "));
            format!("this does not say when a quota begins anew; {hint}{HELP}")
        })?;
        let (mut minute, mut zone) = (0, "UTC");
        let mut rest = words.next();
        if let Some(time) = rest.filter(|word| word.starts_with(|first: char| first.is_ascii_digit())) {
            minute = minutes(time, period)?;
            rest = words.next();
        }
        if let Some(name) = rest {
            zone = name;
        }
        if words.next().is_some() {
            return Err(format!("too many words; {HELP}"));
        }
        let found = time_zone(zone)?;
        let zone = found.iana_name().unwrap_or("UTC").into();
        Ok(Resets { period, minute, zone, grid_s: grid(period, minute, &found) })
    }

    /// The ends of windows, and the length of the windows that follow the last returned end: an hour for an hourly
    /// quota, zero for the others, whose windows differ in length. The first end is the last one that is not after
    /// `from`. At least one later end follows it, because a clock that begins at `from` cannot express the first.
    pub(crate) fn ends(&self, from: SystemTime) -> (Vec<SystemTime>, Duration) {
        let Ok(from) = Timestamp::try_from(from) else { return (Vec::new(), Duration::ZERO) };
        // `parse` has looked this name up, so it exists.
        let zone = TimeZone::get(&self.zone).unwrap_or(TimeZone::UTC);
        if self.period == Period::Hourly {
            let offset = i64::from(zone.to_offset(from).seconds());
            let past = (from.as_second() + offset - i64::from(self.minute) * 60).rem_euclid(3_600);
            let last = from.as_second() - past;
            let ends = [last, last + 3_600].map(Timestamp::from_second).into_iter().flatten();
            return (ends.map(SystemTime::from).collect(), Period::Hourly.window());
        }
        let today = zone.to_datetime(from).date();
        let (count, first): (i64, Option<Date>) = match self.period {
            Period::Hourly | Period::Daily => (DAYS, today.checked_sub(1.day()).ok()),
            Period::Weekly => {
                let since_monday = i64::from(today.weekday().to_monday_zero_offset());
                (WEEKS, today.checked_sub((since_monday + 7).days()).ok())
            }
            Period::Monthly => (MONTHS, today.first_of_month().checked_sub(1.month()).ok()),
        };
        let (hour, minute) = ((self.minute / 60) as i8, (self.minute % 60) as i8);
        let time = Time::new(hour, minute, 0, 0).unwrap_or(Time::MIN);
        let end = |number: i64| {
            let later = match self.period {
                Period::Hourly | Period::Daily => number.days(),
                Period::Weekly => (7 * number).days(),
                Period::Monthly => number.months(),
            };
            // A local time that a change of the clocks skips becomes a later one; of a repeated time the first counts.
            zone.to_timestamp(first?.checked_add(later).ok()?.to_datetime(time)).ok()
        };
        let mut ends: Vec<Timestamp> = (0..=count).map_while(end).collect();
        let past = ends.iter().take_while(|end| **end <= from).count();
        ends.drain(..past.saturating_sub(1));
        (ends.into_iter().map(SystemTime::from).collect(), Duration::ZERO)
    }

    /// The longest duration of which every window end, as time since 1970, is a multiple.
    pub(crate) fn grid(&self) -> Duration {
        Duration::from_secs(self.grid_s.into())
    }

    /// The length of the longest window, with an hour for a change of the clocks.
    pub(crate) fn longest(&self) -> Duration {
        let clocks = if self.period == Period::Hourly { 0 } else { 3_600 };
        self.period.window() + Duration::from_secs(clocks)
    }
}

impl fmt::Display for Resets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (period, hour, minute) = (self.period.name(), self.minute / 60, self.minute % 60);
        match self.minute {
            0 => write!(f, "{period} {}", self.zone),
            _ => write!(f, "{period} {hour:02}:{minute:02} {}", self.zone),
        }
    }
}

fn minutes(text: &str, period: Period) -> Result<u16, String> {
    let wrong = || "a time is written as \"07:00\", from \"00:00\" to \"23:59\"".to_owned();
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, below: u16| -> Result<u16, String> {
        let number = text.parse().ok().filter(|number| *number < below && text.len() == 2);
        number.ok_or_else(wrong)
    };
    let (hour, minute) = (number(hour, 24)?, number(minute, 60)?);
    if period == Period::Hourly && hour > 0 {
        return Err("an hourly quota begins anew at a minute of each hour: write \"00:30\" for the 30th".to_owned());
    }
    Ok(60 * hour + minute)
}

fn time_zone(name: &str) -> Result<TimeZone, String> {
    if let Ok(zone) = TimeZone::get(name) {
        return Ok(zone);
    }
    let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
    let names = || known.iter().map(String::as_str);
    // Finds the zone if only the last part of its name is given, such as `Los_Angeles`.
    let ends_with = |known: &&str| known.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case(name));
    let near = suggest::nearest(name, names()).or_else(|| names().find(ends_with));
    Err(match near {
        Some(near) => format!("unknown time zone {name:?}; did you mean `{near}`?"),
        None => {
            "unknown time zone; write its name in the IANA database, such as `America/Los_Angeles`, or `UTC`".to_owned()
        }
    })
}

/// The number of seconds of which every window end is a multiple: the greatest common divisor of the period's unit, the
/// zone's offsets from UTC and the time of the reset.
fn grid(period: Period, minute: u16, zone: &TimeZone) -> u32 {
    let since = Timestamp::from_second(1_767_225_600).unwrap_or_default();
    let offsets = zone.following(since).take(4).map(|change| change.offset());
    let offsets = offsets.chain([zone.to_offset(since)]).map(|offset| offset.seconds().unsigned_abs());
    let whole = if period == Period::Hourly { 3_600 } else { 86_400 };
    offsets.chain([u32::from(minute) * 60]).fold(whole, common)
}

/// The greatest common divisor.
fn common(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { common(other, one % other) }
}

#[cfg(test)]
mod tests;
