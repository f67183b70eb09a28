//! Obtains the permit of a stored job: the store records the exchange between the grant and the start of the permit.
//!
//! Writing the record may take any time. A permit that started before it would be counted from its start, while the
//! exchange begins later, together with others that were granted meanwhile: the vendor would see more than its limit.
//! So the permit starts right before the exchange. Until then the engine holds the grant for a moment, or 2 s at most. The
//! record tells a later process when the exchange began; one that is older than [`RecordExchange::latest`] is written
//! again.

use std::future::Future;

use super::Outgoing;
use super::attempt_end::NotSent;
use super::exchange_record::RecordExchange;
use crate::clock::Time;
use crate::core::Core;
use crate::dispatch::{Grant, LaneRef, Waiting, Whose, acquire_deferred};
use crate::engine::plan::EndpointId;
use crate::engine::{Ask, Refusal};
use crate::error::Error;
use crate::route::Route;
use crate::telemetry::metrics::Series;

#[cfg(all(test, feature = "testing"))]
mod tests;

/// The present place of a tenant's lane, whose endpoints a reload may have renumbered.
fn place_anew(core: &Core, tenant: &Route, endpoint: EndpointId, ask: &mut Ask) -> Result<LaneRef, Refusal> {
    ask.endpoint = core.registry.endpoint_now(tenant, endpoint)?;
    core.registry.place(tenant)
}

/// Asks for a permit at a lane's known place, or else at the place that the tenant's configuration implies.
fn ask_at<'a>(
    core: &'a Core,
    place: &'a Option<LaneRef>,
    tenant: &Route,
    ask: &Ask,
    now: Time,
    series: &'a Series,
) -> Result<Waiting<'a>, Refusal> {
    match place {
        Some(place) => acquire_deferred(&place.shard, Whose::Lane(place.lane), ask, now, series),
        None => core.registry.dispatch.acquire_deferred(tenant, ask, now, series),
    }
}

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
                match ask_at(core, &place, &tenant, &ask, asked, &series) {
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
                    place = Some(place_anew(core, &tenant, endpoint, &mut ask)?);
                    asked = core.clock.now();
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Waits until the limits grant a permit, which goes back at once: nothing is recorded.
    pub(super) async fn wait_for_turn(&self, core: &Core, now: Time) -> Result<(), NotSent> {
        let Some(records) = self.stored.as_ref().map(|stored| stored.records.clone()) else { return Ok(()) };
        let (series, tenant, mut ask) = (self.running.series().clone(), self.route.clone(), self.ask());
        let (endpoint, mut place, mut asked) = (ask.endpoint, None::<LaneRef>, now);
        loop {
            let granted = {
                match ask_at(core, &place, &tenant, &ask, asked, &series) {
                    Ok(mut waiting) => self.unless_stopped(&*records, false, waiting.granted()).await?,
                    Err(refusal) => Err(refusal),
                }
            };
            match granted {
                // The lane was evicted while idle, or has moved.
                Err(Refusal::NoLane) => {
                    place = Some(place_anew(core, &tenant, endpoint, &mut ask)?);
                    asked = core.clock.now();
                }
                granted => return Ok(granted?),
            }
        }
    }

    /// Waits until the token URL that gave `error` may be asked again, if that is within the job's time. A backlog whose
    /// jobs went back into the store instead would be claimed and written back as fast as the worker can, and for nothing;
    /// a job that waits here keeps its place among the jobs in hand. Other requests get the error.
    pub(super) async fn wait_for_token(&self, core: &Core, error: Error) -> Result<(), NotSent> {
        let now = core.clock.now();
        let again_at = error.retry_after().map(|wait| now + wait).filter(|at| *at <= self.give_up);
        let records = self.stored.as_ref().map(|stored| stored.records.clone());
        let (Some(again_at), Some(records)) = (again_at, records) else { return Err(NotSent::NoTokenNow(error)) };
        self.unless_stopped(&*records, false, tokio::time::sleep_until(core.clock.instant(again_at))).await
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

    /// Ends early when the worker stops, if an exchange was recorded: the job then returns to the store as not sent. The
    /// worker itself drops jobs without a record.
    async fn unless_stopped<T>(
        &self,
        records: &dyn RecordExchange,
        is_written: bool,
        future: impl Future<Output = T>,
    ) -> Result<T, NotSent> {
        if !is_written && !self.has_begun() {
            return Ok(future.await);
        }
        tokio::select! {
            biased;
            done = future => Ok(done),
            () = records.stopped() => Err(NotSent::Stopped),
        }
    }
}
