//! Refusals that pause one endpoint only, because the vendor says so.

use super::pause::Pause;
use super::{MAX_ENDPOINTS, Refused, Throttle};
use crate::time::Time;

impl Throttle {
    /// Pauses this endpoint for `wait` nanoseconds, because the vendor refused a request for the endpoint's own limit;
    /// other endpoints do not wait. Returns `false`, and changes nothing, if the request probed the lane or the
    /// endpoint, or if too many endpoints are paused: the caller then treats the refusal like any other.
    pub(crate) fn endpoint_refused(&mut self, now: Time, refused: &Refused, wait: u64) -> bool {
        let probes = |pause: Pause| pause.is_probed_by(refused.permit, refused.granted);
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
