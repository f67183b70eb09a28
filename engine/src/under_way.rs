//! What is in flight counts in each limit of requests at once that it would take from now, however young the limit: where a
//! change brings a limit or gives it another scope, the vendor is still busy with what was sent before.
//!
//! So the slots that are taken of a limit are always as many as there are permits of its holder. A permit names its lane,
//! and of the account and the vendor those that hold shared limits. One that names no account was granted when the account
//! had no limits, and belongs to the account of its lane: it is counted as soon as there are some.
//!
//! A change brings lanes up to date one by one. What is in flight in those whose turn has not come is not known to a limit
//! that the first of them brings: such a limit grants nothing until all have had their turn.

use compact_str::CompactString;

use super::Engine;
use super::endpoint::{EndpointHash, EndpointId, NO_ENDPOINT};
use super::holder::{Shared, SharedKey};
use super::keys::{HolderKey, LaneKey, PermitKey};
use super::plan::Plan;
use super::slab::Key;
use crate::time::Time;

impl Engine {
    /// Lanes will change, one after the other, until [`end_changes`](Self::end_changes).
    pub fn begin_changes(&mut self) {
        self.change.begin();
    }

    /// All lanes are as they are to be.
    pub fn end_changes(&mut self, now: Time) {
        self.tick(now);
        for holder in self.change.end() {
            let Some(shared) = self.lanes.holder_mut(holder) else { continue };
            shared.cells.iter_mut().for_each(|cell| cell.gather(false));
            self.ask_again(holder);
        }
        self.run_turns();
    }

    /// Limits of a holder are new in a change that goes on, or new to a lane that it counts from now on: `is_new` says which,
    /// by their place.
    pub(super) fn gather(&mut self, holder: HolderKey, is_new: impl Fn(usize) -> bool) {
        let Some(shared) = self.lanes.holder_mut(holder).filter(|_| self.change.goes_on()) else { return };
        let new = shared.cells.iter_mut().enumerate().filter(|(place, cell)| cell.is_slots() && is_new(*place));
        let gathering = new.map(|(_, cell)| cell.gather(true)).count();
        if gathering > 0 {
            self.change.gathers(holder);
        }
    }

    /// Counts anew what is in flight at a holder of shared limits: some of them are new.
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

    /// A lane has another plan, or has come from another engine: its own limits, and those that it shares from now on,
    /// count what is in flight in it. `old` is the plan by which the permits number their endpoints.
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
                    // Of its rates nothing was taken.
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

    /// A lane belongs to `account` from now on. Its permits that name none are those of the account that it leaves.
    pub(super) fn belong_to(&mut self, lane: LaneKey, account: &str) {
        let Some(before) = self.lanes.account_name(lane).filter(|before| *before != account).cloned() else { return };
        let (plan, permits) = (self.lanes[lane].plan.clone(), self.permits.of(lane));
        self.name_account(&permits, &plan, before);
    }

    /// Names the account of permits that name none.
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

    /// Everybody who is parked at a holder of shared limits asks again.
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
    /// A request to `endpoint` that is in flight takes its slots.
    pub(super) fn take_slots(&mut self, endpoint: EndpointHash) {
        for (cell, _) in self.cells.iter_mut().zip(self.specs.iter()).filter(|(_, spec)| spec.applies(endpoint)) {
            cell.take_slot();
        }
    }
}
