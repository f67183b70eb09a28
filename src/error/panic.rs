//! Calls code of the application, such as a dead-letter sink or a metrics recorder, and contains its panics.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs `code` of the application and returns its value; `None` if it panics.
///
/// A panic may leave the application's own state half changed. No state of this crate depends on it.
pub(crate) fn catch_panic<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping the payload might panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Awaits a future of the application; `None` if it panics.
pub(crate) async fn catch_panic_in<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_panic(|| future.as_mut().poll(context)) {
        Some(polled) => polled.map(Some),
        None => Poll::Ready(None),
    })
    .await
}
