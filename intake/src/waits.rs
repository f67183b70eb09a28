//! The waits between attempts to reach a broker.

use std::time::Duration;

/// The timeout of a connection attempt, and of most requests to a broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);

/// A backoff that doubles from 100 ms to 10 s.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    failures: u32,
}

impl Waits {
    /// The wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound() {
        let mut waits = Waits::default();
        let first: Vec<u128> = (0..4).map(|_| waits.next().as_millis()).collect();
        assert_eq!(first, [100, 200, 400, 800]);
        assert!((0..100).all(|_| waits.next() <= LONGEST));
        assert_eq!(waits.next(), LONGEST);
    }
}
