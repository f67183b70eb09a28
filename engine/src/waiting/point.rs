//! The points at which limits stop requests, and whose turn it is there.

use hashbrown::HashSet;

use crate::keys::{NodeKey, QueueKey};
use crate::scheduler::step;
use crate::slab::Key;
use crate::tier::Tier;

/// The level of the tree at which a limit stops requests: one endpoint of the lane, the lane, or limits that several
/// lanes share. The number says whose: 0 for the account, 1 for the vendor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitLevel {
    Endpoint,
    Lane,
    SharedEndpoint(usize),
    Shared(usize),
}

/// The number of nodes at the end of the list among which a node is searched before it is added.
const FEW: usize = 8;

/// The requests that are stopped at a [`LimitLevel`].
#[derive(Debug)]
pub(crate) struct WaitPoint {
    /// Nodes parked here, at most one per tier, except at an endpoint that several lanes share. Some may be here twice.
    pub(crate) parked: Vec<NodeKey>,
    /// The length of `parked` at which nodes that are in it twice are taken out.
    full_at: usize,
    /// Whether some of them wait for a permit to end.
    pub(crate) on_settle: bool,
    /// The queue whose head gets the next units. No other queue takes units here before it: otherwise an expensive
    /// request would starve behind cheap ones. A high request may, if the head waits only for the lower tiers' part.
    pub(crate) reserved: QueueKey,
    /// Whose turn it is among the tiers, where the tree does not decide that.
    pub(crate) turns: Turns,
}

impl Default for WaitPoint {
    fn default() -> Self {
        WaitPoint { parked: Vec::new(), full_at: FEW, on_settle: false, reserved: Key::NONE, turns: Turns::default() }
    }
}

/// Turns of the tiers at one limit, by start-time fair queueing as in the tree.
///
/// The tree divides what all lanes below a root have in common. If a lane has a limit of its own below that root, the
/// tier whose turn it is at the root may differ at each moment at which the lane's limit has room; with lanes of equal
/// rates it is always the same tier, and the other tiers of the lane starve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    starts: [u128; 3],
    now: u128,
}

impl Turns {
    /// Whether the turn of `tier` comes before that of `other`.
    pub(crate) fn is_before(&self, tier: Tier, other: Tier) -> bool {
        let start = |tier: Tier| (self.starts[tier.index()].max(self.now), tier);
        start(tier) < start(other)
    }

    pub(crate) fn charge(&mut self, tier: Tier, cost: u32, weight: u32) {
        let start = self.starts[tier.index()].max(self.now);
        self.now = start;
        self.starts[tier.index()] = start.saturating_add(step(cost, weight));
    }

    /// Takes back a charge for a turn that was not used.
    pub(crate) fn refund(&mut self, tier: Tier, cost: u32, weight: u32) {
        let start = &mut self.starts[tier.index()];
        *start = start.saturating_sub(step(cost, weight));
    }
}

impl WaitPoint {
    /// Adds a node that is parked here. A search for it in the whole list would take n² steps where n lanes wait for one
    /// endpoint's limit, so it may be in the list twice, and the list is cleaned when it has doubled.
    pub(crate) fn add(&mut self, node: NodeKey) {
        let latest = self.parked.len().saturating_sub(FEW);
        if self.parked[latest..].contains(&node) {
            return;
        }
        self.parked.push(node);
        if self.parked.len() > self.full_at {
            let mut seen = HashSet::with_capacity(self.parked.len());
            self.parked.retain(|node| seen.insert(*node));
            self.full_at = FEW.max(2 * self.parked.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_parked_nodes_is_cleaned_and_keeps_its_order() {
        let node = NodeKey::from_bits;
        let mut point = WaitPoint::default();
        for _ in 0..5 {
            (0..1_000).for_each(|index| point.add(node(index)));
        }
        assert!((1_000..=2_000).contains(&point.parked.len()), "{}", point.parked.len());
        let first: Vec<NodeKey> = point.parked[..1_000].to_vec();
        assert_eq!(first, (0..1_000).map(node).collect::<Vec<_>>());
        let mut few = WaitPoint::default();
        [1, 2, 1, 3, 2].into_iter().for_each(|index| few.add(node(index)));
        assert_eq!(few.parked, [1, 2, 3].map(node));
    }
}
