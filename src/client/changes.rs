//! Adds, changes and removes tenants while requests are in flight. The lane of a removed tenant leaves memory once it rests
//! (`engine/src/sweep.rs`).

use super::Tenants;
use crate::config::TenantEntry;
use crate::core::OnRemove;
use crate::error::Error;

impl Tenants<'_> {
    /// Adds a tenant at a vendor, or changes it. What its limits have counted stays counted; what waits goes on by the
    /// new figures. It stays through reloads until [`remove`](Self::remove).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) or [`ErrorKind::UnknownVendor`](crate::ErrorKind::UnknownVendor); nothing has changed then.
    pub fn set(self, tenant: TenantEntry) -> Result<(), Error> {
        let _changing = self.client.core.registry.config_write.lock();
        let _moving = self.client.core.registry.migrating(false);
        let config = self.client.core.registry.config.load();
        let (tenant, _) = self.client.core.registry.routes.insert(config.vendors(), &tenant)?;
        self.client.core.registry.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        Ok(())
    }

    /// Removes a tenant at a vendor. What waits still goes, or with [`OnRemove::Refuse`] is told
    /// [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTenant`](crate::ErrorKind::UnknownTenant).
    pub fn remove(self, tenant: &str, vendor: &str, waiting: OnRemove) -> Result<(), Error> {
        let _changing = self.client.core.registry.config_write.lock();
        self.client.core.registry.routes.get(tenant, vendor)?;
        self.client.core.registry.routes.remove(tenant, vendor);
        self.client.core.registry.bring_up_to_date(tenant, vendor, waiting == OnRemove::Refuse);
        Ok(())
    }

    /// Frees what resting tenants do not need, and with `evict` their lanes too: now, rather than at the next of the
    /// sweeps that each shard makes every 10 s. For measuring memory.
    #[doc(hidden)]
    pub async fn rest(self, evict: bool) {
        for shard in self.client.core.registry.dispatch.shards() {
            shard.sweep(evict).await;
        }
    }
}
