//! [`IntegrationClient`]: a request's way from the caller to the vendor and back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use reqwest::Url;

use crate::Priority;
use crate::builder::Builder;
use crate::clock::{Clock, Time, nanos};
use crate::config::{Config, ConfigSource, Tenant, TenantEntry, TenantTable};
use crate::dead_letter::DeadLetter;
use crate::dead_letter::writer::Writer;
use crate::dispatch::{Acquire, Dispatch, Grant, Place, try_acquire};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::{Ask, Refusal};
use crate::error::Error;
use crate::lane::{Lane, Permit};
use crate::refusal;
use crate::request::Request;
use crate::response::Response;
use crate::retry::Classifier;
use crate::send::{Budgets, Hosts, Job, send};
use crate::transport::{Credentials, Signer, Transport};

/// Sends requests to vendors on behalf of tenants, never above what a vendor allows.
///
/// Cheap to clone; clones share everything. It works inside a tokio runtime, and stops when the last clone, lane handle
/// and permit are gone or at [`shutdown`](IntegrationClient::shutdown).
#[derive(Clone)]
pub struct IntegrationClient {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    source: Arc<dyn ConfigSource>,
    config: ArcSwap<Config>,
    tenants: TenantTable,
    pub(crate) dispatch: Dispatch,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) credentials: Credentials,
    pub(crate) signers: HashMap<String, Arc<dyn Signer>>,
    pub(crate) default_deadline: Duration,
    pub(crate) clock: Clock,
    pub(crate) classifiers: HashMap<String, Arc<dyn Classifier>>,
    pub(crate) budgets: Budgets,
    pub(crate) hosts: Arc<Hosts>,
    pub(crate) dead_letters: Writer,
    /// Held by whoever changes the configuration.
    changing: parking_lot::Mutex<()>,
    /// By tenant: held by whoever makes a lane or brings it up to date, together with the look-up of what it is to be.
    /// A lane made from a look-up of before a reload would stand in the wrong shard, with a full bucket of its own.
    making: Box<[parking_lot::Mutex<()>]>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        for shard in self.dispatch.shards() {
            shard.close();
        }
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
        default_deadline: Duration,
        clock: Clock,
    ) -> Result<Inner, Error> {
        let tenants = TenantTable::new();
        tenants.replace_all(&config)?;
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
            default_deadline,
            clock,
            classifiers,
            budgets: Budgets::new(),
            hosts: Arc::new(Hosts::new(clock)),
            dead_letters,
            changing,
            making,
        })
    }

    /// The tenant at a vendor. A vendor that does not exist is the better explanation.
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
        Ok(self.dispatch.place(&tenant, self.config.load().version()))
    }

    fn making(&self, tenant: &str, vendor: &str) -> parking_lot::MutexGuard<'_, ()> {
        self.making[self.dispatch.hash(tenant, vendor) as usize % self.making.len()].lock()
    }

    /// Brings the lane of a tenant that has changed up to date, or retires the one of a tenant that is gone.
    fn bring_up_to_date(&self, tenant: &str, vendor: &str, refuse: bool) {
        let _making = self.making(tenant, vendor);
        match self.tenants.find(tenant, vendor) {
            Some(tenant) => self.dispatch.update(&tenant, self.config.load().version()),
            None => self.dispatch.retire(tenant, vendor, refuse),
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
        cost: u32,
        give_up: Time,
        attempt: Duration,
    ) -> Ask {
        let tier = priority.tier();
        let attempt_ns = nanos(attempt);
        Ask { tier, endpoint, cost, retry: false, immediate: false, give_up, attempt_ns }
    }

    /// Waits for a permit. A lane that rests may be dropped, and one whose vendor changes may move: it is looked up
    /// again then.
    pub(crate) async fn acquire(&self, tenant: &Tenant, mut place: Place, mut ask: Ask) -> Result<Grant, Refusal> {
        let mut since = None;
        let endpoint = ask.endpoint;
        loop {
            let began = self.clock.now();
            match Acquire::new(place.shard.clone(), place.lane, ask).await {
                Err(Refusal::NoLane) => {
                    since.get_or_insert(began);
                    ask.endpoint = self.endpoint_now(tenant, endpoint)?;
                    place = self.place(tenant)?;
                }
                Ok(grant) => {
                    let waited = since.map_or(grant.waited, |since| self.clock.now().since(since));
                    return Ok(Grant { waited, ..grant });
                }
                refused => return refused,
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
        self.ask(priority, NO_ENDPOINT, cost.max(1), give_up, tenant.vendor.attempt_timeout)
    }
}

impl IntegrationClient {
    /// Starts to describe a client.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn from_inner(inner: Inner) -> IntegrationClient {
        IntegrationClient { inner: Arc::new(inner) }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Sends a request on behalf of a tenant, as soon as the vendor's limits and the other tenants' turns allow.
    ///
    /// A refusal (429) and a failure that is safe to repeat are tried again by the vendor's `retry` policy, never before
    /// the vendor said. Every other answer is `Ok`, whatever its status. Dropping the future cancels: before the
    /// exchange has started nothing is spent; after that the request counts as sent.
    ///
    /// `request` is a [`Request`], or an [`http::Request`] or [`reqwest::Request`] whose URL is below the base URL of
    /// one of the tenant's vendors.
    ///
    /// # Errors
    /// [`Error::delivery`] says whether the vendor may have acted. Before the exchange: unknown tenant, vendor or
    /// endpoint, an invalid request, a credential that cannot be read, a full queue, a deadline that has passed or
    /// cannot be met, a cost above the limit. After: connect, timeout, protocol; a refusal whose wait lies beyond the
    /// deadline ([`RetryLater`](crate::ErrorKind::RetryLater)), retries that are used up
    /// ([`Exhausted`](crate::ErrorKind::Exhausted), the request is a dead letter then), and an answer after which nobody
    /// knows whether the vendor acted.
    pub fn send(
        &self,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        send(&self.inner, Job::new(&self.inner, tenant, priority, request.into(), false))
    }

    /// Sends a request now, or not at all, and once: it is not tried again.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`ErrorKind::NotNow`](crate::ErrorKind::NotNow) when the limits have no room or others wait;
    /// [`Error::retry_after`] says when to ask again, where that is known.
    pub fn try_send(
        &self,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        send(&self.inner, Job::new(&self.inner, tenant, priority, request.into(), true))
    }

    /// Lets nothing of a tenant go to a vendor until [`resume`](Self::resume). What is under way goes on; what waits
    /// waits, each until its own deadline.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn pause(&self, tenant: &str, vendor: &str) -> Result<(), Error> {
        self.with_lane(tenant, vendor, |place| place.shard.decide(|engine, now| engine.pause(now, place.lane)))
    }

    /// Ends every pause of a tenant at a vendor: an operator's, and those that the vendor asked for.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn resume(&self, tenant: &str, vendor: &str) -> Result<(), Error> {
        self.with_lane(tenant, vendor, |place| place.shard.decide(|engine, now| engine.resume(now, place.lane)))
    }

    /// How long nothing of a tenant goes to a vendor, because the vendor refused or an operator said so; none where
    /// nothing is paused, [`Duration::MAX`] where an operator's word must end it.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn paused_for(&self, tenant: &str, vendor: &str) -> Result<Option<Duration>, Error> {
        let until = self.with_lane(tenant, vendor, |place| {
            place.shard.look(|engine, now| engine.paused_until(now, place.lane).map(|until| (until, now)))
        })?;
        Ok(until.map(|(until, now)| if until == Time::MAX { Duration::MAX } else { until.since(now) }))
    }

    fn with_lane<T>(&self, tenant: &str, vendor: &str, with: impl FnOnce(&Place) -> T) -> Result<T, Error> {
        let tenant = self.inner.tenant(tenant, vendor)?;
        let refused = |why| refusal::error(&tenant, Priority::Normal, self.inner.clock.now(), why);
        self.inner.place(&tenant).map(|place| with(&place)).map_err(refused)
    }

    /// Sends the request of a dead letter once more: a fresh set of attempts under the usual limits, with the key that
    /// the first had. It becomes a new letter if it fails again.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest) for a letter whose
    /// request was redacted (`dead_letters = "whole"` of the vendor keeps it).
    pub async fn redrive(&self, letter: &DeadLetter) -> Result<Response, Error> {
        let request = Request::from_letter(letter)?;
        self.send(&letter.tenant, letter.priority, request).await
    }

    /// Dead letters that wait for their sink, that were written, and that were lost (reported in the log instead).
    pub fn dead_letters(&self) -> DeadLetterCounts {
        let writer = &self.inner.dead_letters;
        DeadLetterCounts { waiting: writer.depth() as u64, written: writer.written(), lost: writer.lost() }
    }

    /// A handle to one tenant at one vendor, for hot paths and for exchanges that are made by other means.
    ///
    /// # Errors
    /// Unknown tenant or vendor.
    pub fn lane(&self, tenant: &str, vendor: &str) -> Result<Lane, Error> {
        let tenant = self.inner.tenant(tenant, vendor)?;
        Lane::new(self.clone(), tenant)
    }

    /// A permit for one request of `cost` units, now or not at all, for an exchange that is made by other means.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send), before the exchange.
    pub fn try_acquire(&self, tenant: &str, vendor: &str, priority: Priority, cost: u32) -> Result<Permit, Error> {
        let inner = &*self.inner;
        let wait = inner.default_deadline;
        let ask = |now: Time, attempt: Duration| inner.ask(priority, NO_ENDPOINT, cost.max(1), now + wait, attempt);
        // One hash, one lock: a lane that was used before and shares nothing.
        if let Some(Ok(held)) = inner.dispatch.try_acquire(tenant, vendor, ask) {
            return Ok(Permit::new(held, Duration::ZERO));
        }
        let tenant = inner.tenant(tenant, vendor)?;
        let refused = |why| refusal::error(&tenant, priority, inner.clock.now(), why);
        loop {
            let place = inner.place(&tenant).map_err(refused)?;
            let ask = ask(inner.clock.now(), tenant.vendor.attempt_timeout);
            match try_acquire(&place.shard, place.lane, ask) {
                Ok(held) => return Ok(Permit::new(held, Duration::ZERO)),
                // Dropped or moved between the two lines above.
                Err(Refusal::NoLane) => {}
                Err(why) => return Err(refused(why)),
            }
        }
    }

    /// Adds a tenant at a vendor, or changes it. What its limits have counted stays counted; what waits goes on by the
    /// new figures. It stays through reloads until [`remove_tenant`](Self::remove_tenant).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) or [`ErrorKind::UnknownVendor`](crate::ErrorKind::UnknownVendor); nothing has changed then.
    pub fn set_tenant(&self, tenant: TenantEntry) -> Result<(), Error> {
        let _changing = self.inner.changing.lock();
        let config = self.inner.config.load();
        let (tenant, _) = self.inner.tenants.insert(config.vendors(), &tenant)?;
        self.inner.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        Ok(())
    }

    /// Removes a tenant at a vendor. What waits still goes, or with [`OnRemove::Refuse`] is told
    /// [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTenant`](crate::ErrorKind::UnknownTenant).
    pub fn remove_tenant(&self, tenant: &str, vendor: &str, waiting: OnRemove) -> Result<(), Error> {
        let _changing = self.inner.changing.lock();
        self.inner.tenants.get(tenant, vendor)?;
        self.inner.tenants.remove(tenant, vendor);
        self.inner.bring_up_to_date(tenant, vendor, waiting == OnRemove::Refuse);
        Ok(())
    }

    /// Reads the configuration again and goes over to it as a whole, or not at all. Returns its version.
    ///
    /// # Errors
    /// As [`Builder::build`](crate::Builder::build); the configuration in use stays.
    pub async fn reload(&self) -> Result<u64, Error> {
        let sources = self.inner.source.load().await?;
        let _changing = self.inner.changing.lock();
        let config = self.inner.config.load().reload(&sources)?;
        let version = config.version();
        let changes = self.inner.tenants.replace_all(&config)?;
        self.inner.config.store(Arc::new(config));
        for tenant in changes.changed.iter().chain(&changes.added).chain(&changes.removed) {
            self.inner.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        }
        tracing::info!(
            version,
            added = changes.added.len(),
            changed = changes.changed.len(),
            removed = changes.removed.len(),
            "configuration accepted"
        );
        Ok(version)
    }

    /// The configuration in use.
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.load_full()
    }

    /// Requests that wait for a permit now.
    pub fn waiting(&self) -> u64 {
        self.inner.dispatch.load().0
    }

    /// Exchanges under way now, those included whose caller went away and whose vendor may still be busy.
    pub fn in_flight(&self) -> u64 {
        self.inner.dispatch.load().1
    }

    /// Frees what resting tenants do not need, and with `evict` their lanes too: now, rather than at the next of the
    /// sweeps that each shard makes every 10 s. For measuring memory.
    #[doc(hidden)]
    pub async fn rest(&self, evict: bool) {
        for shard in self.inner.dispatch.shards() {
            shard.sweep(evict).await;
        }
    }

    /// Admits nothing more, lets what waits and what is under way go on for `grace`, and then refuses what still waits
    /// with [`ErrorKind::Shutdown`](crate::ErrorKind::Shutdown). Returns whether everything had ended by then.
    ///
    /// In that order, because a request that is admitted while others drain would be refused a moment later.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        let dispatch = &self.inner.dispatch;
        for shard in dispatch.shards() {
            shard.decide(|engine, _| engine.close());
        }
        let ends = self.inner.clock.now() + grace;
        let mut drained = dispatch.load() == (0, 0);
        while !drained && self.inner.clock.now() < ends {
            tokio::time::sleep(Duration::from_millis(5)).await;
            drained = dispatch.load() == (0, 0);
        }
        for shard in dispatch.shards() {
            shard.decide(|engine, now| engine.shut_down(now));
            shard.close();
        }
        // Whoever was refused a moment ago may have left a letter.
        let left = ends.since(self.inner.clock.now()).max(Duration::from_millis(100));
        self.inner.dead_letters.close(left).await;
        drained
    }
}

impl std::fmt::Debug for IntegrationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntegrationClient")
            .field("config", &self.inner.config.load().version())
            .field("tenants", &self.inner.tenants.len())
            .finish_non_exhaustive()
    }
}

/// What has become of dead letters since the client was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeadLetterCounts {
    /// In the queue before the sink.
    pub waiting: u64,
    /// Taken by the sink.
    pub written: u64,
    /// Not taken; each is in the log.
    pub lost: u64,
}

/// What becomes of requests that wait when their tenant is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnRemove {
    /// They go when it is their turn.
    Drain,
    /// They end at once, with [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    Refuse,
}
