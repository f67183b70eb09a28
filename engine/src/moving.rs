//! Moves lanes to another engine, because the widest scope of their vendor's limits has changed, or their account.
//!
//! A permit of such a lane is split. Units of shared limits stay in the engine that granted them, because the other
//! lanes that share them stay; units of the lane's own limits move. The driver reports the end of the exchange to both
//! engines: [`Engine::take_over`] returns the key of the second part.
//!
//! A reload may also move all lanes of an account, one after the other. Both engines then have a holder for the
//! account. The new holder starts with the history of the old one, and counts what is in flight in each lane that
//! arrives. Its concurrency limits grant nothing until all lanes have arrived (`under_way.rs`).
//!
//! Units of a limit that processes share go along with the history, and the old holder keeps none: a unit is in one
//! place. If the new holder has counted requests of its own, it takes neither history nor units. The old holder then
//! returns its units to the store once its lanes want them no more.

use std::sync::Arc;

use compact_str::CompactString;

use super::Engine;
use super::Refusal;
use super::change::carry_over;
use super::holder::{Hosts, Shared, SharedKey, is_same};
use super::keys::{HolderKey, LaneKey, PermitKey};
use super::lane::LaneLimits;
use super::limit::Cell;
use super::origin::Origin;
use super::permit::Permit;
use super::plan::{Plan, SharedSpec};
use super::slab::Key;
use super::throttle::LaneThrottle;
use crate::time::Time;

/// The state of a lane that is on its way to another engine.
pub struct Moved {
    plan: Arc<Plan>,
    cells: Vec<Cell>,
    version: u32,
    throttle: Option<Box<LaneThrottle>>,
    /// Permits in flight: the key in the engine that the lane leaves, the permit, and the account that it was granted
    /// for.
    under_way: Vec<(PermitKey, Permit, CompactString)>,
    /// What the account and the vendor have counted.
    shared: [Option<History>; 2],
}

/// What the lanes of a holder have used of their shared limits.
struct History {
    /// The holder in the engine that the lane leaves.
    holder: HolderKey,
    key: SharedKey,
    specs: Arc<[SharedSpec]>,
    cells: Vec<Cell>,
    hosts: Hosts,
}

impl Engine {
    /// Removes a lane so that another engine can take it. Its waiters are refused, and ask again there.
    pub fn move_out(&mut self, now: Time, lane: LaneKey) -> Option<Moved> {
        self.tick(now);
        for waiter in self.waiters_of(lane) {
            self.refuse_waiter(waiter, Refusal::NoLane);
        }
        self.run_turns();
        self.drop_waiting(lane);
        let mut under_way = Vec::new();
        let closing_ns = self.lanes.get(lane)?.plan.closing_ns;
        let witness = self.witness_of(lane)?;
        let account = self.lanes.account_name(lane)?.clone();
        for key in self.permits.of(lane) {
            let named = self.lanes.holder(self.permits[key].origin.holders[0]);
            let account = named.and_then(|holder| holder.key.account.as_ref()).unwrap_or(&account);
            under_way.push((key, self.permits[key].clone(), account.clone()));
            if self.permits[key].origin.holders == [Key::NONE; 2] {
                self.permits.remove(key);
            } else {
                self.permits.depart(key, closing_ns, witness);
            }
        }
        let inside = self.lanes.remove(lane)?;
        let shared = inside.shared.map(|holder| {
            let shared = self.lanes.holder(holder)?;
            let (key, specs, cells) = (shared.key.clone(), shared.specs.clone(), shared.cells.clone());
            Some(History { holder, key, specs, cells, hosts: shared.hosts.clone() })
        });
        // The lanes that stay keep to their own figures.
        if inside.shared.map(|holder| self.put_in_force(holder)).contains(&true) {
            self.run_turns();
        }
        let (plan, cells, version) = (inside.plan, inside.own.into_cells(), inside.version);
        Some(Moved { plan, cells, version, throttle: inside.throttle, under_way, shared })
    }

    /// Restores the state of a lane from another engine in a lane that was just made here. Returns the keys there and
    /// here of each permit whose caller still waits: the caller reports the end of the exchange to both engines. Units
    /// of limits that processes share, which `from` held for the lane's account or vendor, come along.
    pub fn take_over(
        &mut self,
        now: Time,
        lane: LaneKey,
        moved: Moved,
        from: &mut Engine,
    ) -> Vec<(PermitKey, PermitKey)> {
        let left = moved.shared.each_ref().map(|history| history.as_ref().map_or(Key::NONE, |history| history.holder));
        let (keys, has_taken) = self.restore(now, lane, moved);
        let holders = self.lanes.get(lane).map_or([Key::NONE; 2], |lane| lane.shared);
        for ((left, holder), has_taken) in left.into_iter().zip(holders).zip(has_taken) {
            if has_taken && let Some(shared) = self.lanes.holder(holder) {
                from.let_units_go(now, left, shared);
            }
        }
        keys
    }

    /// [`take_over`](Self::take_over) where processes share no limits.
    #[cfg(test)]
    pub(crate) fn move_in(&mut self, now: Time, lane: LaneKey, moved: Moved) -> Vec<(PermitKey, PermitKey)> {
        self.restore(now, lane, moved).0
    }

    /// Also returns whether the holders of the lane have begun with the history of those that it has left.
    fn restore(&mut self, now: Time, lane: LaneKey, moved: Moved) -> (Vec<(PermitKey, PermitKey)>, [bool; 2]) {
        let now = self.tick(now);
        let Moved { plan: old, cells, version, throttle, under_way, shared } = moved;
        let Some(inside) = self.lanes.get_mut(lane) else { return (Vec::new(), [false; 2]) };
        let plan = inside.plan.clone();
        // A later version than every limit and every permit that comes along.
        inside.version = inside.version.max(version) + 1;
        inside.throttle = throttle;
        inside.own = LaneLimits::from_cells(carry_over(&old, cells, &plan, now, inside.version));
        let holders = inside.shared;
        let mut has_taken = [false; 2];
        for ((holder, history), has_taken) in holders.into_iter().zip(&shared).zip(&mut has_taken) {
            *has_taken = history.as_ref().is_some_and(|history| self.take_history(lane, holder, history));
        }
        let mut keys = Vec::new();
        for (before, permit, account) in under_way {
            // `count_lane` adds the lane's holders in which the permit counts too.
            let origin = Origin { lane, holders: [Key::NONE; 2], only_slots: true, ..permit.origin };
            let is_told_of = !permit.is_abandoned();
            let here = self.permits.insert(permit.at(origin));
            if self.lanes.account_name(lane) != Some(&account) {
                self.name_account(&[here], &old, account);
            }
            if let Some(inside) = self.lanes.get_mut(lane) {
                inside.in_flight += 1;
            }
            if is_told_of {
                keys.push((before, here));
            }
        }
        self.count_lane(lane, &old);
        self.pools_of(lane);
        if let Some(inside) = self.lanes.get_mut(lane) {
            inside.own.as_mut().iter_mut().for_each(|cell| cell.rename_permits(now, &keys));
            if let Some(throttle) = &mut inside.throttle {
                throttle.rename_permits(now, &keys);
            }
        }
        (keys, has_taken)
    }

    /// The holder `there` of another engine has the units of shared limits that this holder held. If the store is being
    /// asked about them, this holder does not take the answer, because it no longer holds what the answer is about: the
    /// floor that the store grants would be kept in both engines.
    fn let_units_go(&mut self, now: Time, holder: HolderKey, there: &Shared) {
        let now = self.tick(now);
        let Some(Shared { cells, specs, version, .. }) = self.lanes.holder_mut(holder) else { return };
        let mut have_gone = false;
        for (cell, shared) in cells.iter_mut().zip(specs.iter()) {
            let mut others = there.cells.iter().zip(there.specs.iter());
            if others.any(|(other, spec)| other.has_dealings() && is_same(spec, shared)) {
                cell.let_units_go(&shared.spec, now);
                have_gone = true;
            }
        }
        *version += u32::from(have_gone);
    }

    /// Starts a holder that no lane used here before with what its lanes have used in the other engine. Returns whether
    /// it could.
    fn take_history(&mut self, lane: LaneKey, holder: HolderKey, history: &History) -> bool {
        let now = self.now;
        let Some(inside) = self.lanes.holder_mut(holder) else { return false };
        let is_new = |cell: &Cell| cell.is_new() && !cell.holds_units();
        if inside.key != history.key || inside.lanes > 1 || !inside.cells.iter().all(is_new) {
            return false;
        }
        let version = inside.version;
        for (cell, new) in inside.cells.iter_mut().zip(inside.specs.iter()) {
            let found = history.specs.iter().zip(&history.cells).find(|(old, _)| is_same(old, new));
            if let Some((old, used)) = found {
                let mut used = used.clone();
                used.change(&old.spec, &new.spec, now, version);
                // A permit that comes along takes its own slot, so slots are not copied.
                if !used.is_slots() {
                    used.since = version;
                    used.rename_permits(now, &[]);
                    if let Some(throttle) = used.throttle_mut() {
                        throttle.moved_to(lane);
                    }
                    if inside.hosts != history.hosts {
                        used.take_throttle();
                    }
                    *cell = used;
                }
            }
        }
        true
    }
}
