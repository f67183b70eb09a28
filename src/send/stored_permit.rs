//! Obtains the permit of a stored job: the store records the exchange between the grant and the start of the permit.
//!
//! Writing the record may take any time. A permit that started before it would be counted from its start, while the
//! exchange begins later, together with others that were granted meanwhile: the vendor would see more than its limit.
//! So the permit starts right before the exchange. Until then the engine holds the grant for a moment only. The record
//! tells a later process when the exchange began; one that is older than [`RecordExchange::latest`] is written again.

use std::future::Future;

use super::Outgoing;
use super::attempt_end::NotSent;
use super::exchange_record::RecordExchange;
use crate::clock::Time;
use crate::core::Core;
use crate::dispatch::{Grant, LaneRef, Waiting, Whose, acquire_deferred};
use crate::engine::Refusal;

#[cfg(all(test, feature = "testing"))]
mod tests;

impl Outgoing {
    /// Waits for a permit, records the exchange, and starts the permit. If the job's host has failed lately, it takes a
    /// pass of the breaker before the exchange is recorded.
    pub(super) async fn permit_of_job(&mut self, core: &Core, now: Time) -> Result<Grant, NotSent> {
        let Some(records) = self.stored.as_ref().map(|stored| stored.records.clone()) else {
            return Ok(self.permit(core, now).await?);
        };
        let (series, tenant, mut ask) = (self.running.series().clone(), self.route.clone(), self.ask());
        let (endpoint, mut place, mut asked) = (ask.endpoint, None::<LaneRef>, now);
        // When the record in the store was requested.
        let mut record = None;
        loop {
            let ended = {
                let waiting = match &place {
                    Some(place) => acquire_deferred(&place.shard, Whose::Lane(place.lane), &ask, asked, &series),
                    None => core.registry.dispatch.acquire_deferred(&tenant, &ask, asked, &series),
                };
                match waiting {
                    Ok(waiting) => self.start(core, &*records, waiting, &mut record).await,
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
                // The lane was evicted while idle, or has moved.
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
        records: &dyn RecordExchange,
        mut waiting: Waiting<'_>,
        record: &mut Option<Time>,
    ) -> Result<Grant, NotSent> {
        let is_fresh = |record: Option<Time>| record.is_some_and(|at| core.clock.now().since(at) < records.latest());
        loop {
            // Without a grant, the job must not keep other requests waiting for the host.
            self.host_pass = None;
            self.unless_stopped(records, record.is_some(), waiting.granted()).await??;
            if !core.egress.hosts.are_well() && !self.pass_host(core) {
                // Other requests can use the units meanwhile. No record is written for an exchange that may not begin.
                waiting.put_back();
                self.unless_stopped(records, record.is_some(), self.wait_for_host(core)).await??;
                continue;
            }
            if !is_fresh(*record) {
                if let Some(over) = records.stall() {
                    // Other requests can use the units meanwhile, and no further records queue up.
                    waiting.put_back();
                    let over = tokio::time::timeout_at(core.clock.instant(self.give_up), over);
                    if self.unless_stopped(records, record.is_some(), over).await?.is_err() {
                        return Err(Refusal::Deadline.into());
                    }
                    continue;
                }
                let asked = core.clock.now();
                self.write_start(core, record.is_some()).await?;
                *record = Some(asked);
            }
            if is_fresh(*record)
                && let Some(grant) = waiting.start()?
            {
                return Ok(grant);
            }
        }
    }

    /// Ends early when the worker stops, if the exchange was recorded: the job then returns to the store as not sent.
    /// The worker itself drops jobs without a record.
    async fn unless_stopped<T>(
        &self,
        records: &dyn RecordExchange,
        is_written: bool,
        future: impl Future<Output = T>,
    ) -> Result<T, NotSent> {
        if !is_written {
            return Ok(future.await);
        }
        tokio::select! {
            biased;
            done = future => Ok(done),
            () = records.stopped() => Err(NotSent::Stopped),
        }
    }
}
