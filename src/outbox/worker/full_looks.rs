//! When the worker looks at all lanes. Pure.

use std::time::Duration;

use crate::clock::Time;

/// How often the worker looks for jobs that have become due.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// How often the worker looks at all lanes where nothing asks for it.
const FULL: Duration = Duration::from_secs(5);
/// A look that takes long is made less often, so that looks take a tenth of the store's time at most.
pub(super) const APART: u32 = 10;

/// When all lanes are looked at.
#[derive(Default)]
pub(super) struct FullLooks {
    /// When the last look ended, and how long it took.
    ended: Time,
    took: Duration,
    /// Whether one was asked for while another was under way, which may have passed the lanes that are meant.
    is_asked: bool,
}

impl FullLooks {
    /// When the next look may begin that is asked for because many jobs have become due.
    pub(super) fn soonest(&self) -> Time {
        self.ended + LOOK.max(self.took.saturating_mul(APART))
    }

    /// Asks for a look at `at`, or after the one that is under way. `chore`: when the next one is due, and whether one
    /// is under way.
    pub(super) fn ask(&mut self, at: Time, chore: &mut (Time, bool)) {
        match chore {
            (_, true) => self.is_asked = true,
            (due, false) => *due = at.min(*due),
        }
    }

    /// Records the end of a look. Returns how long after it the next one is due.
    pub(super) fn end(&mut self, began: Time, now: Time, is_ok: bool) -> Duration {
        (self.ended, self.took) = (now, now.since(began));
        match (std::mem::take(&mut self.is_asked), is_ok) {
            (true, true) => LOOK.max(self.took.saturating_mul(APART)),
            // It may have been asked for.
            (_, false) => FULL.max(self.took.saturating_mul(APART)),
            (false, true) => FULL.max(self.took.saturating_mul(2 * APART)),
        }
    }
}

#[cfg(test)]
mod tests;
