//! When the vendor's windows may have begun, and what the vendor counts if they began then.

/// The relative error of a floating-point result.
pub(super) const INEXACT: f64 = 1e-8;
/// The vendor's windows begin between `from` and `to`, and whole windows after that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// A moment at which the vendor's window may have begun, the units that ended since, and those that ended in the window
/// before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    pub(super) at: u64,
    pub(super) since: u64,
    pub(super) before: u64,
}

impl Beginning {
    /// The units that the vendor counts at `t`, if its window began here.
    pub(super) fn held(&self, window: u64, t: u64) -> f64 {
        let left = window.saturating_sub(t.saturating_sub(self.at)) as f64 / window as f64;
        self.since as f64 + self.before as f64 * (left * (1.0 + INEXACT)).min(1.0)
    }

    /// From when on the vendor counts at most `most` units, if its window began here.
    pub(super) fn falls_to(&self, window: u64, most: f64) -> u64 {
        self.falls_to_of(window, most, self.before as f64)
    }

    pub(super) fn falls_to_of(&self, window: u64, most: f64, before: f64) -> u64 {
        let since = self.since as f64;
        if since + before <= most {
            return 0;
        }
        let gone = self.at.saturating_add(window);
        // Float to integer casts saturate: if `since` exceeds `most`, or `before` is 0, the result is the window's end.
        let share = 1.0 - (most - since) / (before * (1.0 + INEXACT));
        let after = (window as f64 * share).ceil() as u64;
        self.at.saturating_add(after).saturating_add(1 + (window >> 44)).min(gone)
    }
}

/// The units that the vendor may count if its window began at `at`, as a function of time: those that ended since, and
/// a share of `before` that falls to zero with the window's end. `earlier` and `before` change only when another
/// process's requests are replayed, or when the vendor states late that a request cost less, so that the most that the
/// vendor may count is worked out by one pass over a row of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) at: f64,
    /// Units of all requests that ended before `at`.
    pub(super) earlier: f64,
    pub(super) before: f64,
}

/// The last moment at or before `now` by which a window has certainly begun.
pub(super) fn latest(phase: &Phase, window: u64, now: u64) -> u64 {
    let to = phase.to;
    match now.checked_sub(to) {
        Some(since) => to + since / window * window,
        None => to.saturating_sub((to - now).div_ceil(window).saturating_mul(window)),
    }
}
