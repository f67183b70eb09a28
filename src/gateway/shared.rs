//! The state of a gateway, which all its requests share: the client, the callers, the bounds, and the memory of ambiguous requests.

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

/// The text of the metrics page.
pub(super) type Metrics = Box<dyn Fn() -> String + Send + Sync>;

pub(super) struct Shared {
    pub(super) client: IntegrationClient,
    pub(super) asks_for_tokens: bool,
    /// Requests to vendors are passed on.
    pub(super) sends: bool,
    /// Of requests that state none: for the answer's head, and for each piece of its body.
    pub(super) deadline: Duration,
    pub(super) max_connections: usize,
    pub(super) metrics: Option<Metrics>,
    pub(super) callers: Callers,
    /// With what became of the first.
    pub(super) repeats: Mutex<Repeats<Arc<str>>>,
    pub(super) guesses: Mutex<Guesses>,
    /// What answers below `/~/console`.
    pub(super) console: Option<Arc<dyn Mounted>>,
    /// It takes no new requests soon.
    pub(super) draining: AtomicBool,
    /// What still waits is refused.
    pub(super) over: watch::Sender<bool>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("draining", &self.draining).finish_non_exhaustive()
    }
}
