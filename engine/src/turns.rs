//! One turn: the queue that the scheduler chose asks its limits. Either its head is granted, or the tree node at which
//! it was stopped is parked until something can have changed.
//!
//! Limits are asked from the narrowest holder outwards, and the first that lacks something decides where to park: the
//! endpoint's queue, the lane's tier, the account's tier or the vendor's tier. So a blocked endpoint blocks no other
//! endpoint, a blocked lane no other lane. The head of the queue reserves the next units of the place that stopped it:
//! what lies further out it has not asked for yet, so a request that waits for a limit of its own holds nothing of a
//! shared one. A lower tier that waits longer than the high tier would, because of that tier's reserve, reserves the
//! units against the other lower tier alone: the reserve is not for it. If it waits for more than a second, its
//! requests give up what they have reserved at narrower limits (`reservations.rs`): the high tier, which may go, would
//! wait there for as long as they do.

use std::sync::Arc;

use super::holder::Shared;
use super::keys::{NodeKey, QueueKey};
use super::lane::Lane;
use super::limit::free::Free;
use super::limit::{BlockedBy, Cell, LimitSpec, Room};
use super::need::Need;
use super::scheduler::Path;
use super::slab::Key;
use super::throttle::{Gate, LaneThrottle};
use super::waiting::{LimitLevel, Turns};
use super::{Engine, LATENESS_NS, Timer, Until, WaitReason};
use crate::time::Time;

/// Ordered from the narrowest level outwards.
const LEVELS: [LimitLevel; 6] = [
    LimitLevel::Endpoint,
    LimitLevel::Lane,
    LimitLevel::SharedEndpoint(0),
    LimitLevel::Shared(0),
    LimitLevel::SharedEndpoint(1),
    LimitLevel::Shared(1),
];

/// A longer wait of a lower tier is too long for the high tier to wait as well, in nanoseconds.
pub(super) const LONG_NS: u64 = 1_000_000_000;

/// What stopped a request.
#[derive(Debug)]
pub(super) struct Stop {
    place: LimitLevel,
    free: Free,
    /// `None` if the head of another queue has reserved the next units.
    lack: Option<(BlockedBy, Option<Arc<str>>)>,
    /// Whether the high tier could have the units sooner, so that they are not reserved against it.
    pub(super) spares_high: bool,
}

impl Stop {
    fn by_gate(place: LimitLevel, free: Free, lack: BlockedBy) -> Stop {
        Stop { place, free, lack: Some((lack, None)), spares_high: false }
    }

    /// The head of another queue has reserved the next units, so it goes first.
    fn by_turn(place: LimitLevel) -> Stop {
        Stop { place, free: Free::OnSettle(Time::MAX), lack: None, spares_high: false }
    }

    /// Whether the high tier could have the units sooner, and a lower tier waits for them for long.
    pub(super) fn spares_high_for_long(&self, now: Time) -> bool {
        let is_long = match self.free {
            Free::Now => false,
            // If it is not known when, it may be long.
            Free::At(at) | Free::OnSettle(at) => at > now.plus_nanos(LONG_NS),
        };
        self.spares_high && is_long
    }

    /// When the units are there, as far as that is known.
    pub(super) fn free_at(&self, now: Time) -> Time {
        match self.free {
            Free::At(at) => at,
            Free::Now | Free::OnSettle(_) => now,
        }
    }

    pub(super) fn reason(&self) -> WaitReason {
        match &self.lack {
            Some((lack, limit)) => WaitReason { limit: limit.clone(), lack: Some(*lack) },
            None => WaitReason::turn(),
        }
    }
}

/// The one of `cells` that lacks room for the longest time; `None` if all have room.
fn stop<'a>(
    place: LimitLevel,
    cells: impl Iterator<Item = (&'a mut Cell, &'a LimitSpec)>,
    now: Time,
    need: &Need,
) -> Option<Stop> {
    let mut worst: Option<(Free, BlockedBy, &mut Cell, &LimitSpec)> = None;
    for (cell, spec) in cells {
        let room = match cell.gate(spec, now, need.tier, need.cost) {
            Gate::Open => cell.room(spec, now, need.cost, need.high()),
            Gate::Shut(free, lack) => Room::No { free, lack },
        };
        if let Room::No { free, lack } = room
            && worst.as_ref().is_none_or(|(other, ..)| free.is_after(*other))
        {
            worst = Some((free, lack, cell, spec));
        }
    }
    let (free, lack, cell, spec) = worst?;
    let spares_high = !need.high() && cell.spares_high(spec, now, need.cost, (free, lack));
    Some(Stop { place, free, lack: Some((lack, Some(spec.name.clone()))), spares_high })
}

impl Engine {
    /// Calls `change` with the tiers' turns at each limit of a request where the tree does not decide them, and with the
    /// weight of its tier.
    pub(super) fn each_turns(&mut self, need: &Need, mut change: impl FnMut(&mut Turns, u32)) {
        let Some(lane) = self.lanes.get(need.lane) else { return };
        let weight = lane.plan.tier_weights[need.tier.index()];
        for place in LEVELS {
            if !self.is_at_the_root(need.lane, place)
                && self.has_wait_point(need, place)
                && let Some(wait_point) = self.wait_point(need, place)
            {
                change(&mut wait_point.turns, weight);
            }
        }
    }

    /// Whether every limit has room, where no request waits and so nothing is reserved: [`ask`](Self::ask) without the
    /// reasons, which a granted request does not need.
    #[inline(always)]
    pub(super) fn has_room(&mut self, need: &Need) -> bool {
        let now = self.now;
        let lane = &mut self.lanes[need.lane];
        if lane.throttle.is_some() || lane.plan.whole_is_throttled(lane.own.as_slice()) {
            return self.ask(need, Key::NONE).is_ok();
        }
        for (cell, spec) in lane.whole() {
            if !cell.has_room(spec, now, need.cost, need.high()) {
                return false;
            }
        }
        !lane.has_others(need.endpoint) || self.others_have_room(need)
    }

    /// Whether the limits of the endpoint and the shared limits have room.
    #[inline(never)]
    fn others_have_room(&mut self, need: &Need) -> bool {
        let now = self.now;
        let Lane { plan, own, shared, .. } = &mut self.lanes[need.lane];
        let (range, shared, endpoint) = (plan.endpoint_own(need.endpoint), *shared, plan.endpoint_hash(need.endpoint));
        let mut pairs = own.as_mut()[range.clone()].iter_mut().zip(&plan.own[range]);
        let mut throttled = false;
        if !pairs.all(|(cell, spec)| {
            throttled |= cell.is_throttled();
            cell.has_room(spec, now, need.cost, need.high())
        }) {
            return false;
        }
        let has_room = shared.into_iter().filter(|holder| *holder != Key::NONE).all(|holder| {
            let Some(holder) = self.lanes.holder_mut(holder) else { return true };
            let mut pairs = holder.cells.iter_mut().zip(holder.specs.iter());
            pairs.all(|(cell, shared)| {
                throttled |= cell.is_throttled();
                !shared.applies(endpoint) || cell.has_room(&shared.spec, now, need.cost, need.high())
            })
        });
        has_room && (!throttled || self.ask(need, Key::NONE).is_ok())
    }

    /// Asks every limit, from the narrowest holder outwards. `queue` is the queue whose head asks.
    pub(super) fn ask(&mut self, need: &Need, queue: QueueKey) -> Result<(), Stop> {
        let lane = &self.lanes[need.lane];
        let (shared, busy) = (lane.shared, lane.waiting.is_some());
        let endpoint = lane.plan.endpoint_hash(need.endpoint);
        let own_gates = lane.throttle.is_some() || lane.plan.whole_is_throttled(lane.own.as_slice());
        if own_gates || !lane.plan.endpoint_own(need.endpoint).is_empty() {
            self.ask_at(need, LimitLevel::Endpoint, queue, busy)?;
        }
        self.ask_at(need, LimitLevel::Lane, queue, busy)?;
        for (number, holder) in shared.into_iter().enumerate() {
            let Some(holder) = self.lanes.holder(holder) else { continue };
            let busy = holder.waiting > 0;
            let has_gates = holder.cells.iter().any(|cell| cell.is_throttled());
            if has_gates || holder.specs.iter().any(|spec| spec.endpoint == Some(endpoint)) {
                self.ask_at(need, LimitLevel::SharedEndpoint(number), queue, busy)?;
            }
            self.ask_at(need, LimitLevel::Shared(number), queue, busy)?;
        }
        Ok(())
    }

    /// Asks the limits of one level, unless another queue has reserved the next units there.
    #[inline]
    fn ask_at(&mut self, need: &Need, place: LimitLevel, queue: QueueKey, busy: bool) -> Result<(), Stop> {
        if busy && self.reserved_by_another(need, place, queue) {
            return Err(Stop::by_turn(place));
        }
        self.ask_limits(need, place)
    }

    /// Asks the limits of one level, without regard to a queue that has reserved the next units there.
    #[inline]
    pub(super) fn ask_limits(&mut self, need: &Need, place: LimitLevel) -> Result<(), Stop> {
        let gate = match place {
            LimitLevel::Endpoint => self.endpoint_gate(need, None),
            LimitLevel::Lane => self.gate(need),
            LimitLevel::SharedEndpoint(number) => self.endpoint_gate(need, Some(number)),
            LimitLevel::Shared(_) => Gate::Open,
        };
        if let Gate::Shut(free, lack) = gate {
            return Err(Stop::by_gate(place, free, lack));
        }
        let now = self.now;
        let Lane { plan, own, shared, .. } = &mut self.lanes[need.lane];
        let found = match place {
            LimitLevel::Endpoint => {
                let range = plan.endpoint_own(need.endpoint);
                stop(place, own.as_mut()[range.clone()].iter_mut().zip(&plan.own[range]), now, need)
            }
            LimitLevel::Lane => stop(place, own.as_mut()[..plan.whole].iter_mut().zip(&plan.own), now, need),
            LimitLevel::SharedEndpoint(number) | LimitLevel::Shared(number) => {
                let only = matches!(place, LimitLevel::SharedEndpoint(_)).then(|| plan.endpoint_hash(need.endpoint));
                let holder = shared[number];
                let Some(Shared { cells, specs, .. }) = self.lanes.holder_mut(holder) else {
                    return Ok(());
                };
                let pairs = cells.iter_mut().zip(specs.iter()).filter(|(_, shared)| shared.endpoint == only);
                stop(place, pairs.map(|(cell, shared)| (cell, &shared.spec)), now, need)
            }
        };
        found.map_or(Ok(()), Err)
    }

    /// Whether the pauses and throttles of the lane as a whole let a request go.
    pub(super) fn gate(&self, need: &Need) -> Gate {
        let lane = &self.lanes[need.lane];
        let gate = |throttle: &LaneThrottle| throttle.gate(self.now, need.tier, need.cost, &lane.plan);
        lane.throttle.as_deref().map_or(Gate::Open, gate)
    }

    /// Whether the pauses of a request's endpoint let it go: those of the lane, or of a holder of shared limits.
    pub(super) fn endpoint_gate(&self, need: &Need, holder: Option<usize>) -> Gate {
        let lane = &self.lanes[need.lane];
        let (now, endpoint) = (self.now, lane.plan.endpoint_hash(need.endpoint));
        let shared = holder.and_then(|number| self.lanes.holder(lane.shared[number]));
        let cells = match holder {
            None => lane.own.as_slice(),
            Some(_) => shared.map_or(&[][..], |shared| &shared.cells[..]),
        };
        let throttle = lane.throttle.as_deref().filter(|_| holder.is_none());
        if throttle.is_none() && !cells.iter().any(Cell::is_throttled) {
            return Gate::Open;
        }
        // A request to another endpoint is preferred as the probe of a pause, if it counts in the limit.
        let others = lane.waiting.as_ref().is_some_and(|waiting| {
            let queues = waiting.queues.iter().filter_map(|queue| self.waiters.queue(*queue));
            queues.filter(|queue| queue.endpoint != need.endpoint).any(|queue| queue.head().is_some())
        });
        let is_of_all = |number: usize| match shared {
            None => number < lane.plan.whole,
            Some(shared) => shared.specs.get(number).is_some_and(|spec| spec.endpoint.is_none()),
        };
        let of_cells = cells.iter().enumerate().filter_map(|(number, cell)| Some((number, cell.throttle()?)));
        let gates = of_cells.map(|(number, it)| it.endpoint_gate(now, endpoint, others && is_of_all(number)));
        let gates = gates.chain(throttle.map(|throttle| throttle.endpoint_gate(now, endpoint, others)));
        gates.into_iter().find(|gate| *gate != Gate::Open).unwrap_or(Gate::Open)
    }

    /// When a request could be sent if it were alone: the latest moment that any of its limits names. Leaves no notes at
    /// pooled limits: no units are wanted for a look.
    pub(super) fn until(&mut self, need: &Need) -> Until {
        let now = self.now;
        let at_endpoints = [None, Some(0), Some(1)].map(|holder| self.endpoint_gate(need, holder));
        let gates = at_endpoints.into_iter().chain([self.gate(need)]);
        let Lane { plan, own, shared, .. } = &mut self.lanes[need.lane];
        let mut at = now;
        let mut on_settle = None::<Time>;
        let mut hear = |free: Free| match free {
            Free::Now => {}
            Free::At(t) => at = at.max(t),
            Free::OnSettle(t) => on_settle = Some(on_settle.map_or(t, |other| other.max(t))),
        };
        for gate in gates {
            if let Gate::Shut(free, _) = gate {
                hear(free);
            }
        }
        let (own, shared, endpoint) = (own.as_mut(), *shared, plan.endpoint_hash(need.endpoint));
        for index in (0..plan.whole).chain(plan.endpoint_own(need.endpoint)) {
            let (cell, spec) = (&mut own[index], &plan.own[index]);
            if let Gate::Shut(free, _) = cell.gate(spec, now, need.tier, need.cost) {
                hear(free);
            }
            if let Room::No { free, .. } = cell.room_unnoted(spec, now, need) {
                hear(free);
            }
        }
        for holder in shared {
            let Some(holder) = self.lanes.holder_mut(holder) else { continue };
            for (cell, shared) in holder.cells.iter_mut().zip(holder.specs.iter()) {
                if !shared.applies(endpoint) {
                    continue;
                }
                if let Gate::Shut(free, _) = cell.gate(&shared.spec, now, need.tier, need.cost) {
                    hear(free);
                }
                if let Room::No { free, .. } = cell.room_unnoted(&shared.spec, now, need) {
                    hear(free);
                }
            }
        }
        match on_settle {
            Some(latest) => Until::OnSettle(latest.max(at)),
            None => Until::At(at),
        }
    }

    /// Gives turns until no request can be granted any more.
    pub(super) fn run_turns(&mut self) {
        while let Some((root, due)) = self.tree.pop_ready() {
            while let Some(path) = self.tree.next(root) {
                self.turn(&path, due);
            }
        }
    }

    /// `due`: the earliest moment at which this turn could have happened, had the timer woken in time.
    fn turn(&mut self, path: &Path, due: Time) {
        let key = self.tree.queue_of(path.leaf());
        let Some(queue) = self.waiters.queue(key) else { return self.tree.put_back(path) };
        let (Some(head), lane, tier, endpoint) = (queue.head(), queue.lane, queue.tier, queue.endpoint) else {
            return self.tree.put_back(path);
        };
        let waiter = &self.waiters[head];
        let need = Need { lane, endpoint, tier, cost: waiter.cost };
        let (submitted, attempt) = (waiter.submitted, waiter.attempt);
        match self.ask(&need, key) {
            Ok(()) => {
                let due = due.max(submitted);
                let permit = self.grant(&need, due, attempt, Some(head));
                self.each_turns(&need, |turns, weight| turns.charge(tier, need.cost.turn(), weight));
                self.dequeue(head);
                self.waiters.grant(head, permit);
                self.tree.charge(path, need.cost.turn());
                // After the charge, so that the queues that wake compete with this path at its new position.
                self.release(key);
                self.tidy(lane);
            }
            Err(stop) => {
                self.waiters.stop(head, stop.reason());
                self.park(&need, key, path, stop);
                self.starve(&need);
            }
        }
    }

    fn park(&mut self, need: &Need, queue: QueueKey, path: &Path, stop: Stop) {
        let node = self.node_at(need, stop.place, path.leaf());
        let lack = stop.lack.as_ref().map(|(lack, _)| *lack);
        let reserve = match lack {
            Some(BlockedBy::Budget | BlockedBy::Window | BlockedBy::Slots) => true,
            // While requests in flight fill the lower tiers' share, nothing is kept for the next one.
            Some(BlockedBy::Reserve) => matches!(stop.free, Free::At(_)),
            _ => false,
        };
        // A queue that was stopped at another level before gives up what it had reserved there. If some tiers may go now,
        // it also gives up what it had reserved here, because they are parked behind it.
        let stops_only_some =
            stop.spares_high || matches!(lack, Some(BlockedBy::Scarce | BlockedBy::NotHeld | BlockedBy::OutOfReach));
        let gives_up = |place: LimitLevel| place != stop.place || stops_only_some;
        if self.waiters.queue(queue).is_some_and(|queue| queue.reserving.is_some_and(gives_up)) {
            self.release(queue);
        }
        // High requests may be parked behind a reservation of another tier, and are woken when that one ends. If this queue
        // took its place, they would wait for this one, although they may go before it.
        let reserve = reserve && !(stop.spares_high && self.holds_high_up(need, stop.place));
        let parking = self.tree.park(node);
        if let Some(wait_point) = self.wait_point(need, stop.place) {
            wait_point.add(node);
            // A request that waits for another's reservation is woken when that reservation ends, and by nothing else.
            wait_point.on_settle |= stop.lack.is_some() && matches!(stop.free, Free::OnSettle(_));
            if reserve {
                let before = std::mem::replace(&mut wait_point.reserved, queue);
                // The reservation belonged to a queue whose turn comes later. Replacing it frees nothing for anybody, and
                // a high request that waited for it now waits for this one.
                if before != queue
                    && let Some(other) = self.waiters.queue_mut(before)
                {
                    other.reserving = None;
                    if other.review.is_some() {
                        self.watch(queue);
                    }
                }
            }
        }
        if reserve {
            if let Some(queue) = self.waiters.queue_mut(queue) {
                queue.reserving = Some(stop.place);
            }
            // A head before which others may go is not being served yet.
            if !stop.spares_high {
                self.tree.hold_turn(path);
            }
        }
        if let Free::At(at) | Free::OnSettle(at) = stop.free {
            self.set_timer(at, Timer::Unpark { node, parking });
        }
        self.tree.put_back(path);
        self.release_beyond(need, stop.place, node);
    }

    /// The node that is parked when limits at `place` stop a request of the queue at `leaf`.
    pub(super) fn node_at(&self, need: &Need, place: LimitLevel, leaf: NodeKey) -> NodeKey {
        let Some(lane) = self.lanes.get(need.lane) else { return leaf };
        match place {
            LimitLevel::Endpoint | LimitLevel::SharedEndpoint(_) => leaf,
            LimitLevel::Lane => lane.waiting.as_ref().map_or(leaf, |waiting| waiting.tiers[need.tier.index()]),
            LimitLevel::Shared(number) => {
                let above = if number == 0 { lane.shared[1] } else { Key::NONE };
                let branch = self.lanes.holder(lane.shared[number]).and_then(|shared| shared.branch(above));
                branch.map_or(leaf, |branch| branch.tiers[need.tier.index()])
            }
        }
    }

    /// Marks a root under which a request may be able to go since `due`.
    pub(super) fn mark_dirty(&mut self, root: NodeKey, due: Time) {
        self.tree.mark_ready(root, due.max(self.now.minus_nanos(LATENESS_NS)));
    }

    /// Ends the parking of a node, which was due to end at `due`.
    pub(super) fn unpark(&mut self, node: NodeKey, due: Time) {
        self.tree.unpark(node);
        let root = self.tree.root_of(node);
        self.mark_dirty(root, due);
    }
}
