//! The life of a permit: granted, started, answered, finished. Whatever happens to its holder, it ends.

use super::cost::Cost;
use super::lane::Lane;
use super::limit::Take;
use super::plan::EndpointId;
use super::slab::Key;
use super::turns::Need;
use super::waiting::WaiterState;
use super::{Engine, UNSTARTED_NS};
use crate::clock::Time;

/// The right to one attempt, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    lane: Key,
    endpoint: EndpointId,
    tier: u8,
    state: State,
    cost: Cost,
    /// When it took its units, or started, whichever was later.
    granted: Time,
    /// The exchange ends by then. Not counted before the start.
    deadline: Time,
    attempt_ns: u64,
    /// The holders' plan versions when it was granted: lane, account, vendor.
    versions: [u32; 3],
    /// Who has not picked it up yet.
    waiter: Key,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Granted,
    Started,
    Answered,
    /// The caller went away in the middle; the slot stays taken until the deadline.
    Abandoned,
}

/// What a permit took that is no more.
struct Left {
    take: Take,
    need: Need,
    versions: [u32; 3],
    /// Nobody spoke of an answer before.
    answers: bool,
}

/// Of two limits that with less left, both as (remaining, limit) in units.
#[inline]
fn tighter(other: Option<(u32, u32)>, (left, limit): (u32, u32)) -> Option<(u32, u32)> {
    let is_tighter = other.is_none_or(|(other, of)| (left as u64 * of as u64) < (other as u64 * limit as u64));
    if is_tighter && limit > 0 { Some((left, limit)) } else { other }
}

impl Permit {
    pub(super) fn is_started(&self) -> bool {
        self.state == State::Started
    }

    pub(super) fn granted(&self) -> Time {
        self.granted
    }

    pub(super) fn need(&self) -> Need {
        Need { lane: self.lane, endpoint: self.endpoint, tier: self.tier, cost: self.cost }
    }

    pub(super) fn take(&self) -> Take {
        Take { cost: self.cost, high: self.tier == 0, granted: self.granted }
    }

    pub(super) fn versions(&self) -> [u32; 3] {
        self.versions
    }

    /// It stands for so many units from now on.
    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    pub(super) fn lane(&self) -> Key {
        self.lane
    }

    #[cfg(test)]
    pub(super) fn set_deadline(&mut self, deadline: Time) {
        self.deadline = deadline;
    }

    /// The same in another engine; picked up, if it was not yet.
    pub(super) fn moved_to(&self, lane: Key) -> Permit {
        let state = if self.state == State::Answered { State::Answered } else { State::Started };
        Permit { lane, state, waiter: Key::NONE, deadline: Time::MAX, ..self.clone() }
    }

    pub(super) fn set_endpoint(&mut self, endpoint: EndpointId) {
        self.endpoint = endpoint;
    }

    pub(super) fn endpoint(&self) -> EndpointId {
        self.endpoint
    }

    /// The lane has gone over to other holders of shared limits: what this permit took from the old ones is not given
    /// to the new.
    pub(super) fn leave_holders(&mut self, old: [Key; 2], new: [Key; 2]) {
        for (version, (old, new)) in self.versions[1..].iter_mut().zip(old.into_iter().zip(new)) {
            if old != new {
                *version = 0;
            }
        }
    }

    pub(super) fn under_way(&self) -> (EndpointId, u8, Cost, Time, Time) {
        (self.endpoint, self.tier, self.cost, self.granted, self.deadline)
    }
}

impl Engine {
    /// Takes from every limit at once. They have all been asked.
    #[inline(always)]
    pub(super) fn grant(&mut self, need: &Need, due: Time, attempt_ns: u64, waiter: Option<Key>) -> Key {
        let now = self.now;
        let take = Take { cost: need.cost, high: need.high(), granted: now };
        let lane = &mut self.lanes.slab[need.lane];
        lane.in_flight += 1;
        let mut versions = [lane.version, 0, 0];
        let throttled = lane.throttle.is_some();
        for (cell, spec) in lane.whole() {
            cell.take(spec, take, due);
        }
        if lane.has_others(need.endpoint) {
            let shared = lane.shared.map(|holder| self.lanes.shared.get(holder).map_or(0, |shared| shared.version));
            versions = [versions[0], shared[0], shared[1]];
            self.each_other_cell(need.lane, need.endpoint, versions, &mut |cell, spec| cell.take(spec, take, due));
        }
        let state = if waiter.is_some() { State::Granted } else { State::Started };
        let deadline = now.plus_nanos(attempt_ns);
        let permit = self.permits.insert(Permit {
            lane: need.lane,
            endpoint: need.endpoint,
            tier: need.tier,
            state,
            cost: need.cost,
            granted: now,
            deadline,
            attempt_ns,
            versions,
            waiter: waiter.unwrap_or(Key::NONE),
        });
        if throttled && let Some(Lane { plan, throttle: Some(throttle), .. }) = self.lanes.slab.get_mut(need.lane) {
            throttle.take(due, now, need, permit, &plan.pace);
        }
        if waiter.is_some() {
            self.unstarted.push_back((now.plus_nanos(UNSTARTED_NS), permit));
        } else {
            self.permit_due = self.permit_due.min(deadline);
        }
        permit
    }

    /// The exchange is under way.
    pub(super) fn start(&mut self, now: Time, key: Key) {
        let Some(permit) = self.permits.get_mut(key) else { return };
        if permit.state != State::Granted {
            return;
        }
        permit.state = State::Started;
        permit.waiter = Key::NONE;
        permit.deadline = now.plus_nanos(permit.attempt_ns);
        self.permit_due = self.permit_due.min(permit.deadline);
        let (take, lane, endpoint, versions) = (permit.take(), permit.lane, permit.endpoint, permit.versions);
        permit.granted = now;
        if take.granted < now {
            self.each_cell(lane, endpoint, versions, |cell, spec| cell.start(spec, take, now));
        }
        self.drop_started();
    }

    /// Response headers are here, or the exchange has failed after it may have reached the vendor.
    #[inline]
    pub(crate) fn answered(&mut self, now: Time, key: Key) {
        let now = self.tick(now);
        self.answer(now, key);
        self.run_turns();
    }

    #[inline]
    fn answer(&mut self, now: Time, key: Key) {
        let Some(permit) = self.permits.get_mut(key) else { return };
        if permit.state != State::Started {
            return;
        }
        permit.state = State::Answered;
        let (take, need, versions) = (permit.take(), permit.need(), permit.versions);
        self.each_cell(need.lane, need.endpoint, versions, |cell, spec| {
            if !spec.measure.lasts_to_the_end() {
                cell.answer(spec, take, now);
            }
        });
        self.learn_service(need.lane, now, take.granted);
        self.wake_if_waiting(&need, false);
    }

    /// The response was read or dropped. Without a word about an answer before, this is the answer too.
    #[inline]
    pub(crate) fn finished(&mut self, now: Time, key: Key) {
        let now = self.tick(now);
        if self.waiting > 0 {
            self.answer(now, key);
            self.end(key);
            return self.run_turns();
        }
        // The same in one go: nobody waits whom the answer could wake before the end does.
        let Some((left, lane)) = self.leave(now, key) else { return };
        let Left { take, need, versions, answers } = left;
        let throttled = lane.throttle.is_some();
        for (cell, spec) in lane.whole().filter(|(cell, _)| cell.since <= versions[0]) {
            cell.end(spec, take, now, answers);
        }
        if lane.has_others(need.endpoint) {
            self.each_other_cell(need.lane, need.endpoint, versions, &mut |cell, spec| {
                cell.end(spec, take, now, answers);
            });
        }
        if throttled {
            self.ended_unheard(need.lane, key);
        }
    }

    /// An answer that said nothing is here, and all of it: [`finished`](Self::finished), and what is left, as
    /// [`headroom`](Self::headroom) would say it. Of a lane at full speed that has its limits for itself, while nobody
    /// waits.
    #[inline]
    pub(super) fn finished_alone(&mut self, now: Time, key: Key) -> Option<(u32, u32)> {
        let (Left { take, versions, answers, .. }, lane) = self.leave(now, key)?;
        let mut tightest = None;
        for (cell, spec) in lane.whole() {
            if cell.since <= versions[0] {
                cell.end(spec, take, now, answers);
            }
            tightest = tighter(tightest, cell.remaining(spec, now));
        }
        tightest
    }

    /// A permit that is no more, and the lane that it was of.
    #[inline(always)]
    fn leave(&mut self, now: Time, key: Key) -> Option<(Left, &mut Lane)> {
        let left = self.permits.discard(key, |permit| Left {
            take: permit.take(),
            need: permit.need(),
            versions: permit.versions,
            answers: permit.state == State::Started,
        })?;
        let lane = self.lanes.slab.get_mut(left.need.lane)?;
        lane.in_flight = lane.in_flight.saturating_sub(1);
        if left.answers && lane.plan.has_slots {
            lane.learn_service(now, left.take.granted);
        }
        Some((left, lane))
    }

    /// The caller went away after the start: the vendor may still count the request, and is still busy with it.
    pub(crate) fn abandoned(&mut self, now: Time, key: Key) {
        let now = self.tick(now);
        let Some(permit) = self.permits.get_mut(key) else { return };
        if permit.state == State::Answered {
            self.end(key);
            return self.run_turns();
        }
        let Some(lane) = self.lanes.slab.get(permit.lane) else { return };
        permit.state = State::Abandoned;
        permit.deadline = permit.deadline.min(now.plus_nanos(lane.expected_service(now)));
        self.permit_due = self.permit_due.min(permit.deadline);
        let lane = permit.lane;
        if self.lanes.slab.get(lane).is_some_and(|lane| lane.throttle.is_some()) {
            // Its caller's time was up: that says nothing about the vendor, so somebody with more time tries. The oldest
            // goes first after a pause, and has the least time of all: a lane once stayed shut for ever by that.
            self.ended_unheard(lane, key);
            self.run_turns();
        }
    }

    /// Not a byte left: everything is given back.
    pub(crate) fn not_sent(&mut self, now: Time, key: Key) {
        self.tick(now);
        self.give_back(key);
        self.run_turns();
    }

    pub(super) fn give_back(&mut self, key: Key) {
        let now = self.now;
        let Some(permit) = self.permits.remove(key) else { return };
        let (take, need, versions) = (permit.take(), permit.need(), permit.versions);
        if permit.state == State::Answered {
            self.each_cell(need.lane, need.endpoint, versions, |cell, _| cell.finish());
        } else {
            self.each_cell(need.lane, need.endpoint, versions, |cell, spec| cell.give_back(spec, take, now));
        }
        self.left(need.lane, key);
        self.wake_if_waiting(&need, true);
    }

    /// Frees the slots of a permit whose rate interval has ended, or will by itself.
    #[inline]
    fn end(&mut self, key: Key) {
        let Some(permit) = self.permits.remove(key) else { return };
        let (take, need, versions, now) = (permit.take(), permit.need(), permit.versions, self.now);
        self.each_cell(need.lane, need.endpoint, versions, |cell, spec| cell.end(spec, take, now, false));
        self.left(need.lane, key);
        self.wake_if_waiting(&need, false);
    }

    #[inline]
    fn left(&mut self, lane: Key, permit: Key) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        inside.in_flight = inside.in_flight.saturating_sub(1);
        if inside.throttle.is_some() {
            self.ended_unheard(lane, permit);
        }
    }

    #[inline]
    pub(super) fn wake_if_waiting(&mut self, need: &Need, all: bool) {
        if self.waiting > 0 {
            self.wake_all(need, all);
        }
    }

    #[inline]
    fn learn_service(&mut self, lane: Key, now: Time, started: Time) {
        if let Some(lane) = self.lanes.slab.get_mut(lane)
            && lane.plan.has_slots
        {
            lane.learn_service(now, started);
        }
    }

    /// Takes back what was granted and not started in time, for the next in line. Its waiter goes to the front of its
    /// queue as soon as its caller is heard of: put there now it would be granted the same units again and again, and
    /// everybody behind it would wait for a future that nobody polls.
    pub(super) fn revoke_unstarted(&mut self, now: Time) {
        while let Some((due, key)) = self.unstarted.front().copied() {
            if due > now {
                break;
            }
            self.unstarted.pop_front();
            self.revoke(key);
        }
    }

    /// Takes back everything of a lane that was granted and not started.
    pub(super) fn revoke_in(&mut self, lane: Key) {
        let unstarted: Vec<Key> = self.unstarted.iter().map(|(_, key)| *key).collect();
        for key in unstarted {
            if self.permits.get(key).is_some_and(|permit| permit.lane == lane) {
                self.revoke(key);
            }
        }
    }

    pub(super) fn revoke(&mut self, key: Key) {
        let Some(permit) = self.permits.get(key).filter(|permit| permit.state == State::Granted) else { return };
        let waiter = permit.waiter;
        self.give_back(key);
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            waiter.state = WaiterState::Missed;
            // It will be back: its lane is not to be dropped meanwhile.
            let lane = waiter.lane;
            self.pin(lane);
        }
    }

    /// When the oldest unstarted grant is taken back.
    pub(super) fn next_unstarted(&mut self) -> Time {
        self.drop_started();
        self.unstarted.front().map_or(Time::MAX, |(due, _)| *due)
    }

    fn drop_started(&mut self) {
        while let Some((_, key)) = self.unstarted.front() {
            if self.permits.get(*key).is_some_and(|permit| permit.state == State::Granted) {
                break;
            }
            self.unstarted.pop_front();
        }
    }

    /// Ends permits whose deadline has passed: their holders are gone, or hang. What they took from a rate stays taken.
    pub(super) fn settle_overdue(&mut self, now: Time) {
        if self.permit_due > now {
            return;
        }
        let mut next = Time::MAX;
        let mut overdue = Vec::new();
        for key in self.permits.keys() {
            let permit = &self.permits[key];
            if permit.state == State::Granted {
                continue;
            }
            if permit.deadline <= now {
                overdue.push(key);
            } else {
                next = next.min(permit.deadline);
            }
        }
        self.permit_due = next;
        for key in overdue {
            self.end(key);
        }
    }

    /// What is left of a lane's tightest limit, as (remaining, limit) in units; None without limits.
    pub(crate) fn headroom(&mut self, now: Time, lane: Key, endpoint: EndpointId) -> Option<(u32, u32)> {
        let now = self.tick(now);
        let mut tightest = None;
        self.each_cell(lane, endpoint, [u32::MAX; 3], |cell, spec| {
            tightest = tighter(tightest, cell.remaining(spec, now));
        });
        tightest
    }

    /// Takes over what is under way in another engine: it ends at its deadline.
    pub(super) fn adopt(
        &mut self,
        lane: Key,
        endpoint: EndpointId,
        tier: u8,
        cost: Cost,
        granted: Time,
        deadline: Time,
    ) {
        let Some(inside) = self.lanes.slab.get_mut(lane) else { return };
        inside.in_flight += 1;
        let versions = [inside.version, 0, 0];
        self.permit_due = self.permit_due.min(deadline);
        let (state, attempt_ns, waiter) = (State::Abandoned, 0, Key::NONE);
        self.permits.insert(Permit {
            lane,
            endpoint,
            tier,
            state,
            cost,
            granted,
            deadline,
            attempt_ns,
            versions,
            waiter,
        });
    }

    /// Permits by key, for changes of their lane.
    pub(super) fn permits_of(&self, lane: Key) -> Vec<Key> {
        self.permits.keys().filter(|key| self.permits[*key].lane() == lane).collect()
    }
}
