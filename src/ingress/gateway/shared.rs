//! The state that all requests of a gateway share: the client, the callers, the bounds, and the memory of requests
//! with unknown outcome.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::callers::Callers;
use super::guesses::Guesses;
use super::mounted::Mounted;
use super::repeats::Repeats;
use crate::IntegrationClient;

/// Renders the text of the metrics page.
pub(super) type Metrics = Box<dyn Fn() -> String + Send + Sync>;

pub(super) struct Shared {
    pub(super) client: IntegrationClient,
    pub(super) asks_for_tokens: bool,
    /// Whether requests to vendors are forwarded.
    pub(super) sends: bool,
    /// The deadline of requests that state none: for the response's head, and for each piece of its body.
    pub(super) deadline: Duration,
    pub(super) max_connections: usize,
    pub(super) metrics: Option<Metrics>,
    pub(super) callers: Callers,
    /// The requests with unknown outcome, each with a description of its outcome.
    pub(super) repeats: Mutex<Repeats<Arc<str>>>,
    pub(super) guesses: Mutex<Guesses>,
    /// The service mounted below `/~/console`.
    pub(super) console: Option<Arc<dyn Mounted>>,
    /// Whether the gateway reports that it is not ready, because it is about to shut down.
    pub(super) draining: AtomicBool,
    /// Set when the grace period of a shutdown ends: requests that still wait are refused.
    pub(super) over: watch::Sender<bool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("draining", &self.draining).finish_non_exhaustive()
    }
}
