//! Dead letters: the requests that the client gave up on, and where they are kept.
//!
//! A [`DeadLetter`] names the tenant of the request, the reason why it was given up, and the result of every attempt.
//! It goes to a [`DeadLetterSink`]: to a file ([`JsonLinesSink`]), to memory ([`MemorySink`], for tests), or to a sink of
//! your own. Without one it goes to the client's store or, if the client has none, to the log only ([`TracingSink`]).
//! Letters of accepted requests always go to the store, without the queue described below. Whatever the sink, the log
//! has an error event "dead-lettered" for each letter, with tenant, vendor, endpoint, attempts and reason.
//!
//! A bounded queue stands between the client and the sink, so that a slow sink delays no request. Under a flood the
//! letters of high priority are written first, and those of one priority in the order in which they came. A call of a
//! sink that fails, hangs or panics is retried. A letter that finds the queue full, or that the sink does not accept,
//! still leaves a trace: an error event "dead letter not written" holds it as JSON, in its
//! [redacted](DeadLetter::redacted) form.
//!
//! # What a killed process loses
//! The queue of letters of plain sends is in memory. A process that is killed or aborts loses, without an event, every letter that was not yet
//! written: those in the queue and the one that is being written. So does a process that exits without waiting for the
//! shutdown of its client. What [`JsonLinesSink`] has written outlives the process; a power failure can also lose what
//! was written since the last [flush](DeadLetterSink::flush), which happens whenever the queue is empty, and at least
//! every 64 letters.
//!
//! A letter may be written twice: when the sink accepted it but answered too late or with an error, or when the process
//! ended in between. Its [`id`](DeadLetter::id) identifies the duplicate.

mod json_lines;
mod kept_headers;
mod letter;
mod letter_request;
mod lines_file;
mod log;
mod memory;
mod queue;
mod read;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::sync::Arc;

use crate::BoxError;
use crate::BoxFuture;

pub use self::json_lines::JsonLinesSink;
pub use self::kept_headers::KeptHeaders;
pub use self::letter::{AttemptRecord, DeadLetter, Phase, Reason};
pub use self::letter_request::{Content, LetterRequest};
pub use self::log::TracingSink;
pub(crate) use self::log::log_letter;
pub use self::memory::MemorySink;
pub use self::read::{BadLine, ReadError};

/// A destination of dead letters.
///
/// The client passes one letter at a time, and the next one only after the call for the one before has ended. A letter
/// that the sink does not accept is passed again: five times in all, after waits of 100 ms, doubled each time. So a
/// sink may see a letter twice, and recognises it by its [`id`](DeadLetter::id).
///
/// A call that takes longer than 30 s is dropped and counts as failed, and so does a panic. The time limit cannot
/// interrupt code that blocks its thread: use `spawn_blocking` for such code.
///
/// ```
/// use integration_client::BoxError;
/// use integration_client::dead_letter::{DeadLetter, DeadLetterSink};
/// use integration_client::BoxFuture;
///
/// struct Mail;
///
/// impl DeadLetterSink for Mail {
///     fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
///         Box::pin(async move {
///             let text = serde_json::to_string(&letter.redacted())?;
///             send("oncall@example.com", &text).await
///         })
///     }
/// }
/// # async fn send(_: &str, _: &str) -> Result<(), BoxError> { Ok(()) }
/// ```
pub trait DeadLetterSink: Send + Sync + 'static {
    /// Stores `letter`. After `Ok` the client forgets the letter.
    ///
    /// # Errors
    ///
    /// The letter is passed again. The error's text goes into an event, so it must hold no secret.
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Makes everything that was written durable, so that it survives a crash of the machine. The default does nothing.
    ///
    /// Called when the queue is empty, and at least every 64 letters.
    ///
    /// # Errors
    ///
    /// The error is logged; the letters are not passed again.
    fn flush(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl<T: DeadLetterSink + ?Sized> DeadLetterSink for Arc<T> {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        (**self).write(letter)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), BoxError>> {
        (**self).flush()
    }
}
