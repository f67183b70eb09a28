//! Lanes of which nothing is claimed, because their limits allow nothing for longer than a claimed job waits. Their jobs
//! stay due in the store, for processes that have room and for the moment at which the limits allow more. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Time;
use crate::send::outlook::Outlook;
use crate::store::LaneTier;

/// How often one job is claimed of a lane whose limits allow nothing by what this process knows. Another process may have
/// ended a pause that they share, and this process learns of it only when a request asks for a permit.
const PROBE: Duration = Duration::from_secs(15);
/// How long after its time for a probe a lane is remembered.
const FORGET: Duration = Duration::from_secs(120);

#[derive(Default)]
pub(super) struct BlockedLanes {
    /// The lanes whose limits allowed a claimed job nothing, and when one job is claimed to ask again.
    refused: HashMap<LaneTier, Time>,
}

impl BlockedLanes {
    /// Forgets lanes that have had no jobs for a while.
    pub(super) fn forget(&mut self, now: Time) {
        self.refused.retain(|_, probe_at| now < *probe_at + FORGET);
    }

    /// Records that the limits allow the lane nothing for longer than a claimed job waits.
    pub(super) fn refused(&mut self, lane: LaneTier, now: Time) {
        self.refused.insert(lane, now + PROBE);
    }

    /// How many jobs of the lane may be claimed without a permit; `None` if its limits do not stop it. `outlook` says
    /// whether they still do, by what this process knows.
    pub(super) fn room(&mut self, lane: &LaneTier, now: Time, outlook: impl FnOnce() -> Outlook) -> Option<u32> {
        let probe_at = self.refused.get_mut(lane)?;
        match outlook() {
            Outlook::Open => {
                self.refused.remove(lane);
                None
            }
            Outlook::Closed if now < *probe_at => Some(0),
            Outlook::Closed => {
                *probe_at = now + PROBE;
                Some(1)
            }
            Outlook::Unknown => Some(1),
        }
    }
}

#[cfg(test)]
mod tests;
