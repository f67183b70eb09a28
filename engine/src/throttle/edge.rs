//! Where a vendor's windows begin: an interval that what the vendor states and what is seen make narrower.

use crate::time::Time;

const SECOND: u64 = 1_000_000_000;
/// What a reset that is not stated in whole seconds may be off, in nanoseconds.
const FINE: u64 = 5_000_000;
/// How long a vendor's clock may stand still, in nanoseconds.
const TICK: u64 = 1_000_000;
/// Clocks drift apart by one in so many.
const DRIFT: u64 = 10_000;
/// Windows after which it is not known any more.
const LASTS: u64 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edge {
    /// A window begins between these moments.
    between: Option<(u64, u64)>,
}

impl Edge {
    /// An answer to what was granted at `granted` says at `now` that the window ends in `reset` nanoseconds. Vendors round seconds
    /// up or down.
    pub(super) fn stated(&mut self, granted: Time, now: Time, reset: u64, window: u64) {
        let error = if reset.is_multiple_of(SECOND) { SECOND + FINE } else { FINE };
        let error = error.saturating_add(reset / DRIFT);
        self.lies(granted.plus_nanos(reset).minus_nanos(error), now.plus_nanos(reset.saturating_add(error)), window);
    }

    /// A window begins between these moments.
    pub(super) fn lies(&mut self, from: Time, to: Time, window: u64) {
        // Its clock may tick once in a millisecond.
        let (from, to) = (from.as_nanos(), to.as_nanos().saturating_add(TICK));
        if window == 0 || to.saturating_sub(from) >= window {
            return;
        }
        let known = self.near(to, window).filter(|(first, last)| *first <= to && from <= *last);
        // What contradicts what is known is newer.
        self.between = Some(known.map_or((from, to), |(first, last)| (first.max(from), last.min(to))));
    }

    /// The interval whose end is nearest to `at`, a number of windows from the one that is known.
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

    /// When the next window has begun for certain.
    pub(super) fn next(&self, now: Time, window: u64) -> Option<Time> {
        let now = now.as_nanos();
        let (_, to) = self.near(now, window)?;
        let next = if to > now { to } else { to.saturating_add(window) };
        Some(Time::from_nanos(next))
    }
}
