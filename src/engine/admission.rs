//! Who may wait: bounds per lane and tier and over all, deadlines, costs that can never be met.

use std::sync::atomic::Ordering;

use super::endpoint::EndpointId;
use super::limit::one_less;
use super::need::Need;
use super::slab::Key;
use super::waiting::{LaneWait, Queue, Waiter, WaiterState};
use super::{Answer, Ask, Engine, Refusal, Timer, Until};
use crate::clock::Time;

/// A request that was put into its queue, and what was known about it then.
pub(super) struct Queued {
    pub(super) waiter: Key,
    /// No request stood before it in its queue.
    first: bool,
    /// Until when its limits alone make it wait.
    alone: Until,
    /// The length of the list of the woken before the turns were taken.
    woken_before: usize,
}

impl Engine {
    /// Asks for a permit.
    ///
    /// With all that it comes to where nothing is in the way ([`has_room`](Self::has_room), [`grant`](Self::grant)) it is
    /// one piece of code: handed on through memory, parts of a request are written one by one and read back together,
    /// and each time the processor waits until they have arrived there. That was a fifth of a decision.
    #[inline(always)]
    pub(crate) fn submit(&mut self, now: Time, lane: Key, ask: &Ask) -> Answer {
        let now = self.tick(now);
        self.apply_group_pauses(lane);
        let Some(inside) = self.lanes.slab.get(lane) else { return Answer::Refused(Refusal::NoLane) };
        if self.shutdown || inside.retired {
            let refusal = if self.shutdown { Refusal::Shutdown } else { Refusal::Retired };
            return Answer::Refused(refusal);
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
                && inside.shared.iter().any(|holder| self.lanes.shared.get(*holder).is_some_and(|it| it.waiting > 0)));
        if !waited_for {
            if self.has_room(&need) {
                return Answer::Granted(self.grant(&need, now, ask.attempt_ns, None));
            }
            if ask.immediate
                && let Err(stop) = self.ask(&need, Key::NONE)
            {
                let until = self.until(&need);
                return Answer::Refused(Refusal::NotNow { until, reason: stop.reason() });
            }
        }
        self.wait(need, ask)
    }

    /// Some limit never holds as much as this.
    pub(super) fn too_expensive(&self, need: &Need) -> Option<Refusal> {
        let lane = self.lanes.slab.get(need.lane)?;
        let own = (0..lane.plan.whole).chain(lane.plan.endpoint_own(need.endpoint)).map(|index| &lane.plan.own[index]);
        let holders = lane.shared.iter().filter_map(|holder| self.lanes.shared.get(*holder));
        let endpoint = lane.plan.endpoint_hash(need.endpoint);
        let shared = holders.flat_map(|holder| holder.specs.iter()).filter(|shared| shared.applies(endpoint));
        let spec = own
            .chain(shared.map(|shared| &shared.spec))
            .find(|spec| spec.units(need.cost) > spec.largest(need.high()))?;
        let (limit, largest) = (spec.name.clone(), spec.largest(need.high()));
        Some(Refusal::TooExpensive { limit, cost: spec.units(need.cost), largest })
    }

    /// Limits have become smaller: a request that can never be granted is refused, instead of waiting for ever.
    pub(super) fn refuse_too_expensive(&mut self, waiters: impl IntoIterator<Item = Key>) {
        for waiter in waiters {
            if self.is_queued(waiter)
                && let Some(refusal) = self.need_of(waiter).and_then(|need| self.too_expensive(&need))
            {
                self.refuse_waiter(waiter, refusal);
            }
        }
    }

    /// Queues a request and gives turns to the requests that may go; this request may have been granted by that.
    pub(super) fn queue_up(&mut self, need: &Need, ask: &Ask) -> Result<Queued, Refusal> {
        let now = self.now;
        let inside = &self.lanes.slab[need.lane];
        let waiting = inside.waiting.as_ref().map_or(0, |waiting| waiting.waiting[need.tier as usize]);
        if waiting >= inside.plan.max_waiting {
            return Err(Refusal::LaneFull { waiting });
        }
        // The limits alone, without other requests: a caller whose time is up before that is told at once.
        let alone = self.until(need);
        let earliest = alone.not_before();
        let (tires, give_up) = self.patience(need, ask);
        if let Some(refusal) = self.held_back(need.lane, need.endpoint, give_up) {
            return Err(refusal);
        }
        if earliest > tires {
            return Err(Refusal::TooLate { earliest });
        }
        if self.bound.is_reached() && !self.evict_from_longest(need.lane) {
            return Err(Refusal::AllFull { waiting: self.waiting });
        }
        let queue = self.queue_for(need);
        let waiter = self.waiters.insert(Waiter::new(need.lane, queue, now, ask).until(tires, give_up));
        let first = self.queues[queue].head().is_none();
        self.enqueue(waiter, false);
        let root = self.tree.root_of(self.queues[queue].node);
        self.mark_dirty(root, self.now);
        let woken_before = self.woken.len();
        self.run_turns();
        Ok(Queued { waiter, first, alone, woken_before })
    }

    /// Queues a request, because others wait already or its limits have no room.
    fn wait(&mut self, need: Need, ask: &Ask) -> Answer {
        let now = self.now;
        let Queued { waiter, first, alone, woken_before } = match self.queue_up(&need, ask) {
            Ok(queued) => queued,
            Err(refusal) => return Answer::Refused(refusal),
        };
        if let WaiterState::Granted(permit) = self.waiters[waiter].state {
            // No waker is needed: the caller is here.
            if let Some(at) = self.woken[woken_before..].iter().position(|woken| *woken == waiter) {
                self.woken.remove(woken_before + at);
            }
            self.claim(now, waiter);
            return Answer::Granted(permit);
        }
        // It was not granted, so what the limits said still holds.
        let until = if first { alone } else { Until::Turn(alone.not_before().max(now)) };
        let reason = self.waiters[waiter].reason.clone();
        if ask.immediate {
            self.cancel(now, waiter);
            return Answer::Refused(Refusal::NotNow { until, reason });
        }
        self.set_timer(self.waiters[waiter].tires, Timer::GiveUp { waiter });
        Answer::Wait { waiter, until, reason }
    }

    /// When the caller of a request that is to be queued stops waiting: unless the vendor's pause goes on then, and whatever
    /// happens. All pauses together keep a request waiting for `max_hold` at most.
    fn patience(&self, need: &Need, ask: &Ask) -> (Time, Time) {
        if ask.patience_ns == 0 {
            return (ask.give_up, ask.give_up);
        }
        let most = self.lanes.slab[need.lane].plan.max_hold_ns;
        let give_up = ask.give_up.max(self.now.plus_nanos(most).plus_nanos(ask.patience_ns));
        let tires =
            self.pause_ends(need.lane, need.endpoint).map_or(ask.give_up, |end| end.plus_nanos(ask.patience_ns));
        (tires.clamp(ask.give_up, give_up), give_up)
    }

    /// When the vendor's pause ends that holds back requests to an endpoint; none where nothing is paused.
    fn pause_ends(&self, lane: Key, endpoint: EndpointId) -> Option<Time> {
        let until = self.stands_until(lane, endpoint);
        (until > self.now).then_some(until)
    }

    /// The queue of a request, with all of the tree above it.
    pub(super) fn queue_for(&mut self, need: &Need) -> Key {
        let tier = need.tier as usize;
        let lane = &mut self.lanes.slab[need.lane];
        let [account, vendor] = lane.shared;
        let (weight, tier_weights) = (lane.plan.weight, lane.plan.tier_weights);
        let fresh = lane.waiting.as_ref().is_none_or(|waiting| waiting.lingering);
        let waiting = lane.waiting.get_or_insert_with(|| Box::new(LaneWait::new()));
        waiting.lingering = false;
        if fresh && vendor != Key::NONE && account != Key::NONE {
            self.reweigh([account, vendor], weight as i64);
        }
        let Some(waiting) = &mut self.lanes.slab[need.lane].waiting else { return Key::NONE };
        let mut queues = waiting.queues.iter().copied();
        let same = |key: &Key| {
            self.queues.get(*key).is_some_and(|queue| queue.tier == need.tier && queue.endpoint == need.endpoint)
        };
        if let Some(found) = queues.find(same) {
            return found;
        }
        let tree = &mut self.tree;
        let shared = &mut self.lanes.shared;
        let mut parent = Key::NONE;
        for holder in [vendor, account] {
            let Some(inside) = shared.get_mut(holder) else { continue };
            let above = if holder == account { vendor } else { Key::NONE };
            let branch = inside.branch_mut(above);
            if parent == Key::NONE && branch.root == Key::NONE {
                branch.root = tree.add_root();
            }
            let first = branch.tiers == [Key::NONE; 3];
            if branch.tiers[tier] == Key::NONE {
                branch.tiers[tier] = match parent {
                    Key::NONE => tree.add_branch(branch.root, tier_weights[tier], need.tier as u64),
                    parent => tree.add_branch(parent, branch.weight.max(1), 0),
                };
            }
            parent = branch.tiers[tier];
            if first
                && holder == account
                && let Some(above) = shared.get_mut(vendor)
            {
                above.accounts.push(account);
            }
        }
        if waiting.tiers[tier] == Key::NONE {
            waiting.tiers[tier] = match parent {
                Key::NONE => {
                    if waiting.root == Key::NONE {
                        waiting.root = tree.add_root();
                    }
                    tree.add_branch(waiting.root, tier_weights[tier], need.tier as u64)
                }
                parent => tree.add_branch(parent, weight, 0),
            };
        }
        let leaf = tree.add_leaf(waiting.tiers[tier]);
        let queue = self.queues.insert(Queue::new(need.lane, need.tier, need.endpoint, leaf));
        tree.set_queue(leaf, queue);
        waiting.queues.push(queue);
        queue
    }

    /// Queues a waiter that is in no queue, or in one that was given up: at the end, or before all others.
    pub(super) fn wait_again(&mut self, waiter: Key, front: bool) {
        let Some(need) = self.need_of(waiter) else { return self.forget(waiter, Refusal::NoLane) };
        let queue = self.queue_for(&need);
        self.waiters[waiter].queue = queue;
        self.enqueue(waiter, front);
        let root = self.tree.root_of(self.queues[queue].node);
        self.mark_dirty(root, self.now);
    }

    /// Puts a waiter into its queue.
    fn enqueue(&mut self, waiter: Key, front: bool) {
        let inside = &self.waiters[waiter];
        let (lane, queue) = (inside.lane, &mut self.queues[inside.queue]);
        if front {
            queue.push_front(&mut self.waiters, waiter);
        } else {
            queue.push(&mut self.waiters, waiter);
        }
        self.tree.arrive(queue.node);
        let tier = queue.tier as usize;
        self.waiting += 1;
        self.bound.waiting.fetch_add(1, Ordering::Relaxed);
        let inside = &mut self.lanes.slab[lane];
        if let Some(waiting) = &mut inside.waiting {
            waiting.waiting[tier] += 1;
        }
        let [account, vendor] = inside.shared;
        for (holder, above) in [(account, vendor), (vendor, Key::NONE)] {
            if let Some(shared) = self.lanes.shared.get_mut(holder) {
                shared.waiting += 1;
                shared.branch_mut(above).waiting += 1;
            }
        }
        self.update_backlog(lane);
    }

    /// Takes a waiter out of its queue.
    pub(super) fn dequeue(&mut self, waiter: Key) {
        let inside = &self.waiters[waiter];
        let (lane, queue) = (inside.lane, &mut self.queues[inside.queue]);
        queue.remove(&mut self.waiters, waiter);
        self.tree.leave(queue.node);
        let tier = queue.tier as usize;
        self.waiting -= 1;
        self.bound.waiting.fetch_sub(1, Ordering::Relaxed);
        let inside = &mut self.lanes.slab[lane];
        if let Some(waiting) = &mut inside.waiting {
            waiting.waiting[tier] -= 1;
        }
        let [account, vendor] = inside.shared;
        for (holder, above) in [(account, vendor), (vendor, Key::NONE)] {
            if let Some(shared) = self.lanes.shared.get_mut(holder) {
                one_less(&mut shared.waiting);
                one_less(&mut shared.branch_mut(above).waiting);
            }
        }
        self.update_backlog(lane);
    }

    pub(super) fn update_backlog(&mut self, lane: Key) {
        let Some(waiting) = &mut self.lanes.slab[lane].waiting else { return };
        let moved = self.backlog_index.record(lane, waiting.total(), waiting.backlog_index);
        waiting.backlog_index = moved.at;
        if let Some((other, at)) = moved.displaced
            && let Some(waiting) = self.lanes.slab.get_mut(other).and_then(|lane| lane.waiting.as_mut())
        {
            waiting.backlog_index = Some(at);
        }
    }

    /// Everything is full: the lane that holds most gives up the last of its lowest tier, unless it is this one.
    fn evict_from_longest(&mut self, lane: Key) -> bool {
        let total = |key: &Key| {
            self.lanes.slab.get(*key).and_then(|lane| lane.waiting.as_ref()).map_or(0, |waiting| waiting.total())
        };
        let Some(fullest) = self.backlog_index.fullest().iter().copied().max_by_key(total) else { return false };
        if fullest == lane || total(&fullest) <= total(&lane) + 1 {
            return false;
        }
        let Some(waiting) = &self.lanes.slab[fullest].waiting else { return false };
        let queues = waiting.queues.iter().filter_map(|key| self.queues.get(*key));
        let last = queues.filter_map(|queue| Some((queue.tier, queue.last()?))).max_by_key(|(tier, _)| *tier);
        let Some((_, waiter)) = last else { return false };
        self.refuse_waiter(waiter, Refusal::AllFull { waiting: self.waiting });
        true
    }

    /// The caller of a waiter that missed its grant is back: it waits again, before all others.
    pub(super) fn requeue(&mut self, waiter: Key) {
        let Some(inside) = self.waiters.get_mut(waiter) else { return };
        inside.state = WaiterState::Queued;
        let (tires, lane) = (inside.tires, inside.lane);
        self.unpin(lane);
        self.apply_group_pauses(lane);
        let Some(need) = self.need_of(waiter) else { return self.forget(waiter, Refusal::NoLane) };
        // Limits may have become smaller since the grant.
        if let Some(refusal) = self.too_expensive(&need) {
            return self.forget(waiter, refusal);
        }
        self.wait_again(waiter, true);
        self.set_timer(tires, Timer::GiveUp { waiter });
    }

    fn need_of(&self, waiter: Key) -> Option<Need> {
        let inside = self.waiters.get(waiter)?;
        self.lanes.slab.get(inside.lane)?;
        Some(Need { lane: inside.lane, endpoint: inside.endpoint, tier: inside.tier, cost: inside.cost })
    }

    pub(super) fn is_queued(&self, waiter: Key) -> bool {
        self.waiters.get(waiter).is_some_and(|waiter| matches!(waiter.state, WaiterState::Queued))
    }

    /// The caller's time is up.
    pub(super) fn give_up(&mut self, waiter: Key) {
        if !self.is_queued(waiter) {
            return;
        }
        let inside = &self.waiters[waiter];
        let (lane, give_up, patience) = (inside.lane, inside.give_up, inside.patience_ns);
        let paused = self.pause_ends(lane, inside.endpoint).filter(|_| patience > 0);
        if let Some(end) = paused
            && self.now < give_up
        {
            let tires = end.plus_nanos(patience).min(give_up);
            self.waiters[waiter].tires = tires;
            return self.set_timer(tires, Timer::GiveUp { waiter });
        }
        let lane = self.lanes.slab.get(lane);
        let is_held = lane.and_then(|lane| lane.credential.as_ref()).is_some_and(|credential| credential.is_held());
        let refusal = match paused {
            _ if is_held => Refusal::Held,
            Some(at) => Refusal::RetryLater { at },
            None => Refusal::Deadline,
        };
        self.refuse_waiter(waiter, refusal);
    }

    /// Ends a waiter that is queued or holds an unstarted grant; its caller is told.
    pub(super) fn refuse_waiter(&mut self, waiter: Key, refusal: Refusal) {
        let Some(inside) = self.waiters.get(waiter) else { return };
        match inside.state {
            WaiterState::Queued => self.unqueue(waiter),
            WaiterState::Granted(permit) => self.give_back(permit),
            WaiterState::Missed => self.unpin(inside.lane),
            WaiterState::Gone(_) => return,
        }
        self.forget(waiter, refusal);
    }

    pub(super) fn forget(&mut self, waiter: Key, refusal: Refusal) {
        self.waiters[waiter].state = WaiterState::Gone(refusal);
        self.woken.push(waiter);
    }

    /// Takes a waiter out of its queue without a grant.
    fn unqueue(&mut self, waiter: Key) {
        let (queue, lane) = (self.waiters[waiter].queue, self.waiters[waiter].lane);
        let was_head = self.queues[queue].head() == Some(waiter);
        self.dequeue(waiter);
        if was_head {
            // The next in line, or another lane's, may fit where this one did not.
            self.release(queue);
            let inside = &self.queues[queue];
            let need = Need { lane, endpoint: inside.endpoint, tier: inside.tier, cost: 1.into() };
            self.wake_limits_of(&need);
        }
        self.tidy(lane);
    }

    /// The caller went away before the start: whatever the waiter had is given back.
    pub(crate) fn cancel(&mut self, now: Time, waiter: Key) {
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
