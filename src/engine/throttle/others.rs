//! What others take of a limit: the part of a vendor's count that our own count does not explain.
//!
//! | the vendor's count goes down | what is compared |
//! |---|---|
//! | at a reset | what has been used since the first answer of its window, beside what we sent meanwhile |
//! | each unit after a window | what is used, beside what we sent in the last window |
//! | evenly | what has been used since an earlier answer and has come back, beside what we sent meanwhile |

use crate::clock::Time;
use crate::engine::plan::{Counting, Pace};

/// Somebody else uses the key who takes this share of the limit.
const SHARE: f64 = 0.05;
/// And so many units at least: answers overtake each other by as many.
const LEAST_UNITS: f64 = 1.5;
/// Of what is under way, at most this share arrives in another order than it was granted in.
const OVERTAKEN: f64 = 0.4;

/// A vendor's count at the moment of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) at: Time,
    /// Units that are used, as the vendor says.
    pub(super) used: u64,
    /// Units of ours that had arrived in all.
    pub(super) arrived: i64,
    /// Units of ours that the vendor counts then, as far as we know.
    pub(super) ours: u32,
    /// Units of ours of which it is not known whether they had arrived.
    pub(super) unsure: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Units a nanosecond, as is likely.
    rate: f64,
    /// Of these, as many as there must be: answers overtake each other, and those of a burst by many.
    sure: f64,
    /// Both as they were believed when the present comparison began.
    before: (f64, f64),
    first: Option<Seen>,
    last: Option<Seen>,
    /// The vendor's window began before this moment.
    began: Option<Time>,
    /// Of a log: units in it that are not ours, smoothed.
    level: f64,
}

impl Others {
    /// Units that they take in a window, if anybody takes any worth mentioning.
    pub(super) fn per_window(&self, pace: &Pace) -> Option<f64> {
        let window = pace.window_ns as f64;
        let is_proven = self.sure * window > (SHARE * pace.limit as f64).max(LEAST_UNITS);
        is_proven.then_some(self.rate.max(self.sure) * window)
    }

    /// Units a nanosecond that they take, if any worth mentioning.
    pub(super) fn rate(&self, pace: &Pace) -> f64 {
        self.per_window(pace).map_or(0.0, |_| self.rate.max(self.sure))
    }

    /// Compares another answer with those before.
    pub(super) fn observe(&mut self, seen: Seen, limit: u64, pace: &Pace) {
        let Some(last) = self.last.replace(seen) else {
            self.begin(seen);
            return;
        };
        match pace.counting {
            Counting::Windows => {
                // Answers overtake each other by a few: that is no new window.
                if seen.used.saturating_add(limit / 8) < last.used {
                    self.began = Some(seen.at);
                    self.begin(seen);
                } else {
                    self.compare(seen, 0.0, pace);
                }
            }
            Counting::Bucket => {
                let refill = limit as f64 / pace.window_ns.max(1) as f64;
                if seen.used == 0 {
                    // Full: who knows since when.
                    self.rate /= 2.0;
                    self.sure /= 2.0;
                    self.begin(seen);
                } else {
                    self.compare(seen, refill, pace);
                }
                let since = self.first.map_or(0, |first| seen.at.since(first.at).as_nanos());
                if since > u128::from(pace.window_ns / 2) {
                    self.begin(seen);
                }
            }
            Counting::Log => {
                let level = (seen.used as f64 - f64::from(seen.ours)).max(0.0);
                let sure = (level - OVERTAKEN * f64::from(seen.unsure)).max(0.0) / pace.window_ns.max(1) as f64;
                let since = seen.at.since(last.at).as_nanos() as f64;
                let smoothing = pace.window_ns as f64 / 8.0;
                let part = (since / (since + smoothing)).max(0.02);
                self.level += (level - self.level) * part;
                self.rate = self.level / pace.window_ns.max(1) as f64;
                self.sure += (sure - self.sure) * part;
            }
        }
    }

    fn begin(&mut self, seen: Seen) {
        (self.before, self.first) = ((self.rate, self.sure), Some(seen));
    }

    fn compare(&mut self, seen: Seen, refill: f64, pace: &Pace) {
        let Some(first) = self.first else { return self.begin(seen) };
        let (elapsed, weight) = (seen.at.since(first.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
        let ours = seen.arrived.wrapping_sub(first.arrived) as f64;
        let taken = seen.used as f64 - first.used as f64 - ours + refill * elapsed;
        let sure = (taken - OVERTAKEN * (f64::from(seen.unsure) + f64::from(first.unsure))).max(0.0);
        let per_ns = |taken: f64, before: f64| ((taken + before * weight) / (elapsed + weight).max(1.0)).max(0.0);
        (self.rate, self.sure) = (per_ns(taken, self.before.0), per_ns(sure, self.before.1));
    }

    /// When the vendor's next window begins at the latest: where its windows end is known as soon as one has been
    /// seen to begin, and to less than the whole second in which it is stated.
    pub(super) fn next_window(&self, now: Time, pace: &Pace) -> Option<Time> {
        let began = self.began?;
        let since = now.since(began).as_nanos();
        let window = u128::from(pace.window_ns);
        // A clock that runs one in ten thousand off, ten windows later.
        (window > 0 && since < 10 * window).then(|| began.plus_nanos((window * (since / window + 1)) as u64))
    }
}
