//! Tenants that come, change and go while requests are under way.

use super::Tenants;
use crate::config::TenantEntry;
use crate::error::Error;

impl Tenants<'_> {
    /// Adds a tenant at a vendor, or changes it. What its limits have counted stays counted; what waits goes on by the
    /// new figures. It stays through reloads until [`remove`](Self::remove).
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) or [`ErrorKind::UnknownVendor`](crate::ErrorKind::UnknownVendor); nothing has changed then.
    pub fn set(self, tenant: TenantEntry) -> Result<(), Error> {
        let _changing = self.client.inner.changing.lock();
        let _moving = self.client.inner.moving(false);
        let config = self.client.inner.config.load();
        let (tenant, _) = self.client.inner.tenants.insert(config.vendors(), &tenant)?;
        self.client.inner.bring_up_to_date(&tenant.id, &tenant.vendor.name, false);
        Ok(())
    }

    /// Removes a tenant at a vendor. What waits still goes, or with [`OnRemove::Refuse`] is told
    /// [`ErrorKind::Retired`](crate::ErrorKind::Retired).
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTenant`](crate::ErrorKind::UnknownTenant).
    pub fn remove(self, tenant: &str, vendor: &str, waiting: OnRemove) -> Result<(), Error> {
        let _changing = self.client.inner.changing.lock();
        self.client.inner.tenants.get(tenant, vendor)?;
        self.client.inner.tenants.remove(tenant, vendor);
        self.client.inner.bring_up_to_date(tenant, vendor, waiting == OnRemove::Refuse);
        Ok(())
    }

    /// Frees what resting tenants do not need, and with `evict` their lanes too: now, rather than at the next of the
    /// sweeps that each shard makes every 10 s. For measuring memory.
    #[doc(hidden)]
    pub async fn rest(self, evict: bool) {
        for shard in self.client.inner.dispatch.shards() {
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
