//! Dead letters: what the client gave up on, and where it goes.
//!
//! A [`DeadLetter`] says whose request it was, why it was given up, and what came of every attempt. It goes to a
//! [`DeadLetterSink`]: to the log ([`TracingSink`], unless you say otherwise), to memory ([`MemorySink`], for tests), to
//! a file ([`JsonLinesSink`]), or to a place of yours.

mod json_lines;
mod letter;
mod letter_request;
mod lines_file;
mod log;
mod memory;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::transport::BoxFuture;

pub use self::json_lines::JsonLinesSink;
pub use self::letter::{AttemptRecord, DeadLetter, Phase, Reason};
pub use self::letter_request::{Content, LetterRequest};
pub use self::log::TracingSink;
pub use self::memory::MemorySink;
pub use self::read::{BadLine, ReadError};

/// What a sink fails with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Where dead letters go.
///
/// ```
/// use integration_client::dead_letter::{BoxError, DeadLetter, DeadLetterSink};
/// use integration_client::transport::BoxFuture;
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
