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
use crate::metrics::{Queued, Series};

/// A grant, and what it took to get it.
pub(crate) struct Grant {
    pub(crate) held: PermitGuard,
    /// The moment of it.
    pub(crate) began: Time,
    pub(crate) waited: Duration,
    /// What it waited for last; nothing when it did not wait.
    pub(crate) reason: Option<WaitReason>,
}

/// What came of asking for a permit.
pub(crate) enum Asked<'a> {
    Granted(Grant),
    Waits(Waiting<'a>),
    Refused(Refusal),
}

/// Which lane of the shard.
#[derive(Clone, Copy)]
pub(crate) enum Whose<'a> {
    Lane(LaneKey),
    Tenant { tenant: &'a Tenant, hash: u64 },
}

/// Asks at `now`. `series` counts it while it waits.
#[inline]
pub(crate) fn acquire<'a>(
    shard: &'a Arc<Shard>,
    whose: Whose<'_>,
    ask: &Ask,
    now: Time,
    series: &'a Series,
) -> Asked<'a> {
    let mut core = shard.core.lock();
    let lane = match whose {
        Whose::Lane(lane) => Some(lane),
        Whose::Tenant { tenant, hash } => core.engine.find(hash, &tenant.id, &tenant.vendor.name),
    };
    let Some(lane) = lane else { return Asked::Refused(Refusal::NoLane) };
    let answer = core.engine.submit(now, lane, ask);
    shard.after(core);
    match answer {
        Answer::Granted(key) => {
            let held = PermitGuard::new(shard, key);
            Asked::Granted(Grant { held, began: now, waited: Duration::ZERO, reason: None })
        }
        Answer::Wait { waiter, .. } => {
            Asked::Waits(Waiting { shard, waiter: Some(waiter), since: now, _counted: series.queued(ask.tier.rank()) })
        }
        Answer::Refused(refusal) => Asked::Refused(refusal),
    }
}

/// Asks at `now` for a grant that the caller starts by [`Waiting::start`], when something has been written down that must
/// stand before the exchange leaves.
pub(crate) fn acquire_deferred<'a>(
    shard: &'a Arc<Shard>,
    whose: Whose<'_>,
    ask: &Ask,
    now: Time,
    series: &'a Series,
) -> Result<Waiting<'a>, Refusal> {
    let mut core = shard.core.lock();
    let lane = match whose {
        Whose::Lane(lane) => Some(lane),
        Whose::Tenant { tenant, hash } => core.engine.find(hash, &tenant.id, &tenant.vendor.name),
    };
    let waiter = lane.ok_or(Refusal::NoLane).and_then(|lane| core.engine.submit_deferred(now, lane, ask));
    shard.after(core);
    Ok(Waiting { shard, waiter: Some(waiter?), since: now, _counted: series.queued(ask.tier.rank()) })
}

/// Asks once, without waiting.
#[inline]
pub(crate) fn try_acquire(shard: &Arc<Shard>, lane: LaneKey, ask: &Ask) -> Result<PermitGuard, Box<Refusal>> {
    permit_now(shard, lane, ask).map(|permit| PermitGuard::new(shard, Key::from_bits(permit)))
}

/// The bits of the permit's key. They and a refusal in a box are handed over in registers.
#[inline(never)]
fn permit_now(shard: &Shard, lane: LaneKey, ask: &Ask) -> Result<u64, Box<Refusal>> {
    debug_assert!(ask.immediate, "nobody would come for what waits");
    shard.decide(|engine, now| engine.submit(now, lane, ask).now()).map(Key::to_bits)
}

/// Waits for a permit, and starts it when it is granted. Dropped before, it gives everything back.
///
/// It is not woken before its first poll, which asks whether it was granted meanwhile.
pub(crate) struct Waiting<'a> {
    shard: &'a Arc<Shard>,
    /// None once it has ended.
    waiter: Option<WaiterKey>,
    since: Time,
    _counted: Queued,
}

impl Waiting<'_> {
    /// Returns when there is a grant. It is held for a moment only: [`start`](Self::start) says whether it still is.
    pub(crate) async fn granted(&mut self) -> Result<(), Refusal> {
        std::future::poll_fn(|context| self.poll_granted(context)).await
    }

    fn poll_granted(&mut self, context: &Context<'_>) -> Poll<Result<(), Refusal>> {
        let Some(waiter) = self.waiter else { return Poll::Pending };
        let now = self.shard.clock.now();
        let mut core = self.shard.core.lock();
        let granted = core.engine.granted(now, waiter);
        match &granted {
            Ok(None) => core.wait(waiter, context.waker()),
            _ => core.forget(waiter),
        }
        self.shard.after(core);
        match granted {
            Ok(None) => Poll::Pending,
            Ok(Some(_)) => Poll::Ready(Ok(())),
            Err(refusal) => {
                self.waiter = None;
                Poll::Ready(Err(refusal))
            }
        }
    }

    /// Starts the grant now. None where it has been taken back: the request waits again, before all others of its queue.
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

    /// Gives the grant to others, because the exchange cannot leave yet. [`granted`](Self::granted) waits for the next.
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
        let mut core = shard.core.lock();
        let claim = core.engine.claim(now, waiter);
        match claim {
            Claim::Waiting => core.wait(waiter, context.waker()),
            _ => core.forget(waiter),
        }
        shard.after(core);
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
            let mut core = self.shard.core.lock();
            core.forget(waiter);
            core.engine.cancel(now, waiter);
            self.shard.after(core);
        }
    }
}
