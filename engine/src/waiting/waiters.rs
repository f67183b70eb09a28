//! All waiters and queues of an engine.

use super::backlog::{BacklogIndex, BacklogMove};
use super::bound::Bound;
use super::queue::Queue;
use super::waiter::{Waiter, WaiterState};
use crate::ask::{Refusal, WaitReason};
use crate::endpoint::EndpointId;
use crate::keys::{LaneKey, OfQueue, OfWaiter, PermitKey, QueueKey, WaiterKey};
use crate::slab::{Slab, excess};
use crate::time::Time;

/// The requests of an engine that wait, or were granted and have not been claimed by their callers.
pub(crate) struct Waiters {
    all: Slab<OfWaiter, Waiter>,
    queues: Slab<OfQueue, Queue>,
    /// Number of requests in queues.
    queued: u32,
    bound: Bound,
    backlog: BacklogIndex,
    /// Waiters that were granted or refused since the driver last asked for them.
    woken: Vec<WaiterKey>,
    /// Lanes that were looked at because of a pause, for tests of what a refusal costs.
    #[cfg(test)]
    pub(crate) visits: u64,
}

impl Waiters {
    pub(crate) fn new(bound: Bound) -> Waiters {
        let (all, queues) = (Slab::new(), Slab::new());
        Waiters {
            all,
            queues,
            queued: 0,
            bound,
            backlog: BacklogIndex::default(),
            woken: Vec::new(),
            #[cfg(test)]
            visits: 0,
        }
    }

    pub(crate) fn insert(&mut self, waiter: Waiter) -> WaiterKey {
        self.all.insert(waiter)
    }

    pub(crate) fn remove(&mut self, waiter: WaiterKey) -> Option<Waiter> {
        self.all.remove(waiter)
    }

    pub(crate) fn get(&self, waiter: WaiterKey) -> Option<&Waiter> {
        self.all.get(waiter)
    }

    /// Keys of all waiters, in the order of their slots.
    pub(crate) fn keys(&self) -> impl Iterator<Item = WaiterKey> + '_ {
        self.all.keys()
    }

    /// An index above those of all waiters.
    pub(crate) fn end(&self) -> usize {
        self.all.end() as usize
    }

    pub(crate) fn is_queued(&self, waiter: WaiterKey) -> bool {
        self.all.get(waiter).is_some_and(|waiter| matches!(waiter.state, WaiterState::Queued))
    }

    /// The number of requests in queues.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    /// The number of requests in the queues of all engines of the client.
    pub(crate) fn queued_anywhere(&self) -> u32 {
        self.bound.waiting()
    }

    /// Whether the requests waiting in all engines of the client have reached the bound.
    pub(crate) fn is_full(&self) -> bool {
        self.bound.is_reached()
    }

    /// Whether the fullest lane of all engines is here, to within a power of two, and more than one request waits in
    /// it.
    pub(crate) fn has_fullest_lane(&self) -> bool {
        self.bound.fullest_class().is_some_and(|class| self.backlog.reaches(class))
    }

    /// Admits a request of a lane in which `total` wait already, although the bound is reached: a lane with clearly
    /// more waiting requests, which may be in another engine, is to lose one. Returns `false` if there is no such lane,
    /// or if too many requests have been admitted in this way.
    pub(crate) fn admit_beyond_bound(&self, total: u32) -> bool {
        self.bound.admit_beyond(total)
    }

    /// Whether an engine has admitted a request beyond the bound, for which no eviction has been made.
    #[inline]
    pub(crate) fn is_eviction_owed(&self) -> bool {
        self.bound.is_owed()
    }

    /// Whether this engine is to evict a waiter at its next decision. Each such decision makes fewer evictions owed, so
    /// this ends.
    #[inline]
    pub(crate) fn is_to_evict(&self) -> bool {
        self.queued > 0 && self.bound.is_owed() && self.bound.is_exceeded() && self.has_fullest_lane()
    }

    /// Whether this engine is to evict a waiter for a request beyond the bound. The caller does so.
    pub(crate) fn take_owed_eviction(&self) -> bool {
        !self.bound.waive() && self.has_fullest_lane() && self.bound.take_owed()
    }

    /// The number of objects that can have timers: waiters and queues.
    pub(crate) fn timed(&self) -> usize {
        self.all.len() + self.queues.len()
    }

    pub(crate) fn add_queue(&mut self, queue: Queue) -> QueueKey {
        self.queues.insert(queue)
    }

    pub(crate) fn remove_queue(&mut self, queue: QueueKey) -> Option<Queue> {
        self.queues.remove(queue)
    }

    pub(crate) fn queue(&self, queue: QueueKey) -> Option<&Queue> {
        self.queues.get(queue)
    }

    pub(crate) fn queue_mut(&mut self, queue: QueueKey) -> Option<&mut Queue> {
        self.queues.get_mut(queue)
    }

    /// The waiters of a queue, first to last.
    pub(crate) fn in_order(&self, queue: QueueKey) -> Vec<WaiterKey> {
        self.queues.get(queue).map_or_else(Vec::new, |queue| queue.in_order(&self.all))
    }

    /// Puts a waiter at the front or at the end of its queue. Returns the queue.
    pub(crate) fn enqueue(&mut self, waiter: WaiterKey, first: bool) -> &Queue {
        let queue = &mut self.queues[self.all[waiter].queue];
        if first {
            queue.push_front(&mut self.all, waiter);
        } else {
            queue.push(&mut self.all, waiter);
        }
        self.queued += 1;
        self.bound.one_more();
        queue
    }

    /// Removes a waiter from its queue. Returns the queue.
    pub(crate) fn dequeue(&mut self, waiter: WaiterKey) -> &Queue {
        let queue = &mut self.queues[self.all[waiter].queue];
        queue.remove(&mut self.all, waiter);
        self.queued -= 1;
        self.bound.one_less();
        queue
    }

    /// Records how many requests wait in a lane whose position in the index was `at`.
    pub(crate) fn record_backlog(&mut self, lane: LaneKey, total: u32, at: Option<(u8, u32)>) -> BacklogMove {
        let class = |at: Option<(u8, u32)>| at.map_or(0, |(class, _)| class);
        let moved = self.backlog.record(lane, total, at);
        self.bound.lane_moves(class(at), class(moved.at));
        moved
    }

    /// All lanes with waiting requests, those with the most first, to within a power of two.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = LaneKey> + '_ {
        self.backlog.keys()
    }

    /// The lanes of which one has the most waiting requests.
    pub(crate) fn fullest_lanes(&self) -> &[LaneKey] {
        self.backlog.fullest()
    }

    /// Gives a waiter its permit, and lists its caller to be woken.
    pub(crate) fn grant(&mut self, waiter: WaiterKey, permit: PermitKey) {
        self.all[waiter].state = WaiterState::Granted(permit);
        self.woken.push(waiter);
    }

    /// Refuses a waiter, and lists its caller to be woken.
    pub(crate) fn refuse(&mut self, waiter: WaiterKey, refusal: Refusal) {
        self.all[waiter].state = WaiterState::Gone(refusal);
        self.woken.push(waiter);
    }

    /// Marks a waiter whose caller has returned as queued; the engine then puts it into its queue. Returns when its
    /// caller stops waiting, and its lane.
    pub(crate) fn return_to_queue(&mut self, waiter: WaiterKey) -> Option<(Time, LaneKey)> {
        let waiter = self.all.get_mut(waiter)?;
        waiter.state = WaiterState::Queued;
        Some((waiter.tires, waiter.lane))
    }

    /// Assigns a waiter to another queue.
    pub(crate) fn set_queue(&mut self, waiter: WaiterKey, queue: QueueKey) {
        self.all[waiter].queue = queue;
    }

    /// Changes the number of a waiter's endpoint.
    pub(crate) fn set_endpoint(&mut self, waiter: WaiterKey, endpoint: EndpointId) {
        self.all[waiter].endpoint = endpoint;
    }

    /// Sets when the caller of a waiter stops waiting.
    pub(crate) fn wait_until(&mut self, waiter: WaiterKey, tires: Time) {
        self.all[waiter].tires = tires;
    }

    /// Notes why a limit has stopped a waiter.
    pub(crate) fn stop(&mut self, waiter: WaiterKey, reason: WaitReason) {
        self.all[waiter].reason = reason;
    }

    /// Marks a waiter that did not start its grant in time. Returns its lane.
    pub(crate) fn miss(&mut self, waiter: WaiterKey) -> Option<LaneKey> {
        let waiter = self.all.get_mut(waiter)?;
        waiter.state = WaiterState::Missed;
        Some(waiter.lane)
    }

    /// Removes and returns the waiters whose callers must be woken.
    pub(crate) fn woken(&mut self) -> std::vec::Drain<'_, WaiterKey> {
        self.woken.drain(..)
    }

    /// The number of waiters whose callers must be woken.
    #[inline]
    pub(crate) fn woken_count(&self) -> usize {
        self.woken.len()
    }

    /// Removes a waiter from those to be woken, because its caller is present. Only entries after the first `before`
    /// are searched.
    pub(crate) fn need_not_wake(&mut self, waiter: WaiterKey, before: usize) {
        if let Some(at) = self.woken[before..].iter().position(|woken| *woken == waiter) {
            self.woken.remove(before + at);
        }
    }

    /// Frees unused memory, at most `chunks` chunks of each slab. Returns whether there may be more to free.
    pub(crate) fn shrink(&mut self, chunks: usize) -> bool {
        self.backlog.shrink();
        if let Some(room) = excess(self.woken.capacity(), self.woken.len()) {
            self.woken.shrink_to(room);
        }
        let more = [self.queues.shrink(chunks), self.all.shrink(chunks)];
        more.contains(&true)
    }

    #[cfg(test)]
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> + '_ {
        self.queues.keys().filter_map(|key| self.queues.get(key))
    }

    /// The numbers of waiters and queues, for tests.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.all.len(), self.queues.len())
    }
}

impl std::ops::Index<WaiterKey> for Waiters {
    type Output = Waiter;

    fn index(&self, waiter: WaiterKey) -> &Waiter {
        &self.all[waiter]
    }
}
