//! The wait of postponed messages: the more there are, the longer it is, so that their deliveries never keep the broker and
//! this process busy. All wait for the same time, so that none is at a disadvantage. Pure.

use std::time::{Duration, Instant};

/// Messages that are postponed for the shortest wait: each is delivered once in that time.
const AT_ONCE: usize = 4096;
/// The longest wait as a multiple of the shortest. With more messages than that allows, they are delivered more often.
const LONGEST: u32 = 16;

/// The most messages that the server allows to be unacknowledged, postponed ones included: as many as one wait spreads.
#[cfg(feature = "nats")]
pub(crate) const MAX_UNACKNOWLEDGED: i64 = AT_ONCE as i64 * LONGEST as i64;

/// Counts the messages that were postponed during one wait. Each postponed message is among them once.
pub(crate) struct Spread {
    since: Instant,
    count: usize,
    /// The wait as a multiple of the shortest.
    factor: u32,
}

impl Spread {
    pub(crate) fn new(now: Instant) -> Spread {
        Spread { since: now, count: 0, factor: 1 }
    }

    /// The wait of `messages` that are postponed now.
    pub(crate) fn wait(&mut self, messages: usize, shortest: Duration, now: Instant) -> Duration {
        let round = shortest.saturating_mul(self.factor);
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= round {
            // A count of long ago says nothing about now.
            let count = if elapsed < 2 * round { self.count } else { 0 };
            let factor = u32::try_from(count.div_ceil(AT_ONCE)).unwrap_or(LONGEST).clamp(1, LONGEST);
            *self = Spread { since: now, count: 0, factor };
        }
        self.count = self.count.saturating_add(messages);
        shortest.saturating_mul(self.factor)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do")]
mod tests {
    use super::*;

    const SHORTEST: Duration = Duration::from_secs(5);

    /// The wait in seconds after some rounds in which each of this many messages is postponed once.
    fn wait_of(messages: usize) -> u64 {
        let mut now = Instant::now();
        let mut spread = Spread::new(now);
        let mut wait = SHORTEST;
        for _ in 0..10 {
            wait = spread.wait(messages, SHORTEST, now);
            now += wait;
        }
        wait.as_secs()
    }

    #[test]
    fn wait_grows_with_the_number() {
        assert_eq!((wait_of(1), wait_of(4096), wait_of(4097), wait_of(40_000)), (5, 5, 10, 50));
        assert_eq!((wait_of(65_536), wait_of(1_000_000)), (80, 80));
    }

    #[test]
    fn wait_is_short_after_a_pause() {
        let mut now = Instant::now();
        let mut spread = Spread::new(now);
        for _ in 0..10 {
            now += spread.wait(40_000, SHORTEST, now);
        }
        now += Duration::from_secs(3_600);
        assert_eq!(spread.wait(1, SHORTEST, now), SHORTEST);
    }
}
