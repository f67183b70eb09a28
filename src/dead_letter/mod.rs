//! Dead letters: what the client gave up on, and where it goes.
//!
//! A [`DeadLetter`] says whose request it was, why it was given up, and what came of every attempt. It goes to a
//! [`DeadLetterSink`]: to the log alone ([`TracingSink`], unless you say otherwise), to memory ([`MemorySink`], for tests), to
//! a file ([`JsonLinesSink`]), or to a place of yours. Whatever the sink, each is said in the log when it is made: an error event
//! "dead-lettered" with tenant, vendor, endpoint, attempts and reason.
//!
//! Between the client and the sink stands a queue, so that a slow sink holds up no request. It is bounded; under a
//! flood the letters of high priority are written first, and those of one priority in the order in which they came. A
//! sink that fails, hangs or panics is tried again. A letter that finds no place in the queue, or that the sink does not
//! take, is not lost without a trace: an error event "dead letter not written" holds it as JSON, in its
//! [redacted](DeadLetter::redacted) form.
//!
//! # What a killed process loses
//! The queue is in memory. A process that is killed or aborts loses, without an event, every letter that was not yet
//! written: those in the queue and the one in the sink's hands. A process that exits without waiting for the shutdown
//! of its client loses the same. What [`JsonLinesSink`] has written outlives the process; a loss of power can also take
//! what was written since the last [flush](DeadLetterSink::flush), which comes whenever the queue is empty, and after
//! 64 letters at the latest.
//!
//! A letter may be written twice: when the sink took it but answered too late or with an error, or when the process
//! ended between the two. Its [`id`](DeadLetter::id) tells.

mod json_lines;
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
pub use self::letter::{AttemptRecord, DeadLetter, Phase, Reason};
pub use self::letter_request::{Content, LetterRequest};
pub use self::log::TracingSink;
pub(crate) use self::log::told_to_the_log;
pub use self::memory::MemorySink;
pub use self::read::{BadLine, ReadError};

/// Where dead letters go.
///
/// One letter is given at a time, and the next only after the end of the one before. A letter that is not taken is
/// given again: five times in all, 100 ms apart and then twice as long each time. So a sink may see a letter twice, and
/// knows it by its [`id`](DeadLetter::id).
///
/// A call that takes longer than 30 s is dropped and counts as failed, and so does a panic. Neither helps against code
/// that blocks its thread: use `spawn_blocking` for it.
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
    /// Takes `letter`; with `Ok` it is the sink's.
    ///
    /// # Errors
    ///
    /// The letter is given again. The error's text goes into an event, so it must hold no secret.
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>>;

    /// Makes what was written last, whatever happens to the machine. By default there is nothing to do.
    ///
    /// Called when the queue is empty, and after 64 letters at the latest.
    ///
    /// # Errors
    ///
    /// An error event says so; the letters are not given again.
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
