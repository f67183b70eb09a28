//! Limits whose units several processes share: what this process wants of them, and what it holds.
//!
//! The engine knows no store. Whoever drives it asks for the [`wishes`](Engine::wishes) now and then, and at once when
//! [`is_starved`](Engine::is_starved) says so, and passes on what the store gave ([`hold`](Engine::hold)). A lane or a
//! holder of limits that lanes share is looked at while it holds units of such a limit, or wants some. Immediate
//! requests want units too: without them each would be refused for ever beside a full pool.

use std::fmt::Write as _;

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId};
use super::holder::{Shared, SharedKey};
use super::keys::{HolderKey, LaneKey, NodeKey, PermitKey};
use super::lane::Lane;
use super::limit::{Cell, Got, LimitSpec, Wish};
use super::need::Need;
use super::origin::Origin;
use super::plan::{Plan, SharedSpec};
use super::pool_places::{Place, PooledLimit};
use super::slab::Key;
use super::throttle::Gate;
use super::waiting::Branch;
use crate::time::Time;

impl Engine {
    /// A lane has come or changed: its pooled limits are looked at if they hold something.
    pub(super) fn pools_of(&mut self, lane: LaneKey) {
        let Some(inside) = self.lanes.get(lane) else { return };
        let holders = inside.shared;
        let mut found = Vec::new();
        if inside.own.as_slice().iter().any(Cell::is_pooled) {
            found.push(Place::Lane(lane));
        }
        for key in holders {
            if self.lanes.holder(key).is_some_and(|shared| shared.cells.iter().any(Cell::is_pooled)) {
                found.push(Place::Holder(key));
            }
        }
        self.pools.is_used |= !found.is_empty();
        self.pools.places.extend(found);
    }

    /// A request was stopped, whether it waits or not: the driver is to ask for units, if one of its limits is pooled.
    pub(super) fn starve(&mut self, need: &Need) {
        if self.pools.is_used {
            self.pools_of(need.lane);
            let (now, origin) = (self.now, self.limits_of(need.lane, need.endpoint));
            let mut starved = false;
            self.each_cell(&origin, |cell, spec| starved |= cell.is_starved(spec, now));
            self.pools.starved |= starved;
        }
    }

    /// A request begins to wait: notes it at all pooled limits that have no room for it, so that one call fills limits that lie
    /// one within another. Not while its lane is paused: it could not use the units.
    pub(super) fn note_stops(&mut self, need: &Need) {
        if self.pools.is_used && self.gate(need) == Gate::Open {
            let (now, origin) = (self.now, self.limits_of(need.lane, need.endpoint));
            self.each_cell(&origin, |cell, spec| {
                if cell.is_pooled() {
                    cell.room(spec, now, need.cost, need.high());
                }
            });
        }
    }

    /// A request was refused and does not wait: has units wanted of the pooled limits that it lacks. A request that is
    /// stopped for another reason too could not use units, so it takes none from other processes.
    pub(super) fn ask_store(&mut self, need: &Need) {
        if !self.pools.is_used {
            return;
        }
        let at_endpoints = [None, Some(0), Some(1)].map(|holder| self.endpoint_gate(need, holder));
        let mut gates = at_endpoints.into_iter().chain([self.gate(need)]);
        let mut lacks_units = gates.all(|gate| gate == Gate::Open);
        let (now, origin) = (self.now, self.limits_of(need.lane, need.endpoint));
        self.each_cell(&origin, |cell, spec| lacks_units &= cell.lacks_units(spec, now, need) != Some(false));
        self.each_cell(&origin, |cell, spec| cell.want_for(spec, now, need, lacks_units));
        self.starve(need);
    }

    /// Looks whether a request is stopped, and leaves no note of that at pooled limits: no units are wanted for it.
    pub(super) fn without_notes<T>(&mut self, need: &Need, look: impl FnOnce(&mut Engine) -> T) -> T {
        if !self.pools.is_used {
            return look(self);
        }
        let origin = self.limits_of(need.lane, need.endpoint);
        let mut noted = Vec::new();
        self.each_cell(&origin, |cell, _| noted.extend(cell.noted_stops()));
        let seen = look(self);
        let mut noted = noted.into_iter();
        self.each_cell(&origin, |cell, _| {
            if cell.is_pooled()
                && let Some(stops) = noted.next()
            {
                cell.restore_stops(stops);
            }
        });
        seen
    }

    /// An operator has ended the pauses of this lane: the driver is to tell the store, if one of its limits is pooled.
    pub(super) fn tell_store_of(&mut self, lane: LaneKey) {
        if self.pools.is_used {
            self.pools_of(lane);
            self.pools.starved = true;
        }
    }

    /// A request has cost more units of pooled limits than the process holds: the driver is to tell the store, which
    /// would give them to other processes. The limits may be out of use: a response may last longer than units are
    /// wanted.
    pub(super) fn tell_store_of_debts(&mut self, origin: &Origin) {
        if !self.pools.is_used {
            return;
        }
        let mut owes = false;
        self.each_cell(origin, |cell, _| owes |= cell.owes_units());
        if owes {
            self.pools.places.insert(Place::Lane(origin.lane));
            self.pools.places.extend(origin.holders.map(Place::Holder));
            self.pools.starved = true;
        }
    }

    /// Whether the store is to be called at once: since the last look at [`wishes`](Self::wishes) a request was stopped
    /// for lack of units of a pooled limit or has cost more than the process holds, or an operator has ended pauses.
    #[inline]
    pub fn is_starved(&self) -> bool {
        self.pools.is_starved()
    }

    /// The same, and forgets it.
    pub fn was_starved(&mut self) -> bool {
        std::mem::take(&mut self.pools.starved)
    }

    /// A permit may not start: the lease of a limit that it took from has ended.
    pub(super) fn has_no_lease(&mut self, key: PermitKey) -> bool {
        if !self.pools.is_used {
            return false;
        }
        let now = self.now;
        let permit = self.permits.get(key).map(|permit| (permit.origin, permit.granted()));
        let Some((origin, granted)) = permit else { return false };
        let mut ended = false;
        self.each_cell(&origin, |cell, _| ended |= cell.has_no_lease(now, granted));
        ended
    }

    /// What this process holds, wants and gives back of its pooled limits, each with a name that is the same in all processes. What
    /// it gives back is not its any more, whatever becomes of the call to the store.
    pub fn wishes(&mut self, now: Time, mut tell: impl FnMut(PooledLimit, String, Wish)) {
        let now = self.tick(now);
        self.pools.starved = false;
        let places: Vec<Place> = self.pools.places.iter().copied().collect();
        let mut fell = false;
        for place in places {
            let in_use = match place {
                Place::Lane(lane) => self.wishes_of_lane(now, lane, &mut tell),
                Place::Holder(holder) => self.wishes_of_holder(now, holder, &mut tell),
            };
            if !in_use {
                self.pools.places.remove(&place);
            }
            if self.fell_to_floor(place, now) {
                self.wake_place(place);
                fell = true;
            }
        }
        if fell {
            self.run_turns();
        }
    }

    /// Whether the lease of a limit in this place was found at `now` to have ended, so that the process goes on with
    /// its floor.
    fn fell_to_floor(&self, place: Place, now: Time) -> bool {
        match place {
            Place::Lane(lane) => {
                self.lanes.get(lane).is_some_and(|lane| lane.own.as_slice().iter().any(|cell| cell.fell_to_floor(now)))
            }
            Place::Holder(holder) => {
                self.lanes.holder(holder).is_some_and(|shared| shared.cells.iter().any(|cell| cell.fell_to_floor(now)))
            }
        }
    }

    fn wake_place(&mut self, place: Place) {
        match place {
            Place::Lane(lane) => self.wake_lane(lane),
            Place::Holder(holder) => self.wake_holder(holder),
        }
    }

    fn wishes_of_lane(&mut self, now: Time, key: LaneKey, tell: &mut impl FnMut(PooledLimit, String, Wish)) -> bool {
        let Some(lane) = self.lanes.get(key) else { return false };
        let plan = lane.plan.clone();
        let mut in_use = false;
        for (index, spec) in plan.own.iter().enumerate() {
            let endpoint = plan.endpoints.iter().position(|endpoint| endpoint.own.contains(&index));
            let queued = self.queued_in(key, endpoint.map(EndpointId::at));
            let Some(Lane { own, tenant, version, throttle, .. }) = self.lanes.get_mut(key) else { return false };
            let (version, cell) = (*version, &mut own.as_mut()[index]);
            // What the vendor says of the credential as a whole stops the limits of all requests with it.
            let stated = throttle.as_ref().map_or(0, |it| it.paused_for(now));
            let of_all = if endpoint.is_none() { stated } else { 0 };
            let endpoint = endpoint.map_or(EndpointHash::NONE, |endpoint| plan.endpoints[endpoint].hash);
            let paused_ns = cell.paused_for(now, endpoint).max(of_all);
            // While the lane is paused in this process alone, by an operator or after failures, others may use the units.
            let stops_lane = throttle.as_ref().is_some_and(|it| it.is_held() || now < it.paused_until(endpoint));
            let queued = if stops_lane && stated == 0 { [0; 3] } else { queued };
            if let Some(wish) = cell.wish(spec, now, queued, paused_ns) {
                in_use = true;
                let name = own_name(&plan, tenant, index);
                tell(PooledLimit { place: Place::Lane(key), version, index }, name, wish);
            }
        }
        in_use
    }

    fn wishes_of_holder(
        &mut self,
        now: Time,
        key: HolderKey,
        tell: &mut impl FnMut(PooledLimit, String, Wish),
    ) -> bool {
        let tree = &self.tree;
        let Some(Shared { key: holder, specs, cells, version, branches, .. }) = self.lanes.holder_mut(key) else {
            return false;
        };
        // A lane that a pause or a limit of its own stops could not use a unit, and others would miss it for as long as it waits.
        let in_free_lanes = in_tiers(branches, |node| tree.backlog_of_free_lanes(node));
        // A request that waits for an endpoint's limit has asked those of its lane, which stop other requests of it meanwhile.
        let in_all_lanes = in_tiers(branches, |node| tree.backlog(node));
        let mut in_use = false;
        for (index, (cell, shared)) in cells.iter_mut().zip(specs.iter()).enumerate() {
            let paused_ns = cell.paused_for(now, shared.endpoint.unwrap_or(EndpointHash::NONE));
            let queued = if shared.endpoint.is_some() { in_all_lanes } else { in_free_lanes };
            if let Some(wish) = cell.wish(&shared.spec, now, queued, paused_ns) {
                in_use = true;
                tell(PooledLimit { place: Place::Holder(key), version: *version, index }, holder.name_of(shared), wish);
            }
        }
        in_use
    }

    /// Requests of a lane that wait, by tier: all of them, or those to an endpoint.
    fn queued_in(&self, lane: LaneKey, endpoint: Option<EndpointId>) -> [u32; 3] {
        let Some(waiting) = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref()) else { return [0; 3] };
        let Some(endpoint) = endpoint else { return waiting.waiting };
        let mut queued = [0; 3];
        let queues = waiting.queues.iter().filter_map(|queue| self.waiters.queue(*queue));
        for queue in queues.filter(|queue| queue.endpoint == endpoint) {
            queued[queue.tier.index()] += self.tree.backlog(queue.node);
        }
        queued
    }

    /// Sets the shares of the tiers where they are decided: at the root of a limit that nothing stands above. They hold until the
    /// next answer of the store, or until no request waits.
    fn weigh_tiers(&mut self, place: Place, weights: [u32; 3]) {
        if weights == [0; 3] {
            return;
        }
        let tiers = match place {
            Place::Lane(lane) => {
                let lane = self.lanes.get(lane).filter(|lane| lane.shared == [Key::NONE; 2]);
                lane.and_then(|lane| lane.waiting.as_ref()).map(|waiting| waiting.tiers)
            }
            Place::Holder(holder) => {
                let branch = self.lanes.holder(holder).and_then(|shared| shared.branch(Key::NONE));
                branch.map(|branch| branch.tiers)
            }
        };
        for (tier, weight) in tiers.into_iter().flatten().zip(weights) {
            self.tree.set_weight(tier, weight);
        }
    }

    /// Gives all units back: those in use with the time for which they may count. From now on nothing of a pooled limit is granted.
    pub fn give_all(&mut self, now: Time, mut tell: impl FnMut(String, Wish)) {
        let now = self.tick(now);
        for place in std::mem::take(&mut self.pools.places) {
            match place {
                Place::Lane(key) => {
                    let Some(Lane { plan, own, tenant, .. }) = self.lanes.get_mut(key) else { continue };
                    for (index, (cell, spec)) in own.as_mut().iter_mut().zip(&plan.own).enumerate() {
                        if let Some(wish) = cell.give_all(spec, now) {
                            tell(own_name(plan, tenant, index), wish);
                        }
                    }
                }
                Place::Holder(key) => {
                    let Some(Shared { key: holder, specs, cells, .. }) = self.lanes.holder_mut(key) else { continue };
                    for (cell, shared) in cells.iter_mut().zip(specs.iter()) {
                        if let Some(wish) = cell.give_all(&shared.spec, now) {
                            tell(holder.name_of(shared), wish);
                        }
                    }
                }
            }
        }
    }

    /// Takes what the store gave. `until` is the end of the lease: nothing is granted or started from then on. Returns
    /// whether it was taken: if the configuration has changed since the wish was told, nothing of it is held.
    pub fn hold(&mut self, now: Time, limit: PooledLimit, got: &Got, until: Time) -> bool {
        let now = self.tick(now);
        let PooledLimit { place, version, index } = limit;
        let (waits, is_of_endpoint) = match place {
            Place::Lane(key) => {
                let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.version == version) else { return false };
                let plan = lane.plan.clone();
                let (Some(cell), Some(spec)) = (lane.own.as_mut().get_mut(index), plan.own.get(index)) else {
                    return false;
                };
                (cell.hold(spec, now, got, until), index >= plan.whole)
            }
            Place::Holder(key) => {
                let shared = self.lanes.holder_mut(key).filter(|shared| shared.version == version);
                let Some(shared) = shared else { return false };
                let (Some(cell), Some(spec)) = (shared.cells.get_mut(index), shared.specs.get(index)) else {
                    return false;
                };
                (cell.hold(&spec.spec, now, got, until), spec.endpoint.is_some())
            }
        };
        // What waits for an endpoint says nothing of the tiers of all requests.
        if waits && !is_of_endpoint {
            self.weigh_tiers(place, got.weights);
        }
        self.pools.places.insert(place);
        self.wake_place(place);
        self.run_turns();
        true
    }
}

/// The sums over all branches of a holder, by tier.
fn in_tiers(branches: &[Branch], count: impl Fn(NodeKey) -> u32) -> [u32; 3] {
    std::array::from_fn(|tier| branches.iter().map(|branch| count(branch.tiers[tier])).sum())
}

impl SharedKey {
    /// The name of one of its limits in the store.
    fn name_of(&self, shared: &SharedSpec) -> String {
        let whose = match &self.account {
            Some(account) => ["account", account.as_str()],
            None => ["vendor", ""],
        };
        name(&self.environment, &self.vendor, &whose, shared.endpoint, &shared.spec)
    }
}

/// The name of one of a lane's own limits in the store.
fn own_name(plan: &Plan, tenant: &str, index: usize) -> String {
    let endpoint = plan.endpoints.iter().find(|endpoint| endpoint.own.contains(&index)).map(|endpoint| endpoint.hash);
    name(&plan.environment, &plan.vendor, &["tenant", tenant], endpoint, &plan.own[index])
}

/// A limit's name in the store: environment, vendor, whose it is, endpoint and limit, with bars between them.
fn name(
    environment: &str,
    vendor: &str,
    whose: &[&str; 2],
    endpoint: Option<EndpointHash>,
    spec: &LimitSpec,
) -> String {
    let mut name = String::new();
    for part in [environment, vendor, whose[0], whose[1]] {
        push_escaped(&mut name, part);
        name.push('|');
    }
    if let Some(hash) = endpoint {
        // Writing to a string does not fail.
        let _ = write!(name, "{:016x}", hash.number());
    }
    name.push('|');
    push_escaped(&mut name, &spec.name);
    name
}

fn push_escaped(name: &mut String, part: &str) {
    for letter in part.chars() {
        match letter {
            '|' => name.push_str("%7C"),
            '%' => name.push_str("%25"),
            letter => name.push(letter),
        }
    }
}
