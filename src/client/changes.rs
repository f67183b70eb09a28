//! Changes of configuration and tenants while requests are under way.

use std::sync::Arc;

use super::IntegrationClient;
use crate::config::{Config, TenantEntry};
use crate::error::Error;
use crate::events::EventKind;

impl IntegrationClient {
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
        let taken_over = self.take_over().await;
        if let Err(error) = &taken_over {
            tracing::error!(reason = %error, "configuration rejected");
            self.inner.metrics.config_rejected();
            self.inner.feed.tell_all(|| EventKind::ConfigRejected { reason: error.to_string().into() });
        }
        taken_over
    }

    async fn take_over(&self) -> Result<u64, Error> {
        let sources = self.inner.source.load().await?;
        let _changing = self.inner.changing.lock();
        let config = self.inner.config.load().reload(&sources)?;
        let version = config.version();
        let changes = self.inner.tenants.replace_all(&config)?;
        self.inner.config.store(Arc::new(config));
        for tenant in changes.changed.iter().chain(&changes.added).chain(&changes.removed) {
            self.inner.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        }
        let (added, changed, removed) = (changes.added.len(), changes.changed.len(), changes.removed.len());
        tracing::info!(version, added, changed, removed, "configuration accepted");
        self.inner.feed.tell_all(|| EventKind::ConfigAccepted { version, added, changed, removed });
        Ok(version)
    }

    /// The configuration in use.
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.load_full()
    }

    /// Frees what resting tenants do not need, and with `evict` their lanes too: now, rather than at the next of the
    /// sweeps that each shard makes every 10 s. For measuring memory.
    #[doc(hidden)]
    pub async fn rest(&self, evict: bool) {
        for shard in self.inner.dispatch.shards() {
            shard.sweep(evict).await;
        }
    }
}

/// What becomes of requests that wait when their tenant is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnRemove {
    /// They go when it is their turn.
    Drain,
    /// They end at once, with [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    Refuse,
}
