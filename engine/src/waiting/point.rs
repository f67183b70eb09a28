//! The points at which limits stop requests, and whose turn it is there.

use crate::keys::{NodeKey, QueueKey};
use crate::scheduler::SCALE;
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

/// The requests that are stopped at a [`LimitLevel`].
#[derive(Debug)]
pub(crate) struct WaitPoint {
    /// Nodes parked here, at most one per tier, except at an endpoint that several lanes share.
    pub(crate) parked: Vec<NodeKey>,
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
        WaitPoint { parked: Vec::new(), on_settle: false, reserved: Key::NONE, turns: Turns::default() }
    }
}

/// Turns of the tiers at one limit, by start-time fair queueing as in the tree.
///
/// The tree divides what all lanes below a root have in common. If a lane has a limit of its own below that root, the
/// tier whose turn it is at the root may differ at each moment at which the lane's limit has room; with lanes of equal
/// rates it is always the same tier, and the other tiers of the lane starve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    starts: [u64; 3],
    now: u64,
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
        self.starts[tier.index()] = start.saturating_add(cost as u64 * SCALE / u64::from(weight.max(1)));
    }
}

impl WaitPoint {
    pub(crate) fn add(&mut self, node: NodeKey) {
        if !self.parked.contains(&node) {
            self.parked.push(node);
        }
    }
}
