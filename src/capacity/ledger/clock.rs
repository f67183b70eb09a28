//! The time of a ledger. It follows the store's clock, but a step of that clock must not free units too early: over any
//! span, the ledger's time runs ahead of true time by at most `slack`.

use serde::{Deserialize, Serialize};

/// How much of a gap between two calls counts without a witness (a caller's own clock), and how much of a clock step
/// counts at most.
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

    /// Advances to a call at `clock_us` and returns the ledger's time.
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
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn slack_is_a_tenth_within_bounds() {
        assert_eq!([slack(0), slack(5 * S), slack(60 * S)], [100_000, 500_000, S]);
    }

    /// 200 millionths of six hours.
    #[test]
    fn slack_grows_with_long_spans() {
        let hours = 21_600 * S;
        assert_eq!([slack(5_000 * S), slack(hours)], [S, 4_320_000]);
        assert_eq!([lease_slack(hours), slack_after_lease(hours)], [S, 3_320_000]);
        assert_eq!([lease_slack(5 * S), slack_after_lease(5 * S)], [500_000, 0]);
    }

    #[test]
    fn short_gap_counts_in_full() {
        let mut clock = Clock::new(50 * S);
        assert_eq!(clock.advance(50 * S + 90_000, None), 50 * S + 90_000);
    }

    #[test]
    fn long_gap_needs_a_witness() {
        let (mut alone, mut seen) = (Clock::new(0), Clock::new(0));
        assert_eq!(alone.advance(3 * S, None), 100_000);
        assert_eq!(seen.advance(3 * S, Some(3 * S - 50_000)), 3 * S);
    }

    #[test]
    fn step_is_bounded_by_a_witness() {
        let mut clock = Clock::new(0);
        assert_eq!(clock.advance(11 * S, Some(S)), S + 100_000);
    }

    #[test]
    fn very_long_gap_counts_less_ten_seconds() {
        let mut clock = Clock::new(0);
        assert_eq!(clock.advance(100 * S, None), 90 * S);
    }

    #[test]
    fn step_back_does_not_stop_the_clock() {
        let mut clock = Clock::new(20 * S);
        assert_eq!(clock.advance(10 * S, None), 20 * S);
        assert_eq!(clock.advance(10 * S + 50_000, None), 20 * S + 50_000);
    }

    /// Callers at random times, some with a witness, and one step of up to 10 s either way.
    #[test]
    fn span_exceeds_truth_by_one_step_allowance() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let (count, mean) = (random.usize(1..6), random.u64(5_000..2 * S));
            let (step, at) = (random.i64(-10 * S as i64..10 * S as i64), random.u64(0..60 * S));
            let mut clock = Clock::new(100 * S);
            let mut seen: Vec<Option<(u64, u64)>> = vec![None; count];
            let mut calls = vec![];
            let mut now = 0;
            while now < 60 * S {
                now += random.u64(1..2 * mean);
                let shift = if now >= at { step } else { 0 };
                let store = (100 * S + now) as i64 + shift;
                let who = random.usize(0..count);
                let expected = seen[who].map(|(store, then)| store + now - then);
                let time = clock.advance(store as u64, expected.filter(|_| random.u8(0..5) > 0));
                seen[who] = Some((store as u64, now));
                calls.push((now, time));
            }
            for (first, (now, time)) in calls.iter().enumerate() {
                for (later, reached) in calls.iter().skip(first + 1) {
                    assert!(reached - time <= later - now + STEP_US);
                }
            }
        }
    }

    #[test]
    fn small_falls_do_not_add_up() {
        let mut clock = Clock::new(S);
        for _ in 0..100 {
            clock.advance(S - 10_000, None);
            clock.advance(S, None);
        }
        assert_eq!(clock.now(), S);
    }
}
