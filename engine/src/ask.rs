//! What is asked of the engine, and what it answers.

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
    /// Now or not at all.
    pub immediate: bool,
    /// When the caller stops waiting.
    pub give_up: Time,
    /// The vendor's pauses do not count as waiting: after one the caller waits for so long again, in nanoseconds. 0 where
    /// `give_up` holds whatever happens.
    pub patience_ns: u64,
    /// How long the exchange may take, in nanoseconds: its permit is settled after that, whatever became of it.
    pub attempt_ns: u64,
}

/// What became of a request for a permit.
#[derive(Clone, Debug)]
pub enum Answer {
    /// May go now; the permit counts as started.
    Granted(PermitKey),
    /// Waits under this key until the engine names it in [`Engine::woken`](crate::Engine::woken).
    Wait { waiter: WaiterKey, until: Until, reason: WaitReason },
    /// Not now, nor later by waiting.
    Refused(Refusal),
}

impl Answer {
    /// The answer to a request that goes now or not at all.
    #[inline(always)]
    pub fn now(self) -> Result<PermitKey, Box<Refusal>> {
        match self {
            Answer::Granted(permit) => Ok(permit),
            Answer::Refused(refusal) => Err(Box::new(refusal)),
            Answer::Wait { until, reason, .. } => Err(Box::new(Refusal::NotNow { until, reason })),
        }
    }
}

/// Until when a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// At this moment if nothing else happens; before it only if something is given back or a limit is raised.
    At(Time),
    /// Until something in flight ends; until this moment at the latest.
    OnSettle(Time),
    /// Until others have had their turn; not before this moment.
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
    /// The limit's name; none while others are first.
    pub limit: Option<Arc<str>>,
    /// What that limit lacks.
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
    /// As many wait in this lane and tier as may.
    LaneFull {
        waiting: u32,
    },
    /// As many wait altogether as may, and this lane holds most of them.
    AllFull {
        waiting: u32,
    },
    /// The caller's time is up.
    Deadline,
    /// The caller's time will be up before the limits allow it.
    TooLate {
        earliest: Time,
    },
    /// The caller's time is up, and an operator's pause goes on.
    Held,
    /// The vendor wants to be left alone until then, and that is after the caller's time, or very long.
    RetryLater {
        at: Time,
    },
    /// The limit never holds as much as the request costs.
    TooExpensive {
        limit: Arc<str>,
        cost: u32,
        largest: u32,
    },
    /// Asked for now or not at all.
    NotNow {
        until: Until,
        reason: WaitReason,
    },
    UnknownEndpoint,
    /// The tenant was removed.
    Retired,
    /// There is no such lane; it may have been dropped while it rested.
    NoLane,
    Shutdown,
}

/// The answer to [`Engine::claim`](crate::Engine::claim).
#[derive(Debug)]
pub enum Claim {
    /// The permit is started. With what it waited for last.
    Started(PermitKey, WaitReason),
    Waiting,
    Refused(Refusal),
}
