//! Who waits: requests in queues, and the places in the tree where limits stop them.

use std::collections::VecDeque;

use super::ask::{Ask, Refusal, WaitReason};
use super::cost::Cost;
use super::endpoint::EndpointId;
use super::scheduler::SCALE;
use super::slab::excess;
use super::slab::{Key, Slab};
use crate::clock::Time;

/// A request that waits for its turn, or was granted and has not been picked up.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) lane: Key,
    pub(crate) queue: Key,
    pub(crate) tier: u8,
    pub(crate) endpoint: EndpointId,
    pub(crate) cost: Cost,
    /// A retry: goes before first attempts.
    pub(crate) retry: bool,
    /// When the caller stops waiting, whatever happens.
    pub(crate) give_up: Time,
    /// When the caller stops waiting, unless the vendor's pause goes on then.
    pub(crate) tires: Time,
    /// After a pause of the vendor's the caller waits for so long again, in nanoseconds; 0 where it does not.
    pub(crate) patience_ns: u64,
    /// How long the exchange may take, in nanoseconds.
    pub(crate) attempt_ns: u64,
    pub(crate) submitted: Time,
    pub(crate) state: WaiterState,
    /// The last thing that stood in its way.
    pub(crate) reason: WaitReason,
    prev: Key,
    next: Key,
}

#[derive(Debug, Clone)]
pub(crate) enum WaiterState {
    Queued,
    Granted(Key),
    /// Was granted and did not start in time. It is in no queue, so that no request stands behind a caller that does not
    /// move; its next word puts it at the front.
    Missed,
    Gone(Refusal),
}

impl Waiter {
    pub(crate) fn new(lane: Key, queue: Key, submitted: Time, ask: &Ask) -> Waiter {
        Waiter {
            lane,
            queue,
            tier: ask.tier,
            endpoint: ask.endpoint,
            cost: ask.cost,
            retry: ask.retry,
            give_up: ask.give_up,
            tires: ask.give_up,
            patience_ns: ask.patience_ns,
            attempt_ns: ask.attempt_ns,
            submitted,
            state: WaiterState::Queued,
            reason: WaitReason::turn(),
            prev: Key::NONE,
            next: Key::NONE,
        }
    }

    pub(super) fn until(self, tires: Time, give_up: Time) -> Waiter {
        Waiter { tires, give_up, ..self }
    }
}

/// First in, first out, with removal from the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: Key,
    tail: Key,
}

impl List {
    const EMPTY: List = List { head: Key::NONE, tail: Key::NONE };

    fn push_back(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let waiter = &mut waiters[key];
        (waiter.prev, waiter.next) = (self.tail, Key::NONE);
        match waiters.get_mut(self.tail) {
            Some(tail) => tail.next = key,
            None => self.head = key,
        }
        self.tail = key;
    }

    fn push_front(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let waiter = &mut waiters[key];
        (waiter.prev, waiter.next) = (Key::NONE, self.head);
        match waiters.get_mut(self.head) {
            Some(head) => head.prev = key,
            None => self.tail = key,
        }
        self.head = key;
    }

    fn remove(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let (prev, next) = (waiters[key].prev, waiters[key].next);
        match waiters.get_mut(prev) {
            Some(prev) => prev.next = next,
            None => self.head = next,
        }
        match waiters.get_mut(next) {
            Some(next) => next.prev = prev,
            None => self.tail = prev,
        }
    }
}

/// One lane's queue of a tier and an endpoint: retries before first attempts, each in the order of arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) lane: Key,
    pub(crate) tier: u8,
    pub(crate) endpoint: EndpointId,
    /// Its leaf in the tree.
    pub(crate) node: Key,
    retries: List,
    first: List,
    /// The place whose next units are reserved for the head of this queue.
    pub(crate) reserving: Option<LimitLevel>,
}

impl Queue {
    pub(crate) fn new(lane: Key, tier: u8, endpoint: EndpointId, node: Key) -> Queue {
        Queue { lane, tier, endpoint, node, retries: List::EMPTY, first: List::EMPTY, reserving: None }
    }

    pub(crate) fn head(&self) -> Option<Key> {
        [self.retries.head, self.first.head].into_iter().find(|head| *head != Key::NONE)
    }

    /// The last of those that made their first attempt here.
    pub(crate) fn last(&self) -> Option<Key> {
        [self.first.tail, self.retries.tail].into_iter().find(|tail| *tail != Key::NONE)
    }

    /// Everybody inside, first to last.
    pub(crate) fn in_order(&self, waiters: &Slab<Waiter>) -> Vec<Key> {
        let mut found = Vec::new();
        for list in [self.retries, self.first] {
            let mut next = list.head;
            while let Some(waiter) = waiters.get(next) {
                found.push(next);
                next = waiter.next;
            }
        }
        found
    }

    fn list(&mut self, retry: bool) -> &mut List {
        if retry { &mut self.retries } else { &mut self.first }
    }

    pub(crate) fn push(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let retry = waiters[key].retry;
        self.list(retry).push_back(waiters, key);
    }

    /// Back to where it was: it had its turn and could not use it.
    pub(crate) fn push_front(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let retry = waiters[key].retry;
        self.list(retry).push_front(waiters, key);
    }

    pub(crate) fn remove(&mut self, waiters: &mut Slab<Waiter>, key: Key) {
        let retry = waiters[key].retry;
        self.list(retry).remove(waiters, key);
    }
}

/// Where in the tree a limit stops requests: at one endpoint of the lane, at the lane, or at what several lanes share.
/// The number says which: 0 for the account, 1 for the vendor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LimitLevel {
    Endpoint,
    Lane,
    SharedEndpoint(usize),
    Shared(usize),
}

/// What stands still at a [`LimitLevel`].
#[derive(Debug)]
pub(crate) struct WaitPoint {
    /// Nodes parked here, at most one a tier, except at an endpoint that several lanes share.
    pub(crate) parked: Vec<Key>,
    /// Some of them wait for a permit to end.
    pub(crate) on_settle: bool,
    /// The queue whose head gets the next units. No other queue takes from here before it: an expensive request would
    /// otherwise starve behind cheap ones.
    pub(crate) reserved: Key,
    /// Whose turn it is among the tiers, where that is not the tree's to say.
    pub(crate) turns: Turns,
}

impl Default for WaitPoint {
    fn default() -> Self {
        WaitPoint { parked: Vec::new(), on_settle: false, reserved: Key::NONE, turns: Turns::default() }
    }
}

/// Turns of the tiers at one limit, by start-time fair queueing as in the tree.
///
/// The tree shares out what all lanes below a root have in common. Where a lane has a limit of its own below that, the
/// tier whose turn it is at the root is another at each moment that the lane's limit has room, and with lanes of the
/// same rate always the same one: a tier starved by that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turns {
    starts: [u64; 3],
    now: u64,
}

impl Turns {
    /// Whether `tier` is before `other`.
    pub(crate) fn is_before(&self, tier: u8, other: u8) -> bool {
        let start = |tier: u8| (self.starts[tier as usize].max(self.now), tier);
        start(tier) < start(other)
    }

    pub(crate) fn charge(&mut self, tier: u8, cost: u32, weight: u32) {
        let start = self.starts[tier as usize].max(self.now);
        self.now = start;
        self.starts[tier as usize] = start.saturating_add(cost as u64 * SCALE / u64::from(weight.max(1)));
    }
}

impl WaitPoint {
    pub(crate) fn add(&mut self, node: Key) {
        if !self.parked.contains(&node) {
            self.parked.push(node);
        }
    }
}

/// The place of a holder of shared limits in the tree, below another one or at the top.
pub(crate) struct Branch {
    /// The vendor that an account stands below; [`Key::NONE`] at the top.
    pub(crate) above: Key,
    /// Set at the top.
    pub(crate) root: Key,
    pub(crate) tiers: [Key; 3],
    /// Sum of the weights of lanes that wait.
    pub(crate) weight: u32,
    /// Requests waiting in the lanes of this branch.
    pub(crate) waiting: u32,
    /// Lanes that stopped waiting, until forgetting their place in the tree cannot be observed.
    pub(crate) lingering: VecDeque<Key>,
}

impl Branch {
    pub(crate) fn new(above: Key) -> Branch {
        let (root, tiers) = (Key::NONE, [Key::NONE; 3]);
        Branch { above, root, tiers, weight: 0, waiting: 0, lingering: VecDeque::new() }
    }
}

/// What a lane needs while a request waits in it.
#[derive(Debug)]
pub(crate) struct LaneWait {
    /// The lane's own root, where it shares no limit with others.
    pub(crate) root: Key,
    pub(crate) tiers: [Key; 3],
    pub(crate) queues: Vec<Key>,
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

/// Lanes by how many requests wait in them, to the power of two.
pub(crate) struct BacklogIndex {
    lanes: [Vec<Key>; 33],
}

impl Default for BacklogIndex {
    fn default() -> Self {
        BacklogIndex { lanes: std::array::from_fn(|_| Vec::new()) }
    }
}

impl BacklogIndex {
    /// Records that `total` wait in a lane. Costs something only when `total` passes a power of two.
    pub(crate) fn record(&mut self, lane: Key, total: u32, at: Option<(u8, u32)>) -> BacklogMove {
        let class = (u32::BITS - total.leading_zeros()) as u8;
        if at.is_some_and(|(old, _)| old == class) {
            return BacklogMove { at, displaced: None };
        }
        let displaced = at.and_then(|(old, index)| self.take(old, index));
        let at = (class > 0).then(|| {
            let lanes = &mut self.lanes[class as usize];
            lanes.push(lane);
            (class, lanes.len() as u32 - 1)
        });
        BacklogMove { at, displaced }
    }

    /// Removes an entry; the last of its class takes its place and is returned with it.
    fn take(&mut self, class: u8, index: u32) -> Option<(Key, (u8, u32))> {
        let lanes = &mut self.lanes[class as usize];
        lanes.swap_remove(index as usize);
        lanes.get(index as usize).map(|moved| (*moved, (class, index)))
    }

    pub(crate) fn shrink(&mut self) {
        for lanes in &mut self.lanes {
            if let Some(room) = excess(lanes.capacity(), lanes.len()) {
                lanes.shrink_to(room);
            }
        }
    }

    /// All lanes in which requests wait, those with most first.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.lanes.iter().rev().flatten().copied()
    }

    /// The lanes among which is the one that holds most.
    pub(crate) fn fullest(&self) -> &[Key] {
        self.lanes.iter().rev().find(|lanes| !lanes.is_empty()).map_or(&[], |lanes| lanes)
    }
}

/// What [`BacklogIndex::record`] moved: the lane's new place, and another lane that got a new place by it.
pub(crate) struct BacklogMove {
    pub(crate) at: Option<(u8, u32)>,
    pub(crate) displaced: Option<(Key, (u8, u32))>,
}
