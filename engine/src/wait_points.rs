//! The places where requests wait for a limit and are woken: a [`WaitPoint`] at each endpoint, lane and holder.

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId};
use super::keys::{HolderKey, LaneKey, NodeKey, QueueKey};
use super::need::Need;
use super::origin::Origin;
use super::slab::Key;
use super::waiting::{LimitLevel, WaitPoint};

/// A [`LimitLevel`] of one lane, named by its owner, so that a permit still finds it after its lane has changed.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Endpoint(LaneKey, EndpointId),
    Lane(LaneKey),
    SharedEndpoint(HolderKey, EndpointHash),
    Shared(HolderKey),
}

impl Engine {
    fn spot(&self, need: &Need, place: LimitLevel) -> Option<Spot> {
        let lane = self.lanes.get(need.lane)?;
        Some(match place {
            LimitLevel::Endpoint => Spot::Endpoint(need.lane, need.endpoint),
            LimitLevel::Lane => Spot::Lane(need.lane),
            LimitLevel::SharedEndpoint(holder) => {
                Spot::SharedEndpoint(lane.shared[holder], lane.plan.endpoint_hash(need.endpoint))
            }
            LimitLevel::Shared(holder) => Spot::Shared(lane.shared[holder]),
        })
    }

    /// The wait point at a spot; `None` where no request has waited.
    fn site_at(&mut self, spot: Spot) -> Option<&mut WaitPoint> {
        match spot {
            Spot::Endpoint(lane, endpoint) => {
                Some(self.lanes.get_mut(lane)?.waiting.as_mut()?.endpoint_wait_point(endpoint))
            }
            Spot::Lane(lane) => Some(&mut self.lanes.get_mut(lane)?.waiting.as_mut()?.wait_point),
            Spot::SharedEndpoint(holder, endpoint) => {
                Some(self.lanes.holder_mut(holder)?.endpoint_wait_point(endpoint))
            }
            Spot::Shared(holder) => Some(&mut self.lanes.holder_mut(holder)?.wait_point),
        }
    }

    /// The wait point at a level of a lane; `None` where no request has waited.
    pub(super) fn wait_point(&mut self, need: &Need, place: LimitLevel) -> Option<&mut WaitPoint> {
        self.site_at(self.spot(need, place)?)
    }

    /// Whether a request has waited here.
    pub(super) fn has_wait_point(&self, need: &Need, place: LimitLevel) -> bool {
        let Some(lane) = self.lanes.get(need.lane) else { return false };
        match place {
            LimitLevel::Endpoint => {
                let mut wait_points = lane.waiting.iter().flat_map(|waiting| &waiting.endpoint_wait_points);
                wait_points.any(|(endpoint, _)| *endpoint == need.endpoint)
            }
            LimitLevel::SharedEndpoint(holder) => {
                let hash = lane.plan.endpoint_hash(need.endpoint);
                let holder = self.lanes.holder(lane.shared[holder]);
                holder.is_some_and(|shared| shared.endpoint_wait_points.iter().any(|(endpoint, _)| *endpoint == hash))
            }
            LimitLevel::Lane | LimitLevel::Shared(_) => true,
        }
    }

    /// Releases what queues below `node` have reserved at wider levels: a limit at `place` stops them, so others may
    /// use it.
    pub(super) fn release_beyond(&mut self, need: &Need, place: LimitLevel, node: NodeKey) {
        let [account, vendor] = self.lanes.get(need.lane).map_or([Key::NONE; 2], |lane| lane.shared);
        let beyond = match place {
            LimitLevel::Lane => [account, vendor],
            LimitLevel::Shared(0) => [Key::NONE, vendor],
            _ => return,
        };
        for holder in beyond {
            let Some(holder) = self.lanes.holder(holder) else { continue };
            let wait_points =
                holder.endpoint_wait_points.iter().map(|(_, wait_point)| wait_point).chain([&holder.wait_point]);
            let reserved = wait_points.filter(|wait_point| self.is_reserved_below(wait_point, node));
            for queue in reserved.map(|wait_point| wait_point.reserved).collect::<Vec<_>>() {
                self.release(queue);
            }
        }
    }

    /// Whether a queue below `node` has reserved the next units at a wait point.
    fn is_reserved_below(&self, wait_point: &WaitPoint, node: NodeKey) -> bool {
        self.waiters.queue(wait_point.reserved).is_some_and(|queue| self.tree.is_below(queue.node, node))
    }

    /// Gives up what a queue's head had reserved, and lets the others ask again.
    pub(super) fn release(&mut self, key: QueueKey) {
        let Some(queue) = self.waiters.queue_mut(key) else { return };
        let Some(place) = queue.reserving.take() else { return };
        let need = Need { lane: queue.lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
        let Some(spot) = self.spot(&need, place) else { return };
        if let Some(wait_point) = self.site_at(spot) {
            if wait_point.reserved == key {
                wait_point.reserved = Key::NONE;
            }
            self.wake(spot);
        }
    }

    /// Lets all queues that are parked at a spot ask again.
    fn wake(&mut self, spot: Spot) {
        let Some(wait_point) = self.site_at(spot) else { return };
        wait_point.on_settle = false;
        let mut parked = std::mem::take(&mut wait_point.parked);
        for node in parked.drain(..) {
            self.unpark(node, self.now);
        }
        // Puts the allocation back: it is needed again at once.
        if let Some(wait_point) = self.site_at(spot)
            && wait_point.parked.is_empty()
        {
            wait_point.parked = parked;
        }
    }

    /// Lets all requests ask again that wait for shared limits of a holder, whatever their endpoint.
    pub(super) fn wake_holder(&mut self, holder: HolderKey) {
        let Some(shared) = self.lanes.holder(holder).filter(|shared| shared.waiting > 0) else { return };
        let endpoints = shared.endpoint_wait_points.iter().map(|(endpoint, _)| Spot::SharedEndpoint(holder, *endpoint));
        let spots: Vec<Spot> = endpoints.chain([Spot::Shared(holder)]).collect();
        spots.into_iter().for_each(|spot| self.wake(spot));
    }

    /// Wakes the requests that wait for the limits of `origin` because units came free. With `all`, more has changed
    /// than the end of an exchange, so requests that wait for a moment ask again too.
    pub(super) fn wake_all(&mut self, origin: &Origin, all: bool) {
        let Origin { lane, endpoint, endpoint_hash, holders: [account, vendor], .. } = *origin;
        let spots = [
            Spot::Endpoint(lane, endpoint),
            Spot::Lane(lane),
            Spot::SharedEndpoint(account, endpoint_hash),
            Spot::Shared(account),
            Spot::SharedEndpoint(vendor, endpoint_hash),
            Spot::Shared(vendor),
        ];
        for spot in spots {
            let waits = match spot {
                Spot::Endpoint(lane, _) | Spot::Lane(lane) => {
                    self.lanes.get(lane).is_some_and(|lane| lane.waiting.is_some())
                }
                Spot::SharedEndpoint(holder, _) | Spot::Shared(holder) => {
                    self.lanes.holder(holder).is_some_and(|shared| shared.waiting > 0)
                }
            };
            if waits && self.site_at(spot).is_some_and(|wait_point| all || wait_point.on_settle) {
                self.wake(spot);
            }
        }
    }

    /// Lets all requests ask again that wait for a limit of such a request.
    pub(super) fn wake_limits_of(&mut self, need: &Need) {
        let origin = self.limits_of(need.lane, need.endpoint);
        self.wake_all(&origin, true);
    }
}
