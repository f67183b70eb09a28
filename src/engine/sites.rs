//! Where requests wait for a limit, and who is woken there: a [`Site`] at each endpoint, lane and holder of shared limits.

use super::Engine;
use super::origin::Origin;
use super::plan::{EndpointHash, EndpointId};
use super::slab::Key;
use super::turns::Need;
use super::waiting::{Place, Site};

/// A [`Place`] of one lane, by what the site there belongs to. A permit that was taken before its lane changed still
/// finds it.
#[derive(Clone, Copy, Debug)]
enum Spot {
    Endpoint(Key, EndpointId),
    Lane(Key),
    SharedEndpoint(Key, EndpointHash),
    Shared(Key),
}

impl Engine {
    fn spot(&self, need: &Need, place: Place) -> Option<Spot> {
        let lane = self.lanes.slab.get(need.lane)?;
        Some(match place {
            Place::Endpoint => Spot::Endpoint(need.lane, need.endpoint),
            Place::Lane => Spot::Lane(need.lane),
            Place::SharedEndpoint(holder) => {
                Spot::SharedEndpoint(lane.shared[holder], lane.plan.endpoint_hash(need.endpoint))
            }
            Place::Shared(holder) => Spot::Shared(lane.shared[holder]),
        })
    }

    /// The site at a spot; None where nobody has waited.
    fn site_at(&mut self, spot: Spot) -> Option<&mut Site> {
        match spot {
            Spot::Endpoint(lane, endpoint) => {
                Some(self.lanes.slab.get_mut(lane)?.waiting.as_mut()?.endpoint_site(endpoint))
            }
            Spot::Lane(lane) => Some(&mut self.lanes.slab.get_mut(lane)?.waiting.as_mut()?.site),
            Spot::SharedEndpoint(holder, endpoint) => Some(self.lanes.shared.get_mut(holder)?.endpoint_site(endpoint)),
            Spot::Shared(holder) => Some(&mut self.lanes.shared.get_mut(holder)?.site),
        }
    }

    /// The site at a place of a lane; None where nobody has waited.
    pub(super) fn site(&mut self, need: &Need, place: Place) -> Option<&mut Site> {
        self.site_at(self.spot(need, place)?)
    }

    /// Somebody has waited here.
    pub(super) fn has_site(&self, need: &Need, place: Place) -> bool {
        let Some(lane) = self.lanes.slab.get(need.lane) else { return false };
        match place {
            Place::Endpoint => {
                let mut sites = lane.waiting.iter().flat_map(|waiting| &waiting.endpoint_sites);
                sites.any(|(endpoint, _)| *endpoint == need.endpoint)
            }
            Place::SharedEndpoint(holder) => {
                let hash = lane.plan.endpoint_hash(need.endpoint);
                let holder = self.lanes.shared.get(lane.shared[holder]);
                holder.is_some_and(|shared| shared.endpoint_sites.iter().any(|(endpoint, _)| *endpoint == hash))
            }
            Place::Lane | Place::Shared(_) => true,
        }
    }

    /// Nothing below `node` goes now, for a limit at `place` stops it: what queues there had reserved further out is for
    /// others.
    pub(super) fn release_beyond(&mut self, need: &Need, place: Place, node: Key) {
        let [account, vendor] = self.lanes.slab.get(need.lane).map_or([Key::NONE; 2], |lane| lane.shared);
        let beyond = match place {
            Place::Lane => [account, vendor],
            Place::Shared(0) => [Key::NONE, vendor],
            _ => return,
        };
        for holder in beyond {
            let Some(holder) = self.lanes.shared.get(holder) else { continue };
            let sites = holder.endpoint_sites.iter().map(|(_, site)| site).chain([&holder.site]);
            let reserved = sites
                .map(|site| site.reserved)
                .filter(|queue| self.queues.get(*queue).is_some_and(|queue| self.tree.is_below(queue.node, node)));
            for queue in reserved.collect::<Vec<_>>() {
                self.release(queue);
            }
        }
    }

    /// Gives up what a queue's head had reserved, and lets the others ask again.
    pub(super) fn release(&mut self, key: Key) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let Some(place) = queue.reserving.take() else { return };
        let need = Need { lane: queue.lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
        let Some(spot) = self.spot(&need, place) else { return };
        if let Some(site) = self.site_at(spot) {
            if site.reserved == key {
                site.reserved = Key::NONE;
            }
            self.wake(spot);
        }
    }

    /// Everybody parked at a spot asks again.
    fn wake(&mut self, spot: Spot) {
        let Some(site) = self.site_at(spot) else { return };
        site.on_settle = false;
        let mut parked = std::mem::take(&mut site.parked);
        for node in parked.drain(..) {
            self.unpark(node, self.now);
        }
        // The allocation goes back to where it is needed again at once.
        if let Some(site) = self.site_at(spot)
            && site.parked.is_empty()
        {
            site.parked = parked;
        }
    }

    /// Everybody who waits for a limit that lanes share asks again, whatever endpoint it is of.
    pub(super) fn wake_holder(&mut self, holder: Key) {
        let Some(shared) = self.lanes.shared.get(holder).filter(|shared| shared.waiting > 0) else { return };
        let endpoints = shared.endpoint_sites.iter().map(|(endpoint, _)| Spot::SharedEndpoint(holder, *endpoint));
        let spots: Vec<Spot> = endpoints.chain([Spot::Shared(holder)]).collect();
        spots.into_iter().for_each(|spot| self.wake(spot));
    }

    /// Something of the limits of `origin` has come free: those who wait for that ask again. `all`: more than an ended
    /// exchange has changed, so also those who wait for a moment do.
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
                    self.lanes.slab.get(lane).is_some_and(|lane| lane.waiting.is_some())
                }
                Spot::SharedEndpoint(holder, _) | Spot::Shared(holder) => {
                    self.lanes.shared.get(holder).is_some_and(|shared| shared.waiting > 0)
                }
            };
            if waits && self.site_at(spot).is_some_and(|site| all || site.on_settle) {
                self.wake(spot);
            }
        }
    }

    /// All who wait for a limit of such a request ask again.
    pub(super) fn wake_limits_of(&mut self, need: &Need) {
        let origin = self.limits_of(need.lane, need.endpoint);
        self.wake_all(&origin, true);
    }
}
