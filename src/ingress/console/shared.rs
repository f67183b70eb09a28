//! The state of a console, which all clones of its service share: the gateway's callers, sessions, and the latest
//! snapshot.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::access::Access;
use super::feed::Feed;
use super::history::History;
use super::recent::Recent;
use super::sessions::Sessions;
use super::snapshot::Snapshots;
use crate::IntegrationClient;
use crate::ingress::gateway::callers::Callers;
use crate::ingress::gateway::guesses::Guesses;

/// Decides what the user of a request may do, if the program decides that itself.
pub(super) type Decides = dyn Fn(&Parts) -> Option<Access> + Send + Sync;

/// The most streams of events that are open at the same time.
const STREAMS: usize = 64;

pub(super) struct Shared {
    pub(super) client: IntegrationClient,
    pub(super) read_only: bool,
    pub(super) decides: Option<Box<Decides>>,
    /// The callers of a console that no gateway serves.
    pub(super) callers: Callers,
    pub(super) sessions: Mutex<Sessions>,
    pub(super) guesses: Mutex<Guesses>,
    pub(super) snapshots: Snapshots,
    pub(super) history: Mutex<History>,
    pub(super) recent: Mutex<Recent>,
    pub(super) feed: Feed,
    pub(super) streams: Arc<Semaphore>,
    pub(super) closed: AtomicBool,
    pub(super) closing: Notify,
}

impl Shared {
    pub(super) fn new(client: IntegrationClient, read_only: bool, decides: Option<Box<Decides>>) -> Shared {
        Shared {
            client,
            read_only,
            decides,
            callers: Callers::default(),
            sessions: Mutex::default(),
            guesses: Mutex::default(),
            snapshots: Snapshots::default(),
            history: Mutex::default(),
            recent: Mutex::default(),
            feed: Feed::default(),
            streams: Arc::new(Semaphore::new(STREAMS)),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}
