//! Adds, changes and removes lanes. A change forgets no units that were used and grants none that were not there.

use std::sync::Arc;

use super::cost::Cost;
use super::endpoint::{EndpointId, NO_ENDPOINT};
use super::holder::{SharedKey, is_same};
use super::keys::{HolderKey, LaneKey, WaiterKey};
use super::lane::{Account, Lane, LaneLimits, hash_ids};
use super::limit::{Cell, one_less};
use super::plan::{Plan, SharedSpec};
use super::slab::Key;
use super::{Engine, Group, Refusal};
use crate::time::Time;

impl Engine {
    #[inline]
    pub fn find(&self, hash: u64, tenant: &str, vendor: &str) -> Option<LaneKey> {
        self.lanes.find(hash, tenant, vendor)
    }

    pub fn has(&self, lane: LaneKey) -> bool {
        self.lanes.get(lane).is_some()
    }

    /// The longest that an attempt at a lane's vendor may take, in nanoseconds, and the cost of a request that states
    /// none.
    pub fn usual(&self, lane: LaneKey) -> (u64, Cost) {
        self.lanes.get(lane).map_or((0, 1.into()), |lane| (lane.plan.service_ns, lane.plan.usual))
    }

    /// Keeps the lane from being evicted while a handle refers to it by its key.
    pub fn pin(&mut self, lane: LaneKey) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.pins += 1;
        }
    }

    pub fn unpin(&mut self, lane: LaneKey) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            one_less(&mut lane.pins);
        }
    }

    /// Adds a lane, or changes it. If lanes disagree on a limit that they share, the strictest of their figures holds,
    /// whatever the version of the configuration that each is from. For `host`, see [`answered_by`](Self::answered_by).
    pub fn upsert(&mut self, now: Time, tenant: &str, account: &str, plan: &Arc<Plan>, host: Option<&str>) -> LaneKey {
        let now = self.tick(now);
        let hash = hash_ids(self.lanes.hasher(), tenant, &plan.vendor);
        let known = self.lanes.find(hash, tenant, &plan.vendor);
        if let Some(key) = known {
            self.belong_to(key, account);
        }
        let holders = self.holders(account, plan);
        let before = known.and_then(|key| self.lanes.get(key)).map_or([Key::NONE; 2], |lane| lane.shared);
        self.state(known, holders, plan);
        self.answered_by(holders, host);
        for (before, holder) in before.into_iter().zip(holders) {
            if before == Key::NONE {
                // More lanes that belong to this holder may still come.
                self.gather(holder, |_| true);
            }
        }
        let group = Group { vendor: &plan.vendor, environment: &plan.environment, account: Some(account) };
        let account =
            (account != tenant).then(|| Account { hash: group.hash(self.lanes.hasher()), name: account.into() });
        if let Some(key) = known {
            self.lanes.set_account(key, account);
            self.change(key, plan, holders);
            for left in before.into_iter().filter(|left| !holders.contains(left)) {
                self.put_in_force(left);
            }
            self.joined(key, holders.into_iter().filter(|holder| !before.contains(holder)));
            self.pools_of(key);
            self.run_turns();
            return key;
        }
        for holder in holders {
            if let Some(shared) = self.lanes.holder_mut(holder) {
                shared.lanes += 1;
            }
        }
        let key = self.lanes.insert(Lane {
            tenant: tenant.into(),
            plan: plan.clone(),
            own: LaneLimits::new(plan, now, 1),
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
        self.joined(key, holders);
        self.pools_of(key);
        self.run_turns();
        key
    }

    /// The holders of a lane's shared limits: its account and its vendor.
    fn holders(&mut self, account: &str, plan: &Plan) -> [HolderKey; 2] {
        let key = |account: Option<&str>| SharedKey {
            vendor: plan.vendor.clone(),
            environment: plan.environment.clone(),
            account: account.map(Into::into),
        };
        let mut holder = |specs: &Arc<[SharedSpec]>, key: SharedKey| {
            if specs.is_empty() {
                return Key::NONE;
            }
            let (before, holder) = (self.lanes.holder_count(), self.lanes.share(key, specs, self.now));
            if self.lanes.holder_count() > before {
                self.gather(holder, |_| true);
            }
            holder
        };
        [holder(&plan.account, key(Some(account))), holder(&plan.vendor_wide, key(None))]
    }

    /// Counts what a lane, which may be new, states by `plan` of the limits of its holders, in place of what it stated
    /// before.
    fn state(&mut self, lane: Option<LaneKey>, holders: [HolderKey; 2], plan: &Plan) {
        for (holder, specs) in holders.into_iter().zip([&plan.account, &plan.vendor_wide]) {
            if let Some(shared) = self.lanes.holder_mut(holder) {
                shared.stated.add(specs);
            }
        }
        if let Some(lane) = lane {
            self.lanes.take_back(lane);
        }
        for holder in holders {
            self.put_in_force(holder);
        }
    }

    /// Puts in force what the lanes of a holder state: the strictest figure of each limit. While no lane states
    /// anything, the limits stay as they are. Returns whether anything has changed.
    pub(super) fn put_in_force(&mut self, holder: HolderKey) -> bool {
        let now = self.now;
        let Some(shared) = self.lanes.holder_mut(holder) else { return false };
        let Some(merged) = shared.stated.merged() else { return false };
        if shared.specs[..] == merged[..] {
            // The old list may belong to a plan that no lane has any more.
            shared.specs = merged;
            return false;
        }
        let old = std::mem::replace(&mut shared.specs, merged.clone());
        let find = |spec: &SharedSpec| old.iter().position(|known| is_same(known, spec));
        shared.version += 1;
        let was_slots: Vec<bool> = shared.cells.iter().map(Cell::is_slots).collect();
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
        let known: Vec<bool> = merged.iter().map(|new| find(new).is_some_and(|at| was_slots[at])).collect();
        self.gather(holder, |place| !known[place]);
        self.count_shared(holder);
        // All waiting requests ask again, by the new figures.
        self.ask_again(holder);
        let waiters: Vec<WaiterKey> = self.waiters.keys().collect();
        self.refuse_too_expensive(waiters);
        true
    }

    /// Moves a lane to another plan or to other holders of shared limits. Exchanges in flight end in the limits that
    /// they took their units from.
    fn change(&mut self, key: LaneKey, plan: &Arc<Plan>, holders: [HolderKey; 2]) {
        let now = self.now;
        let lane = &mut self.lanes[key];
        lane.retired = false;
        if Arc::ptr_eq(&lane.plan, plan) && lane.shared == holders {
            return;
        }
        let waiters = self.take_waiters(key);
        let lane = &mut self.lanes[key];
        let old_plan = std::mem::replace(&mut lane.plan, plan.clone());
        let old_holders = std::mem::replace(&mut lane.shared, holders);
        lane.version += 1;
        let version = lane.version;
        let cells = std::mem::replace(&mut lane.own, LaneLimits::Many(Box::new([]))).into_cells();
        lane.own = LaneLimits::from_cells(carry_over(&old_plan, cells, plan, now, version));
        if old_plan.pace.window_ns != plan.pace.window_ns
            && let Some(throttle) = &mut lane.throttle
        {
            throttle.window_changed(now, &plan.pace);
        }
        let endpoint = |old: EndpointId| match old_plan.endpoints.get(old.place()) {
            None => Some(NO_ENDPOINT),
            Some(old) => plan.endpoints.iter().position(|new| new.name == old.name).map(EndpointId::at),
        };
        self.count_lane(key, &old_plan);
        for (old, new) in old_holders.into_iter().zip(holders) {
            if old != new {
                if let Some(shared) = self.lanes.holder_mut(old) {
                    one_less(&mut shared.lanes);
                }
                if let Some(shared) = self.lanes.holder_mut(new) {
                    shared.lanes += 1;
                }
            }
        }
        // First the waiters that were granted or missed their grant: they are in no queue now, but may be queued again.
        for waiter in self.waiters_of(key) {
            if !self.waiters.is_queued(waiter) {
                let number = endpoint(self.waiters[waiter].endpoint).unwrap_or(NO_ENDPOINT);
                self.waiters.set_endpoint(waiter, number);
            }
        }
        for waiter in waiters {
            match endpoint(self.waiters[waiter].endpoint) {
                Some(endpoint) => {
                    self.waiters.set_endpoint(waiter, endpoint);
                    self.wait_again(waiter, false);
                }
                None => self.waiters.refuse(waiter, Refusal::UnknownEndpoint),
            }
        }
        self.refuse_too_expensive(self.waiters_of(key));
    }

    /// Takes all waiters out of a lane's queues, in order, and removes the lane's tree nodes.
    fn take_waiters(&mut self, lane: LaneKey) -> Vec<WaiterKey> {
        let Some(waiting) = &self.lanes[lane].waiting else { return Vec::new() };
        let queues = waiting.queues.clone();
        let mut waiters = Vec::new();
        for queue in queues {
            self.release(queue);
            waiters.extend(self.waiters.in_order(queue));
        }
        for waiter in &waiters {
            self.dequeue(*waiter);
        }
        self.drop_waiting(lane);
        waiters
    }

    /// Admits no more requests to a lane. Its waiting requests go on waiting, or are refused at once if `refuse` is
    /// set. The limits that it shares follow what the other lanes state.
    pub fn retire(&mut self, now: Time, lane: LaneKey, refuse: bool) {
        let now = self.tick(now);
        self.lanes.take_back(lane);
        let Some(inside) = self.lanes.get_mut(lane) else { return };
        inside.retired = true;
        if let Some(throttle) = &mut inside.throttle {
            throttle.removed(now);
        }
        let has_changed = inside.shared.map(|holder| self.put_in_force(holder)).contains(&true);
        if refuse {
            for waiter in self.waiters_of(lane) {
                self.refuse_waiter(waiter, Refusal::Retired);
            }
        }
        if refuse || has_changed {
            self.run_turns();
        }
    }

    /// The waiters of a lane: first those that were granted or missed their grant, then those in queues, in their
    /// order. A moved lane's callers ask the other engine in the order in which they are told, so this keeps their
    /// order.
    pub(super) fn waiters_of(&self, lane: LaneKey) -> Vec<WaiterKey> {
        let of_lane = |key: &WaiterKey| self.waiters[*key].lane == lane;
        let mut found: Vec<WaiterKey> =
            self.waiters.keys().filter(|key| of_lane(key) && !self.waiters.is_queued(*key)).collect();
        let queues = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref()).map(|waiting| &waiting.queues);
        for queue in queues.into_iter().flatten() {
            found.extend(self.waiters.in_order(*queue));
        }
        found
    }

    /// Describes what is left in the engine after everything that was submitted has ended: for tests.
    #[cfg(test)]
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        let (waiters, queues) = self.waiters.counts();
        for (what, count) in [
            ("permits", self.permits.len()),
            ("waiters", waiters),
            ("waiting", self.waiters.queued() as usize),
            ("queues", queues),
        ] {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        }
        for key in self.lanes.keys() {
            let lane = &self.lanes[key];
            if lane.in_flight > 0 || lane.waiting.is_some() {
                left.push(format!("lane {}: {} in flight", lane.tenant, lane.in_flight));
            }
            let cells = match &lane.own {
                LaneLimits::One(cell) => std::slice::from_ref(cell),
                LaneLimits::Many(cells) => cells,
            };
            if !cells.iter().all(Cell::is_untouched) {
                left.push(format!("lane {}: entries in a limit", lane.tenant));
            }
        }
        for shared in self.lanes.holders() {
            if !shared.cells.iter().all(Cell::is_untouched) {
                left.push(format!("shared {:?}: entries in a limit", shared.key));
            }
        }
        left
    }
}

/// Makes cells for the limits of `new`. A limit that has the same name in `old` keeps its history.
pub(super) fn carry_over(old: &Plan, cells: Vec<Cell>, new: &Plan, now: Time, version: u32) -> Vec<Cell> {
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
