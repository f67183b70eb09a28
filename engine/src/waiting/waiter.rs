//! A waiting request.

use crate::ask::{Ask, Attempt, Refusal, WaitReason};
use crate::cost::Cost;
use crate::endpoint::EndpointId;
use crate::keys::{LaneKey, PermitKey, QueueKey, WaiterKey};
use crate::slab::Key;
use crate::tier::Tier;
use crate::time::Time;

/// A request that waits for its turn, or was granted and has not been claimed by its caller.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) lane: LaneKey,
    pub(crate) queue: QueueKey,
    pub(crate) tier: Tier,
    pub(crate) endpoint: EndpointId,
    pub(crate) cost: Cost,
    /// Whether this is a retry, which goes before first attempts.
    pub(crate) retry: bool,
    /// When the caller stops waiting in any case.
    pub(crate) give_up: Time,
    /// When the caller stops waiting, unless a pause by the vendor is in force then.
    pub(crate) tires: Time,
    /// How much longer the caller waits after a vendor's pause, in nanoseconds; 0 if it does not.
    pub(crate) patience_ns: u64,
    /// How long the exchange may take.
    pub(crate) attempt: Attempt,
    pub(crate) submitted: Time,
    /// Whether its caller writes a record between the grant and the start.
    pub(crate) deferred: bool,
    pub(crate) state: WaiterState,
    /// What blocked the request last.
    pub(crate) reason: WaitReason,
    pub(super) prev: WaiterKey,
    pub(super) next: WaiterKey,
}

#[derive(Debug, Clone)]
pub(crate) enum WaiterState {
    Queued,
    Granted(PermitKey),
    /// The request was granted and did not start in time. It is in no queue, so that no other request waits behind a
    /// caller that does not act. When its caller returns, the request goes to the front.
    Missed,
    Gone(Refusal),
}

impl Waiter {
    pub(crate) fn new(lane: LaneKey, queue: QueueKey, submitted: Time, ask: &Ask) -> Waiter {
        Waiter {
            lane,
            queue,
            tier: ask.tier,
            endpoint: ask.endpoint,
            cost: ask.cost,
            retry: ask.retry,
            give_up: ask.give_up,
            tires: ask.give_up,
            patience_ns: ask.patience_ns,
            attempt: ask.attempt,
            submitted,
            deferred: false,
            state: WaiterState::Queued,
            reason: WaitReason::turn(),
            prev: Key::NONE,
            next: Key::NONE,
        }
    }

    pub(crate) fn until(self, tires: Time, give_up: Time) -> Waiter {
        Waiter { tires, give_up, ..self }
    }

    pub(crate) fn deferred(self, deferred: bool) -> Waiter {
        Waiter { deferred, ..self }
    }
}
