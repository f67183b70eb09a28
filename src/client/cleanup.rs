//! Retires stale tenants on request; `cleanup_schedule.rs` does it on a schedule. A retired tenant's lane is freed
//! once it is idle (`engine/src/sweep.rs`).

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::Tenants;
use crate::config::Tenant;
use crate::core::{Core, OnRemove};
use crate::route::Route;

/// Tenants that are retired under one hold of the configuration's lock, which takes about 50 µs. A caller who sets or
/// removes a tenant waits for the lock.
const CHUNK: usize = 64;

impl Tenants<'_> {
    /// Retires every tenant whose id is not in `active`, at all vendors, and returns the retired tenants. An empty set
    /// retires all tenants: make sure that it is meant.
    ///
    /// A retired tenant is unknown from then on. Its waiting requests are still sent, or refused with
    /// [`ErrorKind::Retired`](crate::ErrorKind::Retired), as
    /// [`IntegrationClientBuilder::on_remove`](crate::IntegrationClientBuilder::on_remove) says; requests in flight go
    /// on. A sweep (every 10 s) frees its lane once its limits have no use left to remember: a tenant that comes back
    /// before that finds the used units still counted. A tenant that a file states comes back with the file's next
    /// change: remove it from the file too.
    ///
    /// ```
    /// use std::collections::HashSet;
    ///
    /// use integration_client::IntegrationClient;
    /// use integration_client::config::TenantEntry;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let tenant = |id| TenantEntry::new(id, "github").credential("env:GITHUB_TOKEN");
    /// let client = IntegrationClient::builder().tenant(tenant("acme")).tenant(tenant("gone")).build().await?;
    /// let retired = client.tenants().cleanup(&HashSet::from(["acme"])).await;
    /// assert_eq!(retired.iter().map(|tenant| &*tenant.id).collect::<Vec<_>>(), ["gone"]);
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    ///
    /// [`IntegrationClientBuilder::cleanup_every`](crate::IntegrationClientBuilder::cleanup_every) does the same on a
    /// schedule.
    pub async fn cleanup<T, S>(self, active: &HashSet<T, S>) -> Vec<Arc<Tenant>>
    where
        T: Borrow<str> + Eq + Hash,
        S: BuildHasher,
    {
        self.retain(|tenant| active.contains(&*tenant.id)).await
    }

    /// As [`cleanup`](Self::cleanup), but retires each tenant at a vendor for which `keep` returns `false`: for ids in
    /// a database's cursor, or tenants that leave one vendor and stay at others.
    ///
    /// Goes through the tenants in small steps, and yields to other tasks between them. A tenant that is set meanwhile
    /// is not retired, unless `keep` refuses it in its new state.
    pub async fn retain(self, mut keep: impl FnMut(&Tenant) -> bool) -> Vec<Arc<Tenant>> {
        let core = &*self.client.core;
        let mut retired = Vec::new();
        for part in 0..core.registry.routes.parts() {
            let mut stale = core.registry.routes.part(part);
            stale.retain(|tenant| !keep(tenant));
            core.retire_in_steps(&stale, &mut retired).await;
        }
        core.cleaned_up(retired.len());
        retired
    }

    /// Number of lanes in memory: tenants at vendors that were used lately, or have not been idle since.
    pub fn lanes(self) -> u64 {
        self.client.core.registry.dispatch.lanes()
    }
}

impl Core {
    /// Retires those routes of `stale` that have not been replaced meanwhile.
    pub(super) async fn retire_all(&self, stale: &[Arc<Route>]) -> Vec<Arc<Tenant>> {
        let mut retired = Vec::new();
        self.retire_in_steps(stale, &mut retired).await;
        self.cleaned_up(retired.len());
        retired
    }

    async fn retire_in_steps(&self, stale: &[Arc<Route>], retired: &mut Vec<Arc<Tenant>>) {
        let refuse = self.registry.on_remove == OnRemove::Refuse;
        for some in stale.chunks(CHUNK) {
            retire(self, some, refuse, retired);
            tokio::task::yield_now().await;
        }
    }

    fn cleaned_up(&self, retired: usize) {
        self.registry.dispatch.forget_plans();
        tracing::info!(retired, left = self.registry.routes.len(), "tenants cleaned up");
    }
}

fn retire(core: &Core, stale: &[Arc<Route>], refuse: bool, retired: &mut Vec<Arc<Tenant>>) {
    let _changing = core.registry.config_write.lock();
    for tenant in stale {
        let (id, vendor) = (&*tenant.id, &*tenant.vendor.name);
        // The program has set the tenant again meanwhile: it is not stale.
        if !core.registry.routes.find(id, vendor).is_some_and(|now| Arc::ptr_eq(&now, tenant)) {
            continue;
        }
        core.registry.routes.remove(id, vendor);
        core.registry.retire_at_home(tenant, refuse);
        retired.push(tenant.tenant().clone());
    }
}
