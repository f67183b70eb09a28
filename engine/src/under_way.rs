//! Requests in flight count in each concurrency limit that they would take a slot from now, however new the limit is:
//! if a change adds a limit or gives it another scope, the vendor is still busy with the requests that were sent
//! before.
//!
//! So the taken slots of a limit always equal the permits of its holder. A permit names its lane, and also its account
//! and vendor if these hold shared limits. A permit that names no account was granted when the account had no limits,
//! and belongs to the account of its lane: it is counted as soon as there are limits.
//!
//! A change updates lanes one by one. A limit that the first lanes bring does not know the requests in flight in the
//! lanes that follow, so it grants nothing until all lanes are updated.

use compact_str::CompactString;

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId, NO_ENDPOINT};
use super::holder::{Shared, SharedKey};
use super::keys::{HolderKey, LaneKey, PermitKey};
use super::plan::Plan;
use super::slab::Key;
use crate::time::Time;

impl Engine {
    /// Begins a change of lanes, one after the other, until [`end_changes`](Self::end_changes).
    pub fn begin_changes(&mut self) {
        self.change.begin();
    }

    /// Ends a change: all lanes are up to date.
    pub fn end_changes(&mut self, now: Time) {
        self.tick(now);
        for holder in self.change.end() {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            shared.cells.iter_mut().for_each(|cell| cell.gather(false));
            self.ask_again(holder);
        }
        self.run_turns();
    }

    /// Stops the holder's new concurrency limits from granting while a change is in progress. `is_new` says by position
    /// which limits are new, or new to a lane that the holder counts from now on.
    pub(super) fn gather(&mut self, holder: HolderKey, is_new: impl Fn(usize) -> bool) {
        let Some(shared) = self.lanes.holder_mut(holder).filter(|_| self.change.goes_on()) else { return };
        let new = shared.cells.iter_mut().enumerate().filter(|(place, cell)| cell.is_slots() && is_new(*place));
        let gathering = new.map(|(_, cell)| cell.gather(true)).count();
        if gathering > 0 {
            self.change.gathers(holder);
        }
    }

    /// Counts the requests in flight at a holder of shared limits again, because some of the limits are new.
    pub(super) fn count_shared(&mut self, holder: HolderKey) {
        let Some(shared) = self.lanes.holder_mut(holder) else { return };
        if !shared.cells.iter().any(|cell| cell.is_slots()) {
            return;
        }
        let named = self.permits.iter().map(|permit| &permit.origin).filter(|it| it.holders.contains(&holder));
        let endpoints: Vec<EndpointHash> = named.map(|origin| origin.endpoint_hash).collect();
        for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
            let taken = endpoints.iter().filter(|endpoint| spec.applies(**endpoint)).count();
            cell.set_slots(u32::try_from(taken).unwrap_or(u32::MAX));
        }
    }

    /// Counts the requests in flight of a lane that has a new plan or comes from another engine, in its own limits and
    /// in those that it shares from now on. `old` is the plan by which the permits number their endpoints.
    pub(super) fn count_lane(&mut self, lane: LaneKey, old: &Plan) {
        let permits = self.permits.of(lane);
        let (plan, holders) = (self.lanes[lane].plan.clone(), self.lanes[lane].shared);
        for permit in &permits {
            let Some(origin) = self.permits.origin_mut(*permit) else { continue };
            if origin.endpoint_hash == EndpointHash::NONE {
                origin.endpoint_hash = old.endpoint_hash(origin.endpoint);
            }
            let number = plan.endpoints.iter().position(|endpoint| endpoint.hash == origin.endpoint_hash);
            origin.endpoint = number.map_or(NO_ENDPOINT, EndpointId::at);
            for (level, holder) in holders.into_iter().enumerate() {
                if origin.holders[level] == Key::NONE
                    && let Some(shared) = self.lanes.holder_mut(holder)
                {
                    // The request took nothing from the holder's rates.
                    (origin.holders[level], origin.versions[level + 1]) = (holder, 0);
                    shared.take_slots(origin.endpoint_hash);
                }
            }
        }
        let own = self.lanes[lane].own.as_mut();
        for (number, cell) in own.iter_mut().enumerate().filter(|(_, cell)| cell.is_slots()) {
            let applies = |permit: &&PermitKey| {
                number < plan.whole || plan.endpoint_own(self.permits[**permit].origin.endpoint).contains(&number)
            };
            cell.set_slots(u32::try_from(permits.iter().filter(applies).count()).unwrap_or(u32::MAX));
        }
    }

    /// Moves a lane to `account`. Permits of the lane that name no account belong to the account that it leaves.
    pub(super) fn belong_to(&mut self, lane: LaneKey, account: &str) {
        let Some(before) = self.lanes.account_name(lane).filter(|before| *before != account).cloned() else { return };
        let (plan, permits) = (self.lanes[lane].plan.clone(), self.permits.of(lane));
        self.name_account(&permits, &plan, before);
    }

    /// Names `account` in permits that name none.
    pub(super) fn name_account(&mut self, permits: &[PermitKey], plan: &Plan, account: CompactString) {
        let key =
            SharedKey { vendor: plan.vendor.clone(), environment: plan.environment.clone(), account: Some(account) };
        for permit in permits {
            let Some(origin) = self.permits.origin_mut(*permit) else { continue };
            if origin.holders[0] != Key::NONE {
                continue;
            }
            if origin.endpoint_hash == EndpointHash::NONE {
                origin.endpoint_hash = plan.endpoint_hash(origin.endpoint);
            }
            let holder = self.lanes.share(key.clone(), &[].into(), self.now);
            (origin.holders[0], origin.versions[1]) = (holder, 0);
            if let Some(shared) = self.lanes.holder_mut(holder) {
                shared.take_slots(origin.endpoint_hash);
            }
        }
    }

    /// Unparks all nodes at a holder of shared limits, so that their requests ask for permits again.
    pub(super) fn ask_again(&mut self, holder: HolderKey) {
        let Some(shared) = self.lanes.holder_mut(holder) else { return };
        let mut parked = std::mem::take(&mut shared.wait_point.parked);
        for (_, wait_point) in &mut shared.endpoint_wait_points {
            parked.append(&mut wait_point.parked);
        }
        for node in parked {
            self.unpark(node, self.now);
        }
    }
}

impl Shared {
    /// Takes the slots for a request to `endpoint` that is in flight.
    pub(super) fn take_slots(&mut self, endpoint: EndpointHash) {
        for (cell, _) in self.cells.iter_mut().zip(self.specs.iter()).filter(|(_, spec)| spec.applies(endpoint)) {
            cell.take_slot();
        }
    }
}
