//! Letters as events.

use std::future::ready;

use super::{BoxError, DeadLetter, DeadLetterSink};
use crate::transport::BoxFuture;

/// Tells the log of each letter: one error event with tenant, vendor, endpoint, attempts and reason.
///
/// The default. It keeps nothing: who wants to send requests again needs a sink that keeps the letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

impl DeadLetterSink for TracingSink {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        told_to_the_log(letter);
        Box::pin(ready(Ok(())))
    }
}

/// Each letter is said once, wherever it is kept.
pub(crate) fn told_to_the_log(letter: &DeadLetter) {
    tracing::error!(
        tenant = letter.tenant,
        vendor = letter.vendor,
        endpoint = letter.endpoint,
        attempts = letter.attempts.len(),
        reason = %letter.reason,
        "dead-lettered"
    );
}
