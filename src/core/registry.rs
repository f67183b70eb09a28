//! The configuration in use, its tenants, and their lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use url::Url;

use super::OutboxHooks;
use super::used::Remembers;
use crate::clock::{Clock, Time};
use crate::config::{Config, ConfigProblem, ConfigSource, ProblemKind, SourceRecord, SourceStatus, Tenant, unknown};
use crate::dispatch::{self, Dispatch, Grant, LaneRef, PermitAnswer, Whose};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Refusal};
use crate::error::Error;
use crate::route::{Route, RouteTable};
use crate::telemetry::metrics::OutboxFigures;
use crate::telemetry::metrics::Series;

/// What happens to waiting requests when their tenant is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnRemove {
    /// They are sent when it is their turn.
    #[default]
    Drain,
    /// They end at once, with [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    Refuse,
}

pub(crate) struct Registry {
    pub(crate) source: Arc<dyn ConfigSource>,
    /// What is known of each part of `source`.
    source_records: Vec<Arc<SourceRecord>>,
    pub(crate) config: ArcSwap<Config>,
    pub(crate) routes: RouteTable,
    pub(crate) dispatch: Dispatch,
    pub(crate) on_remove: OnRemove,
    /// Held from the read of the source until the source has been told that it is in force, so that of two reads the
    /// later one wins.
    pub(crate) reload_order: Arc<tokio::sync::Mutex<()>>,
    /// Why the configuration in use is not what the source holds: what was wrong when the source was last read.
    pub(crate) problem: parking_lot::Mutex<Option<ConfigProblem>>,
    /// When the source last answered.
    checked_at: parking_lot::Mutex<Time>,
    /// The age of the configuration at `checked_at`: not zero if it was a copy.
    age_then: parking_lot::Mutex<Duration>,
    /// The client polls the source by itself.
    is_watched: AtomicBool,
    /// Held while the configuration or the table of tenants changes.
    pub(crate) config_write: parking_lot::Mutex<()>,
    /// Set while tenants change: a lane may still be in the shard of its old configuration.
    migrating: AtomicBool,
    /// Locks by the hash of tenant and vendor. One is held while the tenant is looked up and its lane is created or
    /// updated: a lane created from a look-up before a reload would be in the wrong shard, with a full bucket of its
    /// own.
    lane_locks: Box<[parking_lot::Mutex<()>]>,
    /// Set if the client has a store.
    outbox: Option<Arc<dyn OutboxHooks>>,
    clock: Clock,
}

impl Registry {
    pub(crate) fn new(
        source: Arc<dyn ConfigSource>,
        source_records: Vec<Arc<SourceRecord>>,
        config: Config,
        dispatch: Dispatch,
        on_remove: OnRemove,
        outbox: Option<Arc<dyn OutboxHooks>>,
        clock: Clock,
    ) -> Result<Registry, Error> {
        let routes = RouteTable::new().shared(dispatch.policy.pooled);
        routes.replace_all(&config)?;
        if let Some(outbox) = &outbox {
            config.tenants().for_each(|tenant| outbox.tenant_appears(tenant));
        }
        Ok(Registry {
            source,
            source_records,
            config: ArcSwap::from_pointee(config),
            routes,
            dispatch,
            on_remove,
            reload_order: Arc::default(),
            problem: parking_lot::Mutex::new(None),
            checked_at: parking_lot::Mutex::new(clock.now()),
            age_then: parking_lot::Mutex::default(),
            is_watched: AtomicBool::new(false),
            config_write: parking_lot::Mutex::new(()),
            migrating: AtomicBool::new(false),
            lane_locks: (0..64).map(|_| parking_lot::Mutex::new(())).collect(),
            outbox,
            clock,
        })
    }

    /// Records the units that a request takes. `None` unless the client has a store and the vendor has long windows.
    pub(crate) fn remembers(&self, route: &Route, endpoint: EndpointId, high: bool) -> Option<Remembers> {
        let outbox = self.outbox.as_ref().filter(|_| route.vendor.keeps_usage)?;
        Some(Remembers::new(outbox, endpoint, high))
    }

    /// Reports that a pause of a tenant's lane, or of a limit that it counts in, has begun, changed or ended.
    pub(crate) fn pause_changed(&self, tenant: &Tenant) {
        if let Some(outbox) = &self.outbox
            && let Some(place) = self.dispatch.find(tenant)
        {
            outbox.pause_changed(tenant, place);
        }
    }

    /// Reports that an operator ends all pauses of a tenant, before that is done.
    pub(crate) fn resumes(&self, tenant: &Tenant) {
        if let Some(outbox) = &self.outbox {
            outbox.resumes(tenant);
        }
    }

    /// Records that the source of the configuration answered now.
    pub(crate) fn checked(&self) {
        *self.checked_at.lock() = self.clock.now();
        *self.age_then.lock() = Duration::ZERO;
    }

    /// Records that the client started from a copy of this age, because the source did not answer.
    pub(crate) fn began_with_a_copy(&self, age: Duration) {
        *self.age_then.lock() = age;
    }

    /// How long ago the source of the configuration last answered.
    pub(crate) fn checked_ago(&self) -> Duration {
        let since = self.clock.now().since(*self.checked_at.lock());
        since.saturating_add(*self.age_then.lock())
    }

    /// Records that the configuration that was loaded last is refused.
    pub(crate) fn refused(&self, why: &str) {
        self.source_records.iter().for_each(|record| record.refused(why));
    }

    /// The kind of the present problem of the configuration, if there is one.
    pub(crate) fn problem_kind(&self) -> Option<ProblemKind> {
        self.problem.lock().as_ref().map(|problem| problem.kind)
    }

    /// The status of each source of the configuration.
    pub(crate) fn source_statuses(&self) -> Vec<SourceStatus> {
        self.source_records.iter().map(|record| record.status()).collect()
    }

    /// Records that the client polls the source by itself from now on.
    pub(crate) fn mark_watched(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    pub(crate) fn config_age(&self) -> Option<Duration> {
        self.is_watched.load(Ordering::Relaxed).then(|| self.checked_ago())
    }

    pub(crate) fn outbox_figures(&self) -> Option<OutboxFigures> {
        self.outbox.as_ref().map(|outbox| outbox.figures())
    }

    /// The route of a tenant at a vendor. If neither the vendor nor the tenant exists, the error names the vendor.
    #[inline(always)]
    pub(crate) fn route(&self, tenant: &str, vendor: &str) -> Result<Arc<Route>, Error> {
        if let Some(found) = self.routes.find(tenant, vendor) {
            return Ok(found);
        }
        self.config.load().tenant(tenant, vendor).and_then(|_| self.routes.get(tenant, vendor))
    }

    /// The route of a tenant at the vendor whose base URL `url` begins with.
    pub(crate) fn route_for_url(&self, tenant: &str, url: &Url) -> Result<Arc<Route>, Error> {
        let find = |vendor: &str| self.routes.find(tenant, vendor).map(|route| route.tenant().clone());
        match self.config.load().vendors().tenant_for_url(url, find) {
            Some((found, _)) => self.route(tenant, &found.vendor.name),
            None => Err(unknown::unknown_url(tenant, url)),
        }
    }

    /// The tenant's lane. Creates it if necessary, from the tenant's current configuration, which may be newer than
    /// `tenant`.
    pub(crate) fn place(&self, tenant: &Tenant) -> Result<LaneRef, Refusal> {
        if let Some(place) = self.dispatch.find(tenant) {
            return Ok(place);
        }
        let (id, vendor) = (&*tenant.id, &*tenant.vendor.name);
        let _making = self.lock_lane(id, vendor);
        let tenant = self.routes.find(id, vendor).ok_or(Refusal::Retired)?;
        if self.migrating.load(Ordering::Acquire) {
            // The lane may still be in its old shard. A second lane would have a full bucket.
            self.dispatch.update(&tenant);
        }
        Ok(self.dispatch.place(&tenant))
    }

    /// Marks a change of tenants. The result is held from before the change of their table until all their lanes are
    /// updated. `many`: more than one tenant may change.
    pub(crate) fn migrating(&self, many: bool) -> Migrating<'_> {
        self.migrating.store(true, Ordering::Release);
        if many {
            self.dispatch.begin_changes();
        }
        Migrating { registry: self, many }
    }

    pub(crate) fn lock_lane(&self, tenant: &str, vendor: &str) -> parking_lot::MutexGuard<'_, ()> {
        self.lane_locks[self.dispatch.hash(tenant, vendor) as usize % self.lane_locks.len()].lock()
    }

    /// Updates the lane of a changed tenant, or retires the lane of a removed one.
    pub(crate) fn bring_up_to_date(&self, tenant: &str, vendor: &str, refuse: bool) {
        let _making = self.lock_lane(tenant, vendor);
        match self.routes.find(tenant, vendor) {
            Some(tenant) => {
                self.dispatch.update(&tenant);
                if let Some(outbox) = &self.outbox {
                    outbox.tenant_appears(&tenant);
                }
            }
            None => {
                self.dispatch.retire(tenant, vendor, refuse);
                if let Some(outbox) = &self.outbox {
                    outbox.tenant_goes(tenant, vendor);
                }
            }
        }
    }

    /// Retires the lane of a route that was removed.
    pub(crate) fn retire_at_home(&self, route: &Route, refuse: bool) {
        let (tenant, vendor) = (&*route.id, &*route.vendor.name);
        let _making = self.lock_lane(tenant, vendor);
        self.dispatch.retire_at_home(route, refuse);
        if let Some(outbox) = &self.outbox {
            outbox.tenant_goes(tenant, vendor);
        }
    }

    /// The current number of an endpoint that had the number `endpoint` in `before`.
    pub(crate) fn endpoint_now(&self, before: &Tenant, endpoint: EndpointId) -> Result<EndpointId, Refusal> {
        let Some(known) = before.vendor.endpoints.get(endpoint.place()) else { return Ok(NO_ENDPOINT) };
        let now = self.routes.find(&before.id, &before.vendor.name).ok_or(Refusal::Retired)?;
        let found = now.vendor.endpoints.iter().position(|other| other.name == known.name);
        found.map(EndpointId::at).ok_or(Refusal::UnknownEndpoint)
    }

    /// Waits, from `now` on, for a permit of the lane at `place`, or else of the lane that `tenant` implies. An idle
    /// lane may be evicted and a changed one may move: it is then looked up again, or created.
    pub(crate) fn acquire<'a>(
        &'a self,
        tenant: &'a Tenant,
        place: Option<LaneRef>,
        ask: Ask,
        now: Time,
        series: &'a Series,
    ) -> impl Future<Output = Result<Grant, Refusal>> + Send + 'a {
        // The future of an `async fn` would store each argument twice.
        let (mut place, mut ask, mut now, endpoint) = (place, ask, now, ask.endpoint);
        let mut since = None;
        async move {
            loop {
                let granted = {
                    let mut asked = match &place {
                        Some(place) => dispatch::acquire(&place.shard, Whose::Lane(place.lane), &ask, now, series),
                        None => self.dispatch.acquire(tenant, &ask, now, series),
                    };
                    match asked {
                        PermitAnswer::Granted(grant) => Ok(grant),
                        // Awaited in place: if it were moved, the future of each send would store it twice.
                        PermitAnswer::Waits(ref mut waiting) => {
                            // It goes on waiting elsewhere if its lane moves, also during a shutdown.
                            ask.admitted = true;
                            waiting.await
                        }
                        PermitAnswer::Refused(refusal) => Err(refusal),
                    }
                };
                match granted {
                    Err(Refusal::NoLane) => {
                        since.get_or_insert(now);
                        ask.endpoint = self.endpoint_now(tenant, endpoint)?;
                        place = Some(self.place(tenant)?);
                        now = self.clock.now();
                        // Only a pause of the vendor keeps a caller waiting for longer, and the pause moves with the lane.
                        if ask.patience_ns > 0 && ask.give_up <= now {
                            ask.give_up = now.plus_nanos(ask.patience_ns);
                        }
                    }
                    Ok(mut grant) => {
                        if let Some(since) = since {
                            grant.waited = grant.began.since(since);
                        }
                        series.waited(ask.tier.rank(), grant.waited);
                        let began = grant.began;
                        grant.held = grant.held.counted_from(series, || began);
                        return Ok(grant);
                    }
                    refused => return refused,
                }
            }
        }
    }
}

/// See [`Registry::migrating`].
pub(crate) struct Migrating<'a> {
    registry: &'a Registry,
    many: bool,
}

impl Drop for Migrating<'_> {
    fn drop(&mut self) {
        if self.many {
            self.registry.dispatch.end_changes();
        }
        self.registry.migrating.store(false, Ordering::Release);
    }
}
