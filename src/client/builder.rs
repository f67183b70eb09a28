//! The settings of a client; `build.rs` makes the client of them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::IntegrationClient;
use super::cleanup_schedule::{ActiveTenants, Cleaning};
use crate::config::{ConfigSource, LEASES, SharingFloor, Sources, TenantEntry};
use crate::core::OnRemove;
use crate::core::status::types::ByPriority;
use crate::dead_letter::DeadLetterSink;
use crate::dispatch::plan::Policy;
use crate::outbox::ResponseHandler;
use crate::retry::Classifier;
use crate::store::Store;
use crate::telemetry::events;
use crate::transport::{CredentialResolver, Credentials, Signer, TokenKeeper, TokenSource, Transport};

/// Settings of an [`IntegrationClient`]. Every one has a default: with none at all there is the shipped catalogue of
/// vendors and no tenant.
#[must_use = "nothing happens before `build`"]
pub struct IntegrationClientBuilder {
    pub(super) sources: Sources,
    pub(super) files: Vec<PathBuf>,
    /// Sources that take effect after the texts and files.
    pub(super) added: Vec<Arc<dyn ConfigSource>>,
    /// Zero does not watch; `None` takes the interval that the sources ask for.
    pub(super) watch_every: Option<Duration>,
    /// Off in simulations: on virtual time one tick per second would be most of the cost of simulating a month.
    pub(super) ticks: bool,
    pub(super) on_remove: OnRemove,
    pub(super) cleaning: Option<Cleaning>,
    pub(super) cleanup_may_retire_all: bool,
    pub(super) tenants: Vec<TenantEntry>,
    pub(super) credentials: Credentials,
    pub(super) signers: HashMap<String, Arc<dyn Signer>>,
    pub(super) transport: Option<Arc<dyn Transport>>,
    /// `None` if the program states none.
    pub(super) default_deadline: Option<Duration>,
    pub(super) max_waiting: u32,
    pub(super) classifiers: HashMap<String, Arc<dyn Classifier>>,
    /// `None` uses the store or, without one, the log.
    pub(super) dead_letter_sink: Option<Arc<dyn DeadLetterSink>>,
    pub(super) store: Option<Store>,
    pub(super) works: bool,
    pub(super) works_on_own: bool,
    pub(super) config_in_store: bool,
    pub(super) max_jobs: usize,
    pub(super) max_job_bytes: usize,
    pub(super) publish_status: Option<Duration>,
    pub(super) response_handler: Option<Arc<dyn ResponseHandler>>,
    pub(super) event_capacity: usize,
    pub(super) tenant_labels: usize,
    pub(super) policy: Policy,
    /// The wall clock's time at `Time::ZERO`, set in tests.
    pub(super) epoch: Option<SystemTime>,
    pub(super) shards: Option<usize>,
    pub(super) share_through: Option<String>,
    pub(super) sharing_lease: Option<Duration>,
    pub(super) sharing_floor: Option<SharingFloor>,
}

impl IntegrationClient {
    /// Returns a builder with the default settings.
    pub fn builder() -> IntegrationClientBuilder {
        IntegrationClientBuilder::new()
    }
}

impl IntegrationClientBuilder {
    pub(crate) fn new() -> Self {
        Self {
            sources: Sources::new(),
            files: Vec::new(),
            added: Vec::new(),
            watch_every: None,
            ticks: true,
            on_remove: OnRemove::Drain,
            cleaning: None,
            cleanup_may_retire_all: false,
            tenants: Vec::new(),
            credentials: Credentials::new(),
            signers: HashMap::new(),
            transport: None,
            default_deadline: None,
            max_waiting: 1_000_000,
            policy: Policy::USUAL,
            epoch: None,
            shards: None,
            share_through: None,
            sharing_lease: None,
            sharing_floor: None,
            classifiers: HashMap::new(),
            dead_letter_sink: None,
            store: None,
            works: false,
            works_on_own: false,
            config_in_store: false,
            max_jobs: 1_000,
            max_job_bytes: 64 << 20,
            publish_status: None,
            response_handler: None,
            event_capacity: events::CAPACITY,
            tenant_labels: 0,
        }
    }

    /// Adds vendors and tenants from a text in the format of `vendors.toml`.
    pub fn vendors_toml(mut self, text: impl Into<String>) -> Self {
        self.sources = self.sources.file("vendors.toml", text);
        self
    }

    /// Adds vendors and tenants from a file, read at [`build`](Self::build) and again whenever it has changed
    /// ([`watch_config`](Self::watch_config)).
    pub fn vendors_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Omits the shipped catalogue of vendors.
    pub fn without_catalogue(mut self) -> Self {
        self.sources = self.sources.without_catalogue();
        self
    }

    /// Adds vendors and tenants from a source: one on a server ([`RemoteSource`](crate::config::RemoteSource), of the
    /// feature `remote-config`), or one of your own. It takes effect after the texts and files, and after the sources
    /// that were added before. While one of them cannot be read, no change of the others is taken.
    pub fn config_source(mut self, source: impl ConfigSource + 'static) -> Self {
        self.added.push(Arc::new(source));
        self
    }

    /// Checks at this interval whether the configuration has changed, and switches to it: a change is in use after
    /// this time and 200 ms. The default is 1 s for files ([`vendors_file`](Self::vendors_file)), each of which costs
    /// one look at its time and length. For [a source that was added](Self::config_source) it is the interval that the
    /// source wants ([`look_every`](ConfigSource::look_every)): 5 s for one on a server, never for one of your own
    /// that does not say. With several sources the shortest interval counts. At least 10 ms.
    ///
    /// An invalid configuration is refused as a whole, and the one in use stays:
    /// [`LiveConfig::problem`](crate::LiveConfig::problem) says why.
    pub fn watch_config(mut self, every: Duration) -> Self {
        self.watch_every = Some(every.max(Duration::from_millis(10)));
        self
    }

    /// Does not watch the configuration: it changes only at [`LiveConfig::reload`](crate::LiveConfig::reload).
    pub fn without_watching(mut self) -> Self {
        self.watch_every = Some(Duration::ZERO);
        self
    }

    /// What happens to waiting requests when a reload or [`Tenants::cleanup`](crate::Tenants::cleanup) removes their
    /// tenant; by default they are still sent.
    pub fn on_remove(mut self, waiting: OnRemove) -> Self {
        self.on_remove = waiting;
        self
    }

    /// Asks `active` at this interval which tenants are still needed, and retires all others, as
    /// [`cleanup`](crate::Tenants::cleanup) does. The first cleanup is after `every`, which is a second at least;
    /// cleanups end with the shutdown.
    ///
    /// No tenant is retired if the source fails, panics, takes longer than a minute (or `every`, if that is longer),
    /// or returns an empty set. The client logs and counts that as an error, in
    /// [`overview`](IntegrationClient::overview) and in the metrics, and tries again after `every`. A tenant that is
    /// set while the source is asked stays until the next cleanup.
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use std::time::Duration;
    ///
    /// use integration_client::IntegrationClient;
    /// # async fn ids_of_customers() -> Result<HashSet<String>, std::io::Error> { Ok(HashSet::new()) }
    ///
    /// let builder = IntegrationClient::builder()
    ///     .cleanup_every(Duration::from_secs(3_600), || async { Ok(ids_of_customers().await?) });
    /// # drop(builder);
    /// ```
    pub fn cleanup_every(mut self, every: Duration, active: impl ActiveTenants) -> Self {
        let every = every.max(Duration::from_secs(1));
        self.cleaning = Some(Cleaning { every, source: Arc::new(active), may_be_empty: false });
        self
    }

    /// Lets [`cleanup_every`](Self::cleanup_every) retire all tenants when its source returns an empty set. Without this, such an
    /// answer is taken for a mistake.
    pub fn cleanup_may_retire_all(mut self) -> Self {
        self.cleanup_may_retire_all = true;
        self
    }

    /// Adds a tenant at a vendor. The tenant stays through reloads.
    pub fn tenant(mut self, tenant: TenantEntry) -> Self {
        self.tenants.push(tenant);
        self
    }

    /// Resolves credential references `NAME:KEY` with `resolver`.
    pub fn credential_resolver(mut self, name: impl Into<String>, resolver: impl CredentialResolver) -> Self {
        let name = name.into();
        self.sources = self.sources.resolver(name.clone());
        self.credentials = self.credentials.resolver(name, resolver);
        self
    }

    /// Keeps the refresh tokens that vendors replace ([OAuth](crate::config::OAuth)) in a place of the program's own. Without
    /// it a client with a store keeps them there, sealed with [`Store::seal_key`].
    pub fn token_keeper(mut self, keeper: impl TokenKeeper) -> Self {
        self.credentials = self.credentials.token_keeper(keeper);
        self
    }

    /// Gets access tokens for the tenants of `vendor`, for OAuth.
    pub fn token_source(mut self, vendor: impl Into<String>, source: impl TokenSource) -> Self {
        self.credentials = self.credentials.token_source(vendor, source);
        self
    }

    /// Signs every exchange with `vendor`, for HMAC and similar schemes.
    pub fn signer(mut self, vendor: impl Into<String>, signer: impl Signer) -> Self {
        self.signers.insert(vendor.into(), Arc::new(signer));
        self
    }

    /// Lets `classifier` decide what the responses of `vendor` mean.
    pub fn classifier(mut self, vendor: impl Into<String>, classifier: impl Classifier) -> Self {
        self.classifiers.insert(vendor.into(), Arc::new(classifier));
        self
    }

    /// Where requests that were given up are written; by default into the [store](Self::store), and without one into
    /// the log. Dead letters of accepted requests always go into the store.
    pub fn dead_letter_sink(mut self, sink: impl DeadLetterSink) -> Self {
        self.dead_letter_sink = Some(Arc::new(sink));
        self
    }

    /// The store of accepted requests ([`Outbox::enqueue`](crate::outbox::Outbox::enqueue)).
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Reads vendors and tenants from the store too: each row of its table `ic_config` is a text as in a file, laid
    /// over those of files and servers as by [`Sources::over`](crate::config::Sources::over). A change is in use within
    /// 2 s, in every process that shares the store. A row that is wrong counts as it was before it was changed, or not
    /// at all, and the others are used; [`LiveConfig::problem`](crate::LiveConfig::problem) and the log say so. At the
    /// start of a process, which knows no earlier version, a wrong row is an error if leaving it out could lift a limit:
    /// if it may state a vendor or how limits are shared, or has a tenant that is stated elsewhere too.
    /// [`LiveConfig::set_stored`](crate::LiveConfig::set_stored) writes rows, and so may any other program.
    pub fn config_in_store(mut self) -> Self {
        self.config_in_store = true;
        self
    }

    /// Sends the requests in the store. Without this the client only accepts requests, and another process sends them.
    /// Of the processes that share a SQLite file only one may work ([error](crate::Error::is_store_in_use) of others).
    pub fn work(mut self) -> Self {
        self.works = true;
        self
    }

    /// Sends those requests in the store that `enqueue` of this client has accepted, and leaves the others alone: for the
    /// command line alone, which ends after one request and must not begin others that it could not end. Deletes no ended
    /// request and no dead letter, whatever their age.
    #[doc(hidden)]
    pub fn work_on_own(mut self) -> Self {
        (self.works, self.works_on_own) = (true, true);
        self
    }

    /// The most accepted requests that the client holds at once, waiting for the limits or in flight; 1,000 by
    /// default. One tenant at one vendor may take all of them. A quarter more (four at least) is reserved for the
    /// others, so that a vendor or a tenant that hangs blocks no other tenant: all together hold five quarters of it
    /// at most.
    pub fn max_jobs(mut self, jobs: usize) -> Self {
        self.max_jobs = jobs.clamp(1, 1 << 30);
        self
    }

    /// The most bytes of accepted requests that the client holds at once, by their size in the store; 64 MiB by
    /// default. They are shared as [`max_jobs`](Self::max_jobs) is. A single request is sent whatever its size.
    pub fn max_job_bytes(mut self, bytes: usize) -> Self {
        self.max_job_bytes = bytes.clamp(1, 1 << 40);
        self
    }

    /// Publishes the worker's status in the store at this interval, in one row: limits, queues and pauses of up to 200
    /// lanes that have jobs, and the age and the problem of each source of the configuration.
    /// [`Outbox::workers`](crate::outbox::Outbox::workers) reads it in any process, and so does the command line's
    /// `status`. Off by default; at least 100 ms.
    pub fn publish_status(mut self, every: Duration) -> Self {
        self.publish_status = Some(every.max(Duration::from_millis(100)));
        self
    }

    /// Receives the responses to accepted requests.
    pub fn response_handler(mut self, handler: impl ResponseHandler) -> Self {
        self.response_handler = Some(Arc::new(handler));
        self
    }

    /// How many events a listener of [`IntegrationClient::events`] may be behind before it misses some; 1,024 by
    /// default, rounded up to a power of two, at most about a million. The memory, about 150 bytes per event, is
    /// allocated when the first listener starts.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.event_capacity = events.clamp(1, 1 << 20);
        self
    }

    /// Labels metrics with the tenant: the first `max` tenants that send anything, and all others together as `other`.
    /// With 0, the default, metrics name no tenant. Every labelled tenant has a set of series per vendor.
    #[cfg(feature = "metrics")]
    pub fn tenant_labels(mut self, max: usize) -> Self {
        self.tenant_labels = max;
        self
    }

    /// Computes calendar windows as if the wall clock showed `began` now.
    #[cfg(feature = "testing")]
    pub(crate) fn beginning_at(mut self, began: SystemTime) -> Self {
        let since = Duration::from_nanos(crate::clock::Clock::system().now().as_nanos());
        self.epoch = began.checked_sub(since);
        self
    }

    /// For simulations: no task runs every second, and idle lanes are swept once an hour, because a month of virtual
    /// time has too many seconds.
    #[cfg(feature = "testing")]
    pub(crate) fn without_ticks(mut self) -> Self {
        self.ticks = false;
        self
    }

    /// Sends with a transport of your own instead of reqwest.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// How long a request may take from `send` to the end of the body, waits and retries included, unless it [states a
    /// deadline](crate::Request::deadline).
    ///
    /// If neither states a deadline, a request has 60 s for each attempt, and waits that the vendor or the retry
    /// policy asks for do not count. So it is retried as often as `max_retries` allows, whatever the waits in between,
    /// each of which is `max_hold` at most (15 minutes unless the vendor's entry says otherwise): six exchanges that
    /// are all refused take about five minutes with `Retry-After: 60`.
    pub fn default_deadline(mut self, deadline: Duration) -> Self {
        self.default_deadline = Some(deadline);
        self
    }

    /// The most requests that may wait; a million by default. At this number a new request displaces the last one of
    /// the lowest priority in the lane with the most waiting requests (within 10 s; up to an eighth more may wait
    /// meanwhile), or is refused if its own lane is about as full.
    pub fn max_waiting(mut self, requests: u32) -> Self {
        self.max_waiting = requests.max(1);
        self
    }

    /// The most requests of one tenant, vendor and priority that may wait; 10,000 by default.
    pub fn max_waiting_per_tier(mut self, requests: u32) -> Self {
        self.policy.max_waiting = requests;
        self
    }

    /// Shares of high, normal and low priority when all of them wait; 6, 3 and 1 by default. Zero counts as 1.
    pub fn tier_weights(mut self, weights: ByPriority<u32>) -> Self {
        let ByPriority { high, normal, low } = weights;
        self.policy.tier_weights = [high, normal, low].map(|weight| weight.max(1));
        self
    }

    /// Shares every limit with the other processes that use the same store, so that all of them together keep to it.
    /// The store is `"store"` for the [store](Self::store) of this client, or the URL of another: `postgres://…`,
    /// `redis://…` (also of Valkey; `rediss://…` with TLS; feature `redis`) or `sqlite:PATH`.
    ///
    /// The following stores hold only limits with windows of a minute and more: etcd (`etcd://host:2379`, `etcds://…`;
    /// feature `etcd`), object stores (`s3://bucket/prefix`, `az://container/prefix`; feature `object-store`) and
    /// ZooKeeper (`zk://host:2181,host:2181/path`; feature `zookeeper`). A tenant's limit with a shorter window is an
    /// error, unless it states `shared = false`.
    ///
    /// Each process holds some of a limit's units under a lease, and grants only those. It calls the store a few times
    /// a second, once for all limits, and not for each request. The first request after an idle time waits for one
    /// such call. While the store does not respond, the process goes on until its lease ends; then it sends nothing
    /// until the store responds again (unless [`sharing_floor`](Self::sharing_floor) is set), so that a vendor never
    /// gets more than it allows.
    ///
    /// A process that ends by [`shutdown`](IntegrationClient::shutdown) gives its units back at once. The units of a
    /// process that is killed are unavailable for its lease, the vendor's `max_transit` and a window.
    ///
    /// A configuration file sets the same with `[sharing]` ([`config`](crate::config)); this setting takes precedence.
    ///
    /// All processes that call a vendor must share its limits, or none: a process that does not would use them a
    /// second time. To change over running processes, start with `share` (see the guide, "Several processes").
    ///
    /// ```
    /// use integration_client::IntegrationClient;
    ///
    /// let builder = IntegrationClient::builder().share_through("postgres://app@db.internal/app");
    /// # drop(builder);
    /// ```
    pub fn share_through(mut self, store: impl Into<String>) -> Self {
        self.share_through = Some(store.into());
        self
    }

    /// How long a process may use the units that it holds without a response from the store
    /// ([`share_through`](Self::share_through)): 10 s by default, from 2 s to 10 minutes. In etcd and ZooKeeper at
    /// least 6 s; in an object store 30 s by default and at least 15 s. A longer lease bridges longer outages of the
    /// store, but keeps the units of a killed process from the others for longer.
    pub fn sharing_lease(mut self, lease: Duration) -> Self {
        self.sharing_lease = Some(lease.clamp(LEASES.0, LEASES.1));
        self
    }

    /// Lets a process go on with a part of each shared limit when the store does not respond and its lease has ended,
    /// until ten minutes after the store's last response ([`share_through`](Self::share_through)). Without it the
    /// process sends nothing then.
    ///
    /// All processes together reserve the `part` of a limit, at most half of it, and each of them gets that part
    /// divided by `max_processes`, but at least one unit while any are left: of a limit of 200 units
    /// `sharing_floor(0.1, 5)` leaves 3 or 4 to each. The store never hands out more than the part, however many processes
    /// there are. A process that has used a limit in the last ten minutes holds its floor of it, even while it sends
    /// nothing; a killed process keeps its floor from the others for ten minutes. State the same values in all
    /// processes.
    pub fn sharing_floor(mut self, part: f64, max_processes: u32) -> Self {
        self.sharing_floor = Some(SharingFloor::new(part, max_processes));
        self
    }

    /// Number of shards, each with its own lock, among which the tenants are spread; rounded up to a power of two. By
    /// default four per processor.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.clamp(1, 1024));
        self
    }
}

impl std::fmt::Debug for IntegrationClientBuilder {
    /// Shows only the configuration files. Everything else may hold tenants' data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntegrationClientBuilder").field("files", &self.files).finish_non_exhaustive()
    }
}
