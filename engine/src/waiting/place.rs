//! What a lane, or a holder of shared limits, needs while a request waits in it.

use std::collections::VecDeque;

use super::point::WaitPoint;
use crate::endpoint::EndpointId;
use crate::keys::{HolderKey, LaneKey, NodeKey, QueueKey};
use crate::slab::Key;

/// The place of a holder of shared limits in the tree, below another one or at the top.
pub(crate) struct Branch {
    /// The vendor that an account stands below; [`Key::NONE`] at the top.
    pub(crate) above: HolderKey,
    /// Set at the top.
    pub(crate) root: NodeKey,
    pub(crate) tiers: [NodeKey; 3],
    /// Sum of the weights of lanes that wait.
    pub(crate) weight: u32,
    /// Requests waiting in the lanes of this branch.
    pub(crate) waiting: u32,
    /// Lanes that stopped waiting, until forgetting their place in the tree cannot be observed.
    pub(crate) lingering: VecDeque<LaneKey>,
}

impl Branch {
    pub(crate) fn new(above: HolderKey) -> Branch {
        let (root, tiers) = (Key::NONE, [Key::NONE; 3]);
        Branch { above, root, tiers, weight: 0, waiting: 0, lingering: VecDeque::new() }
    }
}

/// What a lane needs while a request waits in it.
#[derive(Debug)]
pub(crate) struct LaneWait {
    /// The lane's own root, where it shares no limit with others.
    pub(crate) root: NodeKey,
    pub(crate) tiers: [NodeKey; 3],
    pub(crate) queues: Vec<QueueKey>,
    /// Waiting requests per tier.
    pub(crate) waiting: [u32; 3],
    pub(crate) wait_point: WaitPoint,
    pub(crate) endpoint_wait_points: Vec<(EndpointId, WaitPoint)>,
    /// Place in the engine's record of who holds most.
    pub(crate) backlog_index: Option<(u8, u32)>,
    /// No request waits; only the place in the tree is kept for a while.
    pub(crate) lingering: bool,
}

impl LaneWait {
    pub(crate) fn new() -> LaneWait {
        LaneWait {
            root: Key::NONE,
            tiers: [Key::NONE; 3],
            queues: Vec::new(),
            waiting: [0; 3],
            wait_point: WaitPoint::default(),
            endpoint_wait_points: Vec::new(),
            backlog_index: None,
            lingering: false,
        }
    }

    pub(crate) fn total(&self) -> u32 {
        self.waiting.iter().sum()
    }

    pub(crate) fn endpoint_wait_point(&mut self, endpoint: EndpointId) -> &mut WaitPoint {
        let at = self.endpoint_wait_points.iter().position(|(id, _)| *id == endpoint).unwrap_or_else(|| {
            self.endpoint_wait_points.push((endpoint, WaitPoint::default()));
            self.endpoint_wait_points.len() - 1
        });
        &mut self.endpoint_wait_points[at].1
    }
}
