//! Evicts idle lanes and frees their memory.
//!
//! A lane may be evicted when that changes no later decision: nothing waits, is in flight or owed, nothing that was
//! learned is still in use, and no other lane keeps to a figure of a shared limit that this lane alone states. A sweep
//! works in small steps because senders wait during each.

use std::collections::HashSet;

use super::Engine;
use super::keys::HolderKey;
use super::notices::Forgotten;
use super::pause_notices::{of_lane, of_own_limit};
use crate::time::Time;

/// The position at which a sweep goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// Lanes from this slot on.
    Lanes(u32),
    /// Holders of shared limits from this slot on.
    Shared(u32),
    /// Unused memory.
    Room,
}

impl Sweep {
    pub const START: Sweep = Sweep::Lanes(0);
}

/// Chunks of a slab that are freed in one step: all their slots are read once more, and are in no cache.
const CHUNKS: usize = 2;

impl Engine {
    /// Frees what idle lanes do not need and, with `evict`, the lanes themselves if that changes no later decision.
    /// Looks at `count` slots; returns where to go on, or `None` at the end.
    pub fn sweep(&mut self, now: Time, from: Sweep, count: u32, evict: bool) -> Option<Sweep> {
        let now = self.tick(now);
        match from {
            Sweep::Lanes(from) => {
                let end = self.lanes.end();
                let to = end.min(from.saturating_add(count));
                (from..to).for_each(|index| self.sweep_lane(now, index, evict));
                Some(if to < end { Sweep::Lanes(to) } else { Sweep::Shared(0) })
            }
            Sweep::Shared(from) => {
                let end = self.lanes.holder_end();
                let to = end.min(from.saturating_add(count));
                let mut named = None;
                (from..to).for_each(|index| self.sweep_shared(now, index, &mut named));
                Some(if to < end { Sweep::Shared(to) } else { Sweep::Room })
            }
            Sweep::Room => self.give_room_back().then_some(Sweep::Room),
        }
    }

    fn sweep_lane(&mut self, now: Time, index: u32, evict: bool) {
        let Some(key) = self.lanes.key_at(index) else { return };
        let lane = &mut self.lanes[key];
        let mut rests = true;
        for (number, (cell, spec)) in lane.own.as_mut().iter_mut().zip(&lane.plan.own).enumerate() {
            for change in cell.forgotten(spec, now) {
                let noticed = of_own_limit(&lane.plan, number, &change);
                self.notices.forget(Forgotten::of_tenant(&lane.plan, &lane.tenant, noticed));
            }
            rests &= cell.rest(spec, now);
        }
        let unused = lane.in_flight == 0 && lane.waiting.is_none();
        let is_gone = lane.retired && unused;
        if let Some(throttle) = lane.throttle.take_if(|throttle| throttle.is_idle(now, &lane.plan.pace, is_gone)) {
            for (limit, change) in throttle.forgotten() {
                let noticed = of_lane(&lane.plan, throttle.whose(), limit, &change);
                self.notices.forget(Forgotten::of_tenant(&lane.plan, &lane.tenant, noticed));
            }
        }
        rests &= lane.throttle.is_none();
        let evictable = evict && lane.has_forgotten(now) && lane.pins == 0 && !lane.plan.starts_spent();
        if rests && (is_gone || (unused && evictable && !self.lanes.decides_for_others(key))) {
            self.lanes.remove(key);
        }
    }

    /// `named` caches the set of holders that permits count in.
    fn sweep_shared(&mut self, now: Time, index: u32, named: &mut Option<HashSet<HolderKey>>) {
        let Some(key) = self.lanes.holder_key_at(index) else { return };
        let Some(shared) = self.lanes.holder_mut(key) else { return };
        let mut rests = true;
        for (cell, spec) in shared.cells.iter_mut().zip(shared.specs.iter()) {
            for change in cell.forgotten(&spec.spec, now) {
                self.notices.forget(Forgotten::of_shared(&shared.key, spec, &change));
            }
            // A new holder would count as used up again.
            rests &= cell.rest(&spec.spec, now) && !spec.spec.counts_as_used_up();
        }
        if !rests || shared.lanes > 0 || shared.waiting > 0 {
            return;
        }
        // A permit counts in its holder as soon as the holder gets a concurrency limit, so such a holder stays.
        let permits = &self.permits;
        let named = named.get_or_insert_with(|| permits.iter().flat_map(|permit| permit.origin.holders).collect());
        if !named.contains(&key) {
            self.clear_tree(key);
            self.clear_branches(key);
            self.lanes.unshare(key);
        }
    }

    /// Returns whether there may be more memory to free.
    fn give_room_back(&mut self) -> bool {
        self.sweep_groups();
        let more = [
            self.lanes.shrink(CHUNKS),
            self.tree.shrink(CHUNKS),
            self.waiters.shrink(CHUNKS),
            self.permits.shrink(CHUNKS),
        ];
        self.timers.shrink();
        more.contains(&true)
    }

    /// Whether there is nothing that a later sweep could drop.
    pub fn is_empty(&self) -> bool {
        self.lanes.len() == 0 && self.lanes.holder_count() == 0
    }

    /// One past the highest index of a waiter.
    pub fn waiters_end(&self) -> usize {
        self.waiters.end()
    }
}
