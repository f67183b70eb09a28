//! Refusals that one endpoint alone has to wait for, because the vendor says so.

use super::pause::Pause;
use super::{MAX_ENDPOINTS, Refused, Throttle};
use crate::time::Time;

impl Throttle {
    /// The vendor refused for a limit of this endpoint's own, and asks to wait `wait` nanoseconds: nothing else waits for it.
    /// Returns whether that is so: not where the request was to find out about the lane, or about the endpoint. Then it is a
    /// refusal like any other.
    pub(crate) fn endpoint_refused(&mut self, now: Time, refused: &Refused, wait: u64) -> bool {
        let probes = |pause: Pause| pause == Pause::Probing(refused.permit);
        if probes(self.pause) || self.endpoints.len() >= MAX_ENDPOINTS {
            return false;
        }
        let until = now.plus_nanos(wait);
        match self.endpoint_mut(refused.endpoint) {
            Some((_, pause, _)) if probes(*pause) => return false,
            Some((_, pause, _)) => *pause = Pause::Until(pause.until().max(until)),
            None => self.endpoints.push((refused.endpoint, Pause::Until(until), 1)),
        }
        true
    }
}
