//! Lanes that go to another engine, because the widest scope of their vendor's limits has changed, or their account.
//!
//! A permit of such a lane falls into two. What it took from limits that lanes share stays in the engine that it was
//! granted in, for those lanes have not gone; what it took from the lane's own limits goes along. The driver tells the end
//! of the exchange to both: [`Engine::move_in`] says under which key the second part is found.
//!
//! A reload may also move all lanes of an account, one after the other. The account is held in both engines meanwhile.
//! The new holder begins with the history of the old one, and counts what is under way in each lane that comes. Requests
//! under way in lanes that have not come yet are counted in the old engine alone: while such a reload goes on, a slot
//! limit of the account can be exceeded by as many.

use std::sync::Arc;

use super::Engine;
use super::Refusal;
use super::cells::Origin;
use super::change::carry_over;
use super::lane::{OwnCells, SharedKey};
use super::limit::Cell;
use super::permit::{Permit, State};
use super::plan::{EndpointHash, EndpointId, NO_ENDPOINT, Plan, SharedSpec};
use super::slab::Key;
use super::throttle::Throttle;
use crate::clock::Time;

/// A lane's history, on its way to another engine.
pub(crate) struct Moved {
    plan: Arc<Plan>,
    cells: Vec<Cell>,
    version: u32,
    throttle: Option<Box<Throttle>>,
    /// By the key that it has in the engine that it leaves.
    under_way: Vec<(Key, Permit)>,
    /// The account and the vendor: what they have counted.
    shared: [Option<History>; 2],
}

/// What the lanes of a holder have used of their shared limits.
struct History {
    key: SharedKey,
    specs: Arc<[SharedSpec]>,
    cells: Vec<Cell>,
    /// The holder, as the permits that are under way name it.
    holder: Key,
}

impl Engine {
    /// Takes a lane out, for another engine to go on with. Its waiters are told to ask there.
    pub(crate) fn move_out(&mut self, now: Time, lane: Key) -> Option<Moved> {
        self.retire(now, lane, false);
        for waiter in self.waiters_of(lane) {
            self.refuse_waiter(waiter, Refusal::NoLane);
        }
        self.run_turns();
        self.drop_waiting(lane);
        let mut under_way = Vec::new();
        for key in self.permits_of(lane) {
            under_way.push((key, self.permits[key].clone()));
            if self.permits[key].origin.holders == [Key::NONE; 2] {
                self.permits.remove(key);
            } else {
                self.permits[key].origin.lane = Key::NONE;
                self.departed += 1;
            }
        }
        let inside = self.lanes.remove(lane)?;
        let shared = inside.shared.map(|holder| {
            let shared = self.lanes.shared.get(holder)?;
            let (key, specs, cells) = (shared.key.clone(), shared.specs.clone(), shared.cells.clone());
            Some(History { key, specs, cells, holder })
        });
        let (plan, cells, version) = (inside.plan, inside.own.into_cells(), inside.version);
        Some(Moved { plan, cells, version, throttle: inside.throttle, under_way, shared })
    }

    /// Goes on with a lane from another engine, which was made here just now. Returns the keys there
    /// and here of each permit whose caller is still there: what becomes of it is to be told to both engines.
    pub(crate) fn move_in(&mut self, now: Time, lane: Key, moved: Moved) -> Vec<(Key, Key)> {
        let now = self.tick(now);
        let Moved { plan: old, cells, version, throttle, under_way, shared } = moved;
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return Vec::new() };
        let plan = inside.plan.clone();
        // Later than every limit that comes along, and than every permit.
        inside.version = inside.version.max(version) + 1;
        inside.throttle = throttle;
        inside.own = OwnCells::from_cells(carry_over(&old, cells, &plan, now, inside.version));
        let holders = inside.shared;
        for (holder, history) in holders.into_iter().zip(&shared) {
            if let Some(history) = history {
                self.take_history(holder, history);
            }
        }
        let mut keys = Vec::new();
        for (before, permit) in under_way {
            let name = old.endpoints.get(permit.origin.endpoint as usize).map(|endpoint| &endpoint.name);
            let endpoint = plan.endpoints.iter().position(|new| Some(&new.name) == name);
            let endpoint = endpoint.map_or(NO_ENDPOINT, |new| new as EndpointId);
            let origin = self.origin_here(lane, endpoint, holders, &permit.origin, &shared);
            self.permit_due = self.permit_due.min(permit.deadline);
            let is_told_of = permit.state != State::Abandoned;
            let here = self.permits.insert(Permit { origin, ..permit });
            if let Some(inside) = self.lanes.slab.get_mut(lane) {
                inside.in_flight += 1;
            }
            if is_told_of {
                keys.push((before, here));
            }
        }
        if let Some(throttle) = self.lanes.slab.get_mut(lane).and_then(|lane| lane.throttle.as_mut()) {
            throttle.rename_permits(now, &keys);
        }
        keys
    }

    /// Where a permit from another engine counts here: in the lane's own limits, and in the slots of an account or vendor
    /// whose slots it holds there.
    fn origin_here(
        &mut self,
        lane: Key,
        endpoint: EndpointId,
        holders: [Key; 2],
        there: &Origin,
        shared: &[Option<History>; 2],
    ) -> Origin {
        let mut origin = Origin { lane, endpoint, holders: [Key::NONE; 2], only_slots: true, ..*there };
        for (number, holder) in holders.into_iter().enumerate() {
            let Some(history) = &shared[number] else { continue };
            let Some(inside) = self.lanes.shared.get_mut(holder) else { continue };
            if inside.key == history.key && there.holders[number] == history.holder {
                origin.holders[number] = holder;
                origin.versions[number + 1] = inside.version;
                inside.take_slots(there.endpoint_hash);
            }
        }
        origin
    }

    /// A holder that no lane used here before begins with what its lanes have used in the engine that they come from.
    fn take_history(&mut self, holder: Key, history: &History) {
        let now = self.now;
        let Some(inside) = self.lanes.shared.get_mut(holder) else { return };
        if inside.key != history.key || inside.lanes > 1 || !inside.cells.iter().all(Cell::is_new) {
            return;
        }
        let version = inside.version;
        for (cell, new) in inside.cells.iter_mut().zip(inside.specs.iter()) {
            let same = |old: &&SharedSpec| old.spec.name == new.spec.name && old.endpoint == new.endpoint;
            let found = history.specs.iter().zip(&history.cells).find(|(old, _)| same(old));
            if let Some((old, used)) = found {
                let mut used = used.clone();
                used.change(&old.spec, &new.spec, now, version);
                used.since = version;
                // Each permit that comes along takes its own.
                used.set_slots(0);
                *cell = used;
            }
        }
    }
}

impl super::lane::Shared {
    /// A request to `endpoint` that is under way takes its slots.
    fn take_slots(&mut self, endpoint: EndpointHash) {
        for (cell, _) in self.cells.iter_mut().zip(self.specs.iter()).filter(|(_, spec)| spec.applies(endpoint)) {
            cell.take_slot();
        }
    }
}
