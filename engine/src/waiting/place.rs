//! The state of a lane, or of a holder of shared limits, while requests wait in it.

use std::collections::VecDeque;

use super::point::WaitPoint;
use crate::endpoint::EndpointId;
use crate::keys::{HolderKey, LaneKey, NodeKey, QueueKey};
use crate::slab::Key;

/// The position of a holder of shared limits in the tree, below another holder or at the top.
pub(crate) struct Branch {
    /// The vendor above an account; [`Key::NONE`] at the top.
    pub(crate) above: HolderKey,
    /// Set only at the top.
    pub(crate) root: NodeKey,
    pub(crate) tiers: [NodeKey; 3],
    /// The sum of the weights of lanes with waiting requests.
    pub(crate) weight: u32,
    /// Requests waiting in the lanes of this branch.
    pub(crate) waiting: u32,
    /// Lanes without waiting requests that keep their position in the tree until dropping it makes no difference; some
    /// have waiting requests again.
    pub(crate) lingering: VecDeque<LaneKey>,
}

impl Branch {
    pub(crate) fn new(above: HolderKey) -> Branch {
        let (root, tiers) = (Key::NONE, [Key::NONE; 3]);
        Branch { above, root, tiers, weight: 0, waiting: 0, lingering: VecDeque::new() }
    }
}

/// The state of a lane while requests wait in it.
#[derive(Debug)]
pub(crate) struct LaneWait {
    /// The lane's own root, if it shares no limit with other lanes.
    pub(crate) root: NodeKey,
    pub(crate) tiers: [NodeKey; 3],
    pub(crate) queues: Vec<QueueKey>,
    /// Waiting requests per tier.
    pub(crate) waiting: [u32; 3],
    pub(crate) wait_point: WaitPoint,
    pub(crate) endpoint_wait_points: Vec<(EndpointId, WaitPoint)>,
    /// The lane's position in the engine's `BacklogIndex`.
    pub(crate) backlog_index: Option<(u8, u32)>,
    /// Whether no request waits, and only the position in the tree is kept for a while.
    pub(crate) lingering: bool,
    /// Whether the lane is in its branch's list of lingering lanes. It stays there if requests wait in it again.
    pub(crate) is_listed: bool,
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
            is_listed: false,
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
