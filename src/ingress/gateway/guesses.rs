//! Slows down guessing of tokens: after many wrong tokens, an address waits for each further response.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Time;

/// Wrong tokens from one address, within a second, whose responses are not delayed.
const FREE: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);
/// The most addresses that are counted separately. While that many have sent wrong tokens within the last second,
/// wrong tokens from any other address are delayed at once.
const MOST: usize = 10_000;

/// Counts wrong tokens by address.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    seen: HashMap<Option<IpAddr>, (Time, u32)>,
}

impl Guesses {
    /// Counts a wrong token. Returns how long to delay its response. Peers without a known address count as one: those
    /// of a Unix socket, and all of a gateway that is nested into another server.
    pub(crate) fn wrong(&mut self, now: Time, from: Option<IpAddr>) -> Duration {
        if self.seen.len() >= MOST && !self.seen.contains_key(&from) {
            self.seen.retain(|_, (since, _)| now.since(*since) < SECOND);
            if self.seen.len() >= MOST {
                return SECOND;
            }
        }
        let (since, count) = self.seen.entry(from).or_insert((now, 0));
        if now.since(*since) >= SECOND {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        if *count > FREE { SECOND } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(n).into())
    }

    #[test]
    fn eleventh_within_a_second_waits() {
        let (mut guesses, t0) = (Guesses::default(), Time::ZERO);
        for _ in 0..FREE {
            assert_eq!(guesses.wrong(t0, address(1)), Duration::ZERO);
        }
        assert_eq!(guesses.wrong(t0, address(1)), SECOND);
        assert_eq!(guesses.wrong(t0, address(2)), Duration::ZERO, "another address");
        assert_eq!(guesses.wrong(t0 + SECOND, address(1)), Duration::ZERO, "a second later");
        assert!((0..FREE).all(|_| guesses.wrong(t0, None) == Duration::ZERO));
        assert_eq!(guesses.wrong(t0, None), SECOND, "peers without an address");
    }

    #[test]
    fn addresses_without_end_take_bounded_room() {
        let mut guesses = Guesses::default();
        for n in 0..2 * MOST as u32 {
            guesses.wrong(Time::ZERO, address(n));
        }
        assert_eq!(guesses.seen.len(), MOST);
        assert_eq!(guesses.wrong(Time::ZERO, address(99_999)), SECOND);
        assert_eq!(guesses.wrong(Time::ZERO + SECOND, address(99_999)), Duration::ZERO);
        assert_eq!(guesses.seen.len(), 1);
    }
}
