//! Decides whose turn it is: start-time fair queueing (Goyal, Vin and Chen, 1996) on a tree.
//!
//! A root stands for a set of lanes that share a limit. Below it come the tiers (60 / 30 / 10 by the plan's weights),
//! below each tier the accounts if the vendor has any, the lanes, and as leaves the queues: one per endpoint, in the
//! order of arrival.
//!
//! Every child keeps the virtual time of its parent at which its next request starts. The parent takes the child with
//! the earliest start, and a grant of cost c moves that start by c / weight. Shares are therefore exact by cost, and an
//! expensive request pays after its turn instead of saving up before it. A child that returns starts at the present
//! virtual time: it saves up nothing, and others have used its share meanwhile. Weights 6 / 3 / 1 and unit costs repeat
//! with period ten, so that any hundred grants hold 60 / 30 / 10.
//!
//! The tree knows no limits: a node that a limit blocks is parked, and the caller that knows when unparks it.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::keys::{NodeKey, OfNode, QueueKey};
use super::slab::{Key, Slab, excess};
use crate::time::Time;

/// Divisible by 1 to 16, so that the usual weights divide without a remainder. An account weighs as much as all its
/// waiting lanes together; the factor is so large that a turn moves every weight that fits into 32 bits.
const SCALE: u64 = 720_720 << 32;

/// How far a turn of `cost` moves a start in virtual time. More than 64 bits, because the sum of all turns must not
/// overflow while a backlog lasts.
pub(crate) fn step(cost: u32, weight: u32) -> u128 {
    u128::from(cost) * u128::from(SCALE / u64::from(weight.max(1)))
}

/// The depth of the tree: root, tier, account, lane, endpoint.
pub(crate) const MAX_DEPTH: usize = 5;

/// A node and, at a leaf, the queue that waits there.
#[derive(Debug)]
pub(crate) struct Node {
    parent: NodeKey,
    weight: u32,
    /// Breaks ties among siblings, lowest first; 0 for siblings in the order of arrival.
    rank: u64,
    /// When the next request starts, in the parent's virtual time.
    start: u128,
    /// Breaks ties after the rank: first come, first served.
    arrival: u64,
    /// This node's own virtual time, for its children.
    now: u128,
    /// Children that may be next, by (start, rank, arrival).
    ready: BinaryHeap<Reverse<(u128, u64, u64, NodeKey)>>,
    /// Whether the node is in its parent's `ready`.
    queued: bool,
    /// Whether the node is excluded from the turns; never if nothing waits at or below it.
    parked: bool,
    /// Whether nothing refers to the node any more; it is freed as soon as it leaves its parent's `ready`.
    orphan: bool,
    /// Requests waiting at or below this node.
    backlog: u32,
    /// Those of `backlog` that wait in lanes below this node that are parked.
    in_parked_lanes: u32,
    /// Whether the node stands for a tier of a lane: what parks it concerns this lane alone.
    is_lane: bool,
    /// Counts parkings, so that a timer set for an earlier parking can be recognized as stale.
    parkings: u32,
    /// At a leaf: the queue that waits here.
    queue: Option<QueueKey>,
}

/// All nodes of an engine.
#[derive(Default)]
pub(crate) struct Tree {
    nodes: Slab<OfNode, Node>,
    arrivals: u64,
    /// Roots under which a request may be grantable, and since when.
    ready: Vec<(NodeKey, Time)>,
}

impl Default for Slab<OfNode, Node> {
    fn default() -> Self {
        Slab::new()
    }
}

/// The nodes from the child of a root down to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    nodes: [NodeKey; MAX_DEPTH],
    len: usize,
}

impl Path {
    pub(crate) fn leaf(&self) -> NodeKey {
        self.nodes[self.len - 1]
    }
}

impl Tree {
    pub(crate) fn add_root(&mut self) -> NodeKey {
        self.add(Key::NONE, 1, 0, None)
    }

    pub(crate) fn add_branch(&mut self, parent: NodeKey, weight: u32, rank: u64) -> NodeKey {
        self.add(parent, weight, rank, None)
    }

    /// Adds the node of a lane's tier.
    pub(crate) fn add_lane(&mut self, parent: NodeKey, weight: u32, rank: u64) -> NodeKey {
        let node = self.add(parent, weight, rank, None);
        self.nodes[node].is_lane = true;
        node
    }

    pub(crate) fn add_leaf(&mut self, parent: NodeKey) -> NodeKey {
        self.add(parent, 1, 0, Some(Key::NONE))
    }

    pub(crate) fn set_queue(&mut self, leaf: NodeKey, queue: QueueKey) {
        self.nodes[leaf].queue = Some(queue);
    }

    /// Number of requests waiting at or below a node.
    pub(crate) fn backlog(&self, node: NodeKey) -> u32 {
        self.nodes.get(node).map_or(0, |node| node.backlog)
    }

    /// Number of requests waiting below a node, without those of lanes that a limit or a pause of their own stops.
    pub(crate) fn backlog_of_free_lanes(&self, node: NodeKey) -> u32 {
        self.nodes.get(node).map_or(0, |node| node.backlog - node.in_parked_lanes)
    }

    pub(crate) fn queue_of(&self, leaf: NodeKey) -> QueueKey {
        self.nodes.get(leaf).and_then(|leaf| leaf.queue).unwrap_or(Key::NONE)
    }

    fn add(&mut self, parent: NodeKey, weight: u32, rank: u64, queue: Option<QueueKey>) -> NodeKey {
        self.nodes.insert(Node {
            parent,
            weight: weight.max(1),
            rank,
            start: 0,
            arrival: 0,
            now: 0,
            ready: BinaryHeap::new(),
            queued: false,
            parked: false,
            orphan: false,
            backlog: 0,
            in_parked_lanes: 0,
            is_lane: false,
            parkings: 0,
            queue,
        })
    }

    /// Discards a node at which no request waits or will wait.
    pub(crate) fn discard(&mut self, node: NodeKey) {
        let Some(inside) = self.nodes.get_mut(node) else { return };
        if inside.queued {
            inside.orphan = true;
        } else {
            self.remove(node);
        }
    }

    /// Removes a node, and the discarded nodes that were only in its own heap.
    fn remove(&mut self, node: NodeKey) {
        let Some(inside) = self.nodes.remove(node) else { return };
        for Reverse((_, _, _, child)) in inside.ready {
            match self.nodes.get_mut(child) {
                Some(inside) if inside.orphan => self.remove(child),
                Some(inside) => inside.queued = false,
                None => {}
            }
        }
    }

    /// Notes that a request under this root may be grantable, and may have been since `due`.
    pub(crate) fn mark_ready(&mut self, root: NodeKey, due: Time) {
        match self.ready.last_mut() {
            Some((last, earlier)) if *last == root => *earlier = due.min(*earlier),
            _ => self.ready.push((root, due)),
        }
    }

    /// Removes and returns the root that was marked last, and since when a request under it may have been grantable.
    pub(crate) fn pop_ready(&mut self) -> Option<(NodeKey, Time)> {
        self.ready.pop()
    }

    pub(crate) fn shrink(&mut self, chunks: usize) -> bool {
        if let Some(room) = excess(self.ready.capacity(), self.ready.len()) {
            self.ready.shrink_to(room);
        }
        self.nodes.shrink(chunks)
    }

    pub(crate) fn set_weight(&mut self, node: NodeKey, weight: u32) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.weight = weight.max(1);
        }
    }

    /// Whether dropping this node's position in its parent would make no difference.
    pub(crate) fn is_past(&self, node: NodeKey) -> bool {
        match self.nodes.get(node) {
            Some(inside) if inside.backlog > 0 => false,
            Some(inside) => self.nodes.get(inside.parent).is_none_or(|parent| inside.start <= parent.now),
            None => true,
        }
    }

    /// Counts one more waiting request at a leaf.
    pub(crate) fn arrive(&mut self, leaf: NodeKey) {
        let (mut node, mut in_parked_lane) = (leaf, 0);
        while let Some(inside) = self.nodes.get_mut(node) {
            inside.backlog += 1;
            inside.in_parked_lanes += in_parked_lane;
            in_parked_lane |= u32::from(inside.is_lane && inside.parked);
            node = inside.parent;
        }
        self.make_ready(leaf);
    }

    /// Counts one waiting request less at a leaf. A node at which none is left is unparked: timers and wait points
    /// ignore a node without requests, so it would stay parked when the next request arrives.
    pub(crate) fn leave(&mut self, leaf: NodeKey) {
        let (mut node, mut in_parked_lane) = (leaf, 0);
        while let Some(inside) = self.nodes.get_mut(node) {
            inside.backlog -= 1;
            inside.in_parked_lanes -= in_parked_lane;
            in_parked_lane |= u32::from(inside.is_lane && inside.parked);
            inside.parked &= inside.backlog > 0;
            node = inside.parent;
        }
    }

    /// Excludes a node with waiting requests from the turns until [`unpark`](Self::unpark). Returns the number of this
    /// parking.
    pub(crate) fn park(&mut self, node: NodeKey) -> u32 {
        let inside = &mut self.nodes[node];
        let was_parked = std::mem::replace(&mut inside.parked, true);
        inside.parkings = inside.parkings.wrapping_add(1);
        let (parkings, parent, backlog) = (inside.parkings, inside.parent, inside.backlog);
        if inside.is_lane && !was_parked {
            self.each_above(parent, |above| above.in_parked_lanes += backlog);
        }
        parkings
    }

    /// Whether the node is still in the parking of this number.
    pub(crate) fn is_parked(&self, node: NodeKey, parking: u32) -> bool {
        self.nodes.get(node).is_some_and(|node| node.parked && node.parkings == parking)
    }

    /// Whether the node or one above it is parked, so that new requests below it wait too.
    pub(crate) fn is_stopped(&self, node: NodeKey) -> bool {
        let mut at = node;
        while let Some(inside) = self.nodes.get(at) {
            if inside.parked {
                return true;
            }
            at = inside.parent;
        }
        false
    }

    pub(crate) fn unpark(&mut self, node: NodeKey) {
        if let Some(inside) = self.nodes.get_mut(node) {
            let (was_parked, backlog) = (std::mem::take(&mut inside.parked), inside.backlog);
            if inside.is_lane && was_parked {
                let parent = inside.parent;
                self.each_above(parent, |above| above.in_parked_lanes -= backlog);
            }
            self.make_ready(node);
        }
    }

    /// Calls `change` with a node and those above it.
    fn each_above(&mut self, node: NodeKey, change: impl Fn(&mut Node)) {
        let mut node = node;
        while let Some(inside) = self.nodes.get_mut(node) {
            change(inside);
            node = inside.parent;
        }
    }

    /// The root above a node.
    pub(crate) fn root_of(&self, node: NodeKey) -> NodeKey {
        let mut root = node;
        while let Some(parent) = self.nodes.get(root).map(|node| node.parent).filter(|parent| *parent != Key::NONE) {
            root = parent;
        }
        root
    }

    /// Whether `node` is `above` or is below it.
    pub(crate) fn is_below(&self, node: NodeKey, above: NodeKey) -> bool {
        let mut at = node;
        while at != above {
            match self.nodes.get(at) {
                Some(inside) => at = inside.parent,
                None => return false,
            }
        }
        true
    }

    /// Makes a node, and those above it, available to be chosen, after their equals.
    fn make_ready(&mut self, node: NodeKey) {
        let mut node = node;
        loop {
            self.arrivals += 1;
            let Some(inside) = self.nodes.get_mut(node) else { return };
            let (parent, queued) = (inside.parent, inside.queued);
            if !queued {
                inside.arrival = self.arrivals;
            }
            // A node that is in its parent's heap already may have been left there when nothing waited, while its
            // parent was removed from the heap above. So the loop goes on upwards.
            if !queued && !self.push(node) {
                return;
            }
            node = parent;
        }
    }

    /// Puts a node into its parent's heap if the node has a request to offer. Returns whether it did.
    fn push(&mut self, node: NodeKey) -> bool {
        let inside = &self.nodes[node];
        let has_work = inside.backlog > 0 && (inside.queue.is_some() || !inside.ready.is_empty());
        let parent = inside.parent;
        if parent == Key::NONE || inside.queued || inside.parked || !has_work {
            return false;
        }
        let start = inside.start.max(self.nodes[parent].now);
        let inside = &mut self.nodes[node];
        inside.start = start;
        inside.queued = true;
        let entry = Reverse((start, inside.rank, inside.arrival, node));
        self.nodes[parent].ready.push(entry);
        true
    }

    /// The path to the queue whose turn it is. Until [`charge`](Self::charge) or [`put_back`](Self::put_back) is
    /// called, the path is not in the tree.
    pub(crate) fn next(&mut self, root: NodeKey) -> Option<Path> {
        let mut path = Path { nodes: [Key::NONE; MAX_DEPTH], len: 0 };
        let mut node = root;
        loop {
            let popped = self.nodes.get_mut(node).and_then(|node| node.ready.pop());
            let Some(Reverse((_, _, _, child))) = popped else {
                // Everything below is parked or gone: return to the parent, and try its next child.
                if path.len == 0 {
                    return None;
                }
                path.len -= 1;
                node = if path.len == 0 { root } else { path.nodes[path.len - 1] };
                continue;
            };
            let Some(inside) = self.nodes.get_mut(child) else { continue };
            inside.queued = false;
            if inside.orphan {
                self.remove(child);
                continue;
            }
            if inside.parked || inside.backlog == 0 {
                continue;
            }
            let leaf = inside.queue.is_some();
            path.nodes[path.len] = child;
            path.len += 1;
            if leaf {
                return Some(path);
            }
            node = child;
        }
    }

    /// Charges `cost` to a path after its turn, and puts it back.
    pub(crate) fn charge(&mut self, path: &Path, cost: u32) {
        self.hold_turn(path);
        // All nodes are charged before any is put back, because a ready leaf makes those above it ready too.
        for node in &path.nodes[..path.len] {
            self.arrivals += 1;
            let inside = &mut self.nodes[*node];
            inside.start = inside.start.saturating_add(step(cost, inside.weight));
            inside.arrival = self.arrivals;
        }
        self.put_back(path);
    }

    /// Takes back what a turn of `cost` moved the starts of a leaf and of the nodes above it: the turn was not used. Rare:
    /// it searches the heaps for these nodes.
    pub(crate) fn refund(&mut self, leaf: NodeKey, cost: u32) {
        let mut node = leaf;
        loop {
            let Some(inside) = self.nodes.get_mut(node) else { return };
            inside.start = inside.start.saturating_sub(step(cost, inside.weight));
            let (parent, queued) = (inside.parent, std::mem::take(&mut inside.queued));
            if queued {
                self.nodes[parent].ready.retain(|Reverse((_, _, _, child))| *child != node);
                self.push(node);
            }
            node = parent;
        }
    }

    /// Reserves the turn for this path until it is charged: requests that arrive later come after it.
    pub(crate) fn hold_turn(&mut self, path: &Path) {
        for node in &path.nodes[..path.len] {
            let (parent, start) = (self.nodes[*node].parent, self.nodes[*node].start);
            let parent = &mut self.nodes[parent];
            parent.now = parent.now.max(start);
        }
    }

    /// Puts a path back whose turn a limit has blocked. Virtual time stands still, so that nodes parked beside it keep
    /// their positions.
    pub(crate) fn put_back(&mut self, path: &Path) {
        for node in path.nodes[..path.len].iter().rev() {
            self.push(*node);
        }
    }

    /// How far the next turn of a node lies beyond its parent's virtual time, and the node's order of arrival among its
    /// equals.
    pub(crate) fn lead(&self, node: NodeKey) -> (u128, u64) {
        let Some(inside) = self.nodes.get(node) else { return (0, 0) };
        let now = self.nodes.get(inside.parent).map_or(0, |parent| parent.now);
        (inside.start.saturating_sub(now), inside.arrival)
    }

    /// Puts a node at which nothing waits yet `lead` beyond its parent's virtual time.
    pub(crate) fn set_lead(&mut self, node: NodeKey, lead: u128) {
        let Some(inside) = self.nodes.get(node) else { return };
        let now = self.nodes.get(inside.parent).map_or(0, |parent| parent.now);
        if let Some(inside) = self.nodes.get_mut(node).filter(|inside| !inside.queued) {
            inside.start = now.saturating_add(lead);
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }
}
