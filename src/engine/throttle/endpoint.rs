//! Refusals that one endpoint alone has to wait for, because the vendor says so.

use super::pause::Pause;
use super::{MOST_ENDPOINTS, Throttle};
use crate::clock::Time;
use crate::engine::plan::EndpointHash;
use crate::engine::slab::Key;

impl Throttle {
    /// The vendor refused for a limit of this endpoint's own, and says so: nothing else waits for it. `None` where the
    /// request was to find out about the lane, or the endpoint is known already: then it is a refusal like any other.
    pub(crate) fn endpoint_refused(
        &mut self,
        now: Time,
        permit: Key,
        endpoint: EndpointHash,
        wait: u64,
    ) -> Option<Time> {
        let probes = |pause: Pause| pause == Pause::Probing(permit);
        if probes(self.pause) || self.endpoints.len() >= MOST_ENDPOINTS {
            return None;
        }
        let until = now.plus_nanos(wait);
        match self.endpoint_mut(endpoint) {
            Some((_, pause, _)) if probes(*pause) => None,
            Some((_, pause, _)) => {
                *pause = Pause::Until(pause.until().max(until));
                Some(pause.until())
            }
            None => {
                self.endpoints.push((endpoint, Pause::Until(until), 1));
                Some(until)
            }
        }
    }
}
