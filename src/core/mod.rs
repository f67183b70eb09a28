//! What all clones of a client share, in three parts: who may send where ([`Registry`]), how requests leave
//! ([`Egress`]), and what is reported of it ([`Telemetry`]).
//!
//! `send` and `outbox` build on this, and the public client on them.

mod breakers;
mod cleanups;
mod egress;
mod failures;
mod flow;
mod gateway_counts;
pub(crate) mod refusal;
mod registry;
pub(crate) mod status;
mod telemetry;
mod under_way;
mod used;

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::Tenant;
use crate::engine::plan::EndpointId;
use crate::metrics::{OutboxFigures, SharingFigures, Totals};
use crate::route::Route;

pub(crate) use breakers::{HostPass, HostWait};
pub(crate) use cleanups::Cleanups;
pub(crate) use egress::Egress;
#[cfg(feature = "gateway")]
pub(crate) use gateway_counts::Outcome;
pub use registry::OnRemove;
pub(crate) use registry::Registry;
pub(crate) use status::status_of;
pub(crate) use telemetry::Telemetry;
pub(crate) use under_way::{Entry, Listed};
pub(crate) use used::{Remembers, Used};

/// What the rest of the client tells the outbox, and asks it.
pub(crate) trait OutboxHooks: Send + Sync {
    /// The tenant is there, or has changed.
    fn tenant_appears(&self, tenant: &Tenant);

    /// The tenant is gone.
    fn tenant_goes(&self, tenant: &str, vendor: &str);

    /// A request took units of a lane's limits, or its answer says that it took more or fewer.
    fn used(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, used: &Used);

    /// What is measured of it.
    fn figures(&self) -> OutboxFigures;
}

pub(crate) struct Core {
    pub(crate) registry: Registry,
    pub(crate) egress: Egress,
    pub(crate) telemetry: Telemetry,
    pub(crate) cleanups: Cleanups,
    pub(crate) clock: Clock,
}

impl Drop for Core {
    fn drop(&mut self) {
        for shard in self.registry.dispatch.shards() {
            shard.close();
        }
        self.tell_metrics(None, true);
    }
}

impl Core {
    pub(crate) fn new(registry: Registry, egress: Egress, telemetry: Telemetry, clock: Clock) -> Core {
        Core { registry, egress, telemetry, cleanups: Cleanups::new(), clock }
    }

    /// Tells the metrics recorder what there is to tell, `last` when the client goes.
    pub(crate) fn tell_metrics(&self, sharing: Option<SharingFigures>, last: bool) {
        let totals = || Totals {
            config_version: self.registry.config.load().version(),
            config_age: self.registry.config_age(),
            hosts_open: self.egress.hosts.open(),
            events_missed: self.telemetry.feed.missed(),
            cleanups: self
                .cleanups
                .status()
                .map(|status| [status.runs - status.failures, status.failures, status.retired]),
            outbox: self.registry.outbox_figures(),
            sharing,
            gateway: self.telemetry.gateway.figures(),
        };
        self.telemetry.metrics.tell(self.clock.now(), totals, last);
    }
}
