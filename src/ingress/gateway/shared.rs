//! The state that all requests of a gateway share: the client, the callers, the bounds, and the memory of requests
//! with unknown outcome.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::Uri;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

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
    /// How many [`Serving`](super::Serving)s there are: with the last one the console's event streams end.
    pub(super) servings: AtomicUsize,
    /// Bytes that request bodies may still take in memory.
    pub(super) body_memory: Arc<Semaphore>,
    /// The URL under which callers reach the gateway, if it is not that of their request's `Host`.
    pub(super) public_url: Option<Uri>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("servings", &self.servings).finish_non_exhaustive()
    }
}
