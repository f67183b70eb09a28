//! Builds a client: reads and validates the configuration, opens the transport, starts one timer task per shard.
//!
//! The only place that spawns tasks, apart from resolutions of secrets and refreshes of access tokens.

use super::builder::IntegrationClientBuilder;
use std::sync::Arc;
use std::time::Duration;

use super::IntegrationClient;
use super::cleanup_schedule::{Cleaning, clean_up};
use super::watch::watch;
use crate::capacity;
use crate::capacity::store_task::{Sharing, StoreTask};
use crate::clock::Clock;
use crate::config::{Config, ConfigSource, FileSource, JoinedSource, Sources, StaticSource};
use crate::core::{Core, Egress, OutboxHooks, Registry};
use crate::dead_letter::writer::{CAPACITY, Writer};
use crate::dead_letter::{DeadLetterSink, TracingSink};
use crate::dispatch::plan::Policy;
use crate::dispatch::{Dispatch, SWEEP_EVERY};
use crate::error::Error;
use crate::outbox::{OutboxState, Settings, StoreSink, StoreTokens, keep_usage, work};
use crate::send;
use crate::telemetry::Telemetry;
use crate::telemetry::events::Feed;
use crate::telemetry::metrics::Metrics;
use crate::transport::{ReqwestTransport, TokenKeeper, oauth};

/// How often files are checked for changes.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Interval of the sweeps for idle lanes in simulations.
const SELDOM: Duration = Duration::from_secs(3600);

/// Loads the configuration with which a client starts: that of the source or, if that is not valid, the one that was in
/// use last.
async fn first_config(source: &dyn ConfigSource) -> Result<(Sources, Config), Error> {
    let sources = source.load().await?;
    let error = match Config::load(&sources, 1) {
        Ok(config) => return Ok((sources, config)),
        Err(error) => error,
    };
    let Some(last) = source.load_last_used().await else { return Err(error) };
    let Ok(config) = Config::load(&last, 1) else { return Err(error) };
    tracing::error!(%error, "the configuration is not valid, and the one that was in use last is used instead; correct it");
    Ok((last, config))
}

impl IntegrationClientBuilder {
    /// Reads and validates the configuration and starts the client.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) with file, line and column for each problem, or when no tokio
    /// runtime runs.
    pub async fn build(self) -> Result<IntegrationClient, Error> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::config(
                "the client needs a tokio runtime: call `build` inside one, with time and I/O enabled",
            ));
        }
        let of_files = self.config_in_store || !self.files.is_empty();
        let mut files = self.files.into_iter().map(FileSource::new);
        let first: Arc<dyn ConfigSource> = match files.next() {
            None => Arc::new(StaticSource::new(self.sources)),
            Some(file) => Arc::new(file.onto(self.sources)),
        };
        // A source for each file, because the status lists them one by one.
        let files = files.map(|file| Arc::new(file) as Arc<dyn ConfigSource>);
        let source = JoinedSource::new(first, files.chain(self.added).collect());
        let mut records = source.records().to_vec();
        let often = of_files.then_some(WATCH_EVERY).into_iter().chain(source.look_every()).min();
        let watch_every = self.watch_every.or(often).unwrap_or_default();
        let source: Arc<dyn ConfigSource> = Arc::new(source);
        let source: Arc<dyn ConfigSource> = match (&self.store, self.config_in_store) {
            (_, false) => source,
            (Some(store), true) => {
                let source = store.source(source)?;
                records.push(source.record());
                Arc::new(source)
            }
            (None, true) => {
                return Err(Error::config("`config_in_store` needs a store: call `IntegrationClientBuilder::store`"));
            }
        };
        if let Some(store) = &self.store {
            source.keep_copies_in(Arc::new(store.copies()?));
        }
        let (sources, config) = first_config(&*source).await?;
        source.taken().await;
        for warning in config.warnings() {
            tracing::warn!(warning, "configuration");
        }
        if !oauth::COMPILED && config.tenants().any(|tenant| tenant.oauth.is_some()) {
            return Err(Error::config(
                "a tenant states `oauth`, which is not compiled in; switch the feature `oauth` on",
            ));
        }
        let clock = Clock::system();
        let stated = config.sharing().cloned();
        let through = match (self.share_through, &stated) {
            (Some(through), _) => Some(through),
            (None, Some(stated)) => Some(stated.resolved().map_err(Error::config)?),
            (None, None) => None,
        };
        let floor = self.sharing_floor.or(stated.as_ref().and_then(|stated| stated.floor));
        let lease = self.sharing_lease.or(stated.and_then(|stated| stated.lease));
        let pool = match &through {
            None => None,
            Some(through) => {
                let (pool, task) = capacity::open(through, self.store.as_ref()).await?;
                if let Some(task) = task {
                    #[expect(clippy::disallowed_methods, reason = "the task ends with the client")]
                    tokio::spawn(task);
                }
                Some(pool)
            }
        };
        let pace = pool.as_ref().map(capacity::Pool::pace);
        let lease = pace.map(|pace| pace.holds.lease(lease, pace.leases)).transpose().map_err(Error::config)?;
        let epoch = self.epoch.unwrap_or_else(|| clock.epoch());
        let policy = Policy { pooled: pace.map(|pace| pace.holds), floor, epoch, ..self.policy };
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let shards = self.shards.unwrap_or((4 * processors).min(64));
        let dispatch = Dispatch::new(shards, self.max_waiting, policy, clock);
        let outbox = match self.store {
            None if self.works => {
                return Err(Error::config("`work` needs a store: call `IntegrationClientBuilder::store`"));
            }
            None => None,
            Some(store) => {
                let (opened, tasks) = store.open(self.works).await?;
                for task in tasks {
                    #[expect(
                        clippy::disallowed_methods,
                        reason = "the task ends with the client, when all is written"
                    )]
                    tokio::spawn(task);
                }
                let settings = Settings {
                    works: self.works,
                    only_own: self.works_on_own,
                    max_jobs: self.max_jobs,
                    max_job_bytes: self.max_job_bytes,
                    tier_weights: self.policy.tier_weights,
                    tell_every: self.publish_status,
                };
                Some(Arc::new(OutboxState::new(opened, self.response_handler, settings, clock)))
            }
        };
        let sink: Arc<dyn DeadLetterSink> = match (self.dead_letter_sink, &outbox) {
            (Some(sink), _) => sink,
            (None, Some(outbox)) => Arc::new(StoreSink(outbox.clone())),
            (None, None) => Arc::new(TracingSink),
        };
        let (dead_letters, writing) = Writer::new(sink, CAPACITY);
        #[expect(clippy::disallowed_methods, reason = "the task ends with the client, when all is written")]
        tokio::spawn(writing);
        let hooks = outbox.clone().map(|outbox| outbox as Arc<dyn OutboxHooks>);
        let registry = Registry::new(source.clone(), records, config, dispatch, self.on_remove, hooks, clock)?;
        *registry.problem.lock() = sources.problem().cloned();
        registry.began_with_a_copy(sources.copy_age().unwrap_or_default());
        let transport = self.transport.unwrap_or_else(|| Arc::new(ReqwestTransport::new()));
        let kept = outbox.clone().map(|outbox| Arc::new(StoreTokens(outbox)) as Arc<dyn TokenKeeper>);
        let (credentials, signers, classifiers) = (self.credentials, self.signers, self.classifiers);
        let egress = Egress::new(transport, credentials, signers, classifiers, self.default_deadline, kept, clock);
        let telemetry = Telemetry::new(Feed::new(self.event_capacity), Metrics::new(self.tenant_labels), dead_letters);
        let sharing = pace.map(|pace| Arc::new(Sharing::new(pace)));
        let core = Core::new(registry, egress, telemetry, clock);
        let client = IntegrationClient::new(core, outbox.clone(), sharing.clone());
        if let (Some(pool), Some(sharing), Some(lease)) = (pool, sharing, lease) {
            let dispatch = &client.core().registry.dispatch;
            let exchange =
                StoreTask::new(pool, dispatch.shards().to_vec(), dispatch.moves.clone(), clock, lease, sharing);
            #[expect(
                clippy::disallowed_methods,
                reason = "the task ends with the client, when all units are given back"
            )]
            tokio::spawn(exchange.run(Arc::downgrade(client.core()), dispatch.starved.clone()));
        }
        let sweep_every = if self.ticks { SWEEP_EVERY } else { SELDOM };
        for shard in client.core().registry.dispatch.shards() {
            // After all that can fail: only the end of the client ends the task.
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client")]
            tokio::spawn(shard.clone().keep_time(sweep_every));
            shard.belongs_to(client.core());
            let core = Arc::downgrade(client.core());
            shard.tell_forgotten(move |forgotten| {
                if let Some(core) = core.upgrade() {
                    send::tell_forgotten(&core, forgotten);
                }
            });
        }
        #[cfg(feature = "metrics")]
        if self.ticks {
            let core = Arc::downgrade(client.core());
            let shared = client.sharing.clone();
            let tell = move || {
                let tell = |core: Arc<Core>| {
                    let sharing = shared.as_ref().map(|shared| shared.status(core.clock.now()).figures());
                    core.tell_metrics(sharing, false);
                };
                core.upgrade().map(tell).is_some()
            };
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client, a second later at most")]
            tokio::spawn(crate::telemetry::metrics::every_second(tell));
        }
        for tenant in self.tenants {
            client.tenants().set(tenant)?;
        }
        if let Some(outbox) = &outbox {
            let core = Arc::downgrade(client.core());
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client, when all is written")]
            tokio::spawn(keep_usage(core, outbox.clone()));
        }
        if let Some(outbox) = outbox
            && outbox.works
        {
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client, when its jobs have ended")]
            tokio::spawn(work(Arc::downgrade(client.core()), client.held(), outbox));
        }
        if let Some(cleaning) = self.cleaning {
            let cleaning = Cleaning { may_be_empty: self.cleanup_may_retire_all, ..cleaning };
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client, or at its shutdown")]
            tokio::spawn(clean_up(Arc::downgrade(client.core()), cleaning));
        }
        if watch_every > Duration::ZERO {
            client.core().registry.mark_watched();
            #[expect(clippy::disallowed_methods, reason = "the task ends with the client, at its next look")]
            tokio::spawn(watch(Arc::downgrade(client.core()), source, watch_every));
        }
        Ok(client)
    }
}
