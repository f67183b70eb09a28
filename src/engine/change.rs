//! Lanes that come, change and go. A change forgets nothing that was used and grants nothing that was not there.

use std::sync::Arc;

use super::cost::Cost;
use super::lane::{Lane, OwnCells, SharedKey, hash_ids};
use super::limit::Cell;
use super::plan::{EndpointId, NO_ENDPOINT, Plan, SharedSpec};
use super::slab::Key;
use super::throttle::Throttle;
use super::waiting::LaneWait;
use super::{Engine, Group, Refusal};
use crate::clock::Time;

/// A lane's history, on its way to another engine because its vendor has come to share wider limits.
pub(crate) struct Moved {
    plan: Arc<Plan>,
    cells: Vec<Cell>,
    /// Endpoint, tier, cost, grant and deadline of what is under way.
    under_way: Vec<(EndpointId, u8, Cost, Time, Time)>,
    throttle: Option<Box<Throttle>>,
}

impl Engine {
    #[inline]
    pub(crate) fn find(&self, hash: u64, tenant: &str, vendor: &str) -> Option<Key> {
        self.lanes.find(hash, tenant, vendor)
    }

    pub(crate) fn has(&self, lane: Key) -> bool {
        self.lanes.slab.get(lane).is_some()
    }

    /// How long an exchange of a lane may take, in nanoseconds.
    pub(crate) fn service_ns(&self, lane: Key) -> u64 {
        self.lanes.slab.get(lane).map_or(0, |lane| lane.plan.service_ns)
    }

    /// A handle names the lane by its key from now on: while there is one, the lane is not evicted.
    pub(crate) fn pin(&mut self, lane: Key) {
        if let Some(lane) = self.lanes.slab.get_mut(lane) {
            lane.pins += 1;
        }
    }

    pub(crate) fn unpin(&mut self, lane: Key) {
        if let Some(lane) = self.lanes.slab.get_mut(lane) {
            lane.pins = lane.pins.saturating_sub(1);
        }
    }

    /// Adds a lane, or changes it. `config` is the version of the configuration that says so: of two ideas of a shared
    /// limit the stricter holds inside one version, and a newer version replaces an older.
    pub(crate) fn upsert(&mut self, now: Time, tenant: &str, account: &str, plan: &Arc<Plan>, config: u64) -> Key {
        let now = self.tick(now);
        let holders = self.holders(account, plan, config);
        let hash = hash_ids(&self.lanes.hasher, tenant, &plan.vendor);
        let group = Group { vendor: &plan.vendor, environment: &plan.environment, account: Some(account) };
        let account = (account != tenant).then(|| group.hash(&self.lanes.hasher));
        if let Some(key) = self.lanes.find(hash, tenant, &plan.vendor) {
            self.lanes.set_account(key, account);
            self.change(key, plan, holders);
            return key;
        }
        for holder in holders {
            if let Some(shared) = self.lanes.shared.get_mut(holder) {
                shared.lanes += 1;
            }
        }
        let key = self.lanes.insert(Lane {
            tenant: tenant.into(),
            plan: plan.clone(),
            own: OwnCells::new(plan, now, 1),
            shared: holders,
            waiting: None,
            throttle: None,
            in_flight: 0,
            version: 1,
            service_us: 0,
            service_at: 0,
            pins: 0,
            retired: false,
        });
        self.lanes.set_account(key, account);
        key
    }

    /// The holders of a lane's shared limits: its account, the vendor.
    fn holders(&mut self, account: &str, plan: &Plan, config: u64) -> [Key; 2] {
        let key = |account: Option<&str>| SharedKey {
            vendor: plan.vendor.clone(),
            environment: plan.environment.clone(),
            account: account.map(Into::into),
        };
        let mut holder = |specs: &Arc<[SharedSpec]>, key: SharedKey| {
            if specs.is_empty() {
                return Key::NONE;
            }
            let holder = self.lanes.share(key, specs, self.now);
            self.change_shared(holder, specs, config);
            holder
        };
        [holder(&plan.account, key(Some(account))), holder(&plan.vendor_wide, key(None))]
    }

    fn change_shared(&mut self, holder: Key, specs: &Arc<[SharedSpec]>, config: u64) {
        let now = self.now;
        let Some(shared) = self.lanes.shared.get_mut(holder) else { return };
        let newer = config > shared.config;
        shared.config = shared.config.max(config);
        if Arc::ptr_eq(&shared.specs, specs) || shared.specs == *specs {
            return;
        }
        let old = shared.specs.clone();
        let find = |spec: &SharedSpec| {
            old.iter().position(|old| old.spec.name == spec.spec.name && old.endpoint == spec.endpoint)
        };
        let merged: Vec<SharedSpec> = specs
            .iter()
            .map(|new| match find(new) {
                Some(at) if !newer => SharedSpec { spec: new.spec.stricter(&old[at].spec), ..new.clone() },
                _ => new.clone(),
            })
            .collect();
        shared.version += 1;
        let mut cells: Vec<Option<Cell>> = std::mem::take(&mut shared.cells).into_iter().map(Some).collect();
        let version = shared.version;
        shared.cells = merged
            .iter()
            .map(|new| match find(new).and_then(|at| Some((at, cells[at].take()?))) {
                Some((at, mut cell)) => {
                    cell.change(&old[at].spec, &new.spec, now, version);
                    cell
                }
                None => Cell::new(&new.spec, now, version),
            })
            .collect();
        shared.specs = merged.into();
        // Everybody asks again, by the new figures.
        let mut parked = std::mem::take(&mut shared.site.parked);
        for (_, site) in &mut shared.endpoint_sites {
            parked.append(&mut site.parked);
        }
        for node in parked {
            self.unpark(node, self.now);
        }
        let waiters: Vec<Key> = self.waiters.keys().collect();
        self.refuse_too_expensive(waiters);
        self.run_turns();
    }

    fn change(&mut self, key: Key, plan: &Arc<Plan>, holders: [Key; 2]) {
        let now = self.now;
        let lane = &mut self.lanes.slab[key];
        lane.retired = false;
        if Arc::ptr_eq(&lane.plan, plan) && lane.shared == holders {
            return;
        }
        let waiters = self.take_waiters(key);
        let lane = &mut self.lanes.slab[key];
        let old_plan = std::mem::replace(&mut lane.plan, plan.clone());
        let old_holders = std::mem::replace(&mut lane.shared, holders);
        lane.version += 1;
        let version = lane.version;
        let cells = std::mem::replace(&mut lane.own, OwnCells::Many(Box::new([]))).into_cells();
        lane.own = OwnCells::from_cells(carry_over(&old_plan, cells, plan, now, version));
        let endpoint = |old: EndpointId| match old_plan.endpoints.get(old as usize) {
            None => Some(NO_ENDPOINT),
            Some(old) => plan.endpoints.iter().position(|new| new.name == old.name).map(|new| new as EndpointId),
        };
        for permit in self.permits_of(key) {
            let permit = &mut self.permits[permit];
            permit.set_endpoint(endpoint(permit.endpoint()).unwrap_or(NO_ENDPOINT));
            permit.leave_holders(old_holders, holders);
        }
        for (old, new) in old_holders.into_iter().zip(holders) {
            if old != new {
                self.leave_holder(old, key);
                if let Some(shared) = self.lanes.shared.get_mut(new) {
                    shared.lanes += 1;
                }
            }
        }
        // Those first that were granted or missed their grant: they are in no queue, and may be in one again.
        for waiter in self.waiters_of(key) {
            if !self.is_queued(waiter) {
                let waiter = &mut self.waiters[waiter];
                waiter.endpoint = endpoint(waiter.endpoint).unwrap_or(NO_ENDPOINT);
            }
        }
        for waiter in waiters {
            match endpoint(self.waiters[waiter].endpoint) {
                Some(endpoint) => {
                    self.waiters[waiter].endpoint = endpoint;
                    self.wait_again(waiter, false);
                }
                None => self.forget(waiter, Refusal::UnknownEndpoint),
            }
        }
        self.refuse_too_expensive(self.waiters_of(key));
        self.run_turns();
    }

    /// A lane goes over to another holder of shared limits. Slots that it has there are freed now rather than at the
    /// end of each exchange: whoever shares them may start that much earlier, once.
    fn leave_holder(&mut self, holder: Key, lane: Key) {
        let in_flight = self.lanes.slab.get(lane).map_or(0, |lane| lane.in_flight);
        if let Some(shared) = self.lanes.shared.get_mut(holder) {
            shared.lanes -= 1;
            for cell in &mut shared.cells {
                (0..in_flight).for_each(|_| cell.finish());
            }
        }
    }

    /// Takes all waiters out of a lane's queues, in order, and forgets its tree.
    fn take_waiters(&mut self, lane: Key) -> Vec<Key> {
        let Some(waiting) = &self.lanes.slab[lane].waiting else { return Vec::new() };
        let queues = waiting.queues.clone();
        let mut waiters = Vec::new();
        for queue in queues {
            self.release(queue);
            waiters.extend(self.queues[queue].in_order(&self.waiters));
        }
        for waiter in &waiters {
            self.dequeue(*waiter);
        }
        self.drop_waiting(lane);
        waiters
    }

    /// Takes no more requests into a lane. Those that wait go on, or with `refuse` are told so at once.
    pub(crate) fn retire(&mut self, now: Time, lane: Key, refuse: bool) {
        self.tick(now);
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        inside.retired = true;
        if refuse {
            for waiter in self.waiters_of(lane) {
                self.refuse_waiter(waiter, Refusal::Retired);
            }
            self.run_turns();
        }
    }

    /// Those that were granted or missed their grant first, and then those in queues, first to last: whoever is told
    /// to ask elsewhere asks in the order of being told.
    fn waiters_of(&self, lane: Key) -> Vec<Key> {
        let of_lane = |key: &Key| self.waiters[*key].lane == lane;
        let mut found: Vec<Key> = self.waiters.keys().filter(|key| of_lane(key) && !self.is_queued(*key)).collect();
        let queues = self.lanes.slab.get(lane).and_then(|lane| lane.waiting.as_ref()).map(|waiting| &waiting.queues);
        for queue in queues.into_iter().flatten() {
            found.extend(self.queues[*queue].in_order(&self.waiters));
        }
        found
    }

    /// Takes a lane out, for another engine to go on with. Its waiters are told to ask there.
    pub(crate) fn move_out(&mut self, now: Time, lane: Key) -> Option<Moved> {
        self.retire(now, lane, false);
        for waiter in self.waiters_of(lane) {
            self.refuse_waiter(waiter, Refusal::NoLane);
        }
        self.run_turns();
        let under_way = self.permits_of(lane).iter().map(|key| self.permits[*key].under_way()).collect();
        for permit in self.permits_of(lane) {
            self.permits.remove(permit);
        }
        self.drop_waiting(lane);
        let holders = self.lanes.slab.get(lane)?.shared;
        let in_flight = self.lanes.slab[lane].in_flight;
        for holder in holders {
            if let Some(shared) = self.lanes.shared.get_mut(holder) {
                for cell in &mut shared.cells {
                    (0..in_flight).for_each(|_| cell.finish());
                }
            }
        }
        let mut inside = self.lanes.remove(lane)?;
        if let Some(throttle) = &mut inside.throttle {
            throttle.forget_permits(self.now);
        }
        Some(Moved { plan: inside.plan, cells: inside.own.into_cells(), under_way, throttle: inside.throttle })
    }

    /// Goes on with a lane from another engine. What was under way there counts here until its deadline, for its end
    /// is told to the other engine.
    pub(crate) fn move_in(&mut self, now: Time, lane: Key, moved: Moved) {
        let now = self.tick(now);
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        let plan = inside.plan.clone();
        inside.version += 1;
        let version = inside.version;
        let endpoint = |old: EndpointId| {
            let name = moved.plan.endpoints.get(old as usize).map(|endpoint| &endpoint.name);
            plan.endpoints.iter().position(|new| Some(&new.name) == name).map_or(NO_ENDPOINT, |new| new as EndpointId)
        };
        inside.throttle = moved.throttle;
        inside.own = OwnCells::from_cells(carry_over(&moved.plan, moved.cells, &plan, now, version));
        for (old, tier, cost, granted, deadline) in moved.under_way {
            self.adopt(lane, endpoint(old), tier, cost, granted, deadline);
        }
    }

    /// Nobody waits in a lane any more: its part of the tree goes, once its place in it has no meaning.
    pub(super) fn tidy(&mut self, lane: Key) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        let [account, vendor] = inside.shared;
        let Some(waiting) = &mut inside.waiting else { return };
        if waiting.total() > 0 {
            return;
        }
        let holder = if account == Key::NONE { vendor } else { account };
        if holder == Key::NONE {
            return self.drop_waiting(lane);
        }
        self.linger(lane);
        let all = self.lanes.shared[holder].waiting == 0;
        for _ in 0..if all { usize::MAX } else { 2 } {
            let Some(lane) = self.lanes.shared[holder].lingering.front().copied() else { break };
            let waiting = self.lanes.slab.get(lane).and_then(|lane| lane.waiting.as_ref());
            let gone = waiting.filter(|waiting| waiting.lingering && waiting.total() == 0);
            if let Some(waiting) = gone {
                if !all && !waiting.tiers.iter().all(|tier| self.tree.is_past(*tier)) {
                    break;
                }
                self.drop_waiting(lane);
            }
            self.lanes.shared[holder].lingering.pop_front();
        }
        let widest = if vendor == Key::NONE { account } else { vendor };
        if self.lanes.shared[widest].waiting == 0 {
            // Nobody is left whose turn it could be: the next to come starts afresh, as it would had all of these been
            // dropped while they rested.
            for account in std::mem::take(&mut self.lanes.shared[widest].accounts) {
                let inside = self.lanes.shared.get_mut(account);
                let lingering = inside.map(|account| std::mem::take(&mut account.lingering)).unwrap_or_default();
                lingering.into_iter().for_each(|lane| self.drop_waiting(lane));
                if let Some(account) = self.lanes.shared.get_mut(account) {
                    account.clear_tree(&mut self.tree);
                }
            }
            self.lanes.shared[widest].clear_tree(&mut self.tree);
        }
    }

    /// Nobody waits in a lane that has a part of the tree: it keeps its place there until that has no meaning, or until
    /// nobody at all waits for what it shares with others.
    pub(super) fn linger(&mut self, lane: Key) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        let ([account, vendor], weight) = (inside.shared, inside.plan.weight);
        let holder = if account == Key::NONE { vendor } else { account };
        let Some(waiting) = inside.waiting.as_mut().filter(|waiting| holder != Key::NONE && waiting.total() == 0)
        else {
            return;
        };
        if !std::mem::replace(&mut waiting.lingering, true) {
            if vendor != Key::NONE && account != Key::NONE {
                self.reweigh(account, -(weight as i64));
            }
            self.lanes.shared[holder].lingering.push_back(lane);
        }
    }

    fn drop_waiting(&mut self, lane: Key) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        let Some(waiting) = inside.waiting.take() else { return };
        let LaneWait { root, tiers, queues, lingering, .. } = *waiting;
        let ([account, vendor], weight) = (inside.shared, inside.plan.weight);
        // One that lingers has taken its weight out already.
        if !lingering && account != Key::NONE && vendor != Key::NONE {
            self.reweigh(account, -(weight as i64));
        }
        for queue in queues {
            if let Some(queue) = self.queues.remove(queue) {
                self.tree.discard(queue.node);
            }
        }
        tiers.into_iter().for_each(|tier| self.tree.discard(tier));
        self.tree.discard(root);
    }

    /// Nothing is left of anything that was ever submitted: for tests.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (what, count) in [
            ("permits", self.permits.len()),
            ("waiters", self.waiters.len()),
            ("waiting", self.waiting as usize),
            ("queues", self.queues.len()),
        ] {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        }
        for key in self.lanes.slab.keys() {
            let lane = &self.lanes.slab[key];
            if lane.in_flight > 0 || lane.waiting.is_some() {
                left.push(format!("lane {}: {} in flight", lane.tenant, lane.in_flight));
            }
            let cells = match &lane.own {
                OwnCells::One(cell) => std::slice::from_ref(cell),
                OwnCells::Many(cells) => cells,
            };
            if !cells.iter().all(Cell::is_untouched) {
                left.push(format!("lane {}: entries in a limit", lane.tenant));
            }
        }
        for key in self.lanes.shared.keys() {
            let shared = &self.lanes.shared[key];
            if !shared.cells.iter().all(Cell::is_untouched) {
                left.push(format!("shared {:?}: entries in a limit", shared.key));
            }
        }
        left
    }
}

/// Cells for `new`, with the history of those in `old` that have the same name.
fn carry_over(old: &Plan, cells: Vec<Cell>, new: &Plan, now: Time, version: u32) -> Vec<Cell> {
    let mut cells: Vec<Option<Cell>> = cells.into_iter().map(Some).collect();
    (0..new.own.len())
        .map(|index| {
            let at = (0..old.own.len()).find(|at| old.own_name(*at) == new.own_name(index));
            match at.and_then(|at| Some((at, cells[at].take()?))) {
                Some((at, mut cell)) => {
                    cell.change(&old.own[at], &new.own[index], now, version);
                    cell
                }
                None => Cell::new(&new.own[index], now, version),
            }
        })
        .collect()
}
