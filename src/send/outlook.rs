//! What the limits of a lane allow a claimed job of the outbox, by what this process knows.

use std::time::Duration;

use crate::Priority;
use crate::config::Tenant;
use crate::core::Core;
use crate::engine::limit::BlockedBy;
use crate::engine::plan::NO_ENDPOINT;
use crate::engine::{Refusal, Until, WaitReason};

/// How long a job waits in memory for its host and its permit, before it waits in the store.
pub(super) const HOLD: Duration = Duration::from_secs(60);

/// What a lane's limits allow a claimed job of one priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlook {
    /// It may get its permit while it waits.
    Open,
    /// It gets no permit for longer than it waits, unless another process ends a pause.
    Closed,
    /// Only a waiting request finds out. Either the process has used the units that it holds of a shared limit, and the
    /// store gives it more only if a request waits for them, or the lane is not in memory.
    Unknown,
}

/// What a lane's limits allow by what this process knows. Limits of single endpoints do not count.
pub(crate) fn outlook(core: &Core, tenant: &Tenant, priority: Priority) -> Outlook {
    let Some(place) = core.registry.dispatch.find(tenant) else { return Outlook::Unknown };
    place.shard.look(|engine, now| {
        // A check says first which exchanges a request has to wait for, whatever pauses there are. A pause refuses a
        // request at once that would have to wait longer than `max_hold`.
        let held = HOLD.min(tenant.vendor.retry.max_hold);
        if engine.paused_until(now, place.lane).is_some_and(|at| at > now + held) {
            return Outlook::Closed;
        }
        let Some(check) = engine.check(now, place.lane, NO_ENDPOINT, priority.into()) else { return Outlook::Unknown };
        match check.stop {
            Some((_, Until::At(at) | Until::Turn(at))) if at > now + HOLD => Outlook::Closed,
            Some((reason, Until::OnSettle(at))) if at > now + HOLD && is_used_up(&reason) => Outlook::Unknown,
            _ => Outlook::Open,
        }
    })
}

/// Whether a request waits because units of a rate are missing, and not because of exchanges in flight or a pause.
fn is_used_up(reason: &WaitReason) -> bool {
    use BlockedBy::{Budget, NotHeld, OutOfReach, Reserve, Window};
    matches!(reason.lack, Some(Budget | NotHeld | OutOfReach | Reserve | Window))
}

/// Whether a job that was refused before it was tried goes back as it came, because its lane is blocked.
pub(super) fn blocks(refusal: &Refusal, outlook: impl FnOnce() -> Outlook) -> bool {
    match refusal {
        // Refused at once. Where nobody knows what the lane's limits allow, the reason is another one, such as a pause of
        // the request's endpoint, and the next job would be claimed and refused at once, too.
        Refusal::TooLate { .. } | Refusal::RetryLater { .. } => outlook() == Outlook::Closed,
        // It has waited in vain.
        Refusal::Deadline => outlook() != Outlook::Open,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
