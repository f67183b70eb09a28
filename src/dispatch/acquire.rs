//! Asking a shard for a permit, and waiting for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::shard::{Held, Shard};
use crate::clock::Time;
use crate::config::Tenant;
use crate::engine::slab::Key;
use crate::engine::{Answer, Ask, Claim, Refusal, WaitReason};
use crate::metrics::{Queued, Series};

/// A grant, and what it took to get it.
pub(crate) struct Grant {
    pub(crate) held: Held,
    /// The moment of it.
    pub(crate) began: Time,
    pub(crate) waited: Duration,
    /// What it waited for last; nothing when it did not wait.
    pub(crate) reason: Option<WaitReason>,
}

/// Waits for a permit, and starts it when it is granted. Dropped before, it gives everything back.
pub(crate) struct Acquire<'a> {
    shard: &'a Arc<Shard>,
    state: State<'a>,
    series: &'a Series,
}

/// Which lane of the shard.
#[derive(Clone, Copy)]
pub(crate) enum Whose<'a> {
    Lane(Key),
    Tenant { tenant: &'a Tenant, hash: u64 },
}

enum State<'a> {
    Start { whose: Whose<'a>, ask: Ask, now: Time },
    Waiting { waiter: Key, since: Time, _counted: Queued },
    Done,
}

impl<'a> Acquire<'a> {
    /// To be polled at once: it asks at `now`. `series` counts it while it waits.
    #[inline]
    pub(crate) fn new(shard: &'a Arc<Shard>, whose: Whose<'a>, ask: Ask, now: Time, series: &'a Series) -> Acquire<'a> {
        Acquire { shard, state: State::Start { whose, ask, now }, series }
    }
}

/// Asks once, without waiting.
#[inline]
pub(crate) fn try_acquire(shard: &Arc<Shard>, lane: Key, ask: &Ask) -> Result<Held, Box<Refusal>> {
    permit_now(shard, lane, ask).map(|permit| Held::new(shard, Key::from_bits(permit)))
}

/// The bits of the permit's key. They and a refusal in a box are handed over in registers.
#[inline(never)]
fn permit_now(shard: &Shard, lane: Key, ask: &Ask) -> Result<u64, Box<Refusal>> {
    debug_assert!(ask.immediate, "nobody would come for what waits");
    shard.decide(|engine, now| engine.submit(now, lane, ask).now()).map(Key::to_bits)
}

impl Future for Acquire<'_> {
    type Output = Result<Grant, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shard = self.shard;
        let (result, state) = match &self.state {
            State::Start { whose, ask, now } => {
                let (now, mut core) = (*now, shard.core.lock());
                let lane = match whose {
                    Whose::Lane(lane) => Some(*lane),
                    Whose::Tenant { tenant, hash } => core.engine.find(*hash, &tenant.id, &tenant.vendor.name),
                };
                let answer = match lane {
                    Some(lane) => core.engine.submit(now, lane, ask),
                    None => Answer::Refused(Refusal::NoLane),
                };
                let asked = match answer {
                    Answer::Granted(key) => {
                        let held = Held::new(shard, key);
                        let grant = Grant { held, began: now, waited: Duration::ZERO, reason: None };
                        (Poll::Ready(Ok(grant)), State::Done)
                    }
                    Answer::Refused(refusal) => (Poll::Ready(Err(refusal)), State::Done),
                    Answer::Wait { waiter, .. } => {
                        core.wait(waiter, context.waker());
                        let _counted = self.series.queued(ask.tier);
                        (Poll::Pending, State::Waiting { waiter, since: now, _counted })
                    }
                };
                shard.after(core);
                asked
            }
            State::Waiting { waiter, since, .. } => {
                let now = shard.clock.now();
                let mut core = shard.core.lock();
                let claim = core.engine.claim(now, *waiter);
                match claim {
                    Claim::Waiting => core.wait(*waiter, context.waker()),
                    _ => core.forget(*waiter),
                }
                shard.after(core);
                match claim {
                    Claim::Started(key, reason) => {
                        let (held, waited) = (Held::new(shard, key), now.since(*since));
                        (Poll::Ready(Ok(Grant { held, began: now, waited, reason: Some(reason) })), State::Done)
                    }
                    Claim::Refused(refusal) => (Poll::Ready(Err(refusal)), State::Done),
                    Claim::Waiting => return Poll::Pending,
                }
            }
            State::Done => return Poll::Pending,
        };
        self.state = state;
        result
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if let State::Waiting { waiter, .. } = self.state {
            let now = self.shard.clock.now();
            let mut core = self.shard.core.lock();
            core.forget(waiter);
            core.engine.cancel(now, waiter);
            self.shard.after(core);
        }
    }
}
