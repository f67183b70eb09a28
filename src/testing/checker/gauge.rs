//! The count of a limit at the arrival of a request, computed from sums over the log so far.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::definition::{Definition, Event};

/// The log so far in the form that a definition needs. Events come in order of arrival.
pub(super) enum Gauge {
    Fixed { kept: Kept, window: i128, phase: i128 },
    FromFirst { start: Option<u64>, window: u64, sum: u64 },
    Sliding { kept: Kept, window: i128, both_ends: bool },
    Counter { kept: Kept, window: i128, phase: i128 },
    AnyCounter { kept: Kept, window: i128 },
    Bucket(Bucket),
    Line { free_at: u128, rate: u128, per: u128 },
    Concurrency { ends: BinaryHeap<Reverse<u64>> },
}

impl Gauge {
    pub(super) fn new(definition: &Definition) -> Gauge {
        let signed = |ns: u64| i128::from(ns.max(1));
        match *definition {
            Definition::FixedWindow { window_ns, phase_ns, .. } => {
                Gauge::Fixed { kept: Kept::default(), window: signed(window_ns), phase: i128::from(phase_ns) }
            }
            Definition::FixedWindowFromFirst { window_ns, .. } => {
                Gauge::FromFirst { start: None, window: window_ns.max(1), sum: 0 }
            }
            Definition::FixedWindowEveryPhase { window_ns, .. } => {
                Gauge::Sliding { kept: Kept::default(), window: signed(window_ns), both_ends: false }
            }
            Definition::SlidingWindow { window_ns, both_ends, .. } => {
                Gauge::Sliding { kept: Kept::default(), window: signed(window_ns), both_ends }
            }
            Definition::SlidingCounter { window_ns, phase_ns, .. } => {
                Gauge::Counter { kept: Kept::default(), window: signed(window_ns), phase: i128::from(phase_ns) }
            }
            Definition::SlidingCounterEveryPhase { window_ns, .. } => {
                Gauge::AnyCounter { kept: Kept::default(), window: signed(window_ns) }
            }
            Definition::TokenBucket { rate, per_ns, .. } => Gauge::Bucket(Bucket::new(rate, per_ns, None)),
            Definition::LumpedBucket { rate, per_ns, interval_ns, phase_ns, .. } => {
                Gauge::Bucket(Bucket::new(rate, per_ns, Some((interval_ns.max(1), phase_ns))))
            }
            Definition::LeakyBucket { rate, per_ns, .. } => {
                Gauge::Line { free_at: 0, rate: u128::from(rate.max(1)), per: u128::from(per_ns.max(1)) }
            }
            Definition::Concurrency { .. } => Gauge::Concurrency { ends: BinaryHeap::new() },
        }
    }

    /// The count of the limit if `event` is counted too, rounded up: it exceeds the limit exactly when the unrounded
    /// count does.
    pub(super) fn with(&mut self, event: &Event) -> u64 {
        let at = i128::from(event.at_ns);
        let cost = u64::from(event.cost);
        match self {
            Gauge::Fixed { kept, window, phase } => {
                let start = at - (at - *phase).rem_euclid(*window);
                cost + kept.sum_from(0, start)
            }
            Gauge::FromFirst { start, window, sum } => match *start {
                Some(start) if event.at_ns - start < *window => *sum + cost,
                _ => cost,
            },
            Gauge::Sliding { kept, window, both_ends } => {
                let first = if *both_ends { at - *window } else { at - *window + 1 };
                cost + kept.sum_from(0, first)
            }
            Gauge::Counter { kept, window, phase } => {
                let edge = at - (at - *phase).rem_euclid(*window);
                let since_edge = kept.sum_from(0, edge);
                let before_edge = kept.sum_from(1, edge - *window) - since_edge;
                weighted(cost + since_edge, before_edge, at - edge, *window)
            }
            Gauge::AnyCounter { kept, window } => kept.largest_counter(at, cost, *window),
            Gauge::Bucket(bucket) => bucket.with(event),
            Gauge::Line { free_at, rate, per } => {
                let now = u128::from(event.at_ns) * *rate;
                let leaves = (*free_at).max(now) + u128::from(cost) * *per;
                whole((leaves - now).div_ceil(*per))
            }
            Gauge::Concurrency { ends } => {
                while ends.peek().is_some_and(|&Reverse(end)| end <= event.at_ns) {
                    ends.pop();
                }
                ends.len() as u64 + 1
            }
        }
    }

    /// Counts `event`. Must follow [`Gauge::with`] of the same event.
    pub(super) fn keep(&mut self, event: &Event) {
        let cost = u64::from(event.cost);
        match self {
            Gauge::Fixed { kept, .. }
            | Gauge::Sliding { kept, .. }
            | Gauge::Counter { kept, .. }
            | Gauge::AnyCounter { kept, .. } => kept.push(event),
            Gauge::FromFirst { start, window, sum } => match *start {
                Some(first) if event.at_ns - first < *window => *sum += cost,
                _ => {
                    *start = Some(event.at_ns);
                    *sum = cost;
                }
            },
            Gauge::Bucket(bucket) => bucket.keep(event),
            Gauge::Line { free_at, rate, per } => {
                *free_at = (*free_at).max(u128::from(event.at_ns) * *rate) + u128::from(cost) * *per;
            }
            Gauge::Concurrency { ends } => ends.push(Reverse(event.end_ns)),
        }
    }
}

/// Counted events, with running sums.
#[derive(Default)]
pub(super) struct Kept {
    /// The arrival of each event, and the units of all events before it.
    events: Vec<(u64, u64)>,
    total: u64,
    /// The index at which the last sum of each cursor began. Bounds only grow, so each cursor passes over the log once.
    cursors: [usize; 2],
}

impl Kept {
    fn push(&mut self, event: &Event) {
        self.events.push((event.at_ns, self.total));
        self.total += u64::from(event.cost);
    }

    fn sum_since_place(&self, place: usize) -> u64 {
        self.total - self.events.get(place).map_or(self.total, |&(_, before)| before)
    }

    /// Units that arrived at `bound` or later. The bounds of one cursor must not decrease.
    fn sum_from(&mut self, cursor: usize, bound: i128) -> u64 {
        let mut place = self.cursors[cursor];
        while self.events.get(place).is_some_and(|&(at, _)| i128::from(at) < bound) {
            place += 1;
        }
        self.cursors[cursor] = place;
        self.sum_since_place(place)
    }

    /// The largest weighted count at `at` over all edges in `(at - window, at]`.
    ///
    /// Between the times at which an event leaves one of the two sums, the weight of the older sum grows with the edge.
    /// So the count is largest at such a time: at an event, one window after an event, or at `at` itself.
    fn largest_counter(&mut self, at: i128, cost: u64, window: i128) -> u64 {
        self.sum_from(0, at - 2 * window);
        self.sum_from(1, at - window + 1);
        let [oldest, young] = self.cursors;
        let recent = &self.events[oldest..];
        let sum_from = |bound: i128| {
            self.sum_since_place(oldest + recent.partition_point(|&(arrived, _)| i128::from(arrived) < bound))
        };
        let count = |edge: i128| {
            let since_edge = sum_from(edge);
            weighted(cost + since_edge, sum_from(edge - window) - since_edge, at - edge, window)
        };
        let own = self.events[young..].iter().map(|&(arrived, _)| i128::from(arrived));
        let after = self.events[oldest..young].iter().map(|&(arrived, _)| i128::from(arrived) + window);
        own.chain(after).filter(|&edge| edge > at - window).map(count).fold(count(at), u64::max)
    }
}

/// `since + before x (1 - passed / window)`, rounded up.
fn weighted(since: u64, before: u64, passed: i128, window: i128) -> u64 {
    let older = i128::from(before) * (window - passed);
    since + whole(older.unsigned_abs().div_ceil(window.unsigned_abs()))
}

fn whole(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A bucket as a bound on every part of the log: from event i to event j,
/// `(units before and with j) - (units before i) - refilled(j) + refilled(i) <= capacity`. For each j the critical i is
/// the one with the least `units before i - refilled(i)`, whose running minimum is kept.
pub(super) struct Bucket {
    rate: i128,
    per: i128,
    lumps: Option<(u64, u64)>,
    units: i128,
    least: Option<i128>,
}

impl Bucket {
    fn new(rate: u32, per: u64, lumps: Option<(u64, u64)>) -> Bucket {
        Bucket { rate: i128::from(rate.max(1)), per: i128::from(per.max(1)), lumps, units: 0, least: None }
    }

    /// The units that were refilled by `at` if no refill ever overflowed, times `per`.
    fn refilled(&self, at: u64) -> i128 {
        let time = match self.lumps {
            None => i128::from(at),
            Some((interval, phase)) => {
                let lumps = (i128::from(at) - i128::from(phase)).div_euclid(i128::from(interval)) + 1;
                lumps.max(0) * i128::from(interval)
            }
        };
        time * self.rate
    }

    fn before(&self, event: &Event) -> i128 {
        self.units * self.per - self.refilled(event.at_ns)
    }

    fn with(&self, event: &Event) -> u64 {
        let before = self.before(event);
        let taken = before + i128::from(event.cost) * self.per - self.least.map_or(before, |least| least.min(before));
        whole(taken.unsigned_abs().div_ceil(self.per.unsigned_abs()))
    }

    fn keep(&mut self, event: &Event) {
        let before = self.before(event);
        self.least = Some(self.least.map_or(before, |least| least.min(before)));
        self.units += i128::from(event.cost);
    }
}
