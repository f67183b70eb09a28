//! How a waiter's grant is picked up and started: at once, or by a second call where something must be written down
//! between the grant and the exchange.
//!
//! A grant that is not started is held for [`UNSTARTED_NS`](super::UNSTARTED_NS) at most. What is to be written may take
//! much longer than that. The units go to others meanwhile, and the waiter is granted anew when its caller asks again: so
//! the limits count every exchange from the moment at which it really leaves.

use super::keys::{LaneKey, PermitKey, WaiterKey};
use super::need::Need;
use super::waiting::WaiterState;
use super::{Ask, Claim, Engine, Refusal, Timer, WaitReason};
use crate::time::Time;

impl Engine {
    /// Asks for a grant that is started later: by [`claim`](Self::claim), after [`granted`](Self::granted) has said that
    /// there is one. Returns the waiter; it may have its grant already.
    pub fn submit_deferred(&mut self, now: Time, lane: LaneKey, ask: &Ask) -> Result<WaiterKey, Refusal> {
        let now = self.tick(now);
        self.apply_group_pauses(lane);
        let inside = self.lanes.get(lane).ok_or(Refusal::NoLane)?;
        if self.shutdown || inside.retired {
            return Err(if self.shutdown { Refusal::Shutdown } else { Refusal::Retired });
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

    /// Picks up what a waiter was granted and starts it, or says what became of the waiter.
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

    /// The grant of a waiter, if it has one that was not taken back; one whose grant was taken back waits again, before
    /// all others. An error ends the waiter.
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
                // Granted, or told that its lane is gone: the caller is here and need not be woken.
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

    /// Takes back the grant of a waiter whose exchange cannot leave yet. The waiter is in no queue until its caller asks
    /// by [`granted`](Self::granted) or [`claim`](Self::claim), and goes to the front then.
    pub fn put_back(&mut self, now: Time, waiter: WaiterKey) {
        self.tick(now);
        if let Some(WaiterState::Granted(permit)) = self.waiters.get(waiter).map(|waiter| waiter.state.clone()) {
            self.revoke(permit);
            self.run_turns();
        }
    }
}
