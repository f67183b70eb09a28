//! Calls of code that is not ours: a dead-letter sink, a metrics recorder.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// The value of `code`, which is not ours, unless it panics.
///
/// What it may have left half done is its own: nothing of ours is changed by it.
pub(crate) fn catch_panic<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping it might panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Awaits a future of the program's own; `None` if it panics.
pub(crate) async fn catch_panic_in<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_panic(|| future.as_mut().poll(context)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
    .await
}
