//! Which requests may be queued: bounds per lane and tier and over all lanes, deadlines, and costs that no grant can
//! meet.

use super::endpoint::EndpointId;
use super::keys::{LaneKey, QueueKey, WaiterKey};
use super::limit::one_less;
use super::need::Need;
use super::slab::Key;
use super::waiting::{LaneWait, Queue, Waiter, WaiterState};
use super::{Answer, Ask, Engine, Refusal, Timer, Until};
use crate::time::Time;

/// The most evictions that one decision makes, under its lock, for requests that were admitted beyond the bound.
const EVICTED_AT_ONCE: u32 = 100;
/// The most lanes that such an eviction searches for the one with the most waiters.
const SEARCHED: usize = 64;

/// A request that was put into its queue, and what was known about it at that moment.
pub(super) struct Queued {
    pub(super) waiter: WaiterKey,
    /// Whether no request stood before it in its queue.
    first: bool,
    /// How long its limits alone make it wait, without regard to other requests.
    alone: Until,
    /// The number of woken waiters before this request's arrival gave turns.
    woken_before: usize,
}

impl Engine {
    /// Asks for a permit.
    ///
    /// Always inlined, together with [`has_room`](Self::has_room) and [`grant`](Self::grant), so that the uncontended
    /// path is one piece of code. As separate functions they pass a request through memory: its parts are written one
    /// by one and read back together, and each time the processor stalls until the writes have arrived. That cost a
    /// fifth of a decision.
    #[inline(always)]
    pub fn submit(&mut self, now: Time, lane: LaneKey, ask: &Ask) -> Answer {
        let now = self.tick(now);
        self.apply_group_pauses(lane);
        let Some(inside) = self.lanes.get(lane) else { return Answer::Refused(Refusal::NoLane) };
        if self.admission.refuses(ask) {
            return Answer::Refused(Refusal::Shutdown);
        }
        if inside.retired {
            return Answer::Refused(Refusal::Retired);
        }
        if ask.give_up <= now {
            return Answer::Refused(Refusal::Deadline);
        }
        let need = Need { lane, endpoint: ask.endpoint, tier: ask.tier, cost: ask.cost };
        if ask.cost.is_more_than_one()
            && let Some(refusal) = self.too_expensive(&need)
        {
            return Answer::Refused(refusal);
        }
        let waited_for = inside.waiting.is_some()
            || (inside.shared != [Key::NONE; 2]
                && inside.shared.iter().any(|holder| self.lanes.holder(*holder).is_some_and(|it| it.waiting > 0)));
        if !waited_for {
            if self.has_room(&need) {
                return Answer::Granted(self.grant(&need, now, ask.attempt, None));
            }
            if ask.immediate
                && let Some(refusal) = self.refuse_now(&need)
            {
                return Answer::Refused(refusal);
            }
        }
        self.wait(need, ask)
    }

    /// Refuses an immediate request for which its limits have no room; `None` if they have.
    #[cold]
    fn refuse_now(&mut self, need: &Need) -> Option<Refusal> {
        let refusal = self.without_notes(need, |engine| {
            let reason = engine.ask(need, Key::NONE).err()?.reason();
            Some(Refusal::NotNow { until: engine.until(need), reason })
        })?;
        self.ask_store(need);
        Some(refusal)
    }

    /// Refuses a request that costs more than one of its limits can ever hold.
    pub(super) fn too_expensive(&self, need: &Need) -> Option<Refusal> {
        let lane = self.lanes.get(need.lane)?;
        let own = (0..lane.plan.whole).chain(lane.plan.endpoint_own(need.endpoint)).map(|index| &lane.plan.own[index]);
        let holders = lane.shared.iter().filter_map(|holder| self.lanes.holder(*holder));
        let endpoint = lane.plan.endpoint_hash(need.endpoint);
        let shared = holders.flat_map(|holder| holder.specs.iter()).filter(|shared| shared.applies(endpoint));
        let spec = own
            .chain(shared.map(|shared| &shared.spec))
            .find(|spec| spec.units(need.cost) > spec.largest(need.high()))?;
        let (limit, largest) = (spec.name.clone(), spec.largest(need.high()));
        Some(Refusal::TooExpensive { limit, cost: spec.units(need.cost), largest })
    }

    /// After limits have become smaller, refuses waiters that can never be granted: they would wait for ever.
    pub(super) fn refuse_too_expensive(&mut self, waiters: impl IntoIterator<Item = WaiterKey>) {
        for waiter in waiters {
            if self.waiters.is_queued(waiter)
                && let Some(refusal) = self.need_of(waiter).and_then(|need| self.too_expensive(&need))
            {
                self.refuse_waiter(waiter, refusal);
            }
        }
    }

    /// Queues a request and runs the turns, which may grant this request or others. `deferred`: its caller writes a record
    /// between the grant and the start.
    pub(super) fn queue_up(&mut self, need: &Need, ask: &Ask, deferred: bool) -> Result<Queued, Refusal> {
        let now = self.now;
        self.give_way();
        let inside = &self.lanes[need.lane];
        let waiting = inside.waiting.as_ref().map_or(0, |waiting| waiting.waiting[need.tier.index()]);
        // An immediate request takes no place: it goes or leaves its queue before this decision ends.
        if waiting >= inside.plan.max_waiting && !ask.immediate {
            return Err(Refusal::LaneFull { waiting });
        }
        let (tires, give_up) = self.patience(need, ask);
        if let Some(refusal) = self.held_back(need.lane, need.endpoint, give_up) {
            self.ask_store(need);
            return Err(refusal);
        }
        // The limits alone, without other requests: a caller whose deadline is earlier than that is refused at once.
        let alone = self.until(need);
        self.note_stops(need);
        let earliest = alone.not_before();
        if earliest > tires {
            return Err(Refusal::TooLate { earliest });
        }
        if self.waiters.is_full() && !ask.immediate && !self.make_room(need.lane) {
            return Err(Refusal::AllFull { waiting: self.waiters.queued_anywhere() });
        }
        let queue = self.queue_for(need);
        let waiter = Waiter::new(need.lane, queue, now, ask).until(tires, give_up).deferred(deferred);
        let waiter = self.waiters.insert(waiter);
        let first = self.waiters.queue(queue).is_none_or(|queue| queue.head().is_none());
        self.enqueue(waiter, false);
        let woken_before = self.waiters.woken_count();
        self.run_turns();
        Ok(Queued { waiter, first, alone, woken_before })
    }

    /// Queues a request because others wait already or because its limits have no room.
    fn wait(&mut self, need: Need, ask: &Ask) -> Answer {
        let now = self.now;
        let Queued { waiter, first, alone, woken_before } = match self.queue_up(&need, ask, false) {
            Ok(queued) => queued,
            Err(refusal) => return Answer::Refused(refusal),
        };
        if let WaiterState::Granted(permit) = self.waiters[waiter].state {
            // No waker is needed: the caller is here.
            self.waiters.need_not_wake(waiter, woken_before);
            self.claim(now, waiter);
            return Answer::Granted(permit);
        }
        // The request was not granted, so what its limits said before it was queued still holds.
        let until = if first { alone } else { Until::Turn(alone.not_before().max(now)) };
        let reason = self.waiters[waiter].reason.clone();
        if ask.immediate {
            self.cancel(now, waiter);
            return Answer::Refused(Refusal::NotNow { until, reason });
        }
        self.set_timer(self.waiters[waiter].tires, Timer::GiveUp { waiter });
        Answer::Wait { waiter, until, reason }
    }

    /// When the caller of a request stops waiting: first the moment that holds unless a pause of the vendor is still in
    /// force then, second the moment that holds in any case. All pauses together keep a request waiting for `max_hold`
    /// at most.
    fn patience(&self, need: &Need, ask: &Ask) -> (Time, Time) {
        if ask.patience_ns == 0 {
            return (ask.give_up, ask.give_up);
        }
        let most = self.lanes[need.lane].plan.max_hold_ns;
        let give_up = ask.give_up.max(self.now.plus_nanos(most).plus_nanos(ask.patience_ns));
        let tires =
            self.pause_ends(need.lane, need.endpoint).map_or(ask.give_up, |end| end.plus_nanos(ask.patience_ns));
        (tires.clamp(ask.give_up, give_up), give_up)
    }

    /// When the vendor's pause that holds back requests to this endpoint ends; `None` if nothing is paused.
    fn pause_ends(&self, lane: LaneKey, endpoint: EndpointId) -> Option<Time> {
        let until = self.stands_until(lane, endpoint);
        (until > self.now).then_some(until)
    }

    /// The queue of a request. Makes it, and all tree nodes above it, if they do not exist.
    pub(super) fn queue_for(&mut self, need: &Need) -> QueueKey {
        let tier = need.tier.index();
        let lane = &mut self.lanes[need.lane];
        let [account, vendor] = lane.shared;
        let (weight, tier_weights) = (lane.plan.weight, lane.plan.tier_weights);
        let fresh = lane.waiting.as_ref().is_none_or(|waiting| waiting.lingering);
        let waiting = lane.waiting.get_or_insert_with(|| Box::new(LaneWait::new()));
        waiting.lingering = false;
        if fresh && vendor != Key::NONE && account != Key::NONE {
            self.reweigh([account, vendor], weight as i64);
        }
        let queues = self.lanes[need.lane].waiting.as_ref().map(|waiting| &waiting.queues);
        let same = |key: &QueueKey| {
            self.waiters.queue(*key).is_some_and(|queue| queue.tier == need.tier && queue.endpoint == need.endpoint)
        };
        if let Some(found) = queues.into_iter().flatten().copied().find(same) {
            return found;
        }
        let tree = &mut self.tree;
        let mut parent = Key::NONE;
        for holder in [vendor, account] {
            let Some(inside) = self.lanes.holder_mut(holder) else { continue };
            let above = if holder == account { vendor } else { Key::NONE };
            let branch = inside.branch_mut(above);
            if parent == Key::NONE && branch.root == Key::NONE {
                branch.root = tree.add_root();
            }
            let first = branch.tiers == [Key::NONE; 3];
            if branch.tiers[tier] == Key::NONE {
                branch.tiers[tier] = match parent {
                    Key::NONE => tree.add_branch(branch.root, tier_weights[tier], need.tier.index() as u64),
                    parent => tree.add_branch(parent, branch.weight.max(1), 0),
                };
            }
            parent = branch.tiers[tier];
            if first && holder == account {
                self.lanes.note_below(vendor, account);
            }
        }
        let Some(waiting) = &mut self.lanes[need.lane].waiting else { return Key::NONE };
        if waiting.tiers[tier] == Key::NONE {
            waiting.tiers[tier] = match parent {
                Key::NONE => {
                    if waiting.root == Key::NONE {
                        waiting.root = tree.add_root();
                    }
                    tree.add_lane(waiting.root, tier_weights[tier], need.tier.index() as u64)
                }
                parent => tree.add_lane(parent, weight, 0),
            };
        }
        let leaf = tree.add_leaf(waiting.tiers[tier]);
        let queue = self.waiters.add_queue(Queue::new(need.lane, need.tier, need.endpoint, leaf));
        tree.set_queue(leaf, queue);
        waiting.queues.push(queue);
        queue
    }

    /// Queues a waiter that is in no queue, or whose queue was removed: at the end, or with `front` before all others.
    pub(super) fn wait_again(&mut self, waiter: WaiterKey, front: bool) {
        let Some(need) = self.need_of(waiter) else { return self.waiters.refuse(waiter, Refusal::NoLane) };
        let queue = self.queue_for(&need);
        self.waiters.set_queue(waiter, queue);
        self.enqueue(waiter, front);
    }

    /// Puts a waiter into its queue and marks the tree for a turn, since the queue may now be able to go on.
    fn enqueue(&mut self, waiter: WaiterKey, front: bool) {
        let Queue { lane, node, tier, .. } = *self.waiters.enqueue(waiter, front);
        let tier = tier.index();
        self.tree.arrive(node);
        let root = self.tree.root_of(node);
        self.mark_dirty(root, self.now);
        let inside = &mut self.lanes[lane];
        if let Some(waiting) = &mut inside.waiting {
            waiting.waiting[tier] += 1;
        }
        let [account, vendor] = inside.shared;
        for (holder, above) in [(account, vendor), (vendor, Key::NONE)] {
            if let Some(shared) = self.lanes.holder_mut(holder) {
                shared.waiting += 1;
                shared.branch_mut(above).waiting += 1;
            }
        }
        self.update_backlog(lane);
    }

    /// Takes a waiter out of its queue.
    pub(super) fn dequeue(&mut self, waiter: WaiterKey) {
        let Queue { lane, node, tier, .. } = *self.waiters.dequeue(waiter);
        let tier = tier.index();
        self.tree.leave(node);
        let inside = &mut self.lanes[lane];
        if let Some(waiting) = &mut inside.waiting {
            waiting.waiting[tier] -= 1;
        }
        let [account, vendor] = inside.shared;
        for (holder, above) in [(account, vendor), (vendor, Key::NONE)] {
            if let Some(shared) = self.lanes.holder_mut(holder) {
                one_less(&mut shared.waiting);
                one_less(&mut shared.branch_mut(above).waiting);
            }
        }
        self.update_backlog(lane);
    }

    pub(super) fn update_backlog(&mut self, lane: LaneKey) {
        let Some(waiting) = &mut self.lanes[lane].waiting else { return };
        let moved = self.waiters.record_backlog(lane, waiting.total(), waiting.backlog_index);
        waiting.backlog_index = moved.at;
        if let Some((other, at)) = moved.displaced
            && let Some(waiting) = self.lanes.get_mut(other).and_then(|lane| lane.waiting.as_mut())
        {
            waiting.backlog_index = Some(at);
        }
    }

    /// Makes room for a request of `lane` when as many requests wait as may: the lane with the most waiters gives up
    /// the last waiter of its lowest tier. If that lane is in another engine, it does so at that engine's next
    /// decision, and the request waits beyond the bound until then. Returns `false` if `lane` itself is that lane, or
    /// has hardly fewer waiters. Lanes of the highest class differ by less than two times, so not all are looked at.
    fn make_room(&mut self, lane: LaneKey) -> bool {
        let total = self.total_waiting(lane);
        if !self.waiters.has_fullest_lane() && self.waiters.admit_beyond_bound(total) {
            return true;
        }
        let Some((fullest, most)) = self.fullest_lane(SEARCHED) else { return false };
        fullest != lane && most > total + 1 && self.evict_from(fullest)
    }

    /// If the lane with the most waiters is here, it gives up a waiter for each request that was admitted beyond the
    /// bound. Such requests are rare.
    #[inline]
    pub(super) fn give_way(&mut self) {
        if self.waiters.is_eviction_owed() {
            self.evict_owed();
        }
    }

    #[cold]
    fn evict_owed(&mut self) {
        let mut has_evicted = false;
        for _ in 0..EVICTED_AT_ONCE {
            if !self.waiters.take_owed_eviction() {
                break;
            }
            if let Some((fullest, _)) = self.fullest_lane(SEARCHED) {
                has_evicted |= self.evict_from(fullest);
            }
        }
        // What stood behind an evicted request may fit where that one did not.
        if has_evicted {
            self.run_turns();
        }
    }

    fn total_waiting(&self, lane: LaneKey) -> u32 {
        self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref()).map_or(0, |waiting| waiting.total())
    }

    /// The lane with the most waiters here, and how many they are. Only the first `searched` lanes of the highest class
    /// are looked at.
    fn fullest_lane(&self, searched: usize) -> Option<(LaneKey, u32)> {
        let lanes = self.waiters.fullest_lanes().iter().take(searched);
        lanes.map(|lane| (*lane, self.total_waiting(*lane))).max_by_key(|(_, total)| *total)
    }

    /// Refuses the last waiter of a lane's lowest tier.
    fn evict_from(&mut self, lane: LaneKey) -> bool {
        let Some(waiting) = &self.lanes[lane].waiting else { return false };
        let queues = waiting.queues.iter().filter_map(|key| self.waiters.queue(*key));
        let last = queues.filter_map(|queue| Some((queue.tier, queue.last()?))).max_by_key(|(tier, _)| *tier);
        let Some((_, waiter)) = last else { return false };
        self.refuse_waiter(waiter, Refusal::AllFull { waiting: self.waiters.queued_anywhere() });
        true
    }

    pub(super) fn need_of(&self, waiter: WaiterKey) -> Option<Need> {
        let inside = self.waiters.get(waiter)?;
        self.lanes.get(inside.lane)?;
        Some(Need { lane: inside.lane, endpoint: inside.endpoint, tier: inside.tier, cost: inside.cost })
    }

    /// Ends a waiter whose caller's time is up, or extends its wait if a pause of the vendor is in force.
    pub(super) fn give_up(&mut self, waiter: WaiterKey) {
        if !self.waiters.is_queued(waiter) {
            return;
        }
        let inside = &self.waiters[waiter];
        let (lane, give_up, patience) = (inside.lane, inside.give_up, inside.patience_ns);
        let paused = self.pause_ends(lane, inside.endpoint).filter(|_| patience > 0);
        if let Some(end) = paused
            && self.now < give_up
        {
            let tires = end.plus_nanos(patience).min(give_up);
            self.waiters.wait_until(waiter, tires);
            return self.set_timer(tires, Timer::GiveUp { waiter });
        }
        let lane = self.lanes.get(lane);
        let is_held = lane.and_then(|lane| lane.throttle.as_ref()).is_some_and(|throttle| throttle.is_held());
        let refusal = match paused {
            _ if is_held => Refusal::Held,
            Some(at) => Refusal::RetryLater { at },
            None => Refusal::Deadline,
        };
        self.refuse_waiter(waiter, refusal);
    }

    /// Ends a waiter that is queued or holds an unstarted grant, and wakes its caller with the refusal.
    pub(super) fn refuse_waiter(&mut self, waiter: WaiterKey, refusal: Refusal) {
        let Some(inside) = self.waiters.get(waiter) else { return };
        match inside.state {
            WaiterState::Queued => self.unqueue(waiter),
            WaiterState::Granted(permit) => self.give_back(permit),
            WaiterState::Missed => self.unpin(inside.lane),
            WaiterState::Gone(_) => return,
        }
        self.waiters.refuse(waiter, refusal);
    }

    /// Takes a waiter out of its queue without a grant.
    fn unqueue(&mut self, waiter: WaiterKey) {
        let (queue, lane) = (self.waiters[waiter].queue, self.waiters[waiter].lane);
        let was_head = self.waiters.queue(queue).is_some_and(|queue| queue.head() == Some(waiter));
        self.dequeue(waiter);
        if was_head && let Some(inside) = self.waiters.queue(queue) {
            let need = Need { lane, endpoint: inside.endpoint, tier: inside.tier, cost: 1.into() };
            // The next waiter of this queue, or one of another lane, may fit where this one did not.
            self.release(queue);
            self.wake_limits_of(&need);
        }
        self.tidy(lane);
    }

    /// Removes a waiter whose caller went away before the exchange started, and gives back what the waiter held.
    pub fn cancel(&mut self, now: Time, waiter: WaiterKey) {
        self.tick(now);
        let Some(inside) = self.waiters.get(waiter) else { return };
        match inside.state {
            WaiterState::Queued => self.unqueue(waiter),
            WaiterState::Granted(permit) => self.give_back(permit),
            WaiterState::Missed => self.unpin(inside.lane),
            WaiterState::Gone(_) => {}
        }
        self.waiters.remove(waiter);
        self.run_turns();
    }
}
