//! Limits that count in windows.

use std::collections::VecDeque;

use super::reading::{Phase, Reading};

/// The number of the window that holds `at`, for windows of `window` that begin at `phase` (below `window`).
fn number(at: u64, window: u64, phase: u64) -> u64 {
    // Window 0 is the time before the first `phase`, so that no number is negative.
    if at < phase { 0 } else { 1 + (at - phase) / window }
}

/// The end of window `number`.
fn end(number: u64, window: u64, phase: u64) -> u64 {
    number.saturating_mul(window).saturating_add(phase)
}

#[derive(Clone, Debug)]
pub(super) struct Fixed {
    limit: u32,
    window: u64,
    phase: Phase,
    /// The end of the current window, which is no longer part of it.
    end: u64,
    used: u64,
}

impl Fixed {
    pub(super) fn new(limit: u32, window: u64, phase: Phase) -> Fixed {
        let phase = match phase {
            Phase::At(at) => Phase::At(at % window),
            first => first,
        };
        Fixed { limit, window, phase, end: 0, used: 0 }
    }

    fn roll(&mut self, at: u64) {
        if at >= self.end {
            self.used = 0;
            if let Phase::At(phase) = self.phase {
                self.end = end(number(at, self.window, phase), self.window, phase);
            }
        }
    }

    pub(super) fn fits(&mut self, at: u64, cost: u32) -> bool {
        self.roll(at);
        self.used + u64::from(cost) <= u64::from(self.limit)
    }

    pub(super) fn count(&mut self, at: u64, cost: u32) {
        self.roll(at);
        if at >= self.end {
            self.end = at.saturating_add(self.window);
        }
        self.used += u64::from(cost);
    }

    pub(super) fn reading(&mut self, at: u64) -> Reading {
        self.roll(at);
        let remaining = u64::from(self.limit).saturating_sub(self.used) as u32;
        Reading { limit: self.limit, remaining, reset_at_ns: self.end.max(at) }
    }

    pub(super) fn fits_at(&mut self, at: u64, cost: u32) -> Option<u64> {
        if self.fits(at, cost) {
            return Some(at);
        }
        (cost <= self.limit).then_some(self.end)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Log {
    limit: u32,
    /// An entry counts while it is younger than this.
    window: u64,
    entries: VecDeque<(u64, u32)>,
    used: u64,
}

impl Log {
    pub(super) fn new(limit: u32, window: u64) -> Log {
        Log { limit, window, entries: VecDeque::new(), used: 0 }
    }

    fn expire(&mut self, at: u64) {
        while let Some(&(entry, cost)) = self.entries.front() {
            if at - entry < self.window {
                break;
            }
            self.used -= u64::from(cost);
            self.entries.pop_front();
        }
    }

    pub(super) fn fits(&mut self, at: u64, cost: u32) -> bool {
        self.expire(at);
        self.used + u64::from(cost) <= u64::from(self.limit)
    }

    pub(super) fn count(&mut self, at: u64, cost: u32) {
        self.expire(at);
        self.used += u64::from(cost);
        self.entries.push_back((at, cost));
        // If refused requests count, a flood of them must not grow the log without bound. While the younger entries
        // alone fill the limit, the oldest one decides nothing, because it expires before them.
        while let Some(&(_, oldest)) = self.entries.front() {
            if self.used - u64::from(oldest) < u64::from(self.limit) || self.entries.len() == 1 {
                break;
            }
            self.used -= u64::from(oldest);
            self.entries.pop_front();
        }
    }

    pub(super) fn reading(&mut self, at: u64) -> Reading {
        self.expire(at);
        let remaining = u64::from(self.limit).saturating_sub(self.used) as u32;
        let reset_at_ns = self.entries.back().map_or(at, |&(entry, _)| entry.saturating_add(self.window));
        Reading { limit: self.limit, remaining, reset_at_ns }
    }

    pub(super) fn fits_at(&mut self, at: u64, cost: u32) -> Option<u64> {
        if self.fits(at, cost) {
            return Some(at);
        }
        let mut left = self.used;
        let first = self.entries.iter().find(|&&(_, entry_cost)| {
            left -= u64::from(entry_cost);
            left + u64::from(cost) <= u64::from(self.limit)
        });
        first.map(|&(entry, _)| entry.saturating_add(self.window))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Counter {
    limit: u32,
    window: u64,
    phase: u64,
    current: u64,
    used: u64,
    used_before: u64,
}

impl Counter {
    pub(super) fn new(limit: u32, window: u64, phase: u64) -> Counter {
        Counter { limit, window, phase: phase % window, current: 0, used: 0, used_before: 0 }
    }

    fn roll(&mut self, at: u64) {
        let current = number(at, self.window, self.phase);
        if current != self.current {
            self.used_before = if current == self.current + 1 { self.used } else { 0 };
            self.used = 0;
            self.current = current;
        }
    }

    /// The units of the window before that still overlap, times the window's length.
    fn weighted_before(&self, at: u64) -> u128 {
        let to_end = end(self.current, self.window, self.phase).saturating_sub(at);
        u128::from(self.used_before) * u128::from(to_end)
    }

    pub(super) fn fits(&mut self, at: u64, cost: u32) -> bool {
        self.roll(at);
        let window = u128::from(self.window);
        self.weighted_before(at) + u128::from(self.used + u64::from(cost)) * window <= u128::from(self.limit) * window
    }

    pub(super) fn count(&mut self, at: u64, cost: u32) {
        self.roll(at);
        self.used += u64::from(cost);
    }

    pub(super) fn reading(&mut self, at: u64) -> Reading {
        self.roll(at);
        let window = u128::from(self.window);
        let used = (self.weighted_before(at) + u128::from(self.used) * window).div_ceil(window);
        Reading {
            limit: self.limit,
            remaining: u128::from(self.limit).saturating_sub(used) as u32,
            reset_at_ns: end(self.current, self.window, self.phase),
        }
    }

    pub(super) fn fits_at(&mut self, at: u64, cost: u32) -> Option<u64> {
        if self.fits(at, cost) {
            return Some(at);
        }
        let limit = u64::from(self.limit);
        let cost = u64::from(cost);
        let window_end = end(self.current, self.window, self.phase);
        // Before `edge` the `before` units are weighted so that only `room` of them fit: the time left until `edge` may
        // be at most room / before of a window.
        let light_enough = |edge: u64, room: u64, before: u64| {
            let left = u128::from(room) * u128::from(self.window) / u128::from(before.max(1));
            edge.saturating_sub(u64::try_from(left).unwrap_or(u64::MAX))
        };
        if let Some(room) = limit.checked_sub(self.used + cost) {
            return Some(light_enough(window_end, room, self.used_before).max(at));
        }
        let room = limit.checked_sub(cost)?;
        Some(light_enough(window_end.saturating_add(self.window), room, self.used).max(window_end))
    }
}
