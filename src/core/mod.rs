//! The state that all clones of a client share, in three parts: configuration, tenants and lanes ([`Registry`]), how
//! requests are sent ([`Egress`]), and reports ([`Telemetry`]).
//!
//! `send` and `outbox` build on this, and the public client builds on them.

mod breakers;
mod cleanups;
mod egress;
pub(crate) mod refusal;
mod registry;
mod sends;
pub(crate) mod status;
mod used;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Time};
use crate::config::{ProblemKind, Tenant};
use crate::dispatch::LaneRef;
use crate::engine::plan::EndpointId;
use crate::route::Route;
use crate::telemetry::Telemetry;
use crate::telemetry::metrics::{OutboxFigures, SharingFigures, Totals};

pub(crate) use breakers::{HostPass, HostWait};
pub(crate) use cleanups::Cleanups;
pub(crate) use egress::Egress;
pub use registry::OnRemove;
pub(crate) use registry::Registry;
use sends::Sends;
pub(crate) use status::status_of;
pub(crate) use used::{Remembers, Used};

/// The calls that the rest of the client makes to the outbox.
pub(crate) trait OutboxHooks: Send + Sync {
    /// Reports that a tenant was added or has changed.
    fn tenant_appears(&self, tenant: &Tenant);

    /// Reports that a tenant was removed.
    fn tenant_goes(&self, tenant: &str, vendor: &str);

    /// Reports that a request took units of a lane's limits, or that its response corrects their number.
    fn used(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, used: &Used);

    /// Reports that an exchange whose units the store has recorded at `at` did not leave.
    fn not_sent(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, recorded: &Used, at: Time);

    /// Reports that a pause has begun, changed or ended: of the tenant's lane, at `place`, or of a limit that it counts in.
    fn pause_changed(&self, tenant: &Tenant, place: LaneRef);

    /// Reports that an operator ends all pauses of the tenant, before that is done.
    fn resumes(&self, tenant: &Tenant);

    /// The outbox's figures for the metrics.
    fn figures(&self) -> OutboxFigures;
}

pub(crate) struct Core {
    pub(crate) registry: Registry,
    pub(crate) egress: Egress,
    pub(crate) telemetry: Telemetry,
    pub(crate) cleanups: Cleanups,
    pub(crate) sends: Sends,
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
        Core { registry, egress, telemetry, cleanups: Cleanups::new(), sends: Sends::new(), clock }
    }

    /// Waits until `is_done`, and until `ends` at the latest. Returns whether it was done by then.
    pub(crate) async fn until(&self, ends: Time, is_done: impl Fn() -> bool) -> bool {
        loop {
            let done = is_done();
            if done || self.clock.now() >= ends {
                return done;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Updates the metrics recorder; `last` when the client is dropped.
    pub(crate) fn tell_metrics(&self, sharing: Option<SharingFigures>, last: bool) {
        let totals = || {
            let problem = self.registry.problem_kind();
            Totals {
                config_version: self.registry.config.load().version(),
                config_age: self.registry.config_age(),
                config_unreadable: problem.is_some_and(ProblemKind::is_unreadable),
                config_invalid: problem.is_some_and(ProblemKind::is_invalid),
                hosts_open: self.egress.hosts.open(),
                events_missed: self.telemetry.feed.missed(),
                cleanups: self
                    .cleanups
                    .status()
                    .map(|status| [status.runs - status.failures, status.failures, status.retired]),
                outbox: self.registry.outbox_figures(),
                sharing,
                gateway: self.telemetry.gateway.figures(),
            }
        };
        self.telemetry.metrics.tell(self.clock.now(), totals, last);
    }
}
