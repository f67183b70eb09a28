//! Switches from one configuration to the next as a whole or not at all, while requests are in flight.

use std::sync::Arc;
use std::time::Duration;

use super::LiveConfig;
use crate::config::{Config, ConfigProblem, Sources, run_blocking};
use crate::core::{Core, OnRemove};
use crate::error::Error;
use crate::telemetry::events::EventKind;

impl LiveConfig<'_> {
    /// Reads the configuration again and switches to it as a whole, or not at all. Returns its version.
    ///
    /// A client reloads by itself when a file of its configuration changes
    /// ([`IntegrationClientBuilder::watch_config`](crate::IntegrationClientBuilder::watch_config)); this is for other
    /// sources, or to avoid the wait. A tenant that the configuration states and that was removed while running comes
    /// back.
    ///
    /// # Errors
    /// As [`IntegrationClientBuilder::build`](crate::IntegrationClientBuilder::build); the configuration in use stays.
    pub async fn reload(self) -> Result<u64, Error> {
        let reloading = self.client.core.registry.reload_order.clone().lock_owned().await;
        let rejected = |error: &Error, problem: ConfigProblem| {
            self.client.core.set_problem(problem);
            tracing::error!(reason = %error, "configuration rejected");
            self.client.core.tell_rejected(error);
        };
        let unreadable = |error: &Error| rejected(error, ConfigProblem::unreadable(error.to_string()));
        let invalid = |error: &Error| rejected(error, ConfigProblem::invalid(error.to_string()));
        let sources = self.client.core.registry.source.load().await.inspect_err(unreadable)?;
        self.client.core.registry.checked();
        let core = self.client.core.clone();
        // The task owns the lock, so that dropping this future stops neither the change nor the order of changes. It
        // gives the lock back: what is taken is what the source has loaded last, so nothing may load it again before.
        let gone_over = run_blocking(move || (core.go_over_to(&sources), reloading));
        let (gone_over, _reloading) = gone_over.await?;
        let version = gone_over.map_err(|refused| refused.error).inspect_err(invalid)?;
        self.client.core.registry.source.taken().await;
        Ok(version)
    }

    /// Writes a row of the store's [configuration](crate::IntegrationClientBuilder::config_in_store), or removes it if
    /// `text` is `None`. Every process that reads the rows switches to the change within 2 s. A row that is invalid
    /// counts as it was before the change, or not at all, and [`problem`](Self::problem) says so.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store): the client has no store, or it cannot be written.
    pub async fn set_stored(self, name: &str, text: Option<&str>) -> Result<(), Error> {
        let row = (name.to_owned(), text.map(str::to_owned));
        self.client.outbox().state()?.store.write(row, crate::store::config::set).await
    }

    /// The rows of the store's configuration, as name and text, that [`set_stored`](Self::set_stored) has written.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store): the client has no store, or it cannot be read.
    pub async fn stored(self) -> Result<Vec<(String, String)>, Error> {
        self.client.outbox().state()?.store.read((), crate::store::config::all).await
    }

    /// The configuration in use. Its [`version`](Config::version) counts the changes in this process, and its
    /// [`hash`](Config::hash) is the same in every process that runs on the same configuration.
    pub fn current(self) -> Arc<Config> {
        self.client.core.registry.config.load_full()
    }

    /// Why the configuration in use differs from that of its source: what was wrong when the source was last read.
    /// `None` if nothing was.
    pub fn problem(self) -> Option<String> {
        self.client.core.registry.problem.lock().as_ref().map(|problem| problem.why.clone())
    }

    /// How long ago the source of the configuration last answered, whether with a change or not: at the start, at a
    /// [`reload`](Self::reload), or at a check of a client that
    /// [watches](crate::IntegrationClientBuilder::watch_config). It grows while the source is unreachable, and without
    /// end in a client that does not watch its source.
    pub fn checked_ago(self) -> Duration {
        self.client.core.registry.checked_ago()
    }
}

/// A configuration that was not taken.
pub(super) struct Refused {
    pub(super) error: Error,
    /// Whether it is valid by itself, but does not fit a tenant that the program has added.
    pub(super) misfits_tenant: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { error, misfits_tenant: false }
    }
}

impl Core {
    /// Parses and checks everything, and then switches to it. Takes milliseconds, or seconds if there are a million
    /// tenants: call it on a thread that may block.
    pub(super) fn go_over_to(&self, sources: &Sources) -> Result<u64, Refused> {
        let refused = |error: &Error| self.registry.refused(&error.to_string());
        let config = self.registry.config.load().reload(sources).inspect_err(refused)?;
        let _changing = self.registry.config_write.lock();
        let _moving = self.registry.migrating(true);
        let (version, hash) = (config.version(), config.hash());
        let routes = &self.registry.routes;
        let replaced = routes.replace_all(&config).inspect_err(refused);
        let changes = replaced.map_err(|error| Refused { error, misfits_tenant: routes.check_all(&config).is_ok() })?;
        for warning in config.warnings() {
            tracing::warn!(warning, "configuration");
        }
        self.registry.config.store(Arc::new(config));
        *self.registry.problem.lock() = sources.problem().cloned();
        for tenant in changes.changed.iter().chain(&changes.added).chain(&changes.removed) {
            self.registry.bring_up_to_date(
                &tenant.id,
                &tenant.vendor.name,
                self.registry.on_remove == OnRemove::Refuse,
            );
        }
        self.registry.dispatch.forget_plans();
        let (added, changed, removed) = (changes.added.len(), changes.changed.len(), changes.removed.len());
        let hash = format_args!("{hash:016x}");
        tracing::info!(version, hash, added, changed, removed, "configuration accepted");
        self.telemetry.feed.tell_all(|| EventKind::ConfigAccepted { version, added, changed, removed });
        Ok(version)
    }

    /// Records why the configuration in use is not what the source holds.
    pub(super) fn set_problem(&self, problem: ConfigProblem) {
        *self.registry.problem.lock() = Some(problem);
    }

    pub(super) fn tell_rejected(&self, error: &Error) {
        self.telemetry.metrics.config_rejected();
        self.telemetry.feed.tell_all(|| EventKind::ConfigRejected { reason: error.to_string().into() });
    }
}
