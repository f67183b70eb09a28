//! One tenant at one vendor while a client runs: its configuration, and the figures that its requests have learned.
//!
//! A [`Route`] is made when the configuration is loaded or a tenant is set. Requests, lanes and responses hold the route
//! that they began with. A change of the configuration makes a new route and marks the old one as
//! [replaced](Route::is_current).

mod auth;
mod memory;
mod table;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::clock::Time;
use crate::config::Tenant;
use crate::error::Error;
use auth::CachedAuth;
use memory::VendorMemory;

pub(crate) use auth::{Authorization, Secrets};
pub(crate) use memory::Connections;
pub(crate) use table::RouteTable;

/// One tenant at one vendor. Dereferences to its [`Tenant`].
#[derive(Debug)]
pub(crate) struct Route {
    tenant: Arc<Tenant>,
    memory: Arc<VendorMemory>,
    auth: CachedAuth,
    replaced: AtomicBool,
}

impl Deref for Route {
    type Target = Tenant;

    #[inline]
    fn deref(&self) -> &Tenant {
        &self.tenant
    }
}

impl Route {
    fn new(tenant: Arc<Tenant>, memory: Arc<VendorMemory>) -> Route {
        Route { tenant, memory, auth: CachedAuth::default(), replaced: AtomicBool::new(false) }
    }

    /// A route that shares nothing with other routes.
    #[cfg(test)]
    pub(crate) fn alone(tenant: Tenant) -> Arc<Route> {
        let memory = Arc::new(VendorMemory::new(tenant.vendor.clone()));
        Arc::new(Route::new(Arc::new(tenant), memory))
    }

    /// A route with another configuration and the same learned figures.
    #[cfg(test)]
    pub(crate) fn beside(&self, tenant: Tenant) -> Arc<Route> {
        Arc::new(Route::new(Arc::new(tenant), self.memory.clone()))
    }

    /// The tenant's configuration.
    pub(crate) fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    /// Whether the table of routes still holds this route for its tenant and vendor.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        !self.replaced.load(Ordering::Acquire)
    }

    fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        if let Some(oauth) = &self.tenant.oauth {
            oauth.replace();
        }
    }

    /// The host, without a port; empty if the tenant's variables make no valid address.
    pub(crate) fn host(&self) -> String {
        self.base().ok().and_then(|base| base.host_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The host to which connections are made, with its port unless that is 443; empty if there is no valid address.
    /// Two services at one host name fail and recover by themselves.
    pub(crate) fn peer(&self) -> String {
        let Some(base) = self.base().ok() else { return String::new() };
        let host = base.host_str().unwrap_or_default();
        match base.port_or_known_default() {
            Some(port) if port != 443 => format!("{host}:{port}"),
            _ => host.to_owned(),
        }
    }

    /// Like [`Tenant::base_url`], but parsed once for all tenants if the base URL has no variables.
    #[inline]
    pub(crate) fn base(&self) -> Result<Cow<'_, Url>, Error> {
        if self.tenant.variables.is_empty() {
            self.memory.base(|| self.tenant.base_url()).map(Cow::Borrowed)
        } else {
            self.tenant.base_url().map(Cow::Owned)
        }
    }

    /// The connections of its vendor, for tenants without a certificate of their own.
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        self.memory.connections()
    }

    /// The secrets of the last request, if they may still be used at `now`.
    #[inline]
    pub(crate) fn authorization(&self, now: Time) -> Option<Arc<Authorization>> {
        self.auth.at(now)
    }

    pub(crate) fn keep_authorization(&self, known: Arc<Authorization>) {
        self.auth.keep(known);
    }

    /// Drops the cached secrets if `stale` is one of them.
    pub(crate) fn forget_authorization(&self, stale: &Arc<SecretString>) {
        self.auth.forget(stale);
    }

    /// Records that the vendor responded `took` after the send.
    pub(crate) fn answered_in(&self, took: Duration) {
        self.memory.answered_in(took);
    }

    /// The vendor's recent response time in nanoseconds; 0 before the first response.
    pub(crate) fn service_ns(&self) -> u64 {
        self.memory.service_ns()
    }

    /// Records the size of a response body.
    pub(crate) fn answer_had(&self, bytes: u64) {
        self.memory.answer_had(bytes);
    }

    /// The expected size of the response to a request with a body of `sent` bytes: `stated`, or the recent average. Never
    /// more than a limit has room for.
    pub(crate) fn expected_answer(&self, sent: u32, stated: Option<u32>) -> u32 {
        let expected = stated.unwrap_or_else(|| u32::try_from(self.memory.answer_bytes()).unwrap_or(u32::MAX));
        self.tenant.vendor.largest_answer(sent, expected)
    }

    /// Whether no request to its vendor has gone yet without the idempotency key that its caller stated: true once.
    pub(crate) fn is_first_unsent_key(&self) -> bool {
        self.memory.is_first_unsent_key()
    }

    /// Whether it may be logged that a request's cost is ignored: once for each vendor.
    pub(crate) fn may_log_cost(&self) -> bool {
        self.memory.may_log_cost()
    }

    /// Whether it may be logged that a body came in a coding that is not decoded: once for each vendor.
    pub(crate) fn may_log_coding(&self) -> bool {
        self.memory.may_log_coding()
    }

    /// Whether a limit that differs from the vendor's entry may be logged at `now`.
    pub(crate) fn may_log_limits(&self, now: Time) -> bool {
        self.memory.may_log_limits(now)
    }
}
