//! The pauses that the vendor's responses have set: for a process that comes later, and those of an earlier process.

use super::pause::Pause;
use super::{MAX_ENDPOINTS, Throttle};
use crate::endpoint::EndpointHash;
use crate::pace::Pace;
use crate::time::Time;

impl Throttle {
    /// The pauses in force that the vendor asked for: the endpoint, or `None` for requests to all endpoints, and the end.
    /// Pauses after failures are left out. What is to be bounded for other tenants ends here as it will for them.
    pub(crate) fn stated(&self, now: Time, pace: &Pace) -> Vec<(Option<EndpointHash>, Time)> {
        let refused = if self.failed_at.is_none() { self.pause.until() } else { Time::ZERO };
        let told = self.quota.told.filter(|_| self.announced.empty_until > now);
        let doubted = self.doubted.map_or(Time::MAX, |(until, _)| until);
        let believed = self.to_be_bounded(now).map_or(doubted, |by| doubted.min(by.at.plus_nanos(by.most)));
        let empty = told.map_or(Time::ZERO, |told| told.free(now, 1, pace).min(believed));
        let endpoints = self.endpoints.iter().filter(|(of, ..)| self.failed_at != Some(*of));
        let endpoints = endpoints.map(|(of, pause, _)| (Some(*of), pause.until()));
        endpoints.chain([(None, refused.max(empty))]).filter(|(_, until)| *until > now).collect()
    }

    /// Pauses this endpoint, or all of them, as an earlier process was told to. A probe follows. Returns `false` if a
    /// pause of that length is already in force, or if the pause is over.
    pub(crate) fn restore(&mut self, now: Time, endpoint: Option<EndpointHash>, until: Time) -> bool {
        let is_full = self.endpoints.len() >= MAX_ENDPOINTS;
        let Some(endpoint) = endpoint else { return self.wait_until(now, until, until) };
        if until <= now {
            return false;
        }
        match self.endpoint_mut(endpoint) {
            Some((_, pause, _)) if pause.until() >= until => false,
            Some((_, pause, _)) => {
                *pause = Pause::Until(until);
                true
            }
            None if is_full => self.wait_until(now, until, until),
            None => {
                self.endpoints.push((endpoint, Pause::Until(until), 1));
                true
            }
        }
    }
}
