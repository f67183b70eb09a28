//! The rate after a pause: it grows from a tenth to the whole, so that a vendor that has just recovered meets no burst.

use crate::time::Time;

/// The share of the full rate with which it begins.
const FIRST_SHARE: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
pub(super) struct Ramp {
    since: Time,
    over_ns: u64,
}

impl Ramp {
    /// The rate grows from `since` on, over so many nanoseconds.
    pub(super) fn new(since: Time, over_ns: u64) -> Ramp {
        Ramp { since, over_ns }
    }

    /// The full rate is reached.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.since.plus_nanos(self.over_ns) <= now
    }

    /// Nanoseconds from `now` until the growing rate has yielded one unit, where the full rate yields one in `unit_ns`.
    /// The rate of this moment alone would hold up the second request of a long window until the growth is over.
    pub(super) fn spacing(&self, now: Time, unit_ns: u64) -> u64 {
        let passed = now.since(self.since).as_nanos() as f64;
        let (unit, over) = (unit_ns as f64, self.over_ns as f64);
        let left = over - passed;
        if left <= 0.0 {
            return unit_ns;
        }
        let growth = (1.0 - FIRST_SHARE) / over;
        let share = FIRST_SHARE + growth * passed;
        // Units until the growth is over.
        let yields = (share * left + growth * left * left / 2.0) / unit;
        let spacing = match yields < 1.0 {
            true => left + (1.0 - yields) * unit,
            false => ((share * share + 2.0 * growth * unit).sqrt() - share) / growth,
        };
        spacing as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Grants from the start of the growth on until a moment, each after the spacing of the one before.
    fn grants(ramp: &Ramp, unit_ns: u64, until: u64) -> u32 {
        let (mut at, mut grants) = (0, 0);
        while at < until {
            grants += 1;
            at += ramp.spacing(Time::ZERO.plus_nanos(at), unit_ns);
        }
        grants
    }

    #[test]
    fn ramp_yields_the_units_of_its_growing_rate() {
        let ramp = Ramp::new(Time::ZERO, 10 * SECOND);
        // The mean of a tenth and the whole is 0.55: 550 units in ten seconds at 100 a second, and one at the start.
        assert_eq!(grants(&ramp, SECOND / 100, 10 * SECOND), 551);
        assert_eq!(grants(&ramp, SECOND, 10 * SECOND), 6);
    }

    #[test]
    fn ramp_begins_at_a_tenth_and_ends_at_the_whole() {
        let ramp = Ramp::new(Time::ZERO, 1_000 * SECOND);
        let unit = SECOND / 1_000;
        assert!((9 * unit..11 * unit).contains(&ramp.spacing(Time::ZERO, unit)));
        assert_eq!(ramp.spacing(Time::ZERO.plus_nanos(1_000 * SECOND), unit), unit);
    }
}
