//! Whose turn it is at a limit that a queue has reserved: the head of that queue goes first, unless the order of the
//! tiers says otherwise.
//!
//! A queue gives its reservation up when it is asked and stopped elsewhere. While a wider limit stops its tier, it is
//! not asked: if a high request waits for the reservation, a timer looks at it, a second later and as often as something
//! may have changed.

use super::Engine;
use super::keys::{LaneKey, QueueKey};
use super::need::Need;
use super::slab::Key;
use super::timers::Timer;
use super::turns::{LONG_NS, Stop};
use super::waiting::LimitLevel;
use crate::time::Time;

/// A reservation is looked at again after this time at the latest, in nanoseconds.
const SELDOM_NS: u64 = 900_000_000_000;

impl Engine {
    /// Whether the head of another queue has reserved the next units here, and this queue may not go before it.
    pub(super) fn reserved_by_another(&mut self, need: &Need, place: LimitLevel, queue: QueueKey) -> bool {
        let reserved = self.wait_point(need, place).map_or(Key::NONE, |wait_point| wait_point.reserved);
        if reserved == Key::NONE || reserved == queue {
            return false;
        }
        let Some(holder) = self.waiters.queue(reserved) else { return false };
        let other = holder.tier;
        if other == need.tier {
            // Inside one tier the tree decides who is next: both stand below the node that is parked here.
            return !matches!(place, LimitLevel::Lane | LimitLevel::Shared(_));
        }
        if need.high() && self.lets_high_pass(reserved, place) {
            return false;
        }
        if self.is_at_the_root(need.lane, place) {
            return true;
        }
        let waits =
            !self.wait_point(need, place).is_some_and(|wait_point| wait_point.turns.is_before(need.tier, other));
        // A request in no queue does not wait: an immediate one, or a check, which changes nothing.
        if waits && need.high() && queue != Key::NONE {
            self.watch(reserved);
        }
        waits
    }

    /// Whether the high tier may go before the head of this queue, which has reserved the next units: it lacks only what
    /// is kept for the high tier, here or for long at a wider limit.
    fn lets_high_pass(&mut self, queue: QueueKey, place: LimitLevel) -> bool {
        if self.waiters.queue(queue).is_none_or(|queue| queue.head().is_none()) {
            return true;
        }
        self.stop_of(queue, place).is_some_and(|stop| stop.spares_high) || self.next_review(queue, place).is_none()
    }

    /// What stops the head of a queue at the limits of one level; `None` if nothing does, or if the queue is empty.
    pub(super) fn stop_of(&mut self, queue: QueueKey, place: LimitLevel) -> Option<Stop> {
        let queue = self.waiters.queue(queue)?;
        let (head, lane, tier, endpoint) = (queue.head()?, queue.lane, queue.tier, queue.endpoint);
        let need = Need { lane, endpoint, tier, cost: self.waiters[head].cost };
        self.ask_limits(&need, place).err()
    }

    /// Whether another tier has reserved the next units here, and high requests may not go before it.
    pub(super) fn holds_high_up(&mut self, need: &Need, place: LimitLevel) -> bool {
        let reserved = self.wait_point(need, place).map_or(Key::NONE, |wait_point| wait_point.reserved);
        let is_of_another_tier = self.waiters.queue(reserved).is_some_and(|queue| queue.tier != need.tier);
        is_of_another_tier && !self.lets_high_pass(reserved, place)
    }

    /// Lets a timer look at a lower tier's reservation, for which a high request waits, a second from now.
    pub(super) fn watch(&mut self, key: QueueKey) {
        self.review_at(key, self.now.plus_nanos(LONG_NS));
    }

    fn review_at(&mut self, key: QueueKey, at: Time) {
        let Some(queue) = self.waiters.queue_mut(key) else { return };
        if queue.review.is_none_or(|sooner| at < sooner) {
            queue.review = Some(at);
            self.set_timer(at, Timer::Review { queue: key, at });
        }
    }

    /// Looks at a reservation, for which a high request waits, and gives it up or looks again later.
    pub(super) fn review(&mut self, key: QueueKey, at: Time) {
        let Some(queue) = self.waiters.queue_mut(key) else { return };
        if queue.review != Some(at) {
            return;
        }
        queue.review = None;
        let Some(place) = queue.reserving else { return };
        match self.next_review(key, place) {
            Some(at) => self.review_at(key, at),
            None => self.release(key),
        }
    }

    /// When a reservation is to be looked at again; `None` if a wider limit stops its queue for long and lets the high tier
    /// go. High requests, which wait for the reservation, would wait for as long.
    fn next_review(&mut self, key: QueueKey, place: LimitLevel) -> Option<Time> {
        let now = self.now;
        let wider: &[LimitLevel] = match place {
            LimitLevel::Endpoint | LimitLevel::SharedEndpoint(_) => {
                &[LimitLevel::Lane, LimitLevel::Shared(0), LimitLevel::Shared(1)]
            }
            LimitLevel::Lane => &[LimitLevel::Shared(0), LimitLevel::Shared(1)],
            LimitLevel::Shared(0) => &[LimitLevel::Shared(1)],
            LimitLevel::Shared(_) => &[],
        };
        let mut next = self.stop_of(key, place).map_or(now, |stop| stop.free_at(now));
        for place in wider {
            for stop in self.stops_of_tier(key, *place) {
                if stop.spares_high_for_long(now) {
                    return None;
                }
                next = next.max(stop.free_at(now));
            }
        }
        Some(next.clamp(now.plus_nanos(LONG_NS), now.plus_nanos(SELDOM_NS)))
    }

    /// What stops the tier of a queue at this level, if it does: the limits, or the turn of another tier, and so what
    /// stops that one.
    fn stops_of_tier(&mut self, key: QueueKey, place: LimitLevel) -> impl Iterator<Item = Stop> + use<> {
        let mut stops = [None, None];
        if let Some(queue) = self.waiters.queue(key) {
            let need = Need { lane: queue.lane, endpoint: queue.endpoint, tier: queue.tier, cost: 1.into() };
            if self.tree.is_stopped(self.node_at(&need, place, queue.node)) {
                let first = self.wait_point(&need, place).map_or(Key::NONE, |wait_point| wait_point.reserved);
                stops = [self.stop_of(key, place), self.stop_of(first, place)];
            }
        }
        stops.into_iter().flatten()
    }

    /// Whether the tree's root itself decides between the tiers at this level.
    pub(super) fn is_at_the_root(&self, lane: LaneKey, place: LimitLevel) -> bool {
        let Some(lane) = self.lanes.get(lane) else { return true };
        let [account, vendor] = lane.shared.map(|holder| holder != Key::NONE);
        match place {
            LimitLevel::Lane => !account && !vendor,
            LimitLevel::Shared(0) => !vendor,
            LimitLevel::Shared(_) => true,
            LimitLevel::Endpoint | LimitLevel::SharedEndpoint(_) => false,
        }
    }
}
