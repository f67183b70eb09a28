//! How a waiter's grant is picked up and started: at once, or by a second call if something must be recorded between
//! the grant and the exchange.
//!
//! A grant that is not started is held for [`UNSTARTED_NS`](super::UNSTARTED_NS) at most, and the record may take much
//! longer than that. Other requests get the units meanwhile, and the waiter is granted anew when its caller asks again.
//! The limits thus count every exchange from the moment at which it is really sent.

use super::keys::{LaneKey, PermitKey, WaiterKey};
use super::need::Need;
use super::waiting::WaiterState;
use super::{Ask, Claim, Engine, Refusal, Timer, WaitReason};
use crate::time::Time;

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
        let waiter = self.queue_up(&need, ask)?.waiter;
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
    /// others. An error ends the waiter.
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
}
