//! Ends a job in time although its handler is slow.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout;

use super::OutboxState;
use crate::store::Id;
use crate::store::jobs::{End, JobEnd};

/// Time after which the outcome of a job is written, even if its call has not returned.
const PROMPT: Duration = Duration::from_secs(1);

/// Ends a job with a known outcome when `call` is over, or after [`PROMPT`] if that is earlier. `end` makes the outcome
/// from whether the handler has succeeded by then. Returns `None` where the outcome was handed to the worker before the
/// call ended.
///
/// The job takes its part of the pool until the call ends, so that a slow handler slows down the claims.
pub(super) async fn end_after(
    outbox: &OutboxState,
    (id, fence, known): (Id, i64, Option<i64>),
    call: impl Future<Output = bool>,
    end: impl FnOnce(bool) -> End,
) -> Option<JobEnd> {
    let mut call = std::pin::pin!(call);
    if let Ok(taken) = timeout(PROMPT, &mut call).await {
        return Some(JobEnd { id, fence, known, end: end(taken) });
    }
    outbox.end_early(JobEnd { id, fence, known, end: end(false) });
    call.await;
    None
}
