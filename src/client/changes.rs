//! Adds, changes and removes tenants while requests are in flight. The lane of a removed tenant is freed once it is
//! idle (`engine/src/sweep.rs`).

use super::Tenants;
use crate::config::TenantEntry;
use crate::core::OnRemove;
use crate::error::Error;

impl Tenants<'_> {
    /// Adds a tenant at a vendor, or changes it. Units that its limits have counted stay counted; waiting requests go
    /// on under the new limits. The tenant stays through reloads until [`remove`](Self::remove).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) or [`ErrorKind::UnknownVendor`](crate::ErrorKind::UnknownVendor); nothing has changed then.
    /// `Config` also if the tenant gets access tokens, and other tenants of its account have another `oauth` or a base
    /// URL at another host: an account has one token. Remove the others first, or change all of them at once in the
    /// configuration.
    pub fn set(self, tenant: TenantEntry) -> Result<(), Error> {
        let _changing = self.client.core.registry.config_write.lock();
        let _moving = self.client.core.registry.migrating(false);
        let config = self.client.core.registry.config.load();
        let (tenant, _) = self.client.core.registry.routes.insert(config.vendors(), &tenant)?;
        self.client.core.registry.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        Ok(())
    }

    /// Removes a tenant at a vendor. Requests that wait are still sent or, with [`OnRemove::Refuse`], fail with
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

    /// Frees the memory that idle tenants do not need, and with `evict` their lanes too: immediately, rather than at
    /// the next of the sweeps that each shard makes every 10 s. For measuring memory.
    #[doc(hidden)]
    pub async fn rest(self, evict: bool) {
        for shard in self.client.core.registry.dispatch.shards() {
            shard.sweep(evict).await;
        }
    }
}
