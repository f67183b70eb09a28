//! The time of a ledger. It follows the store's clock, but a step of that clock must not free units too early: over any
//! span, the ledger's time runs ahead of true time by at most `slack`.

use serde::{Deserialize, Serialize};

/// How much of a gap between two calls counts without a witness (a caller's own clock), and how much of a clock step
/// counts at most. The clock of a caller that has called before is a witness of all but one round trip to the store.
const STEP_US: u64 = 100_000;
/// A gap without a witness counts in full less this time, so that a lone newcomer does not wait for ever.
const UNSEEN_US: u64 = 10_000_000;

/// The most that is added to a span of some minutes, and to a lease.
const SHORT_US: u64 = 1_000_000;
/// Over a longer span, two clocks may run apart by one part in this number: 200 millionths.
const RATES: u64 = 5_000;

/// Added to a span of `span_us` that the store measures on a process's behalf, because their clocks differ.
pub(crate) fn slack(span_us: u64) -> u64 {
    (span_us / 10).clamp(100_000, SHORT_US.max(span_us / RATES))
}

/// Added to a lease. `span_us` is the lease and the time for which its last request may occupy a unit afterwards. The
/// slack of a long window is left out: for that time, a process that is gone would count among those that want units.
pub(crate) fn lease_slack(span_us: u64) -> u64 {
    slack(span_us).min(SHORT_US)
}

/// The part of the slack of `span_us` that [`lease_slack`] leaves out.
pub(crate) fn slack_after_lease(span_us: u64) -> u64 {
    slack(span_us).saturating_sub(SHORT_US)
}

/// The ledger's time.
///
/// It is right under this assumption: within lease + transit + window, the store's clock makes at most one step,
/// forward by at most 10 s while no process calls, and gains at most `slack` of the span by slewing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Clock(u64, u64);

impl Clock {
    pub(crate) fn new(clock_us: u64) -> Clock {
        Clock(clock_us, clock_us)
    }

    /// The ledger's time at the last call.
    pub(crate) fn now(&self) -> u64 {
        self.0
    }

    /// Advances to a call at `clock_us` and returns the ledger's time. `expected_us` is what the store's clock should have
    /// shown at least, by the caller's own clock.
    pub(crate) fn advance(&mut self, clock_us: u64, expected_us: Option<u64>) -> u64 {
        let Some(gap) = clock_us.checked_sub(self.1) else {
            self.fall(clock_us);
            return self.0;
        };
        self.1 = clock_us;
        self.0 = self.0.saturating_add(counted(gap, clock_us, expected_us));
        self.0
    }

    /// If the store's clock has gone back only a little, the old mark stays: otherwise the way back up to it would
    /// count twice.
    fn fall(&mut self, clock_us: u64) {
        if self.1.saturating_sub(clock_us) > STEP_US {
            self.1 = clock_us;
        }
    }
}

/// The part of a gap that has certainly passed, plus at most one step's allowance.
fn counted(gap: u64, clock_us: u64, expected_us: Option<u64>) -> u64 {
    let alone = gap.min(STEP_US).max(gap.saturating_sub(UNSEEN_US));
    let Some(expected) = expected_us else {
        return alone;
    };
    let excess = clock_us.saturating_sub(expected).saturating_sub(STEP_US);
    alone.max(gap.saturating_sub(excess))
}

#[cfg(test)]
mod tests;
