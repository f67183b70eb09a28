//! What a vendor said is left, and what others on the same key take of it.

use super::{LEAST_PAUSE, Mode};
use crate::clock::Time;
use crate::engine::plan::Pace;

/// Bands of headroom: below so many percent, so many hundredths of the rate.
const BANDS: [(u64, u64); 3] = [(10, 25), (20, 50), (30, 75)];
/// A band is left upwards this many percent above its threshold.
const HYSTERESIS: u64 = 3;
/// After the reset that a vendor states, in nanoseconds: its clock may be late. A twentieth of shorter windows.
const AFTER_RESET: u64 = 500_000_000;
/// Somebody else uses the key who takes this share of the limit.
const OTHERS: f64 = 0.05;
/// What others take may come so much earlier: a share of what they take in a window.
const UNEVEN: f64 = 0.04;

/// What a response said about the tightest window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Report {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Until the reset, in nanoseconds.
    pub(crate) reset_ns: Option<u64>,
    /// What the vendor says its limit is over the lane's own window, where that is less than the lane goes by.
    pub(crate) stated: Option<u64>,
}

impl Report {
    /// Nothing needs to be done about it while nothing was done before.
    pub(crate) fn is_comfortable(&self, in_flight: u32) -> bool {
        let left = self.remaining.saturating_sub(in_flight as u64);
        left.saturating_mul(100) > self.limit.saturating_mul(30) || self.limit == 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    limit: u64,
    /// Units that may still be granted; below zero those that went as they came back.
    pub(super) credit: i64,
    at: Time,
    /// The report means nothing from here on.
    pub(super) until: Time,
    /// Hundredths of the rate.
    pub(super) share: u64,
    pub(super) percent: u64,
    /// Between grants, in nanoseconds, where the rate is not a share of the lane's own.
    pub(super) spacing: Option<u64>,
    /// Units a nanosecond that others take.
    others: f64,
}

impl Told {
    /// When `cost` units may go.
    pub(super) fn free(&self, now: Time, cost: u32, pace: &Pace) -> Time {
        let cost = i64::from(cost);
        let since = now.since(self.at).as_nanos() as f64;
        // Others come between as well, and not evenly.
        let uneven = UNEVEN * self.others * pace.window_ns as f64;
        let taken = if self.others > 0.0 { (self.others * since + uneven) as i64 + 1 } else { 0 };
        if self.credit.saturating_sub(taken) >= cost {
            return now;
        }
        if pace.regrows && pace.window_ns > 0 {
            let unit = pace.window_ns / self.limit.max(1);
            let lacking = cost.saturating_sub(self.credit).unsigned_abs();
            return self.at.plus_nanos(unit.saturating_mul(lacking)).min(self.until);
        }
        self.until
    }
}

/// What was heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    pub(super) told: Option<Told>,
    /// The grant whose answer was applied last: what is older has been overtaken.
    told_of: Time,
    /// Units granted in all.
    granted: u64,
    /// The first report of the vendor's window.
    first: Option<Seen>,
    last: Option<Seen>,
    /// More was left than before: the vendor's window began before this moment.
    began: Option<Time>,
    /// Units a nanosecond that others take.
    others: f64,
}

/// What was left when so many of ours had arrived.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Time,
    remaining: u64,
    arrived: i64,
}

/// What is new.
pub(super) enum News {
    Slower { percent: u64 },
    Exhausted,
}

impl Reports {
    pub(super) fn granted(&mut self, cost: u32) {
        self.granted = self.granted.wrapping_add(u64::from(cost));
        if let Some(told) = &mut self.told {
            told.credit = told.credit.saturating_sub(i64::from(cost));
        }
    }

    /// The grant whose answer was applied last.
    pub(super) fn told_of(&self) -> Time {
        self.told_of
    }

    pub(super) fn forget_past(&mut self, now: Time) {
        if self.told.is_some_and(|told| told.until <= now) {
            self.told = None;
        }
    }

    /// Somebody else uses the key, and takes so many units a window.
    pub(super) fn others(&self, pace: &Pace) -> Option<u64> {
        let taken = self.others * pace.window_ns as f64;
        (taken > OTHERS * pace.limit as f64).then_some(taken as u64)
    }

    /// A response to what was granted at `granted` told what is left, while `in_flight` others were under way.
    pub(super) fn hear(
        &mut self,
        now: Time,
        granted: Time,
        in_flight: u32,
        report: Report,
        pace: &Pace,
    ) -> Option<News> {
        let remaining = report.remaining.min(report.limit);
        if granted < self.told_of || report.limit == 0 || (pace.mode == Mode::Off && remaining > 0) {
            return None;
        }
        self.told_of = granted;
        self.compare(now, in_flight, remaining, &report, pace);
        let percent = remaining.saturating_mul(100) / report.limit;
        let window = if pace.window_ns > 0 { pace.window_ns } else { LEAST_PAUSE };
        let reset = report.reset_ns.unwrap_or(if remaining == 0 { LEAST_PAUSE } else { window });
        let known = self.told.filter(|told| told.until > now);
        let (before, was_empty) = known.map_or((100, false), |told| (told.share, told.percent == 0));
        let share = match pace.mode {
            Mode::Bands => band(percent, before),
            _ => 100,
        };
        let next = self.next_window(now, pace);
        let paced = pace.mode == Mode::Pace && remaining > 0 && report.reset_ns.is_some();
        let spacing = paced.then(|| {
            // A reset in whole seconds is up to a second late: a window that was seen to begin is known better.
            let reset = next.map_or(reset, |next| reset.min(next.since(now).as_nanos() as u64)).max(1) as f64;
            // Units that come back one by one come back meanwhile.
            let regrown = if pace.regrows { report.limit as f64 / window as f64 } else { 0.0 };
            (1.0 / (remaining as f64 / reset + regrown)) as u64
        });
        let mut until = now.plus_nanos(reset);
        if remaining == 0 {
            until = until.plus_nanos(AFTER_RESET.min(window / 20)).max(now.plus_nanos(LEAST_PAUSE.min(window / 10)));
        }
        if let Some(next) = next {
            until = until.min(next);
        }
        let credit = i64::try_from(remaining.saturating_sub(in_flight as u64)).unwrap_or(i64::MAX);
        let others = self.others(pace).map_or(0.0, |_| self.others);
        self.told = Some(Told { limit: report.limit, credit, at: now, until, share, percent, spacing, others });
        match remaining {
            0 => (!was_empty).then_some(News::Exhausted),
            _ => (share < before).then_some(News::Slower { percent }),
        }
    }

    /// What is left now, beside what was left before: whether a window has begun, and what others took.
    fn compare(&mut self, now: Time, in_flight: u32, remaining: u64, report: &Report, pace: &Pace) {
        let arrived = (self.granted as i64).wrapping_sub(i64::from(in_flight));
        let seen = Seen { at: now, remaining, arrived };
        let Some(last) = self.last.replace(seen).filter(|_| !pace.regrows && pace.own.is_some()) else { return };
        // Answers overtake each other by a few: that is no new window.
        if remaining > last.remaining.saturating_add(report.limit / 8) {
            (self.began, self.first) = (Some(now), Some(seen));
        } else if let Some(first) = self.first {
            let ours = arrived.wrapping_sub(first.arrived).max(0) as u64;
            let taken = first.remaining.saturating_sub(remaining).saturating_sub(ours) as f64;
            let (elapsed, weight) = (now.since(first.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
            self.others = (taken + self.others * weight) / (elapsed + weight);
        } else {
            self.first = Some(seen);
        }
    }

    /// When the vendor's next window begins at the latest: where its windows end is known as soon as one has been
    /// seen to begin, and to less than the whole second in which it is stated.
    fn next_window(&self, now: Time, pace: &Pace) -> Option<Time> {
        let began = self.began?;
        let since = now.since(began).as_nanos();
        let window = u128::from(pace.window_ns);
        // A clock that runs one in ten thousand off, ten windows later.
        (since < 10 * window).then(|| began.plus_nanos((window * (since / window + 1)) as u64))
    }
}

/// Hundredths of the rate at so many percent of headroom, coming from `before`.
fn band(percent: u64, before: u64) -> u64 {
    let share = |percent: u64| BANDS.iter().find(|(below, _)| percent < *below).map_or(100, |(_, share)| *share);
    let now = share(percent);
    match now > before {
        // Upwards only when clear of the threshold.
        true => share(percent.saturating_sub(HYSTERESIS)).max(before),
        false => now,
    }
}
