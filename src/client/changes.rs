//! Tenants that come, change and go while requests are under way.

use super::IntegrationClient;
use crate::config::TenantEntry;
use crate::error::Error;

impl IntegrationClient {
    /// Adds a tenant at a vendor, or changes it. What its limits have counted stays counted; what waits goes on by the
    /// new figures. It stays through reloads until [`remove_tenant`](Self::remove_tenant).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) or [`ErrorKind::UnknownVendor`](crate::ErrorKind::UnknownVendor); nothing has changed then.
    pub fn set_tenant(&self, tenant: TenantEntry) -> Result<(), Error> {
        let _changing = self.inner.changing.lock();
        let _moving = self.inner.moving(false);
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnRemove {
    /// They go when it is their turn.
    #[default]
    Drain,
    /// They end at once, with [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    Refuse,
}
