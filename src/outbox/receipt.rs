//! Receipts: the values that `enqueue` returns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::OutboxState;
use crate::dead_letter::{Content, KeptHeaders, Reason};
use crate::error::Error;
use crate::store::records::{self, Cancel, JobState};
use crate::store::{Id, Opened, advise};

/// The receipt of an accepted request. Its id outlives the process: see [`receipt`](crate::outbox::Outbox::receipt).
#[derive(Clone)]
pub struct Receipt {
    id: Id,
    outbox: Arc<OutboxState>,
    before: bool,
}

/// The state of an accepted request.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Status {
    /// The request waits in the store.
    #[non_exhaustive]
    Waiting {
        /// The time until the request may be sent at the earliest; zero when it waits only for the limits or for
        /// `resume`.
        due_in: Duration,
    },
    /// A process has claimed the request.
    UnderWay,
    /// The vendor accepted the request.
    #[non_exhaustive]
    Delivered {
        /// The status of the vendor's answer.
        status: u16,
        /// The number of exchanges that the request took.
        attempts: u32,
        /// The response, if the request set [`keep_response`](crate::Request::keep_response) or the handler failed.
        /// `None` too if its body could not be read to the end, or is too large to be kept.
        response: Option<KeptResponse>,
    },
    /// The request was cancelled.
    Cancelled,
    /// The request was given up, and is a dead letter.
    #[non_exhaustive]
    Dead {
        /// The reason; `None` if the row holds a reason that this version does not know.
        reason: Option<Reason>,
    },
    /// The store has no record of the request: it was never accepted, or its record has been deleted by now.
    Unknown,
}

/// A response that is kept in the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptResponse {
    pub(super) content_type: Option<String>,
    /// Earlier versions wrote none.
    #[serde(default, skip_serializing_if = "KeptHeaders::is_empty")]
    pub(super) headers: KeptHeaders,
    pub(super) body: Content,
}

/// The most bytes of a response that is kept, in its stored form. A larger one might not be written within the time of
/// a transaction, whenever it is tried, and all other writes would fail with it. A response of the default
/// `max_response_bytes` fits.
const MAX_KEPT: usize = 16 << 20;

impl KeptResponse {
    /// The stored form of the response to the job `id`, without the headers if it would be larger than [`MAX_KEPT`] with
    /// them. `None`, with a warning, if it is larger without them too.
    pub(super) fn stored(id: &str, headers: KeptHeaders, body: &Bytes) -> Option<Vec<u8>> {
        // Earlier versions read the media type alone.
        let content_type = headers.get("content-type").map(str::to_owned);
        let stored = |headers: KeptHeaders| {
            // The stored form of a body is at least as long as the body.
            if body.len() > MAX_KEPT {
                return None;
            }
            let kept = KeptResponse { content_type: content_type.clone(), headers, body: Content::from(body.clone()) };
            serde_json::to_vec(&kept).ok().filter(|text| text.len() <= MAX_KEPT)
        };
        let has_headers = !headers.is_empty();
        let text = stored(headers).or_else(|| has_headers.then(|| stored(KeptHeaders::default())).flatten());
        if text.is_none() {
            let bytes = body.len();
            tracing::warn!(id, bytes, "the response to a job is not kept: the store keeps 16 MiB of one at most");
        }
        text
    }

    /// The media type of the response, if the vendor stated one.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The headers of the response. None if an earlier version of this crate kept it, or if the response is too large to be
    /// kept with them.
    pub fn headers(&self) -> &KeptHeaders {
        &self.headers
    }

    /// The body of the answer.
    pub fn body(&self) -> &Bytes {
        self.body.as_bytes()
    }
}

impl fmt::Debug for KeptResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptResponse").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Receipt {
    pub(super) fn new(id: Id, outbox: Arc<OutboxState>, before: bool) -> Receipt {
        Receipt { id, outbox, before }
    }

    /// The id of the request: 128 bits in lower-case hex.
    pub fn id(&self) -> String {
        self.id.simple().to_string()
    }

    /// Whether this request had already been accepted earlier, with the same key.
    pub fn was_accepted_before(&self) -> bool {
        self.before
    }

    /// Returns the request's current state.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store).
    pub async fn status(&self) -> Result<Status, Error> {
        Ok(status_of(&self.outbox.store, &self.id, self.outbox.store.read(self.id, records::find).await?))
    }

    /// The request's tenant and vendor; `None` if the store has no record of the request.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store).
    pub async fn lane(&self) -> Result<Option<(String, String)>, Error> {
        self.outbox.store.read(self.id, records::lane).await
    }

    /// Cancels the request, unless a process has claimed it or it has ended. Returns whether this call cancelled it;
    /// then the request is never sent, or not again. For a request that an earlier call has cancelled this is false.
    ///
    /// # Errors
    /// [`ErrorKind::Store`](crate::ErrorKind::Store). With [`Delivery::Ambiguous`](crate::Delivery::Ambiguous) the
    /// request may be cancelled: [`status`](Self::status) says whether it is.
    pub async fn cancel(&self) -> Result<bool, Error> {
        let cancelled = self.outbox.store.write(Cancel::new(self.id), records::cancel_in_call).await;
        cancelled.map_err(|error| advise(error, "the request's status says whether it is cancelled"))
    }
}

pub(super) fn status_of(store: &Opened, id: &Id, place: JobState) -> Status {
    match place {
        JobState::Waiting { due_in_ms } => {
            Status::Waiting { due_in: Duration::from_millis(u64::try_from(due_in_ms).unwrap_or(0)) }
        }
        JobState::UnderWay => Status::UnderWay,
        JobState::Done { outcome: 0, status, attempts, result } => Status::Delivered {
            status: u16::try_from(status).unwrap_or(0),
            attempts: u32::try_from(attempts).unwrap_or(0),
            // `None` if the response was sealed with a key that this client does not have.
            response: result.and_then(|result| serde_json::from_slice(&store.unseal(id, &result)?).ok()),
        },
        JobState::Done { .. } => Status::Cancelled,
        JobState::Dead { reason } => Status::Dead { reason: reason_of(&reason) },
        JobState::Nowhere => Status::Unknown,
    }
}

pub(super) fn reason_of(name: &str) -> Option<Reason> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("id", &self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
