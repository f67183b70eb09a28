//! The permit of a stored job: its exchange is written down between the grant and the start of the permit.
//!
//! The store may take any time for that. A permit that was started before would be counted from then, while its exchange
//! leaves later, and together with those that were granted meanwhile. So the grant stays unstarted while the record is
//! written, and the engine takes it back after a moment; the permit is started right before the exchange leaves. The
//! record says when the exchange leaves, for the next process: one that is older than [`Ledger::latest`] is written again.

use std::future::Future;

use super::Job;
use super::end::NotSent;
use super::ledger::Ledger;
use crate::clock::Time;
use crate::core::Core;
use crate::dispatch::{Grant, LaneRef, Waiting, Whose, acquire_deferred};
use crate::engine::Refusal;

#[cfg(all(test, feature = "testing"))]
mod tests;

impl Job {
    /// Waits for a permit, writes the exchange down, and starts the permit. Where the job's host has failed lately, it takes
    /// leave to connect before the exchange is written down.
    pub(super) async fn permit_of_job(&mut self, core: &Core, now: Time) -> Result<Grant, NotSent> {
        let Some(ledger) = self.stored.as_ref().map(|stored| stored.ledger.clone()) else {
            return Ok(self.permit(core, now).await?);
        };
        let (series, tenant, mut ask) = (self.running.series().clone(), self.route.clone(), self.ask());
        let (endpoint, mut place, mut asked) = (ask.endpoint, None::<LaneRef>, now);
        // When the record that is in the store was asked for.
        let mut record = None;
        loop {
            let ended = {
                let waiting = match &place {
                    Some(place) => acquire_deferred(&place.shard, Whose::Lane(place.lane), &ask, asked, &series),
                    None => core.registry.dispatch.acquire_deferred(&tenant, &ask, asked, &series),
                };
                match waiting {
                    Ok(waiting) => self.start(core, &*ledger, waiting, &mut record).await,
                    Err(refusal) => Err(refusal.into()),
                }
            };
            match ended {
                Ok(mut grant) => {
                    grant.waited = grant.began.since(now);
                    series.waited(ask.tier.rank(), grant.waited);
                    let began = grant.began;
                    grant.held = grant.held.counted_from(&series, || began);
                    return Ok(grant);
                }
                // Its lane was dropped while it rested, or has moved.
                Err(NotSent::Refused(Refusal::NoLane)) => {
                    let now = core.registry.endpoint_now(&tenant, endpoint).and_then(|endpoint| {
                        ask.endpoint = endpoint;
                        core.registry.place(&tenant)
                    });
                    place = Some(now?);
                    asked = core.clock.now();
                }
                Err(why) => return Err(why),
            }
        }
    }

    async fn start(
        &mut self,
        core: &Core,
        ledger: &dyn Ledger,
        mut waiting: Waiting<'_>,
        record: &mut Option<Time>,
    ) -> Result<Grant, NotSent> {
        let is_fresh = |record: Option<Time>| record.is_some_and(|at| core.clock.now().since(at) < ledger.latest());
        loop {
            // A grant that was taken back meanwhile leaves no other request waiting for the host.
            self.host_pass = None;
            self.unless_stopped(ledger, record.is_some(), waiting.granted()).await??;
            if !core.egress.hosts.are_well() && !self.pass_host(core) {
                // Others can use the units meanwhile. Nothing is written down for an exchange that may not leave.
                waiting.put_back();
                self.unless_stopped(ledger, record.is_some(), self.wait_for_host(core)).await??;
                continue;
            }
            if !is_fresh(*record) {
                if let Some(over) = ledger.stall() {
                    // Others can use the units meanwhile, and no more records line up than have.
                    waiting.put_back();
                    let over = tokio::time::timeout_at(core.clock.instant(self.give_up), over);
                    if self.unless_stopped(ledger, record.is_some(), over).await?.is_err() {
                        return Err(Refusal::Deadline.into());
                    }
                    continue;
                }
                let asked = core.clock.now();
                self.write_start(record.is_some()).await?;
                *record = Some(asked);
            }
            if is_fresh(*record)
                && let Some(grant) = waiting.start()?
            {
                return Ok(grant);
            }
        }
    }

    /// What has been written down goes back into the store as something that did not leave, when the worker stops. What
    /// has not is dropped by the worker.
    async fn unless_stopped<T>(
        &self,
        ledger: &dyn Ledger,
        is_written: bool,
        future: impl Future<Output = T>,
    ) -> Result<T, NotSent> {
        if !is_written {
            return Ok(future.await);
        }
        tokio::select! {
            biased;
            done = future => Ok(done),
            () = ledger.stopped() => Err(NotSent::Stopped),
        }
    }
}
