//! Who may send where: the configuration in use, its tenants, and their lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use url::Url;

use super::OutboxHooks;
use super::refusal;
use super::used::Remembers;
use crate::clock::{Clock, Time};
use crate::config::{Config, ConfigSource, Tenant};
use crate::dispatch::{self, Asked, Dispatch, Grant, LaneRef, Whose};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Refusal};
use crate::error::Error;
use crate::metrics::OutboxFigures;
use crate::metrics::Series;
use crate::route::{Route, RouteTable};

/// What becomes of requests that wait when their tenant is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnRemove {
    /// They go when it is their turn.
    #[default]
    Drain,
    /// They end at once, with [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    Refuse,
}

pub(crate) struct Registry {
    pub(crate) source: Arc<dyn ConfigSource>,
    pub(crate) config: ArcSwap<Config>,
    pub(crate) routes: RouteTable,
    pub(crate) dispatch: Dispatch,
    pub(crate) on_remove: OnRemove,
    /// Held from the reading of a source to the end of the change, so that of two readings the later one wins.
    pub(crate) reload_order: Arc<tokio::sync::Mutex<()>>,
    /// Why what the source last said is not in use.
    pub(crate) problem: parking_lot::Mutex<Option<String>>,
    /// When the source last answered.
    checked_at: parking_lot::Mutex<Time>,
    /// How old what is in use was then: it may have been a copy.
    age_then: parking_lot::Mutex<Duration>,
    /// The client looks at the source by itself.
    is_watched: AtomicBool,
    /// Held while the configuration or the table of tenants changes.
    pub(crate) config_write: parking_lot::Mutex<()>,
    /// Tenants are changing: a lane may still stand where its limits were shared before.
    migrating: AtomicBool,
    /// By tenant: held while a lane is made or brought up to date, together with the look-up of what it is to be. A lane
    /// made from a look-up of before a reload would stand in the wrong shard, with a full bucket of its own.
    lane_locks: Box<[parking_lot::Mutex<()>]>,
    /// Hears of tenants that appear and go, where the client has a store.
    outbox: Option<Arc<dyn OutboxHooks>>,
    clock: Clock,
}

impl Registry {
    pub(crate) fn new(
        source: Arc<dyn ConfigSource>,
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

    /// What remembers the units that a request takes, where the client has a store and the vendor long windows.
    pub(crate) fn remembers(&self, route: &Route, endpoint: EndpointId, high: bool) -> Option<Remembers> {
        let outbox = self.outbox.as_ref().filter(|_| route.vendor.keeps_usage)?;
        Some(Remembers::new(outbox, endpoint, high))
    }

    /// The source of the configuration has answered now.
    pub(crate) fn checked(&self) {
        *self.checked_at.lock() = self.clock.now();
        *self.age_then.lock() = Duration::ZERO;
    }

    /// The client began with a copy of this age, because its source was away.
    pub(crate) fn began_with_a_copy(&self, age: Duration) {
        *self.age_then.lock() = age;
    }

    /// How long ago the source of the configuration last answered.
    pub(crate) fn checked_ago(&self) -> Duration {
        let since = self.clock.now().since(*self.checked_at.lock());
        since.saturating_add(*self.age_then.lock())
    }

    /// From now on the client looks at the source by itself.
    pub(crate) fn watched(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    pub(crate) fn config_age(&self) -> Option<Duration> {
        self.is_watched.load(Ordering::Relaxed).then(|| self.checked_ago())
    }

    pub(crate) fn outbox_figures(&self) -> Option<OutboxFigures> {
        self.outbox.as_ref().map(|outbox| outbox.figures())
    }

    /// The tenant at a vendor. A vendor that does not exist is the better explanation.
    #[inline(always)]
    pub(crate) fn route(&self, tenant: &str, vendor: &str) -> Result<Arc<Route>, Error> {
        if let Some(found) = self.routes.find(tenant, vendor) {
            return Ok(found);
        }
        self.config.load().tenant(tenant, vendor).and_then(|_| self.routes.get(tenant, vendor))
    }

    /// The tenant at the vendor with the base URL that `url` begins with.
    pub(crate) fn route_for_url(&self, tenant: &str, url: &Url) -> Result<Arc<Route>, Error> {
        let find = |vendor: &str| self.routes.find(tenant, vendor).map(|route| route.tenant().clone());
        match self.config.load().vendors().tenant_for_url(url, find) {
            Some((found, _)) => self.route(tenant, &found.vendor.name),
            None => Err(refusal::unknown_url(tenant, url)),
        }
    }

    /// The tenant's lane; made if it is not there, from what the tenant is now rather than from what `tenant` says.
    pub(crate) fn place(&self, tenant: &Tenant) -> Result<LaneRef, Refusal> {
        if let Some(place) = self.dispatch.find(tenant) {
            return Ok(place);
        }
        let (id, vendor) = (&*tenant.id, &*tenant.vendor.name);
        let _making = self.lock_lane(id, vendor);
        let tenant = self.routes.find(id, vendor).ok_or(Refusal::Retired)?;
        let version = self.config.load().version();
        if self.migrating.load(Ordering::Acquire) {
            // Its lane may be where the tenant was before the change. A second one would have a full bucket.
            self.dispatch.update(&tenant, version);
        }
        Ok(self.dispatch.place(&tenant, version))
    }

    /// To be held from before the table of tenants changes until all their lanes are up to date. `many`: more than one
    /// tenant may change.
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

    /// Brings the lane of a tenant that has changed up to date, or retires the one of a tenant that is gone.
    pub(crate) fn bring_up_to_date(&self, tenant: &str, vendor: &str, refuse: bool) {
        let _making = self.lock_lane(tenant, vendor);
        match self.routes.find(tenant, vendor) {
            Some(tenant) => {
                self.dispatch.update(&tenant, self.config.load().version());
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

    /// The number that the tenant's vendor now has for an endpoint that had another in `before`.
    pub(crate) fn endpoint_now(&self, before: &Tenant, endpoint: EndpointId) -> Result<EndpointId, Refusal> {
        let Some(known) = before.vendor.endpoints.get(endpoint.place()) else { return Ok(NO_ENDPOINT) };
        let now = self.routes.find(&before.id, &before.vendor.name).ok_or(Refusal::Retired)?;
        let found = now.vendor.endpoints.iter().position(|other| other.name == known.name);
        found.map(EndpointId::at).ok_or(Refusal::UnknownEndpoint)
    }

    /// Waits for a permit, from `now` on, of the lane at `place`, or where `tenant` says that it is. A lane that rests
    /// may be dropped, and one whose vendor changes may move: it is looked up again then, or made.
    pub(crate) fn acquire<'a>(
        &'a self,
        tenant: &'a Tenant,
        place: Option<LaneRef>,
        ask: Ask,
        now: Time,
        series: &'a Series,
    ) -> impl Future<Output = Result<Grant, Refusal>> + Send + 'a {
        // An `async fn` would have room for each of its arguments twice.
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
                        Asked::Granted(grant) => Ok(grant),
                        // Where it is: moved, it would have room twice in the future of each send.
                        Asked::Waits(ref mut waiting) => waiting.await,
                        Asked::Refused(refusal) => Err(refusal),
                    }
                };
                match granted {
                    Err(Refusal::NoLane) => {
                        since.get_or_insert(now);
                        ask.endpoint = self.endpoint_now(tenant, endpoint)?;
                        place = Some(self.place(tenant)?);
                        now = self.clock.now();
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
