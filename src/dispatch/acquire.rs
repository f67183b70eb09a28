//! Asking a shard for a permit, and waiting for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::shard::{PermitGuard, Shard};
use crate::clock::Time;
use crate::config::Tenant;
use crate::engine::keys::{LaneKey, WaiterKey};
use crate::engine::slab::Key;
use crate::engine::{Answer, Ask, Claim, Refusal, WaitReason};
use crate::telemetry::metrics::{Queued, Series};

/// A granted permit, and how long the request waited for it.
pub(crate) struct Grant {
    pub(crate) held: PermitGuard,
    /// When the permit started.
    pub(crate) began: Time,
    pub(crate) waited: Duration,
    /// What the request waited for last; `None` if it did not wait.
    pub(crate) reason: Option<WaitReason>,
}

/// The engine's answer to a request for a permit.
pub(crate) enum PermitAnswer<'a> {
    Granted(Grant),
    Waits(Waiting<'a>),
    Refused(Refusal),
}

/// Identifies a lane of the shard.
#[derive(Clone, Copy)]
pub(crate) enum Whose<'a> {
    Lane(LaneKey),
    Tenant { tenant: &'a Tenant, hash: u64 },
}

/// Asks for a permit at `now`. `series` counts the request while it waits.
#[inline]
pub(crate) fn acquire<'a>(
    shard: &'a Arc<Shard>,
    whose: Whose<'_>,
    ask: &Ask,
    now: Time,
    series: &'a Series,
) -> PermitAnswer<'a> {
    let mut state = shard.state.lock();
    let lane = match whose {
        Whose::Lane(lane) => Some(lane),
        Whose::Tenant { tenant, hash } => state.engine.find(hash, &tenant.id, &tenant.vendor.name),
    };
    let Some(lane) = lane else { return PermitAnswer::Refused(Refusal::NoLane) };
    let answer = state.engine.submit(now, lane, ask);
    shard.after(state);
    match answer {
        Answer::Granted(key) => {
            let held = PermitGuard::new(shard, key);
            PermitAnswer::Granted(Grant { held, began: now, waited: Duration::ZERO, reason: None })
        }
        Answer::Wait { waiter, .. } => PermitAnswer::Waits(Waiting {
            shard,
            waiter: Some(waiter),
            since: now,
            _counted: series.queued(ask.tier.rank()),
        }),
        Answer::Refused(refusal) => PermitAnswer::Refused(refusal),
    }
}

/// Asks at `now` for a permit that the caller starts later, by [`Waiting::start`]: a stored job first records its
/// exchange.
pub(crate) fn acquire_deferred<'a>(
    shard: &'a Arc<Shard>,
    whose: Whose<'_>,
    ask: &Ask,
    now: Time,
    series: &'a Series,
) -> Result<Waiting<'a>, Refusal> {
    let mut state = shard.state.lock();
    let lane = match whose {
        Whose::Lane(lane) => Some(lane),
        Whose::Tenant { tenant, hash } => state.engine.find(hash, &tenant.id, &tenant.vendor.name),
    };
    let waiter = lane.ok_or(Refusal::NoLane).and_then(|lane| state.engine.submit_deferred(now, lane, ask));
    shard.after(state);
    Ok(Waiting { shard, waiter: Some(waiter?), since: now, _counted: series.queued(ask.tier.rank()) })
}

/// Asks without waiting for a permit of an exchange that the program makes itself: only the program knows its end.
#[inline]
pub(crate) fn try_acquire(shard: &Arc<Shard>, lane: LaneKey, ask: &Ask) -> Result<PermitGuard, Box<Refusal>> {
    permit_now(shard, lane, ask).map(|permit| PermitGuard::new(shard, Key::from_bits(permit)))
}

/// Returns the bits of the permit's key, because these, like a boxed refusal, fit into registers.
#[inline(never)]
fn permit_now(shard: &Shard, lane: LaneKey, ask: &Ask) -> Result<u64, Box<Refusal>> {
    debug_assert!(ask.immediate, "a waiting request would have no owner");
    debug_assert!(ask.attempt.outlasts, "only the program knows the end of its exchange");
    shard.decide(|engine, now| engine.submit(now, lane, ask).now()).map(Key::to_bits)
}

/// A future that waits for a permit and starts the permit once granted. Dropping it earlier returns everything that it
/// holds.
///
/// Its waker is registered by the first poll, which also looks for a grant made before.
pub(crate) struct Waiting<'a> {
    shard: &'a Arc<Shard>,
    /// `None` once the wait has ended.
    waiter: Option<WaiterKey>,
    since: Time,
    _counted: Queued,
}

impl Waiting<'_> {
    /// Waits for a grant. The engine holds the grant for a moment only; [`start`](Self::start) says whether it is still
    /// there.
    pub(crate) async fn granted(&mut self) -> Result<(), Refusal> {
        std::future::poll_fn(|context| self.poll_granted(context)).await
    }

    fn poll_granted(&mut self, context: &Context<'_>) -> Poll<Result<(), Refusal>> {
        let Some(waiter) = self.waiter else { return Poll::Pending };
        let now = self.shard.clock.now();
        let mut state = self.shard.state.lock();
        let granted = state.engine.granted(now, waiter);
        match &granted {
            Ok(None) => state.wait(waiter, context.waker()),
            _ => state.forget(waiter),
        }
        self.shard.after(state);
        match granted {
            Ok(None) => Poll::Pending,
            Ok(Some(_)) => Poll::Ready(Ok(())),
            Err(refusal) => {
                self.waiter = None;
                Poll::Ready(Err(refusal))
            }
        }
    }

    /// Starts the granted permit. `None` if the engine has taken the grant back: the request then waits again, at the
    /// head of its queue.
    pub(crate) fn start(&mut self) -> Result<Option<Grant>, Refusal> {
        let Some(waiter) = self.waiter else { return Ok(None) };
        let (claim, now) = self.shard.decide(|engine, now| (engine.claim(now, waiter), now));
        match claim {
            Claim::Waiting => Ok(None),
            Claim::Started(key, reason) => {
                self.waiter = None;
                let (held, waited) = (PermitGuard::new(self.shard, key), now.since(self.since));
                Ok(Some(Grant { held, began: now, waited, reason: Some(reason) }))
            }
            Claim::Refused(refusal) => {
                self.waiter = None;
                Err(refusal)
            }
        }
    }

    /// Returns the grant, because the exchange cannot begin yet. [`granted`](Self::granted) waits for the next one.
    pub(crate) fn put_back(&self) {
        if let Some(waiter) = self.waiter {
            self.shard.decide(|engine, now| engine.put_back(now, waiter));
        }
    }
}

impl Future for Waiting<'_> {
    type Output = Result<Grant, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(waiter) = self.waiter else { return Poll::Pending };
        let shard = self.shard;
        let now = shard.clock.now();
        let mut state = shard.state.lock();
        let claim = state.engine.claim(now, waiter);
        match claim {
            Claim::Waiting => state.wait(waiter, context.waker()),
            _ => state.forget(waiter),
        }
        shard.after(state);
        let ended = match claim {
            Claim::Waiting => return Poll::Pending,
            Claim::Started(key, reason) => {
                let (held, waited) = (PermitGuard::new(shard, key), now.since(self.since));
                Ok(Grant { held, began: now, waited, reason: Some(reason) })
            }
            Claim::Refused(refusal) => Err(refusal),
        };
        self.waiter = None;
        Poll::Ready(ended)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter {
            let now = self.shard.clock.now();
            let mut state = self.shard.state.lock();
            state.forget(waiter);
            state.engine.cancel(now, waiter);
            self.shard.after(state);
        }
    }
}
