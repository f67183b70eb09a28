//! [`IntegrationClient`]: sends requests, and shuts the client down in order.

mod build;
mod builder;
mod changes;
mod cleanup;
mod cleanup_schedule;
mod handles;
mod lane;
mod operate;
mod reload;
mod status;
mod watch;

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::Priority;
use crate::capacity::store_task::Sharing;
use crate::core::Core;
use crate::dead_letter::DeadLetter;
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::request::Request;
use crate::send::response::Response;
use crate::send::{Caller, Outgoing, send};

/// How long jobs and sends that a shutdown ends have to come to their end.
const LAST: Duration = Duration::from_secs(1);
/// How long their dead letters may take.
const LETTERS: Duration = Duration::from_secs(10);
pub use builder::IntegrationClientBuilder;
pub use cleanup_schedule::ActiveTenants;
pub use handles::{LiveConfig, Tenants};
pub use lane::{Lane, Permit};

/// Sends requests to vendors on behalf of tenants, never above what a vendor allows.
///
/// Cloning is cheap; clones share all state. The client needs a tokio runtime, and stops when the last clone, lane
/// handle and permit are dropped or at [`shutdown`](IntegrationClient::shutdown).
#[derive(Clone)]
pub struct IntegrationClient {
    core: Arc<Core>,
    /// `None` if the client has no store.
    outbox: Option<Arc<OutboxState>>,
    /// `None` if limits are not shared with other processes.
    sharing: Option<Arc<Sharing>>,
    /// The jobs in flight hold `core` too, so the worker uses this reference to notice that the program has dropped
    /// the client.
    held: Arc<()>,
}

impl IntegrationClient {
    pub(crate) fn new(
        core: Core,
        outbox: Option<Arc<OutboxState>>,
        sharing: Option<Arc<Sharing>>,
    ) -> IntegrationClient {
        IntegrationClient { core: Arc::new(core), outbox, sharing, held: Arc::default() }
    }

    /// A weak reference that is dead once the last clone, lane handle and permit are dropped.
    pub(crate) fn held(&self) -> Weak<()> {
        Arc::downgrade(&self.held)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Sends a request on behalf of a tenant, as soon as the vendor's limits and the other tenants' turns allow.
    ///
    /// A refusal (429) and a failure that is safe to repeat are retried by the vendor's `retry` policy, never earlier
    /// than the vendor allows. Every other response is `Ok`, whatever its status. Dropping the future cancels the
    /// request: before the exchange has started no units are spent; after that the request counts as sent.
    ///
    /// `request` is a [`Request`], or an [`http::Request`] (or `reqwest::Request`, feature `reqwest-api`) with a URL below the base URL of
    /// one of the tenant's vendors.
    ///
    /// # Errors
    /// [`Error::delivery`] says whether the vendor may have acted. Before the exchange: unknown tenant, vendor or
    /// endpoint, an invalid request, a credential that cannot be read, a full queue, a deadline that has passed or
    /// cannot be met, a cost above the limit. After: connect, timeout, protocol; a refusal whose wait lies beyond the
    /// deadline ([`RetryLater`](crate::ErrorKind::RetryLater)), retries that are used up
    /// ([`Exhausted`](crate::ErrorKind::Exhausted), the request is a dead letter then), and an answer after which nobody
    /// knows whether the vendor acted (a dead letter too, with [`OnAmbiguous::Park`](crate::config::OnAmbiguous::Park)).
    pub fn send(
        &self,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        send(&self.core, Outgoing::new(&self.core, Caller::Tenant(tenant), priority, request.into(), false))
    }

    /// Sends a request now, or not at all, and once: it is neither queued nor retried. A 401 is returned like any other
    /// response, and the next request reads the credential anew.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`ErrorKind::NotNow`](crate::ErrorKind::NotNow) when the limits have no room or
    /// others wait; [`Error::retry_after`] says when to try again, if that is known. Where processes share a limit and
    /// this one holds no units of it, the request is refused, and the store is asked for units. They stay for 10 s, or
    /// until the next call to the store if other processes lack units: try again in that time.
    pub fn try_send(
        &self,
        tenant: &str,
        priority: Priority,
        request: impl Into<Request>,
    ) -> impl Future<Output = Result<Response, Error>> + Send {
        send(&self.core, Outgoing::new(&self.core, Caller::Tenant(tenant), priority, request.into(), true))
    }

    /// Sends the request of a dead letter again: with a fresh set of attempts under the usual limits, and with the
    /// idempotency key of the first. If it fails again, it becomes a new letter. The vendor may have forgotten the key of
    /// an older letter ([`keeps`](crate::config::Idempotency::keeps)): if it may have acted, ask it first.
    ///
    /// # Errors
    /// As [`send`](Self::send); [`ErrorKind::InvalidRequest`](crate::ErrorKind::InvalidRequest) for a letter whose
    /// request was redacted (`dead_letters = "whole"` of the vendor keeps it, unless it brought a credential of its own).
    pub async fn redrive(&self, letter: &DeadLetter) -> Result<Response, Error> {
        let request = Request::from_letter(letter)?;
        self.send(&letter.tenant, letter.priority, request).await
    }

    /// Admits no new requests, lets those that were admitted go on for `grace`, with all their waits and attempts, and
    /// then ends those that still wait with [`ErrorKind::Shutdown`](crate::ErrorKind::Shutdown): one whose next attempt
    /// was due becomes a dead letter. Returns whether everything had ended by then. If not, it takes a second longer, and
    /// up to ten more until all dead letters are written; exchanges under way go on for as long as the runtime does.
    ///
    /// Jobs of the outbox that are refused then have one more second to go back into the store. The store accepts no
    /// requests from the beginning of the shutdown: [`enqueue`](crate::outbox::Outbox::enqueue) and its like fail with
    /// [`ErrorKind::Shutdown`](crate::ErrorKind::Shutdown). Jobs that were accepted and have not begun wait in the
    /// store for the next process.
    pub async fn shutdown(&self, grace: Duration) -> bool {
        let (dispatch, sends) = (&self.core.registry.dispatch, &self.core.sends);
        let ends = self.core.clock.now() + grace;
        self.core.cleanups.stop();
        sends.close();
        for shard in dispatch.shards() {
            shard.decide(|engine, _| engine.close());
        }
        // Jobs that have not begun go back into the store and need not be waited for.
        if let Some(outbox) = &self.outbox {
            outbox.stop(grace).await;
        }
        let drained = self.core.until(ends, || sends.is_empty() && !dispatch.is_busy()).await;
        sends.end();
        for shard in dispatch.shards() {
            shard.decide(|engine, now| engine.shut_down(now));
            shard.close();
        }
        // A send that only waited leaves its dead letter now. One whose exchange is under way goes on.
        if !drained {
            self.core.until(self.core.clock.now() + LAST, || sends.is_empty()).await;
        }
        // Gives the units of shared limits to the other processes.
        if let Some(sharing) = &self.sharing {
            sharing.leave().await;
        }
        // A new refresh token that is not stored yet would be lost.
        let left = ends.since(self.core.clock.now()).max(Duration::from_millis(100));
        self.core.egress.credentials.settle(left).await;
        // Jobs that were refused a moment ago go back into the store, and plain sends may have left a dead letter.
        if let Some(outbox) = &self.outbox {
            outbox.stop(LAST).await;
            let core = Arc::downgrade(&self.core);
            tokio::join!(outbox.write_usage(), outbox.write_pauses(&core, true));
        }
        let least = if drained { Duration::from_millis(100) } else { LETTERS };
        self.core.telemetry.dead_letters.close(ends.since(self.core.clock.now()).max(least)).await;
        drained
    }
}

impl std::fmt::Debug for IntegrationClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IntegrationClient")
            .field("config", &self.core.registry.config.load().version())
            .field("tenants", &self.core.registry.routes.len())
            .finish_non_exhaustive()
    }
}
