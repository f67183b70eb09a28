//! What all clones of a client share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use reqwest::Url;

use super::OnRemove;
use super::cleaning::Cleanups;
use crate::Priority;
use crate::clock::{Clock, Time, nanos};
use crate::config::{Config, ConfigSource, Tenant, TenantTable};
use crate::dead_letter::writer::Writer;
use crate::dispatch::{self, Asked, Dispatch, Grant, Place, Whose};
use crate::engine::cost::Cost;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Refusal};
use crate::error::Error;
use crate::events::Feed;
use crate::metrics::{Metrics, Series, Totals};
use crate::outbox::OutboxState;
use crate::refusal;
use crate::retry::Classifier;
use crate::send::{Budgets, Failures, Hosts, Meters, UnderWay};
use crate::transport::{Credentials, Signer, Transport};

/// The deadline of requests for which nobody states one.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Inner {
    pub(super) source: Arc<dyn ConfigSource>,
    pub(super) config: ArcSwap<Config>,
    pub(super) tenants: TenantTable,
    pub(crate) dispatch: Dispatch,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) credentials: Credentials,
    pub(crate) signers: HashMap<String, Arc<dyn Signer>>,
    pub(crate) default_deadline: Duration,
    /// Nobody stated that deadline: it is for each try, and the vendor's waits do not count.
    pub(crate) is_patient: bool,
    pub(crate) clock: Clock,
    pub(crate) classifiers: HashMap<String, Arc<dyn Classifier>>,
    pub(crate) budgets: Budgets,
    pub(crate) failures: Failures,
    pub(crate) meters: Meters,
    pub(crate) under_way: UnderWay,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) dead_letters: Writer,
    /// Where the client has a store.
    pub(crate) outbox: Option<Arc<OutboxState>>,
    pub(super) on_remove: OnRemove,
    pub(super) cleanups: Cleanups,
    /// Held from the reading of a source to the end of the change, so that of two readings the later one wins.
    pub(super) reloading: Arc<tokio::sync::Mutex<()>>,
    /// Why what the source last said is not in use.
    pub(super) problem: parking_lot::Mutex<Option<String>>,
    pub(crate) feed: Feed,
    pub(crate) metrics: Metrics,
    /// Held by whoever changes the configuration.
    pub(super) changing: parking_lot::Mutex<()>,
    /// Tenants are changing: a lane may still stand where its limits were shared before.
    moving: AtomicBool,
    /// By tenant: held by whoever makes a lane or brings it up to date, together with the look-up of what it is to be.
    /// A lane made from a look-up of before a reload would stand in the wrong shard, with a full bucket of its own.
    pub(super) making: Box<[parking_lot::Mutex<()>]>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for shard in self.dispatch.shards() {
            shard.close();
        }
        self.tell_metrics(true);
    }
}

impl Inner {
    #[expect(clippy::too_many_arguments, reason = "called once, by the builder, with everything that it has opened")]
    pub(crate) fn new(
        source: Arc<dyn ConfigSource>,
        config: Config,
        dispatch: Dispatch,
        transport: Arc<dyn Transport>,
        credentials: Credentials,
        signers: HashMap<String, Arc<dyn Signer>>,
        classifiers: HashMap<String, Arc<dyn Classifier>>,
        dead_letters: Writer,
        outbox: Option<Arc<OutboxState>>,
        feed: Feed,
        metrics: Metrics,
        default_deadline: Option<Duration>,
        on_remove: OnRemove,
        clock: Clock,
    ) -> Result<Inner, Error> {
        let tenants = TenantTable::new();
        tenants.replace_all(&config)?;
        if let Some(outbox) = &outbox {
            config.tenants().for_each(|tenant| outbox.tenant_appears(tenant));
        }
        let (config, changing) = (ArcSwap::from_pointee(config), parking_lot::Mutex::new(()));
        let making = (0..64).map(|_| parking_lot::Mutex::new(())).collect();
        Ok(Inner {
            source,
            config,
            tenants,
            dispatch,
            transport,
            credentials,
            signers,
            default_deadline: default_deadline.unwrap_or(DEADLINE),
            is_patient: default_deadline.is_none(),
            clock,
            classifiers,
            budgets: Budgets::new(),
            failures: Failures::new(),
            meters: Meters::default(),
            under_way: UnderWay::new(),
            hosts: Arc::new(Hosts::new(clock)),
            dead_letters,
            outbox,
            on_remove,
            cleanups: Cleanups::new(),
            reloading: Arc::default(),
            problem: parking_lot::Mutex::new(None),
            feed,
            metrics,
            changing,
            moving: AtomicBool::new(false),
            making,
        })
    }

    /// Tells the metrics recorder what there is to tell, `last` when the client goes.
    pub(crate) fn tell_metrics(&self, last: bool) {
        let totals = || Totals {
            config_version: self.config.load().version(),
            hosts_open: self.hosts.open(),
            events_missed: self.feed.missed(),
            cleanups: self
                .cleanups
                .status()
                .map(|status| [status.runs - status.failures, status.failures, status.retired]),
            store_failures: self.outbox.as_ref().map(|outbox| outbox.store.problems.failures()).unwrap_or_default(),
        };
        self.metrics.tell(self.clock.now(), totals, last);
    }

    /// The tenant at a vendor. A vendor that does not exist is the better explanation.
    #[inline(always)]
    pub(crate) fn tenant(&self, tenant: &str, vendor: &str) -> Result<Arc<Tenant>, Error> {
        if let Some(found) = self.tenants.find(tenant, vendor) {
            return Ok(found);
        }
        self.config.load().tenant(tenant, vendor).and_then(|_| self.tenants.get(tenant, vendor))
    }

    /// The tenant at the vendor to whose base URL `url` belongs.
    pub(crate) fn tenant_for_url(&self, tenant: &str, url: &Url) -> Result<Arc<Tenant>, Error> {
        let find = |vendor: &str| self.tenants.find(tenant, vendor);
        match self.config.load().vendors().tenant_for_url(url, find) {
            Some((tenant, _)) => Ok(tenant),
            None => Err(refusal::unknown_url(tenant, url)),
        }
    }

    #[inline(always)]
    pub(crate) fn classifier(&self, tenant: &Tenant) -> Option<&dyn Classifier> {
        if self.classifiers.is_empty() {
            return None;
        }
        self.classifiers.get(&*tenant.vendor.name).map(|classifier| &**classifier)
    }

    /// The tenant's lane; made if it is not there, from what the tenant is now rather than from what `tenant` says.
    pub(crate) fn place(&self, tenant: &Tenant) -> Result<Place, Refusal> {
        if let Some(place) = self.dispatch.find(tenant) {
            return Ok(place);
        }
        let (id, vendor) = (&*tenant.id, &*tenant.vendor.name);
        let _making = self.making(id, vendor);
        let tenant = self.tenants.find(id, vendor).ok_or(Refusal::Retired)?;
        let version = self.config.load().version();
        if self.moving.load(Ordering::Acquire) {
            // Its lane may be where the tenant was before the change. A second one would have a full bucket.
            self.dispatch.update(&tenant, version);
        }
        Ok(self.dispatch.place(&tenant, version))
    }

    /// To be held from before the table of tenants changes until all their lanes are up to date. `many`: more than one
    /// tenant may change.
    pub(super) fn moving(&self, many: bool) -> Moving<'_> {
        self.moving.store(true, Ordering::Release);
        if many {
            self.dispatch.begin_changes();
        }
        Moving { inner: self, many }
    }

    pub(super) fn making(&self, tenant: &str, vendor: &str) -> parking_lot::MutexGuard<'_, ()> {
        self.making[self.dispatch.hash(tenant, vendor) as usize % self.making.len()].lock()
    }

    /// Brings the lane of a tenant that has changed up to date, or retires the one of a tenant that is gone.
    pub(super) fn bring_up_to_date(&self, tenant: &str, vendor: &str, refuse: bool) {
        let _making = self.making(tenant, vendor);
        match self.tenants.find(tenant, vendor) {
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
        let Some(known) = before.vendor.endpoints.get(endpoint as usize) else { return Ok(NO_ENDPOINT) };
        let now = self.tenants.find(&before.id, &before.vendor.name).ok_or(Refusal::Retired)?;
        let found = now.vendor.endpoints.iter().position(|other| other.name == known.name);
        found.map(|number| number as EndpointId).ok_or(Refusal::UnknownEndpoint)
    }

    pub(crate) fn ask(
        &self,
        priority: Priority,
        endpoint: EndpointId,
        cost: Cost,
        give_up: Time,
        attempt: Duration,
    ) -> Ask {
        let tier = priority.tier();
        let attempt_ns = nanos(attempt);
        Ask { tier, endpoint, cost, retry: false, immediate: false, give_up, patience_ns: 0, attempt_ns }
    }

    /// Waits for a permit, from `now` on, of the lane at `place`, or where `tenant` says that it is. A lane that rests
    /// may be dropped, and one whose vendor changes may move: it is looked up again then, or made.
    pub(crate) fn acquire<'a>(
        &'a self,
        tenant: &'a Tenant,
        place: Option<Place>,
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
                        series.waited(ask.tier, grant.waited);
                        let began = grant.began;
                        grant.held = grant.held.counted_from(series, || began);
                        return Ok(grant);
                    }
                    refused => return refused,
                }
            }
        }
    }

    pub(crate) fn attempt_ask(
        &self,
        tenant: &Tenant,
        priority: Priority,
        cost: u32,
        max_wait: Option<Duration>,
    ) -> Ask {
        let give_up = self.clock.now() + max_wait.unwrap_or(self.default_deadline);
        self.ask(priority, NO_ENDPOINT, cost.max(1).into(), give_up, tenant.vendor.attempt_timeout)
    }
}

/// See [`Inner::moving`].
pub(super) struct Moving<'a> {
    inner: &'a Inner,
    many: bool,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if self.many {
            self.inner.dispatch.end_changes();
        }
        self.inner.moving.store(false, Ordering::Release);
    }
}
