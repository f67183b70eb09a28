//! What a store says about itself: what waits in which lane, and what its working processes do.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::{Outbox, priority};
use crate::Priority;
use crate::core::Core;
use crate::error::Error;
use crate::store::LaneTier;
use crate::store::batches;

/// The accepted requests of one tenant, vendor and priority that have not ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Queue {
    /// On whose behalf.
    pub tenant: String,
    /// To whom.
    pub vendor: String,
    /// Their tier.
    pub priority: Priority,
    /// They wait in the store.
    pub waiting: u64,
    /// A process has them in hand.
    pub under_way: u64,
    /// When the first of those that wait may go, as far as the store knows; zero when it waits for the limits alone.
    #[serde(rename = "due_in_s", serialize_with = "crate::status::seconds")]
    pub due_in: Option<Duration>,
}

/// What a process that works on the store said about itself: [`IntegrationClientBuilder::publish_status`](crate::IntegrationClientBuilder::publish_status).
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WorkerStatus {
    /// Its name in the store.
    pub worker: String,
    /// How long ago that was.
    #[serde(rename = "said_before_s", serialize_with = "crate::status::some_seconds")]
    pub age: Duration,
    /// A [`TenantStatus`](crate::status::TenantStatus) for each of the lanes that it works on, as JSON.
    pub lanes: Vec<Value>,
}

/// Lanes that a worker speaks of.
const LANES: usize = 200;

impl Outbox {
    /// What waits in the store, by tenant, vendor and priority; at most `most` of them.
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
        };
        Ok(found.into_iter().map(queue).collect())
    }

    /// What the processes that work on the store said last about themselves.
    ///
    /// # Errors
    /// The client has no store, or it cannot be read.
    pub async fn workers(self) -> Result<Vec<WorkerStatus>, Error> {
        let found = self.state()?.store.read((), batches::told).await?;
        let worker = |(owner, age_ms, status): (uuid::Uuid, i64, String)| WorkerStatus {
            worker: owner.simple().to_string(),
            age: Duration::from_millis(u64::try_from(age_ms).unwrap_or(0)),
            lanes: serde_json::from_str(&status).unwrap_or_default(),
        };
        Ok(found.into_iter().map(worker).collect())
    }

    /// What fails in the store, while that lasts: a full disk, a server that is gone or does not answer, a damaged page. By what
    /// the store is used for: to accept jobs, to claim them (also those of one tenant alone), to record exchanges and ends, to
    /// keep it in order, to read. Each is told until the same succeeds again, or was not tried for
    /// two and a half minutes. None without a store.
    pub fn problem(self) -> Option<String> {
        self.state.as_ref()?.store.problems.now()
    }
}

/// The statuses of the lanes of these, each once, as JSON.
pub(super) fn said(core: &Core, lanes: impl Iterator<Item = LaneTier>) -> String {
    let mut lanes: Vec<(String, String)> = lanes.map(|lane| (lane.tenant, lane.vendor)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let statuses = lanes.iter().filter_map(|(tenant, vendor)| crate::core::status_of(core, tenant, vendor).ok());
    let statuses: Vec<_> = statuses.filter(|status| !status.resting).take(LANES).collect();
    // All keys are strings, so it can always be written.
    serde_json::to_string(&statuses).unwrap_or_default()
}
