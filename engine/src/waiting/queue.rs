//! The queue of one lane, tier and endpoint.

use super::point::LimitLevel;
use super::waiter::Waiter;
use crate::endpoint::EndpointId;
use crate::keys::{LaneKey, NodeKey, OfWaiter, WaiterKey};
use crate::slab::{Key, Slab};
use crate::tier::Tier;
use crate::time::Time;

/// A list of waiters, first in, first out, that also allows removal from the middle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: WaiterKey,
    tail: WaiterKey,
}

impl List {
    const EMPTY: List = List { head: Key::NONE, tail: Key::NONE };

    fn push_back(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
        let waiter = &mut waiters[key];
        (waiter.prev, waiter.next) = (self.tail, Key::NONE);
        match waiters.get_mut(self.tail) {
            Some(tail) => tail.next = key,
            None => self.head = key,
        }
        self.tail = key;
    }

    fn push_front(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
        let waiter = &mut waiters[key];
        (waiter.prev, waiter.next) = (Key::NONE, self.head);
        match waiters.get_mut(self.head) {
            Some(head) => head.prev = key,
            None => self.tail = key,
        }
        self.head = key;
    }

    fn remove(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
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

/// One lane's queue of a tier and an endpoint: retries before first attempts, both in the order of arrival.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) lane: LaneKey,
    pub(crate) tier: Tier,
    pub(crate) endpoint: EndpointId,
    /// The queue's leaf in the tree.
    pub(crate) node: NodeKey,
    retries: List,
    first: List,
    /// The level whose next units are reserved for the head of this queue. At an endpoint another queue may have taken
    /// them meanwhile; those that are parked behind this queue still wait for it.
    pub(crate) reserving: Option<LimitLevel>,
    /// When a timer looks at the reservation.
    pub(crate) review: Option<Time>,
}

impl Queue {
    pub(crate) fn new(lane: LaneKey, tier: Tier, endpoint: EndpointId, node: NodeKey) -> Queue {
        Queue { lane, tier, endpoint, node, retries: List::EMPTY, first: List::EMPTY, reserving: None, review: None }
    }

    pub(crate) fn head(&self) -> Option<WaiterKey> {
        [self.retries.head, self.first.head].into_iter().find(|head| *head != Key::NONE)
    }

    /// The newest first attempt or, without first attempts, the newest retry.
    pub(crate) fn last(&self) -> Option<WaiterKey> {
        [self.first.tail, self.retries.tail].into_iter().find(|tail| *tail != Key::NONE)
    }

    /// All waiters of the queue, first to last.
    pub(crate) fn in_order(&self, waiters: &Slab<OfWaiter, Waiter>) -> Vec<WaiterKey> {
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

    pub(crate) fn push(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
        let retry = waiters[key].retry;
        self.list(retry).push_back(waiters, key);
    }

    /// Puts a waiter back at the front, because it had its turn and could not use it.
    pub(crate) fn push_front(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
        let retry = waiters[key].retry;
        self.list(retry).push_front(waiters, key);
    }

    pub(crate) fn remove(&mut self, waiters: &mut Slab<OfWaiter, Waiter>, key: WaiterKey) {
        let retry = waiters[key].retry;
        self.list(retry).remove(waiters, key);
    }
}
