//! The waits between attempts to reach a broker.

use std::time::Duration;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
use std::time::Instant;
#[cfg(any(feature = "kafka", feature = "nats"))]
use std::time::SystemTime;

/// The timeout of a connection attempt, and of most requests to a broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// A connection that lasted longer than this was not broken by what a new connection meets again at once.
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
const LASTING: Duration = Duration::from_secs(30);

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

    /// The wait after the failure of a connection that lasted for the time `lasted`. The waits start again after a
    /// connection that lasted long. Received messages are no sign of a good connection: a message that breaks each
    /// connection is delivered by each of them.
    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    pub(crate) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted > LASTING {
            self.failures = 0;
        }
        self.next()
    }
}

/// The time at which a connection is opened, or a message begins to wait.
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq"))]
#[expect(clippy::disallowed_methods, reason = "only waits of a source depend on it, and no limit of a vendor")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The time by this machine's wall clock, to which the age of messages is counted.
#[cfg(any(feature = "kafka", feature = "nats"))]
#[expect(clippy::disallowed_methods, reason = "brokers state times by wall clocks")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
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

    #[cfg(any(feature = "nats", feature = "rabbitmq"))]
    #[test]
    fn waits_start_again_after_a_connection_that_lasted() {
        let mut waits = Waits::default();
        let short: Vec<u128> = (0..3).map(|_| waits.after(Duration::from_secs(1)).as_millis()).collect();
        assert_eq!(short, [100, 200, 400]);
        assert_eq!(waits.after(2 * LASTING).as_millis(), 100);
        assert_eq!(waits.after(Duration::ZERO).as_millis(), 200);
    }
}
