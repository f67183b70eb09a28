//! What a pause does to the lanes that it stops: their unstarted grants are taken back, the waiters that cannot wait
//! that long are refused, and the others ask again, so that they wait for the end of the pause.
//!
//! Thousands of lanes may share a limit, and all requests in flight are refused when the vendor closes it. So the lanes
//! that share it are visited only when the pause begins or becomes longer. A repetition that moves its end by
//! milliseconds, because it came that much later, is none: the end is compared in seconds.

use super::Engine;
use super::endpoint::EndpointHash;
use super::keys::{HolderKey, LaneKey, WaiterKey};
use super::need::Need;
use super::origin::{Origin, Target};
use crate::time::Time;

/// A pause is longer if it ends in a later one of these intervals, in nanoseconds.
const COARSE_NS: u64 = 1_000_000_000;

/// Whether a pause that was to end at `before` and now ends at `after` stops requests that did not know of it.
fn is_longer(now: Time, before: Time, after: Time) -> bool {
    after > before && (before <= now || after.as_nanos() / COARSE_NS > before.as_nanos() / COARSE_NS)
}

impl Engine {
    /// When the pauses of these limits end: of each whole limit, and of this endpoint alone.
    pub(super) fn pauses_of(&mut self, origin: &Origin, targets: &[Target], endpoint: EndpointHash) -> Vec<[Time; 2]> {
        let mut pauses = Vec::with_capacity(targets.len());
        for target in targets {
            let throttle = self.limit_at(origin, *target).and_then(|(cell, _)| cell.throttle());
            pauses.push(throttle.map_or([Time::ZERO; 2], |throttle| throttle.pause_ends(endpoint)));
        }
        pauses
    }

    /// Those of these limits whose pauses have become longer since `before`.
    pub(super) fn longer_paused(
        &mut self,
        origin: &Origin,
        targets: &[Target],
        endpoint: EndpointHash,
        before: &[[Time; 2]],
    ) -> Vec<Target> {
        let (now, after) = (self.now, self.pauses_of(origin, targets, endpoint));
        let pauses = before.iter().zip(&after);
        let has_grown = pauses.map(|(before, after)| before.iter().zip(after).any(|(b, a)| is_longer(now, *b, *a)));
        targets.iter().zip(has_grown).filter(|(_, has_grown)| *has_grown).map(|(target, _)| *target).collect()
    }

    /// Stops the lane that was refused, and all lanes of the shared limits among these targets.
    pub(super) fn stopped(&mut self, origin: &Origin, targets: &[Target]) {
        let mut lanes = vec![origin.lane];
        for (place, holder) in origin.holders.into_iter().enumerate() {
            if targets.iter().any(|target| matches!(target, Target::Shared(at, _) if *at == place)) {
                lanes.extend(self.busy_lanes_of(holder));
            }
        }
        lanes.sort_unstable();
        lanes.dedup();
        self.stop_lanes(&lanes);
    }

    /// The lanes of a holder in which a request waits, or was granted and has not started.
    fn busy_lanes_of(&self, holder: HolderKey) -> Vec<LaneKey> {
        let granted = self.permits.unstarted().map(|(_, permit)| permit.lane());
        let shares = |lane: &LaneKey| self.lanes.get(*lane).is_some_and(|lane| lane.shared.contains(&holder));
        self.waiters.lanes().chain(granted).filter(shares).collect()
    }

    /// Takes back the unstarted grants of a lane that was paused, and refuses waiters that cannot wait that long.
    pub(super) fn paused(&mut self, lane: LaneKey) {
        self.stop_lanes(&[lane]);
    }

    /// [`paused`](Self::paused) for several lanes, in the order of their keys.
    pub(super) fn stop_lanes(&mut self, lanes: &[LaneKey]) {
        let granted = self.permits.unstarted().filter(|(_, permit)| lanes.binary_search(&permit.lane()).is_ok());
        for key in granted.map(|(key, _)| key).collect::<Vec<_>>() {
            self.revoke(key);
        }
        for lane in lanes {
            self.send_away(*lane);
            self.wake_lane(*lane);
        }
    }

    /// Refuses the waiters of a lane whose pause lasts beyond their deadline or longer than `max_hold`.
    fn send_away(&mut self, lane: LaneKey) {
        #[cfg(test)]
        {
            self.waiters.visits += 1;
        }
        let queues = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref()).map(|waiting| waiting.queues.clone());
        let waiters: Vec<WaiterKey> =
            queues.into_iter().flatten().flat_map(|queue| self.waiters.in_order(queue)).collect();
        for waiter in waiters {
            if let Some(inside) = self.waiters.get(waiter)
                && let Some(refusal) = self.held_back(lane, inside.endpoint, inside.give_up)
            {
                self.refuse_waiter(waiter, refusal);
            }
        }
    }

    /// Lets all waiting requests of a lane ask again.
    pub(super) fn wake_lane(&mut self, lane: LaneKey) {
        let Some(waiting) = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref()) else { return };
        for queue in waiting.queues.clone() {
            if let Some(queue) = self.waiters.queue(queue) {
                let need = Need { lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
                self.wake_limits_of(&need);
            }
        }
    }
}
