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
mod tests;
