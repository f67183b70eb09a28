//! Letters as events.

use std::future::ready;

use super::{DeadLetter, DeadLetterSink};
use crate::BoxError;
use crate::BoxFuture;

/// Keeps nothing: the log has one error event for each letter, with tenant, vendor, endpoint, attempts and reason, whatever
/// the sink.
///
/// The default. Who wants to send requests again needs a sink that keeps the letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

impl DeadLetterSink for TracingSink {
    fn write<'a>(&'a self, _: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(ready(Ok(())))
    }
}

/// Each letter is said once, wherever it is kept: by whoever takes it.
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
