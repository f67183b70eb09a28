//! Averages over the last seconds and minutes, updated once a second.

use std::collections::VecDeque;

/// The seconds over which rates are averaged.
const RATE_SECONDS: usize = 10;
/// The seconds over which headroom is averaged.
const HEADROOM_SECONDS: usize = 300;

#[derive(Default)]
pub(super) struct Rolling {
    /// The totals of answers, of their times and of the busy time, the times in nanoseconds, at the end of each of the
    /// last seconds.
    totals: VecDeque<[u64; 3]>,
    /// The lowest headroom of each of the last seconds, in thousandths; `None` for a second without an answer.
    headroom: VecDeque<Option<u32>>,
    /// The latest average of the headroom.
    average: Option<f64>,
    /// The number of requests so far, and for how many seconds in a row none has come and none has waited.
    asked: u64,
    idle: usize,
}

impl Rolling {
    /// Returns the answers per second of busy time, and their mean time in seconds.
    pub(super) fn rate(&mut self, answers: u64, answers_ns: u64, busy_ns: u64) -> (f64, f64) {
        let now = [answers, answers_ns, busy_ns];
        let before = match self.totals.len() {
            0 => [0; 3],
            _ => self.totals[0],
        };
        let [answers, answers_ns, busy_ns] = std::array::from_fn(|at| now[at].saturating_sub(before[at]) as f64);
        if self.totals.is_empty() {
            self.totals.push_back([0; 3]);
        }
        self.totals.push_back(now);
        while self.totals.len() > RATE_SECONDS {
            self.totals.pop_front();
        }
        let rate = if busy_ns > 0.0 { answers / (busy_ns / 1e9) } else { 0.0 };
        let mean = if answers > 0.0 { answers_ns / answers / 1e9 } else { 0.0 };
        (rate, mean)
    }

    /// Adds one more second: its lowest headroom, whether requests wait, and the number of requests so far. Returns the
    /// average; `None` before the first answer. If none of the seconds had an answer, the average before stays while
    /// requests wait or are turned away: the limit may be used up. A vendor that gets no requests has all of it left.
    pub(super) fn headroom(&mut self, lowest: Option<u32>, waits: bool, asked: u64) -> Option<f64> {
        let none_came = std::mem::replace(&mut self.asked, asked) == asked;
        self.idle = if none_came && !waits { self.idle.saturating_add(1) } else { 0 };
        self.headroom.push_back(lowest);
        if self.headroom.len() > HEADROOM_SECONDS {
            self.headroom.pop_front();
        }
        let known = self.headroom.iter().flatten();
        let (sum, count) = known.fold((0, 0), |(sum, count), lowest| (sum + u64::from(*lowest), count + 1));
        if count > 0 {
            self.average = Some(sum as f64 / count as f64 / 1_000.0);
        } else if self.idle >= HEADROOM_SECONDS {
            self.average = self.average.map(|_| 1.0);
        }
        self.average
    }
}

#[cfg(test)]
mod tests;
