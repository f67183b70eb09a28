//! Requests for permits, and the engine's answers to them.

use std::sync::Arc;

use super::cost::Cost;
use super::endpoint::EndpointId;
use super::keys::{PermitKey, WaiterKey};
use super::limit::BlockedBy;
use super::tier::Tier;
use crate::time::Time;

/// A request for a permit.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub tier: Tier,
    pub endpoint: EndpointId,
    pub cost: Cost,
    pub retry: bool,
    /// Refuse the request instead of queueing it if it cannot be granted now.
    pub immediate: bool,
    /// When the caller stops waiting.
    pub give_up: Time,
    /// The vendor's pauses do not count as waiting: after a pause the caller waits this much longer, in nanoseconds. 0
    /// if `give_up` holds in any case.
    pub patience_ns: u64,
    /// The longest that the exchange may take, in nanoseconds. Its permit ends after that, whatever became of the
    /// exchange, unless its holder says that it [`outlasts`](crate::Engine::outlasts) this time.
    pub attempt_ns: u64,
}

/// The answer to a request for a permit.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The request may be sent now; the permit counts as started.
    Granted(PermitKey),
    /// Waits under this key until the engine names it in [`Engine::woken`](crate::Engine::woken).
    Wait { waiter: WaiterKey, until: Until, reason: WaitReason },
    /// The request is not granted, and waiting would not help.
    Refused(Refusal),
}

impl Answer {
    /// The answer to an immediate request, which is granted or refused but never waits.
    #[inline(always)]
    pub fn now(self) -> Result<PermitKey, Box<Refusal>> {
        match self {
            Answer::Granted(permit) => Ok(permit),
            Answer::Refused(refusal) => Err(Box::new(refusal)),
            Answer::Wait { until, reason, .. } => Err(Box::new(Refusal::NotNow { until, reason })),
        }
    }
}

/// How long a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// Until this moment if nothing else happens; earlier only if units are given back or a limit is raised.
    At(Time),
    /// Until an exchange in flight ends, and until this moment at the latest.
    OnSettle(Time),
    /// Until requests before it have had their turn, which is not before this moment.
    Turn(Time),
}

impl Until {
    pub(crate) fn not_before(self) -> Time {
        match self {
            Until::At(at) | Until::Turn(at) => at,
            Until::OnSettle(_) => Time::ZERO,
        }
    }
}

/// What a request waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitReason {
    /// The name of the limit; `None` while the request waits for its turn behind others.
    pub limit: Option<Arc<str>>,
    /// Why that limit does not grant the request.
    pub lack: Option<BlockedBy>,
}

impl WaitReason {
    pub(crate) fn turn() -> WaitReason {
        WaitReason { limit: None, lack: None }
    }
}

/// Why a request gets no permit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The queues of this lane and tier are full.
    LaneFull {
        waiting: u32,
    },
    /// As many requests wait in the lanes of all engines as may, and no other lane has clearly more of them than this
    /// one, or other engines have not yet evicted for the requests that were admitted beyond the bound. `waiting` is
    /// the number in all engines.
    AllFull {
        waiting: u32,
    },
    /// The caller's deadline has passed.
    Deadline,
    /// The caller's deadline comes before the earliest moment at which the limits allow the request.
    TooLate {
        earliest: Time,
    },
    /// The caller's deadline has passed while an operator's pause is in force.
    Held,
    /// The vendor's pause lasts until `at`, which is after the caller's deadline or longer than any request is held.
    RetryLater {
        at: Time,
    },
    /// The request costs more than the limit can ever hold.
    TooExpensive {
        limit: Arc<str>,
        cost: u32,
        largest: u32,
    },
    /// An immediate request that cannot be granted now.
    NotNow {
        until: Until,
        reason: WaitReason,
    },
    UnknownEndpoint,
    /// The tenant was removed.
    Retired,
    /// The lane does not exist; it may have been evicted while it was idle.
    NoLane,
    Shutdown,
}

/// The answer to [`Engine::claim`](crate::Engine::claim).
#[derive(Debug)]
pub enum Claim {
    /// The permit is started. Carries the reason for which the request waited last.
    Started(PermitKey, WaitReason),
    Waiting,
    Refused(Refusal),
}
