//! How many items go into the next transaction, if transactions did not end in time. Pure.
//!
//! A transaction has a limit of time, and the round trip to the database is not known in advance. A transaction that is
//! too large for it fails however often it is tried, and delays all other writes each time. So after each failure of the
//! store half as many items are tried.

use std::time::Duration;

/// Twice as many items as in a write that took this long might not end in time.
const LONG: Duration = Duration::from_millis(1_500);

/// The most items of the next transaction. There is no bound before the first failure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bound(Option<usize>);

impl Bound {
    /// The most items of the next transaction; one at least.
    pub(super) fn most(self) -> usize {
        self.0.unwrap_or(usize::MAX)
    }

    /// The store failed at a transaction with this many items.
    pub(super) fn failed(&mut self, items: usize) {
        self.0 = Some((items / 2).max(1));
    }

    /// A transaction with this many items was written in the time `took`. One with fewer items than the bound says nothing
    /// about a larger one.
    pub(super) fn written(&mut self, items: usize, took: Duration) {
        self.0 = self.0.map(|most| if items >= most && took < LONG { most.saturating_mul(2) } else { most });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes with a bound while a transaction of more than `fit` items does not end in time. Returns the failures.
    fn failures(bound: &mut Bound, fit: usize, writes: u32) -> u32 {
        let mut failures = 0;
        for _ in 0..writes {
            let items = bound.most().min(1_024);
            match items > fit {
                true => {
                    bound.failed(items);
                    failures += 1;
                }
                false => bound.written(items, Duration::from_secs(6) * items as u32 / fit as u32),
            }
        }
        failures
    }

    #[test]
    fn bound_finds_what_fits_and_stays() {
        for fit in [1, 3, 50, 700] {
            let mut bound = Bound::default();
            let first = failures(&mut bound, fit, 20);
            assert!((1..=10).contains(&first) && bound.most() <= fit, "{fit}: {first} failures, {bound:?}");
            assert_eq!(
                failures(&mut bound, fit, 1_000),
                0,
                "{fit}: a write that is known to be too large is not tried again"
            );
        }
    }

    #[test]
    fn bound_grows_after_quick_writes() {
        let mut bound = Bound::default();
        (0..20).for_each(|_| bound.failed(bound.most().min(1_024)));
        assert_eq!(bound.most(), 1);
        bound.written(1, LONG);
        assert_eq!(bound.most(), 1, "a slow write");
        for _ in 0..10 {
            bound.written(bound.most(), Duration::from_millis(5));
        }
        assert_eq!(bound.most(), 1_024);
        bound.written(1_023, Duration::ZERO);
        assert_eq!(bound.most(), 1_024, "it was not reached");
    }
}
