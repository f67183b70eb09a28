//! The log event of each letter, and the sink that keeps nothing else.

use std::future::ready;

use super::{DeadLetter, DeadLetterSink};
use crate::BoxError;
use crate::BoxFuture;

/// Keeps no letters. The default sink: the log has one error event for each letter, with tenant, vendor, endpoint,
/// attempts and reason, which it has with any other sink too.
///
/// To send requests again later, choose a sink that keeps the letters.
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingSink;

impl DeadLetterSink for TracingSink {
    fn write<'a>(&'a self, _: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(ready(Ok(())))
    }
}

/// Logs a letter. Called once for each letter: for a plain send when the letter is queued, for a job before the store
/// writes the letter. That write fails if another process has the job by then.
pub(crate) fn log_letter(letter: &DeadLetter) {
    tracing::error!(
        tenant = letter.tenant,
        vendor = letter.vendor,
        endpoint = letter.endpoint,
        attempts = letter.attempts.len(),
        reason = %letter.reason,
        "dead-lettered"
    );
}
