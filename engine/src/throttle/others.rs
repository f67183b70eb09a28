//! What others take of a limit: the part of a vendor's count that our own count does not explain.
//!
//! | the vendor's count goes down | what is compared |
//! |---|---|
//! | at a reset | what has been used since the first answer of its window, beside what we sent meanwhile |
//! | each unit after a window | what is used, beside what we sent in the last window |
//! | evenly | what has been used since an earlier answer and has come back, beside what we sent meanwhile |
//!
//! Answers overtake each other, so each comparison has two results: what is likely, if requests arrive in the order in which
//! they were granted, and what is sure, if many of them do not. Others are there when the second says so.

use super::edge::Edge;
use crate::pace::Mode;
use crate::pace::{Counting, Pace};
use crate::time::Time;

/// Another client uses the key and takes this share of the limit.
const SHARE: f64 = 0.05;
/// And so many units at least: answers overtake each other by as many.
const LEAST_UNITS: f64 = 1.5;
/// Units come back one by one once this share of the limit was seen to.
const REGROWN: f64 = 0.15;
/// A window that begins may hold this share of the limit beside what is known to have been taken since.
const BEGUN: f64 = 0.125;
/// Of the units whose order of arrival is not known, at most this share arrives in another order than it was granted in.
const OVERTAKEN: f64 = 0.4;

/// A vendor's count at the moment of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) at: Time,
    /// When the request was granted that was answered.
    pub(super) granted: Time,
    /// Units that are used, as the vendor says.
    pub(super) used: u64,
    /// Units of ours that had arrived in all, if they arrived in order.
    pub(super) arrived: i64,
    /// Units of these that may have arrived after it.
    pub(super) early: i64,
    /// Units granted later that may have arrived before it.
    pub(super) late: i64,
    /// Units of ours that the vendor counts then, if it gives each back a window later: as is likely, and at most.
    pub(super) ours: (u32, u32),
    /// Units that a vendor which refills in lumps may be behind one that refills steadily.
    pub(super) behind: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Units a nanosecond, as is likely.
    rate: f64,
    /// Of these, as many as there must be.
    sure: f64,
    /// Both as they were believed when the present comparison began.
    before: (f64, f64),
    first: Option<Sample>,
    last: Option<Sample>,
    /// The vendor's window began before this moment.
    began: Option<Time>,
    /// Where the vendor's windows begin.
    pub(super) edge: Edge,
    /// Of a log: units in it that are not ours, smoothed.
    level: f64,
    /// Units that came back one by one, less those that others took meanwhile, and units that came back at once: of the
    /// last windows.
    regrown: f64,
    dropped: f64,
    /// When a window ends for certain, if the vendor counts in windows: as of the last answer.
    due: Option<Time>,
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
    pub(super) fn observe(&mut self, seen: Sample, limit: u64, pace: &Pace) {
        let Some(last) = self.last.replace(seen) else {
            self.begin(seen);
            return;
        };
        // Answers overtake each other by a few: that is no new window.
        let is_new = seen.used.saturating_add(limit / 8) < last.used;
        if pace.counting == Counting::Unstated && pace.mode == Mode::Adaptive {
            self.watch(&last, &seen, is_new, limit, pace);
        }
        match self.counting(limit, pace) {
            Counting::Windows | Counting::Unstated => {
                if is_new {
                    self.began = Some(seen.at);
                    self.edge.lies(last.granted, seen.at, pace.window_ns);
                    // Of a vendor that only the limit is known of, a drop may be units that came back one by one.
                    let ends_at_once = pace.counting == Counting::Windows || self.dropped > self.regrown;
                    if pace.mode == Mode::Adaptive && ends_at_once {
                        self.meet(&last, &seen, pace);
                    }
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
                let window = pace.window_ns.max(1) as f64;
                let level = seen.used as f64 - f64::from(seen.ours.0);
                let sure = (seen.used as f64 - f64::from(seen.ours.1)).max(0.0) / window;
                let since = seen.at.since(last.at).as_nanos() as f64;
                let part = (since / (since + window / 8.0)).max(0.02);
                self.level += (level - self.level) * part;
                self.rate = self.level.max(0.0) / window;
                self.sure += (sure - self.sure) * part;
            }
        }
    }

    /// How the vendor's count goes down: where the configuration does not say it, as it was seen to.
    pub(super) fn counting(&self, limit: u64, pace: &Pace) -> Counting {
        let regrows = self.regrown > REGROWN * limit as f64 && self.regrown > 2.0 * self.dropped;
        match pace.counting {
            Counting::Unstated if regrows => Counting::Log,
            Counting::Unstated => Counting::Windows,
            stated => stated,
        }
    }

    /// Whether units come back one by one.
    fn watch(&mut self, last: &Sample, seen: &Sample, is_new: bool, limit: u64, pace: &Pace) {
        let kept = (-(seen.at.since(last.at).as_nanos() as f64) / (2.0 * pace.window_ns.max(1) as f64)).exp();
        let ours = seen.arrived.wrapping_sub(last.arrived) as f64;
        let back = last.used as f64 + ours - seen.used as f64;
        // A window that has just begun holds what was taken since: a count that falls, and not so far, falls bit by bit.
        let since = seen.at.since(last.at).as_nanos() as f64;
        let taken = ours + 2.0 * self.rate.max(self.sure) * since + BEGUN * limit as f64;
        (self.regrown, self.dropped) = (self.regrown * kept, self.dropped * kept);
        if is_new && seen.used as f64 <= taken {
            self.dropped += back;
        } else {
            self.regrown += back;
        }
        // A window would have ended meanwhile, and with it all that it held.
        let has_ended = self.due.is_some_and(|due| due <= seen.granted);
        // After a silence, and of a few units, others may have taken what is used now.
        let was_as_high = last.used >= limit / 4 && since < pace.window_ns as f64 && seen.used as f64 > taken;
        if has_ended && !is_new && seen.used >= limit / 4 && was_as_high {
            (self.regrown, self.dropped) = (self.regrown.max(limit as f64), 0.0);
        }
        if is_new || has_ended || self.due.is_none() {
            let window = pace.window_ns;
            let next = self.edge.next(seen.at.plus_nanos(window / 2), window);
            // The window that was seen to begin began before this answer.
            let at_the_latest = is_new.then(|| seen.at.plus_nanos(window + window / 10_000));
            self.due = next.into_iter().chain(at_the_latest).min();
        }
    }

    fn begin(&mut self, seen: Sample) {
        // What is likely alone is not carried on: answers that overtook each other in one burst say nothing of the next window.
        let likely = if self.sure > 0.0 { self.rate } else { 0.0 };
        (self.before, self.first) = ((likely, self.sure), Some(seen));
    }

    /// The first answer of a window: what is used already, and was not sent by us since the last answer, others took.
    fn meet(&mut self, last: &Sample, seen: &Sample, pace: &Pace) {
        let ours = seen.arrived.wrapping_sub(last.arrived) as f64;
        let sure = seen.used as f64 - ours - (seen.late + last.early) as f64 - f64::from(seen.behind);
        let (elapsed, weight) = (seen.at.since(last.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
        let sure = (sure + self.sure * weight) / (elapsed + weight).max(1.0);
        self.sure = self.sure.max(sure);
    }

    fn compare(&mut self, seen: Sample, refill: f64, pace: &Pace) {
        let Some(first) = self.first else { return self.begin(seen) };
        let (elapsed, weight) = (seen.at.since(first.at).as_nanos() as f64, pace.window_ns as f64 / 4.0);
        let ours = seen.arrived.wrapping_sub(first.arrived) as f64;
        let taken = seen.used as f64 - first.used as f64 - ours + refill * elapsed;
        let sure = (taken - OVERTAKEN * (seen.late + first.early) as f64 - f64::from(seen.behind)).max(0.0);
        // Less than one unit is no proof.
        let sure = if sure < 1.0 { 0.0 } else { sure };
        let per_ns = |taken: f64, before: f64| ((taken + before * weight) / (elapsed + weight).max(1.0)).max(0.0);
        self.rate = per_ns(taken, self.before.0);
        // What went before the first answer was there may have arrived before it, in the window before.
        if seen.granted >= first.at || pace.mode != Mode::Adaptive {
            self.sure = per_ns(sure, self.before.1);
        }
    }

    /// When the vendor's next window has begun for certain, where one has been seen to begin.
    pub(super) fn next_edge(&self, now: Time, pace: &Pace) -> Option<Time> {
        let began = self.began?;
        // The edge that was seen just now is not the next one, though it may lie a little later.
        let from = if began == now { now.plus_nanos(pace.window_ns / 2) } else { now };
        self.edge.next(from, pace.window_ns)
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Answers every 20 ms for two seconds. The vendor states that a window of a second ends after each whole one; what is used grows by
    /// one with each answer, and is 0 again after so many answers, if after any.
    fn counting(begins_anew: Option<u64>) -> Counting {
        let pace = Pace { unit_ns: SECOND / 100, limit: 100, window_ns: SECOND, ..Pace::default() };
        let mut others = Others::default();
        for number in 1..100_u64 {
            let at = Time::from_nanos(3_600 * SECOND + number * 20_000_000);
            let used = begins_anew.map_or(number, |after| number % after);
            let own = used as u32;
            let arrived = number as i64;
            let sample = Sample { at, granted: at, used, arrived, early: 0, late: 0, ours: (own, own), behind: 0 };
            others.observe(sample, 100, &pace);
            others.edge.stated(at, at, SECOND - (number * 20_000_000) % SECOND, SECOND);
        }
        others.counting(100, &pace)
    }

    #[test]
    fn count_that_outlasts_the_end_of_a_window_is_that_of_no_window() {
        assert_eq!(counting(None), Counting::Log);
        assert_eq!(counting(Some(50)), Counting::Windows);
    }
}
