//! Calls of code that is not ours: a dead-letter sink, a metrics recorder.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The value of `code`, which is not ours, unless it panics.
///
/// What it may have left half done is its own: nothing of ours is changed by it.
pub(crate) fn contained<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping it might panic again.
            std::mem::forget(payload);
            None
        }
    }
}
