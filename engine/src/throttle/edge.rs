//! Estimates where a vendor's windows begin, as an interval that stated resets and observed resets make narrower.

use crate::time::Time;

const SECOND: u64 = 1_000_000_000;
/// The error of a reset that is not stated in whole seconds, in nanoseconds.
const FINE: u64 = 5_000_000;
/// The resolution of a vendor's clock, in nanoseconds.
const TICK: u64 = 1_000_000;
/// The vendor's clock and ours drift apart by at most one part in this number.
const DRIFT: u64 = 10_000;
/// Number of windows after which the estimate is too old to use.
const LASTS: u64 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edge {
    /// A window begins between these moments.
    between: Option<(u64, u64)>,
}

impl Edge {
    /// A response at `now` to a request granted at `granted` says that the window ends in `reset` nanoseconds. Vendors
    /// may round seconds up or down.
    pub(super) fn stated(&mut self, granted: Time, now: Time, reset: u64, window: u64) {
        let error = if reset.is_multiple_of(SECOND) { SECOND + FINE } else { FINE };
        let error = error.saturating_add(reset / DRIFT);
        self.narrow(granted.plus_nanos(reset).minus_nanos(error), now.plus_nanos(reset.saturating_add(error)), window);
    }

    /// A window begins between `from` and `to`.
    pub(super) fn narrow(&mut self, from: Time, to: Time, window: u64) {
        // The vendor's clock may advance only once a millisecond.
        let (from, to) = (from.as_nanos(), to.as_nanos().saturating_add(TICK));
        if window == 0 || to.saturating_sub(from) >= window {
            return;
        }
        let known = self.near(to, window).filter(|(first, last)| *first <= to && from <= *last);
        // An interval that contradicts the present one is newer and replaces it.
        self.between = Some(known.map_or((from, to), |(first, last)| (first.max(from), last.min(to))));
    }

    /// The interval whose end is nearest to `at`: the present one, shifted by a whole number of windows.
    fn near(&self, at: u64, window: u64) -> Option<(u64, u64)> {
        let (from, to) = self.between?;
        let windows = (at.abs_diff(to) + window / 2) / window;
        if windows > LASTS {
            return None;
        }
        let (by, slack) = (windows * window, windows * window / DRIFT);
        let shifted = |moment: u64| if at > to { moment.saturating_add(by) } else { moment.saturating_sub(by) };
        Some((shifted(from).saturating_sub(slack), shifted(to).saturating_add(slack)))
    }

    /// The earliest moment after `now` at which the next window has certainly begun.
    pub(super) fn next(&self, now: Time, window: u64) -> Option<Time> {
        let now = now.as_nanos();
        let (_, to) = self.near(now, window)?;
        let next = if to > now { to } else { to.saturating_add(window) };
        Some(Time::from_nanos(next))
    }
}
