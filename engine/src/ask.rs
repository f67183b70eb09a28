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
    /// The caller admitted the request earlier, and it asks for another permit, or asks late. It may do so after
    /// [`Engine::close`](crate::Engine::close) too.
    pub admitted: bool,
    /// When the caller stops waiting.
    pub give_up: Time,
    /// The vendor's pauses do not count as waiting: after a pause the caller waits this much longer, in nanoseconds. 0
    /// if `give_up` holds in any case.
    pub patience_ns: u64,
    pub attempt: Attempt,
}

impl Ask {
    /// A first attempt of a caller that waits without end.
    pub fn new(tier: Tier, endpoint: EndpointId, cost: impl Into<Cost>, attempt: Attempt) -> Ask {
        let (cost, give_up) = (cost.into(), Time::MAX);
        Ask { tier, endpoint, cost, retry: false, immediate: false, admitted: false, give_up, patience_ns: 0, attempt }
    }
}

/// How long an exchange may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The usual bound, in nanoseconds. The permit ends after that, whatever became of the exchange, unless it outlasts
    /// this time.
    pub most_ns: u64,
    /// Whether the permit ends when its holder says so, however late that is. What the permit probes is left to another
    /// request after `most_ns`, if there is no response by then. [`Engine::outlasts`](crate::Engine::outlasts) sets
    /// this later.
    pub outlasts: bool,
}

impl Attempt {
    /// An exchange whose permit ends after this many nanoseconds.
    pub const fn within(most_ns: u64) -> Attempt {
        Attempt { most_ns, outlasts: false }
    }

    /// The same, for an exchange whose permit ends when its holder says so.
    #[must_use]
    pub const fn open_ended(self) -> Attempt {
        Attempt { outlasts: true, ..self }
    }
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
