//! What a store reports about itself: the jobs of each lane, and the status of its working processes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Outbox, priority};
use crate::Priority;
use crate::clock::{as_seconds, as_some_seconds};
use crate::config::AuthScheme;
use crate::core::Core;
use crate::core::status::types::{SourceStatus, TenantStatus};
use crate::error::Error;
use crate::store::LaneTier;
use crate::store::batches;

/// The accepted requests of one tenant, vendor and priority that have not ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// The tenant.
    pub tenant: String,
    /// The vendor.
    pub vendor: String,
    /// The priority.
    pub priority: Priority,
    /// Requests that wait in the store.
    pub waiting: u64,
    /// Requests that a process has claimed.
    pub under_way: u64,
    /// The time until the first waiting request may be sent, as far as the store knows; zero when it waits only for the
    /// limits.
    #[serde(rename = "due_in_s", serialize_with = "as_some_seconds")]
    pub due_in: Option<Duration>,
    /// For how long the first waiting request could have been sent, if there had been a worker and room in its limits:
    /// its age, unless it was tried before. `None` while none is due.
    #[serde(rename = "due_for_s", serialize_with = "as_some_seconds")]
    pub due_for: Option<Duration>,
}

/// The status that a working process published:
/// [`IntegrationClientBuilder::publish_status`](crate::IntegrationClientBuilder::publish_status).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// The id of the process in the store.
    pub worker: String,
    /// The time since the status was published.
    #[serde(rename = "said_before_s", serialize_with = "as_seconds")]
    pub age: Duration,
    /// A [`TenantStatus`](crate::core::status::types::TenantStatus) for each of the lanes that the process works on, as JSON.
    pub lanes: Vec<Value>,
    /// A [`SourceStatus`](crate::core::status::types::SourceStatus) for each source of the process's configuration, as
    /// JSON.
    pub config_sources: Vec<Value>,
    /// The jobs of the last minutes that wait because they cost more than a limit holds: an object for each of up to 200
    /// limits of lanes, with `tenant`, `vendor` and `limit`, what the limit `holds`, the highest `cost`, and the number of
    /// `jobs`, 1,000 at most.
    pub too_expensive: Vec<Value>,
    /// Up to 200 lanes that the process sends nothing for: an object with `tenant`, `vendor` and what its configuration
    /// `lacks`. That is the `tenant`, if the store has jobs of it, or a `credential` that the vendor needs; the latter is
    /// looked for among the first 10,000 tenants of the configuration's files and sources.
    pub not_configured: Vec<Value>,
}

/// The text of a published status.
#[derive(Serialize)]
struct Published {
    lanes: Vec<TenantStatus>,
    config_sources: Vec<SourceStatus>,
    too_expensive: Vec<Value>,
    not_configured: Vec<Value>,
}

/// The most lanes in each list of a published status.
const LANES: usize = 200;
/// The most tenants among which those without a credential are searched, at each publication.
const SEARCHED: usize = 10_000;

impl Outbox {
    /// The jobs in the store, by tenant, vendor and priority; at most `most` of these groups.
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn queues(self, most: usize) -> Result<Vec<Queue>, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let found = self.state()?.store.read(most, batches::queues).await?;
        let number = |count: i64| u64::try_from(count).unwrap_or(0);
        let queue = |queue: batches::Queue| Queue {
            tenant: queue.lane.tenant,
            vendor: queue.lane.vendor,
            priority: priority(queue.lane.tier),
            waiting: number(queue.waiting),
            under_way: number(queue.under_way),
            due_in: queue.due_in_ms.map(|after| Duration::from_millis(number(after))),
            due_for: due_for(queue.due_in_ms),
        };
        Ok(found.into_iter().map(queue).collect())
    }

    /// The status that each working process published last.
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn workers(self) -> Result<Vec<WorkerStatus>, Error> {
        let found = self.state()?.store.read((), batches::worker_statuses).await?;
        let worker = |(owner, age_ms, status): (uuid::Uuid, i64, String)| {
            let (worker, age) = (owner.simple().to_string(), Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)));
            let [lanes, config_sources, too_expensive, not_configured] = lists_of(&status);
            WorkerStatus { worker, age, lanes, config_sources, too_expensive, not_configured }
        };
        Ok(found.into_iter().map(worker).collect())
    }

    /// The store's current problems: a full disk, an unreachable server, a damaged page. Problems are kept separately
    /// for each use of the store: accepting jobs, claiming them (also of a single tenant), recording exchanges and
    /// outcomes, maintenance, and reading. Each problem is reported until the same kind of work succeeds again, or has
    /// not been tried for two and a half minutes. `None` without a store.
    pub fn problem(self) -> Option<String> {
        self.state.as_ref()?.store.problems.now()
    }

    /// The number of outcomes of jobs that are not in the store yet: a process that ends now loses them. It stays above
    /// zero only while the store cannot be written. Zero without a store, in a client that does not work, and once its
    /// worker has ended.
    pub fn unwritten_outcomes(self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.measured.unwritten.load(Relaxed) as u64)
    }
}

/// For how long a request has been due that is due in `after_ms` milliseconds. `None` if it is not due yet.
fn due_for(after_ms: Option<i64>) -> Option<Duration> {
    let since_ms = after_ms.filter(|after| *after <= 0)?.saturating_neg();
    Some(Duration::from_millis(u64::try_from(since_ms).unwrap_or(0)))
}

/// The lists in the text of a published status. Processes of earlier versions publish fewer, or only a list of lanes.
fn lists_of(status: &str) -> [Vec<Value>; 4] {
    const NAMES: [&str; 4] = ["lanes", "config_sources", "too_expensive", "not_configured"];
    match serde_json::from_str(status) {
        Ok(Value::Object(mut fields)) => NAMES.map(|name| match fields.remove(name) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        }),
        Ok(Value::Array(lanes)) => [lanes, Vec::new(), Vec::new(), Vec::new()],
        _ => Default::default(),
    }
}

/// Those of `lanes` that the configuration does not have, and then tenants of its files without a credential that their
/// vendor needs. The latter's jobs are not among `lanes` while they wait to be tried again.
fn not_configured(core: &Core, lanes: &[(String, String)]) -> Vec<Value> {
    let lacks = |tenant: &str, vendor: &str, what: &str| json!({ "tenant": tenant, "vendor": vendor, "lacks": what });
    // `Registry::route` would search all tenants for similar names.
    let missing = lanes.iter().filter(|(tenant, vendor)| core.registry.routes.find(tenant, vendor).is_none());
    let config = core.registry.config.load();
    let keyless = config.tenants().take(SEARCHED).filter(|tenant| {
        tenant.credential.is_none()
            && tenant.vendor.auth != AuthScheme::None
            && !core.egress.credentials.expires(tenant)
    });
    let missing = missing.map(|(tenant, vendor)| lacks(tenant, vendor, "tenant"));
    missing.chain(keyless.map(|tenant| lacks(&tenant.id, &tenant.vendor.name, "credential"))).take(LANES).collect()
}

/// The status of this process as JSON: of its configuration's sources, of these lanes, without duplicates, and of the jobs
/// that wait for another configuration.
pub(super) fn status_as_json(core: &Core, lanes: impl Iterator<Item = LaneTier>) -> String {
    let mut lanes: Vec<(String, String)> = lanes.map(|lane| (lane.tenant, lane.vendor)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let statuses = lanes.iter().filter_map(|(tenant, vendor)| crate::core::status_of(core, tenant, vendor).ok());
    let published = Published {
        lanes: statuses.filter(|status| !status.resting).take(LANES).collect(),
        config_sources: core.registry.source_statuses(),
        too_expensive: core.telemetry.costly.status(core.clock.now()),
        not_configured: not_configured(core, &lanes),
    };
    // Serialization cannot fail: all map keys are strings.
    serde_json::to_string(&published).unwrap_or_default()
}

#[cfg(test)]
mod tests;
