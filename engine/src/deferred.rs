//! How a waiter's grant is picked up and started: at once, or by a second call if something must be recorded between
//! the grant and the exchange.
//!
//! A grant that is not started is held for [`UNSTARTED_NS`](super::permit_book::UNSTARTED_NS), and the record may take
//! longer than that. Other requests get the units meanwhile, and the waiter is granted anew when its caller asks again.
//! The limits thus count every exchange from the moment at which it is really sent.
//!
//! A record is good for two seconds. If the waiter's next grant came later than that, its caller would write a new record,
//! miss that grant too, and never start. So the engine takes back the charge for the missed turn, and the waiter gets the
//! next unit that no other request has reserved. If the limits bring that unit late, the engine holds the grant until then.

use super::cost::PointKind;
use super::keys::{LaneKey, PermitKey, QueueKey, WaiterKey};
use super::need::Need;
use super::origin::Origin;
use super::permit_book::UNSTARTED_NS;
use super::waiting::WaiterState;
use super::{Ask, Claim, Engine, Refusal, Timer, WaitReason};
use crate::time::Time;

/// The longest that a grant is held for a record, in nanoseconds: the store's records are good for as long.
const LONGEST_HOLD_NS: u64 = 2_000_000_000;

impl Engine {
    /// Queues a request whose grant is started later by [`claim`](Self::claim), after [`granted`](Self::granted) has
    /// returned a permit. Returns the waiter, which may have its grant already.
    pub fn submit_deferred(&mut self, now: Time, lane: LaneKey, ask: &Ask) -> Result<WaiterKey, Refusal> {
        let now = self.tick(now);
        self.apply_group_pauses(lane);
        let inside = self.lanes.get(lane).ok_or(Refusal::NoLane)?;
        if self.admission.refuses(ask) {
            return Err(Refusal::Shutdown);
        }
        if inside.retired {
            return Err(Refusal::Retired);
        }
        if ask.give_up <= now {
            return Err(Refusal::Deadline);
        }
        let need = Need { lane, endpoint: ask.endpoint, tier: ask.tier, cost: ask.cost };
        if let Some(refusal) = self.too_expensive(&need) {
            return Err(refusal);
        }
        let waiter = self.queue_up(&need, ask, true)?.waiter;
        if self.waiters.is_queued(waiter) {
            self.set_timer(self.waiters[waiter].tires, Timer::GiveUp { waiter });
        }
        Ok(waiter)
    }

    /// Takes a waiter's grant and starts it, or returns the waiter's state.
    pub fn claim(&mut self, now: Time, waiter: WaiterKey) -> Claim {
        match self.granted(now, waiter) {
            Ok(None) => Claim::Waiting,
            Ok(Some(permit)) => {
                let reason = self.waiters.remove(waiter).map_or(WaitReason::turn(), |waiter| waiter.reason);
                self.start(self.now, permit);
                Claim::Started(permit, reason)
            }
            Err(refusal) => Claim::Refused(refusal),
        }
    }

    /// The grant of a waiter; `None` if it has none. A waiter whose grant was taken back is queued again, before all
    /// others of its queue. An error ends the waiter.
    pub fn granted(&mut self, now: Time, waiter: WaiterKey) -> Result<Option<PermitKey>, Refusal> {
        let now = self.tick(now);
        let inside = self.waiters.get(waiter).ok_or(Refusal::NoLane)?;
        match inside.state.clone() {
            WaiterState::Queued => Ok(None),
            WaiterState::Missed if inside.give_up <= now => {
                self.cancel(now, waiter);
                Err(Refusal::Deadline)
            }
            WaiterState::Missed => {
                self.requeue(waiter);
                let woken_before = self.waiters.woken_count();
                self.run_turns();
                if self.waiters.is_queued(waiter) {
                    return Ok(None);
                }
                // The waiter was granted, or refused because its lane is gone. Its caller made this call and needs no
                // waking.
                self.waiters.need_not_wake(waiter, woken_before);
                self.granted(now, waiter)
            }
            WaiterState::Gone(refusal) => {
                self.waiters.remove(waiter);
                Err(refusal)
            }
            WaiterState::Granted(permit) if self.has_no_lease(permit) => {
                self.revoke(permit);
                self.granted(now, waiter)
            }
            WaiterState::Granted(permit) => Ok(Some(permit)),
        }
    }

    /// Takes back the grant of a waiter whose exchange cannot be sent yet. The waiter is in no queue until its caller
    /// calls [`granted`](Self::granted) or [`claim`](Self::claim), which puts it at the front.
    pub fn put_back(&mut self, now: Time, waiter: WaiterKey) {
        self.tick(now);
        if let Some(WaiterState::Granted(permit)) = self.waiters.get(waiter).map(|waiter| waiter.state.clone()) {
            self.revoke(permit);
            self.run_turns();
        }
    }

    /// Queues a waiter that missed its grant, before all others of its queue, now that its caller has come back.
    fn requeue(&mut self, waiter: WaiterKey) {
        let Some((tires, lane)) = self.waiters.return_to_queue(waiter) else { return };
        self.unpin(lane);
        self.apply_group_pauses(lane);
        let Some(need) = self.need_of(waiter) else { return self.waiters.refuse(waiter, Refusal::NoLane) };
        // Limits may have become smaller since the grant.
        if let Some(refusal) = self.too_expensive(&need) {
            return self.waiters.refuse(waiter, refusal);
        }
        // A pause that began since the grant has sent away those who waited.
        if let Some(refusal) = self.held_back(need.lane, need.endpoint, self.waiters[waiter].give_up) {
            return self.waiters.refuse(waiter, refusal);
        }
        // A caller that polls late is charged for each turn that it does not use: others wait for it meanwhile.
        if self.waiters[waiter].deferred {
            let queue = self.queue_for(&need);
            self.refund(&need, queue);
        }
        self.wait_again(waiter, true);
        self.set_timer(tires, Timer::GiveUp { waiter });
    }

    /// Takes back the charge for a turn that was not used. Not before the caller is back: until then the turn would be
    /// given to the next request of the queue, which has no record either.
    fn refund(&mut self, need: &Need, queue: QueueKey) {
        let cost = need.cost.turn();
        self.each_turns(need, |turns, weight| turns.refund(need.tier, cost, weight));
        if let Some(leaf) = self.waiters.queue(queue).map(|queue| queue.node) {
            self.tree.refund(leaf, cost);
        }
    }

    /// Whether a grant that was not started in time is left to its waiter, which waits for its record.
    pub(super) fn is_held_on(&mut self, key: PermitKey) -> bool {
        let Some(permit) = self.permits.get(key).filter(|permit| permit.is_granted()) else { return false };
        let (granted, origin, need) = (permit.granted(), permit.origin, permit.need());
        if !self.waiters.get(permit.waiter()).is_some_and(|waiter| waiter.deferred) {
            return false;
        }
        granted.plus_nanos(self.next_units_take(&origin, &need).min(LONGEST_HOLD_NS)) > self.now
    }

    /// How long the limits that a permit has taken from need to bring as many units, in nanoseconds; 0 if they have
    /// them. A slot is expected to come back within half the time of an exchange. Not longer than a request takes to
    /// arrive, less the time between two looks: a limit could then forget units whose exchange has not begun.
    fn next_units_take(&mut self, origin: &Origin, need: &Need) -> u64 {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(origin.lane) else { return 0 };
        // What is expected of an exchange is twice what exchanges take.
        let (service, pace) = (lane.expected_service(now) / 4, lane.plan.pace);
        let spacing = lane.throttle.as_mut().and_then(|throttle| throttle.spacing(now, &pace));
        let in_all = |each: u64, units: u32| each.saturating_mul(u64::from(units));
        let mut longest = spacing.map_or(0, |(each, _)| in_all(each, need.cost.points(PointKind::POINTS)));
        let mut most = u64::MAX;
        self.each_cell(origin, |cell, spec| {
            most = most.min(spec.transit_ns().map_or(u64::MAX, |transit| transit.saturating_sub(UNSTARTED_NS)));
            let spacing = cell.spacing(spec, now).map_or(0, |(each, _)| each);
            let each = match cell.is_slots() {
                _ if cell.has_room(spec, now, need.cost, need.high()) => spacing,
                true => spacing.max(service),
                false => spacing.max(cell.pace(spec).unit_ns),
            };
            longest = longest.max(in_all(each, spec.units(need.cost)));
        });
        longest.min(most)
    }
}
