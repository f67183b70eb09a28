//! Counts the units granted in the last window, as a vendor does that gives each unit back one window after it was
//! taken. The guard of a limit whose algorithm is unknown counts the most that any vendor may count, and so more than
//! this.

use crate::time::Time;

/// Number of parts that a window is divided into.
const PARTS: u64 = 16;
const SLOTS: usize = PARTS as usize + 1;

#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    /// The number of the newest part, counted from the clock's start.
    newest: u64,
    units: [u32; SLOTS],
    /// When the first grant was counted.
    since: Option<Time>,
}

impl Recent {
    pub(super) fn granted(&mut self, now: Time, units: u32, window_ns: u64) {
        self.advance(now, window_ns);
        self.since.get_or_insert(now);
        let slot = &mut self.units[(self.newest % SLOTS as u64) as usize];
        *slot = slot.saturating_add(units);
    }

    /// Units granted in the window up to `now`; `None` if counting began later than the window. The oldest part counts by the
    /// share of it that lies inside the window.
    pub(super) fn units(&mut self, now: Time, window_ns: u64) -> Option<u32> {
        self.since.filter(|since| now.since(*since).as_nanos() >= u128::from(window_ns))?;
        self.advance(now, window_ns);
        let part = part(window_ns);
        let outside = (now.as_nanos() % part) as f64 / part as f64;
        // The clock's first window has no oldest part.
        let oldest = self.newest.checked_sub(PARTS).map_or(0, |oldest| self.units[(oldest % SLOTS as u64) as usize]);
        let beginning = f64::from(oldest) * outside;
        let all = self.units.iter().fold(0_u32, |sum, units| sum.saturating_add(*units));
        Some(all.saturating_sub(beginning as u32))
    }

    /// Clears the parts that are older than a window at `now`.
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
    fn units_leave_one_window_after_grant() {
        let mut recent = Recent::default();
        for ms in 0..1_000 {
            recent.granted(Time::from_nanos(ms * 1_000_000), 1, SECOND);
        }
        assert_eq!(recent.units(Time::from_nanos(SECOND - 1), SECOND), None, "earlier grants are unknown");
        let half = recent.units(Time::from_nanos(3 * SECOND / 2), SECOND).unwrap();
        assert!((498..=502).contains(&half), "{half}");
        assert_eq!(recent.units(Time::from_nanos(3 * SECOND), SECOND), Some(0));
    }

    #[test]
    fn long_silence_leaves_nothing() {
        let mut recent = Recent::default();
        recent.granted(Time::from_nanos(SECOND), 7, SECOND);
        recent.granted(Time::from_nanos(100 * SECOND), 3, SECOND);
        assert_eq!(recent.units(Time::from_nanos(100 * SECOND), SECOND), Some(3));
    }
}
