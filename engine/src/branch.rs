//! The place in the scheduler's tree of lanes that share a limit. A lane has one while a request of it waits, and for
//! as long afterwards as its place still affects the order of turns.
//!
//! While a reload goes through the lanes of an account, some of them know a limit of the vendor and others do not yet.
//! The account then has two places in the tree, a [`Branch`] each: one below the vendor, and one as a root.

use super::Engine;
use super::holder::Shared;
use super::keys::{HolderKey, LaneKey};
use super::lane::{Lane, Lanes};
use super::scheduler::Tree;
use super::slab::Key;
use super::waiting::{Branch, LaneWait, WaitPoint};

impl Shared {
    pub(crate) fn branch(&self, above: HolderKey) -> Option<&Branch> {
        self.branches.iter().find(|branch| branch.above == above)
    }

    /// The branch below `above`, made if it does not exist.
    pub(crate) fn branch_mut(&mut self, above: HolderKey) -> &mut Branch {
        let at = self.branches.iter().position(|branch| branch.above == above).unwrap_or_else(|| {
            self.branches.push(Branch::new(above));
            self.branches.len() - 1
        });
        &mut self.branches[at]
    }

    /// Removes a branch in which no request waits.
    fn clear_branch(&mut self, above: HolderKey, tree: &mut Tree) {
        let Some(at) = self.branches.iter().position(|branch| branch.above == above && branch.waiting == 0) else {
            return;
        };
        let Branch { root, tiers, .. } = self.branches.swap_remove(at);
        tiers.into_iter().chain([root]).for_each(|node| tree.discard(node));
        if self.waiting == 0 {
            self.wait_point = WaitPoint::default();
            self.endpoint_wait_points.clear();
        }
    }
}

impl Lane {
    /// The narrowest holder of the lane's shared limits and the holder above it; the lane's nodes stand below the
    /// former.
    fn stands_below(&self) -> Option<(HolderKey, HolderKey)> {
        match self.shared {
            [Key::NONE, Key::NONE] => None,
            [Key::NONE, vendor] => Some((vendor, Key::NONE)),
            [account, vendor] => Some((account, vendor)),
        }
    }
}

impl Lanes {
    /// Notes that an account has nodes below those of a vendor. The list is taken when no request waits below the
    /// vendor, which may never be the case, so accounts that have been removed leave it before it grows.
    pub(super) fn note_below(&mut self, vendor: HolderKey, account: HolderKey) {
        let Some(above) = self.holder_mut(vendor) else { return };
        let mut accounts = std::mem::take(&mut above.accounts);
        if accounts.len() == accounts.capacity() {
            accounts.retain(|known| self.holder(*known).is_some());
            if accounts.len() > accounts.capacity() / 2 {
                accounts.reserve(accounts.len());
            }
        }
        accounts.push(account);
        if let Some(above) = self.holder_mut(vendor) {
            above.accounts = accounts;
        }
    }
}

impl Engine {
    /// Adjusts an account's weight among the accounts of a vendor: it is the sum of the weights of its lanes that wait.
    pub(super) fn reweigh(&mut self, [account, vendor]: [HolderKey; 2], by: i64) {
        if let Some(shared) = self.lanes.holder_mut(account) {
            let branch = shared.branch_mut(vendor);
            branch.weight = (branch.weight as i64 + by).max(0) as u32;
            for tier in branch.tiers {
                self.tree.set_weight(tier, branch.weight);
            }
        }
    }

    /// Called when no request waits in a lane any more. Removes the lane's nodes once its place in the tree has no
    /// effect.
    pub(super) fn tidy(&mut self, lane: LaneKey) {
        let Some(inside) = self.lanes.get_mut(lane) else { return };
        let (stands_below, [account, vendor]) = (inside.stands_below(), inside.shared);
        if inside.waiting.as_ref().is_none_or(|waiting| waiting.total() > 0) {
            return;
        }
        let Some((holder, above)) = stands_below else { return self.drop_waiting(lane) };
        self.linger(lane);
        let all = self.lanes.holder_mut(holder).is_none_or(|holder| holder.branch_mut(above).waiting == 0);
        for _ in 0..if all { usize::MAX } else { 2 } {
            let branch = self.lanes.holder_mut(holder).map(|holder| holder.branch_mut(above));
            let Some(lane) = branch.and_then(|branch| branch.lingering.pop_front()) else { break };
            // A lane that belongs to another holder by now lingers there, if at all.
            let inside = self.lanes.get_mut(lane).filter(|lane| lane.stands_below() == stands_below);
            let Some(waiting) = inside.and_then(|lane| lane.waiting.as_mut()) else { continue };
            if !waiting.lingering {
                waiting.is_listed = false;
            } else if all || waiting.tiers.iter().all(|tier| self.tree.is_past(*tier)) {
                self.drop_waiting(lane);
            } else if let Some(holder) = self.lanes.holder_mut(holder) {
                // The lane was served last in a tier in which no request waits now, so it may stay in the list for
                // long. It goes to the end, so that the lanes behind it are looked at.
                holder.branch_mut(above).lingering.push_back(lane);
            }
        }
        let widest = if vendor == Key::NONE { account } else { vendor };
        if self.lanes.holder_mut(widest).is_some_and(|holder| holder.branch_mut(Key::NONE).waiting == 0) {
            // No request is left that could have a turn. The next request starts with a fresh tree, exactly as if all
            // of these lanes had been evicted while they were idle.
            self.clear_tree(widest);
        }
    }

    /// Clears the tree at and below a topmost holder in which no request waits.
    pub(super) fn clear_tree(&mut self, widest: HolderKey) {
        let Some(inside) = self.lanes.holder_mut(widest) else { return };
        let accounts = std::mem::take(&mut inside.accounts);
        let below = accounts.into_iter().map(|account| (account, widest)).chain([(widest, Key::NONE)]);
        for (holder, above) in below {
            let Some(inside) = self.lanes.holder_mut(holder) else { continue };
            for lane in std::mem::take(&mut inside.branch_mut(above).lingering) {
                let stands_below = self.lanes.get(lane).and_then(Lane::stands_below);
                let waits = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref());
                if stands_below == Some((holder, above)) && waits.is_some_and(|waiting| waiting.lingering) {
                    self.drop_waiting(lane);
                }
            }
            if let Some(inside) = self.lanes.holder_mut(holder) {
                inside.clear_branch(above, &mut self.tree);
            }
        }
    }

    /// Clears all branches of a holder that has no lanes any more.
    pub(super) fn clear_branches(&mut self, holder: HolderKey) {
        let Some(inside) = self.lanes.holder_mut(holder) else { return };
        let above: Vec<HolderKey> = inside.branches.iter().map(|branch| branch.above).collect();
        for above in above {
            inside.clear_branch(above, &mut self.tree);
        }
    }

    /// Keeps the nodes of a lane in which no request waits, until its place in the tree has no effect, or until no
    /// request at all waits for the limits that it shares.
    pub(super) fn linger(&mut self, lane: LaneKey) {
        let Some(inside) = self.lanes.get_mut(lane) else { return };
        let (stands_below, shared, weight) = (inside.stands_below(), inside.shared, inside.plan.weight);
        let Some((holder, above)) = stands_below else { return };
        let Some(waiting) = inside.waiting.as_mut().filter(|waiting| waiting.total() == 0) else { return };
        if !std::mem::replace(&mut waiting.lingering, true) {
            let is_listed = std::mem::replace(&mut waiting.is_listed, true);
            if !shared.contains(&Key::NONE) {
                self.reweigh(shared, -(weight as i64));
            }
            if !is_listed && let Some(holder) = self.lanes.holder_mut(holder) {
                holder.branch_mut(above).lingering.push_back(lane);
            }
        }
    }

    pub(super) fn drop_waiting(&mut self, lane: LaneKey) {
        let Some(inside) = self.lanes.get_mut(lane) else { return };
        let Some(waiting) = inside.waiting.take() else { return };
        let LaneWait { root, tiers, queues, lingering, .. } = *waiting;
        let (shared, weight) = (inside.shared, inside.plan.weight);
        // A lingering lane has had its weight subtracted already.
        if !lingering && !shared.contains(&Key::NONE) {
            self.reweigh(shared, -(weight as i64));
        }
        for queue in queues {
            if let Some(queue) = self.waiters.remove_queue(queue) {
                self.tree.discard(queue.node);
            }
        }
        tiers.into_iter().for_each(|tier| self.tree.discard(tier));
        self.tree.discard(root);
    }
}
