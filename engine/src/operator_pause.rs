//! Pauses that an operator sets and ends, and the end of all pauses of a lane.

use super::endpoint::{EndpointId, NO_ENDPOINT};
use super::keys::LaneKey;
use super::limit::Cell;
use super::notices::Noticed;
use super::throttle::Notice;
use super::{Engine, Refusal};
use crate::time::Time;

impl Engine {
    /// Stops all grants of a lane until [`resume`](Self::resume) or [`unpause`](Self::unpause).
    pub fn pause(&mut self, now: Time, lane: LaneKey) -> Vec<Noticed> {
        self.tick(now);
        let Some(throttle) = self.lane_throttle(lane) else { return Vec::new() };
        if throttle.hold() {
            self.notices.tell(Noticed::of_whole_lane(Notice::Held));
        }
        self.revoke_in(lane);
        self.wake_lane(lane);
        self.run_turns();
        self.notices.take()
    }

    /// Ends an operator's pause of a lane, and nothing else: the vendor's pauses stay, also those of limits that other
    /// lanes share, and so does what refusals have taught.
    pub fn unpause(&mut self, now: Time, lane: LaneKey) -> Vec<Noticed> {
        self.tick(now);
        let throttle = self.lanes.get_mut(lane).and_then(|lane| lane.throttle.as_mut());
        if !throttle.is_some_and(|throttle| throttle.unpause()) {
            return Vec::new();
        }
        self.notices.tell(Noticed::of_whole_lane(Notice::Recovered));
        self.wake_lane(lane);
        self.run_turns();
        self.notices.take()
    }

    /// Ends every pause of a lane and of the limits that it counts in, and forgets the rates learned from refusals. Of
    /// a limit that processes share, also ends the pause that the vendor told another process: the driver is to tell
    /// the store.
    pub fn resume(&mut self, now: Time, lane: LaneKey) -> Vec<Noticed> {
        let now = self.tick(now);
        self.forget_groups(lane);
        let Some(inside) = self.lanes.get_mut(lane) else { return Vec::new() };
        if let Some(throttle) = &mut inside.throttle {
            if throttle.is_held() {
                self.notices.tell(Noticed::of_whole_lane(Notice::Recovered));
            }
            throttle.resume();
        }
        let holders = inside.shared;
        inside.own.as_mut().iter_mut().for_each(Cell::resume);
        self.wake_lane(lane);
        for holder in holders {
            if let Some(shared) = self.lanes.holder_mut(holder) {
                shared.cells.iter_mut().for_each(Cell::resume);
                self.wake_holder(holder);
            }
        }
        self.tell_store_of(lane);
        self.note_resumed(now, lane);
        self.run_turns();
        self.notices.take()
    }

    /// When the pause of a lane ends; `None` if it is not paused.
    pub fn paused_until(&self, now: Time, lane: LaneKey) -> Option<Time> {
        let inside = self.lanes.get(lane)?;
        let is_held = inside.throttle.as_ref().is_some_and(|throttle| throttle.is_held());
        let own = if is_held { Time::MAX } else { self.stands_until(lane, NO_ENDPOINT) };
        let until = own.max(self.groups_wait_until(lane, inside));
        (until > now).then_some(until)
    }

    /// Whether an operator has paused a lane.
    pub fn is_held(&self, lane: LaneKey) -> bool {
        self.lanes.get(lane).and_then(|lane| lane.throttle.as_ref()).is_some_and(|throttle| throttle.is_held())
    }

    /// The refusal of a request that a vendor's pause holds back beyond `give_up`, or for longer than the vendor's
    /// `max_hold`.
    pub(super) fn held_back(&self, lane: LaneKey, endpoint: EndpointId, give_up: Time) -> Option<Refusal> {
        let at = self.stands_until(lane, endpoint);
        let too_long = at > self.now.plus_nanos(self.lanes.get(lane)?.plan.max_hold_ns);
        (at > give_up || too_long).then_some(Refusal::RetryLater { at })
    }

    /// When the last pause ends of the lane and of the limits that a request to this endpoint counts in. It may be in
    /// the past.
    pub(super) fn stands_until(&self, key: LaneKey, endpoint: EndpointId) -> Time {
        let Some(lane) = self.lanes.get(key) else { return Time::ZERO };
        let hash = lane.plan.endpoint_hash(endpoint);
        let own = lane.own.as_slice();
        let own = (0..lane.plan.whole).chain(lane.plan.endpoint_own(endpoint)).filter_map(|number| own.get(number));
        let holders = lane.shared.iter().filter_map(|holder| self.lanes.holder(*holder));
        let shared = holders.flat_map(|holder| holder.cells.iter().zip(holder.specs.iter()));
        let shared = shared.filter(|(_, shared)| shared.applies(hash)).map(|(cell, _)| cell);
        let pauses = own.chain(shared).map(|cell| cell.paused_until(hash));
        let throttle = lane.throttle.as_ref().map(|throttle| throttle.paused_until(hash));
        pauses.chain(throttle).max().unwrap_or(Time::ZERO)
    }
}
