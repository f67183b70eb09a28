//! The state of a client's cleanups of stale tenants.

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::core::status::types::CleanupStatus;

/// Stops a client's cleanups, and counts their results.
pub(crate) struct Cleanups {
    /// Becomes `true` at the shutdown, and closes when the client is dropped.
    stopped: watch::Sender<bool>,
    status: Mutex<Option<CleanupStatus>>,
}

impl Cleanups {
    pub(crate) fn new() -> Cleanups {
        Cleanups { stopped: watch::Sender::new(false), status: Mutex::new(None) }
    }

    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// A receiver that becomes `true` at the shutdown, and closes when the client is dropped.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.subscribe()
    }

    /// The counts so far; `None` before the first cleanup.
    pub(crate) fn status(&self) -> Option<CleanupStatus> {
        self.status.lock().clone()
    }

    pub(crate) fn note(&self, came: &Result<usize, String>) {
        let mut status = self.status.lock();
        let status = status.get_or_insert_default();
        status.runs += 1;
        match came {
            Ok(retired) => {
                status.retired += *retired as u64;
                status.problem = None;
            }
            Err(problem) => {
                status.failures += 1;
                status.problem = Some(problem.clone());
            }
        }
    }
}
