//! Whose turn it is at a limit that a queue has reserved: the head of that queue goes first, unless the order of the tiers
//! says otherwise.

use super::Engine;
use super::keys::{LaneKey, QueueKey};
use super::need::Need;
use super::slab::Key;
use super::turns::Stop;
use super::waiting::LimitLevel;

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
        !self.wait_point(need, place).is_some_and(|wait_point| wait_point.turns.is_before(need.tier, other))
    }

    /// Whether the high tier may go before the head of this queue, which has reserved the next units.
    fn lets_high_pass(&mut self, queue: QueueKey, place: LimitLevel) -> bool {
        if self.waiters.queue(queue).is_none_or(|queue| queue.head().is_none()) {
            return true;
        }
        self.stop_of(queue, place).is_some_and(|stop| stop.spares_high)
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
