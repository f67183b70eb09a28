//! For operators: pauses, events and counts of current work.

use std::time::Duration;

use super::{IntegrationClient, Tenants};
use crate::clock::Time;
use crate::core::refusal;
use crate::core::status::types::DeadLetterCounts;
use crate::dispatch::LaneRef;
use crate::engine::Noticed;
use crate::error::Error;
use crate::telemetry::events::Events;
use crate::{Priority, send};

impl Tenants<'_> {
    /// Sends nothing for a tenant to a vendor until [`resume`](Self::resume), also if the tenant is removed and set again
    /// within a day. Requests in flight go on; waiting requests wait, each until its own deadline; requests of the outbox
    /// read no credential meanwhile, so that one that is missing makes none of them fail.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn pause(self, tenant: &str, vendor: &str) -> Result<(), Error> {
        let notices =
            self.with_lane(tenant, vendor, |place| place.shard.decide(|engine, now| engine.pause(now, place.lane)))?;
        self.client.core.telemetry.metrics.series(tenant, vendor).paused(&tenant.into(), Time::MAX);
        self.tell(tenant, vendor, notices)
    }

    /// Ends every pause of a tenant at a vendor: an operator's, and those that the vendor asked for. Where the vendor asked
    /// a whole account or all callers to wait, the tenants that wait for it already go on waiting. Also forgets the
    /// lower rates that refusals have taught this process. Of limits that
    /// [processes share](crate::IntegrationClientBuilder::share_through), it also ends the pause of a process that has
    /// ended since. Call it in each running process that the vendor told to wait, or that has found the pause in the
    /// store when it started: such a process keeps to the pause, and so do the others.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn resume(self, tenant: &str, vendor: &str) -> Result<(), Error> {
        let registry = &self.client.core.registry;
        let of = registry.route(tenant, vendor)?;
        registry.resumes(&of);
        registry.dispatch.forget_groups(&of);
        let notices =
            self.with_lane(tenant, vendor, |place| place.shard.decide(|engine, now| engine.resume(now, place.lane)))?;
        self.client.core.telemetry.metrics.series(tenant, vendor).resumed(&tenant.into());
        // No notice tells of the end of a pause that an event of another lane has named.
        registry.pause_changed(&of);
        self.tell(tenant, vendor, notices)
    }

    /// Ends [`pause`](Self::pause), and leaves all that [`resume`](Self::resume) ends besides: pauses that the vendor
    /// asked for, also in limits that tenants share, and what refusals have taught.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    #[doc(hidden)]
    pub fn unpause(self, tenant: &str, vendor: &str) -> Result<(), Error> {
        let (notices, until) = self.with_lane(tenant, vendor, |place| {
            place.shard.decide(|engine, now| {
                let notices = engine.unpause(now, place.lane);
                (notices, engine.paused_until(now, place.lane))
            })
        })?;
        self.tell(tenant, vendor, notices)?;
        // The notice of the end has removed the tenant's pause from the metrics, and the vendor's may stand.
        if let Some(until) = until {
            self.client.core.telemetry.metrics.series(tenant, vendor).paused_longer(&tenant.into(), until);
        }
        Ok(())
    }

    fn tell(self, tenant: &str, vendor: &str, notices: Vec<Noticed>) -> Result<(), Error> {
        let of = self.client.core.registry.route(tenant, vendor)?;
        let series = self.client.core.telemetry.metrics.series(tenant, vendor);
        notices.into_iter().for_each(|noticed| send::tell(&self.client.core, &of, &series, None, noticed));
        Ok(())
    }

    /// How long the tenant's requests to the vendor are paused, because the vendor refused or an operator paused them.
    /// `None` if nothing is paused, [`Duration::MAX`] if only [`resume`](Self::resume) ends the pause.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn paused_for(self, tenant: &str, vendor: &str) -> Result<Option<Duration>, Error> {
        let until = self.with_lane(tenant, vendor, |place| {
            place.shard.look(|engine, now| engine.paused_until(now, place.lane).map(|until| (until, now)))
        })?;
        Ok(until.map(|(until, now)| if until == Time::MAX { Duration::MAX } else { until.since(now) }))
    }

    fn with_lane<T>(self, tenant: &str, vendor: &str, with: impl FnOnce(&LaneRef) -> T) -> Result<T, Error> {
        let tenant = self.client.core.registry.route(tenant, vendor)?;
        let refused = |why| refusal::error(&tenant, Priority::Normal, self.client.core.clock.now(), why);
        self.client.core.registry.place(&tenant).map(|place| with(&place)).map_err(refused)
    }
}

impl IntegrationClient {
    /// A stream of the events from now on. Create it before you send the requests whose events you want.
    ///
    /// A listener that falls more than [`event_capacity`](crate::IntegrationClientBuilder::event_capacity) behind
    /// misses the oldest events, and gets a [`Missed`](crate::events::EventKind::Missed) event. A dropped stream costs
    /// nothing.
    ///
    /// ```no_run
    /// # use integration_client::IntegrationClient;
    /// # async fn run(client: IntegrationClient) {
    /// let mut events = client.events();
    /// while let Some(event) = events.next().await {
    ///     println!("{:?} {:?}: {:?}", event.tenant, event.vendor, event.kind);
    /// }
    /// # }
    /// ```
    pub fn events(&self) -> Events {
        self.core.telemetry.feed.listen()
    }

    /// Number of requests that wait for a permit now.
    pub fn waiting(&self) -> u64 {
        self.core.registry.dispatch.load().0
    }

    /// Number of exchanges in flight now, including those that their caller abandoned and that may still keep the
    /// vendor busy.
    pub fn in_flight(&self) -> u64 {
        self.core.registry.dispatch.load().1
    }

    /// Numbers of dead letters that wait for their sink, that were written, and that were lost (and are in the log
    /// instead).
    pub fn dead_letter_counts(&self) -> DeadLetterCounts {
        let writer = &self.core.telemetry.dead_letters;
        DeadLetterCounts { waiting: writer.depth() as u64, written: writer.written(), lost: writer.lost() }
    }
}
