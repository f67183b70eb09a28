//! Handles for what a client offers beside sending: its tenants and its configuration. The outbox has a
//! [handle](crate::outbox::Outbox) of the same kind.

use super::IntegrationClient;
use crate::outbox::Outbox;

/// The tenants of a client while it runs: [`IntegrationClient::tenants`].
#[derive(Clone, Copy, Debug)]
pub struct Tenants<'a> {
    pub(super) client: &'a IntegrationClient,
}

/// The configuration of a client while it runs: [`IntegrationClient::config`].
#[derive(Clone, Copy, Debug)]
pub struct LiveConfig<'a> {
    pub(super) client: &'a IntegrationClient,
}

impl IntegrationClient {
    /// The client's tenants: set, remove, clean up, pause and resume them.
    pub fn tenants(&self) -> Tenants<'_> {
        Tenants { client: self }
    }

    /// The client's configuration: the version in use, errors of its source, and the rows in the store.
    pub fn config(&self) -> LiveConfig<'_> {
        LiveConfig { client: self }
    }

    /// The client's durable outbox: accepts requests, and shows those that wait and those that were given up. Without
    /// a [store](crate::IntegrationClientBuilder::store) each call fails with
    /// [`ErrorKind::Store`](crate::ErrorKind::Store).
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.core.clone(), self.outbox.clone(), self.held.clone())
    }
}
