//! The life of a permit: granted, started, answered, finished. Whatever happens to its holder, it ends.

use std::sync::Arc;

use compact_str::CompactString;

use super::Engine;
use super::ask::Attempt;
use super::cost::PointKind;
use super::endpoint::{EndpointHash, EndpointId};
use super::keys::{LaneKey, PermitKey, WaiterKey};
use super::limit::{Take, one_less};
use super::need::Need;
use super::origin::Origin;
use super::permit::Permit;
use super::slab::Key;
use super::throttle::Going;
use crate::time::Time;

/// The limit with the smaller share left, of two that are given as (remaining, limit) in units.
#[inline]
fn tighter(other: Option<(u32, u32)>, (left, limit): (u32, u32)) -> Option<(u32, u32)> {
    let is_tighter = other.is_none_or(|(other, of)| (left as u64 * of as u64) < (other as u64 * limit as u64));
    if is_tighter && limit > 0 { Some((left, limit)) } else { other }
}

impl Engine {
    /// Takes units from all limits of a request. The caller has checked that all of them have room.
    #[inline(always)]
    pub(super) fn grant(&mut self, need: &Need, due: Time, attempt: Attempt, waiter: Option<WaiterKey>) -> PermitKey {
        let now = self.now;
        let take = Take { cost: need.cost, tier: need.tier, granted: now };
        let lane = &mut self.lanes[need.lane];
        lane.in_flight += 1;
        let mut origin = Origin {
            lane: need.lane,
            holders: lane.shared,
            endpoint_hash: EndpointHash::NONE,
            versions: [lane.version, 0, 0],
            endpoint: need.endpoint,
            only_slots: false,
        };
        let mut throttled = lane.throttle.is_some();
        for (cell, spec) in lane.whole() {
            throttled |= cell.is_throttled();
            cell.take(spec, take, due);
        }
        if lane.has_others(need.endpoint) {
            origin.endpoint_hash = lane.plan.endpoint_hash(need.endpoint);
            for (version, holder) in origin.versions[1..].iter_mut().zip(origin.holders) {
                *version = self.lanes.holder(holder).map_or(0, |shared| shared.version);
            }
            self.lanes.each_other_cell(&origin, &mut |cell, spec| {
                throttled |= cell.is_throttled();
                cell.take(spec, take, due);
            });
        }
        let permit = self.permits.insert(Permit::new(origin, need, now, attempt, waiter));
        if throttled {
            self.take_from_throttles(&origin, need, permit, due);
        }
        permit
    }

    /// Charges a grant to throttles, which space grants out, and makes it probe pauses that are over.
    #[cold]
    fn take_from_throttles(&mut self, origin: &Origin, need: &Need, permit: PermitKey, due: Time) {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(need.lane) else { return };
        let endpoint = lane.plan.endpoint_hash(need.endpoint);
        let going = |units: u32| Going { permit, tier: need.tier, endpoint, units };
        if let Some(throttle) = &mut lane.throttle {
            throttle.take(due, now, &going(need.cost.points(PointKind::POINTS)), need.cost, &lane.plan);
        }
        self.each_cell(origin, |cell, spec| {
            let pace = cell.pace(spec);
            if let Some(throttle) = cell.throttle_mut() {
                throttle.take(due, now, &going(spec.units(need.cost)), &pace);
            }
        });
    }

    /// The tenant, the vendor and the endpoint of a permit's request. `None` after the permit's end, and once its lane
    /// has moved to another engine.
    pub fn permit_of(&self, key: PermitKey) -> Option<(CompactString, Arc<str>, EndpointId)> {
        let origin = self.permits.get(key)?.origin;
        let lane = self.lanes.get(origin.lane)?;
        Some((lane.tenant.clone(), lane.plan.vendor.clone(), origin.endpoint))
    }

    /// Starts the exchange of a permit.
    pub(super) fn start(&mut self, now: Time, key: PermitKey) {
        let Some((take, origin)) = self.permits.start(now, key) else { return };
        if take.granted < now {
            self.each_cell(&origin, |cell, spec| cell.start(spec, take, now));
        }
    }

    /// Reports that response headers are here, or that the exchange failed after it may have reached the vendor.
    #[inline]
    pub fn answered(&mut self, now: Time, key: PermitKey) {
        let now = self.tick(now);
        self.answer(now, key);
        self.run_turns();
    }

    /// Reports that the exchange may take longer than was asked for: the permit ends when its holder says so, however
    /// late that is. What the permit probes is left to another request at the old deadline, if there is no response by
    /// then.
    #[inline]
    pub fn outlasts(&mut self, key: PermitKey) {
        self.permits.outlast(key);
    }

    #[inline]
    fn answer(&mut self, now: Time, key: PermitKey) {
        let Some((take, origin)) = self.permits.answer(key) else { return };
        self.each_cell(&origin, |cell, spec| {
            if !spec.measure.lasts_to_the_end() {
                cell.answer(spec, take, now);
            }
        });
        self.learn_service(origin.lane, now, take.granted);
        self.wake_if_waiting(&origin, false);
    }

    /// Reports that the response was read or dropped. Without a call of [`answered`](Self::answered) before, this is
    /// the response too.
    #[inline]
    pub fn finished(&mut self, now: Time, key: PermitKey) {
        let now = self.tick(now);
        if self.waiters.queued() > 0 {
            self.answer(now, key);
            self.end(key);
            return self.run_turns();
        }
        // The same in one step, since no request waits that the response could wake before the end does. The permit is
        // read in place: a copy wrote its origin and read it back in pieces of other sizes, and the processor stalled
        // on that.
        let throttled = self.permits.discard(key, |permit, departed| {
            let (take, origin, answers) = (permit.take(), &permit.origin, permit.is_started());
            let mut has_others = origin.holders != [Key::NONE; 2];
            let mut throttled = false;
            match self.lanes.get_mut(origin.lane) {
                Some(lane) => {
                    lane.permit_left(now, take.granted, answers);
                    throttled = lane.throttle.is_some();
                    has_others |= !lane.plan.endpoint_own(origin.endpoint).is_empty();
                    for (cell, spec) in lane.whole().filter(|(cell, _)| cell.since <= origin.versions[0]) {
                        throttled |= cell.is_throttled();
                        cell.end(spec, take, now, answers);
                    }
                }
                None => one_less(departed),
            }
            if has_others {
                self.lanes.each_other_cell(origin, &mut |cell, spec| {
                    throttled |= cell.is_throttled();
                    cell.end(spec, take, now, answers);
                });
            }
            throttled.then_some(*origin)
        });
        if let Some(Some(origin)) = throttled {
            self.ended_unheard(&origin, key);
        }
    }

    /// [`finished`](Self::finished) for a complete response without a word about limits. Returns what is left, as
    /// [`headroom`](Self::headroom) would. Only for a permit that took from limits of the whole lane alone, of a lane
    /// at full speed, while no request waits.
    #[inline]
    pub(super) fn finished_alone(&mut self, now: Time, key: PermitKey) -> Option<(u32, u32)> {
        let tightest = self.permits.discard(key, |permit, _| {
            let (take, origin, answers) = (permit.take(), &permit.origin, permit.is_started());
            let lane = self.lanes.get_mut(origin.lane)?;
            lane.permit_left(now, take.granted, answers);
            let mut tightest = None;
            for (cell, spec) in lane.whole() {
                if cell.since <= origin.versions[0] {
                    cell.end(spec, take, now, answers);
                }
                tightest = tighter(tightest, cell.remaining(spec, now));
            }
            tightest
        });
        tightest.flatten()
    }

    /// Reports that the caller went away after the start. The vendor may still count the request, and works on it until
    /// it is done or notices the closed connection.
    pub fn abandoned(&mut self, now: Time, key: PermitKey) {
        self.tick(now);
        let Some(permit) = self.permits.get(key) else { return };
        if permit.is_abandoned() {
            return;
        }
        if permit.is_answered() {
            self.end(key);
        } else {
            self.abandon(key);
        }
        self.run_turns();
    }

    /// Ends a permit whose caller does not wait for the response any more, once the vendor must have finished with the
    /// request.
    fn abandon(&mut self, key: PermitKey) {
        let Some(permit) = self.permits.get(key) else { return };
        let (origin, mut deadline) = (permit.origin, permit.deadline());
        if let Some(lane) = self.lanes.get(origin.lane) {
            let served = deadline.min(self.now.plus_nanos(lane.expected_service(self.now)));
            deadline = served.plus_nanos(lane.plan.closing_ns);
        } else if deadline == Time::MAX {
            // The lane has moved, and the permit has outlasted its deadline.
            deadline = self.now;
        }
        self.permits.abandon(key, deadline);
        // The caller's deadline says nothing about the vendor, so a request with more time probes next. The oldest
        // request goes first after a pause and has the least time of all: a lane once stayed shut for ever because of
        // that.
        self.ended_unheard(&origin, key);
    }

    /// Reports that no byte was sent: all units are given back.
    pub fn not_sent(&mut self, now: Time, key: PermitKey) {
        self.tick(now);
        self.give_back(key);
        self.run_turns();
    }

    pub(super) fn give_back(&mut self, key: PermitKey) {
        let now = self.now;
        let Some(permit) = self.permits.remove(key) else { return };
        let (take, origin) = (permit.take(), permit.origin);
        if permit.is_answered() {
            self.each_cell(&origin, |cell, _| cell.finish());
        } else {
            self.each_cell(&origin, |cell, spec| cell.give_back(spec, take, now));
        }
        self.left(&origin, key);
        self.wake_if_waiting(&origin, true);
    }

    /// Frees the slots of a permit whose rate interval has ended, or ends by itself.
    #[inline]
    fn end(&mut self, key: PermitKey) {
        let Some(permit) = self.permits.remove(key) else { return };
        let (take, origin, now) = (permit.take(), permit.origin, self.now);
        self.each_cell(&origin, |cell, spec| cell.end(spec, take, now, false));
        self.left(&origin, key);
        self.wake_if_waiting(&origin, false);
    }

    #[inline]
    fn left(&mut self, origin: &Origin, permit: PermitKey) {
        match self.lanes.get_mut(origin.lane) {
            Some(lane) => one_less(&mut lane.in_flight),
            None => self.permits.departed_ended(),
        }
        self.ended_unheard(origin, permit);
    }

    #[inline]
    pub(super) fn wake_if_waiting(&mut self, origin: &Origin, all: bool) {
        if self.waiters.queued() > 0 {
            self.wake_all(origin, all);
        }
    }

    #[inline]
    fn learn_service(&mut self, lane: LaneKey, now: Time, started: Time) {
        if let Some(lane) = self.lanes.get_mut(lane)
            && lane.plan.has_slots
        {
            lane.learn_service(now, started);
        }
    }

    /// Takes back grants that were not started in time, for the next in line. The waiter goes to the front of its queue
    /// only when its caller polls again: at the front now, it would be granted the same units again and again, and all
    /// requests behind it would wait for a future that is not polled.
    pub(super) fn revoke_unstarted(&mut self, now: Time) {
        while let Some(key) = self.permits.pop_unstarted(now) {
            if self.is_held_on(key) {
                self.permits.look_again(now, key);
            } else {
                self.revoke(key);
            }
        }
    }

    /// Takes back all grants of a lane that were not started.
    pub(super) fn revoke_in(&mut self, lane: LaneKey) {
        let of_lane = self.permits.unstarted().filter(|(_, permit)| permit.lane() == lane);
        for key in of_lane.map(|(key, _)| key).collect::<Vec<_>>() {
            self.revoke(key);
        }
    }

    pub(super) fn revoke(&mut self, key: PermitKey) {
        let Some(permit) = self.permits.get(key).filter(|permit| permit.is_granted()) else { return };
        let waiter = permit.waiter();
        self.give_back(key);
        if let Some(lane) = self.waiters.miss(waiter) {
            // The waiter's caller will come back, so its lane must not be evicted meanwhile.
            self.pin(lane);
        }
    }

    /// Ends permits whose deadline has passed because their holders are gone or hang. Units taken from a rate stay
    /// taken. The slot of a permit without a response stays taken until the vendor must have noticed the end too. A
    /// permit that [outlasts](Self::outlasts) its deadline keeps its slots, but another request probes in its place: a
    /// holder that hangs must not keep a lane shut.
    pub(super) fn settle_overdue(&mut self, now: Time) {
        for key in self.permits.overdue(now) {
            let permit = &self.permits[key];
            if permit.is_started() && permit.is_open_ended() {
                let origin = permit.origin;
                self.permits.go_on(key);
                self.ended_unheard(&origin, key);
                continue;
            }
            if permit.is_started() {
                self.abandon(key);
            }
            if self.permits[key].deadline() <= now {
                self.end(key);
            }
        }
    }

    /// What is left of a lane's tightest limit, as (remaining, limit) in units, by our own count or by the vendor's
    /// reports; `None` without limits.
    pub fn headroom(&mut self, now: Time, lane: LaneKey, endpoint: EndpointId) -> Option<(u32, u32)> {
        let now = self.tick(now);
        let mut tightest = None;
        let origin = self.limits_of(lane, endpoint);
        self.each_cell(&origin, |cell, spec| {
            tightest = tighter(tightest, cell.headroom(spec, now));
        });
        let throttle = self.lanes.get(lane).and_then(|lane| lane.throttle.as_ref());
        let discovered = throttle.into_iter().flat_map(|throttle| throttle.discovered(now));
        discovered.map(|limit| limit.left(now)).fold(tightest, tighter)
    }
}
