//! The units that were granted in the last window, as a vendor counts them that gives each back a window after it was taken.
//! The mirror of a limit whose algorithm is unknown counts the most that any vendor may count, and so more than this.

use crate::time::Time;

/// Parts of a window.
const PARTS: u64 = 16;
const SLOTS: usize = PARTS as usize + 1;

#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The number of the newest part, since the clock's start.
    newest: u64,
    units: [u32; SLOTS],
}

impl Recent {
    pub(super) fn granted(&mut self, now: Time, units: u32, window_ns: u64) {
        self.advance(now, window_ns);
        let slot = &mut self.units[(self.newest % SLOTS as u64) as usize];
        *slot = slot.saturating_add(units);
    }

    /// The units of the window up to `now`. Those of the part in which it began count by the share of it that is inside.
    pub(super) fn units(&mut self, now: Time, window_ns: u64) -> u32 {
        self.advance(now, window_ns);
        let part = part(window_ns);
        let outside = (now.as_nanos() % part) as f64 / part as f64;
        // No part began before the clock did.
        let oldest = self.newest.checked_sub(PARTS).map_or(0, |oldest| self.units[(oldest % SLOTS as u64) as usize]);
        let beginning = f64::from(oldest) * outside;
        let all = self.units.iter().fold(0_u32, |sum, units| sum.saturating_add(*units));
        all.saturating_sub(beginning as u32)
    }

    /// Clears the parts that a window older than `now` has left behind.
    fn advance(&mut self, now: Time, window_ns: u64) {
        let newest = now.as_nanos() / part(window_ns);
        for number in (self.newest + 1..=newest).rev().take(SLOTS) {
            self.units[(number % SLOTS as u64) as usize] = 0;
        }
        self.newest = self.newest.max(newest);
    }
}

fn part(window_ns: u64) -> u64 {
    (window_ns / PARTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn units_leave_a_window_after_they_were_granted() {
        let mut recent = Recent::default();
        for ms in 0..1_000 {
            recent.granted(Time::from_nanos(ms * 1_000_000), 1, SECOND);
        }
        assert_eq!(recent.units(Time::from_nanos(SECOND - 1), SECOND), 1_000);
        let half = recent.units(Time::from_nanos(3 * SECOND / 2), SECOND);
        assert!((498..=502).contains(&half), "{half}");
        assert_eq!(recent.units(Time::from_nanos(3 * SECOND), SECOND), 0);
    }

    #[test]
    fn long_silence_leaves_nothing() {
        let mut recent = Recent::default();
        recent.granted(Time::from_nanos(SECOND), 7, SECOND);
        recent.granted(Time::from_nanos(100 * SECOND), 3, SECOND);
        assert_eq!(recent.units(Time::from_nanos(100 * SECOND), SECOND), 3);
    }
}
