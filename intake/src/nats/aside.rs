//! The stream of refused messages.

use std::time::{Duration, Instant};

use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::{AckKind, Context, ErrorCode, Message, stream};
use integration_client::{BoxError, Error as Refusal};
use parking_lot::Mutex;

use super::headers;
use super::settings::refused_stream;
use crate::waits::PATIENCE;

/// The time for which the stream of refused messages keeps a message.
const KEEP: Duration = Duration::from_secs(30 * 86_400);

/// The way into the stream of refused messages, which is created when it is needed.
pub(super) struct RefusedStream {
    /// The name of the stream, and its subject.
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The most bytes of a message that the stream takes. `None` before the stream was found, and after a failure.
    most: Option<usize>,
    /// When the last attempt failed.
    failed_at: Option<Instant>,
}

impl State {
    /// Whether an attempt failed so recently that another one is likely in vain. Without the right to look at the stream
    /// the server gives no answer, so each attempt takes 10 s, for which no message is acknowledged.
    fn is_failing(&self, now: Instant) -> bool {
        self.failed_at.is_some_and(|at| now.saturating_duration_since(at) < PATIENCE)
    }
}

impl RefusedStream {
    pub(super) fn of(stream: &str) -> RefusedStream {
        RefusedStream { name: refused_stream(stream), state: Mutex::default() }
    }

    /// Whether a message is better given back than put aside now.
    pub(super) fn is_failing(&self, now: Instant) -> bool {
        self.state.lock().is_failing(now)
    }

    /// Notes that a message could not be put aside.
    pub(super) fn failed(&self, now: Instant) {
        *self.state.lock() = State { most: None, failed_at: Some(now) };
    }

    /// Stores a refused message of a source, then tells the server not to deliver it any more.
    pub(super) async fn put(
        &self,
        context: &Context,
        source: &str,
        message: &Message,
        why: &Refusal,
    ) -> Result<(), BoxError> {
        // Both the server and the stream may limit the size of a message.
        let most = self.most(context).await?.min(context.client().max_payload());
        let id = message.info().ok().map(|info| format!("{source}:{}", info.stream_sequence));
        let (own, length) = (message.headers.as_ref(), message.payload.len());
        let (headers, kept) = headers::of_refused(own, &why.to_string(), id.as_deref(), length, most);
        if kept < length {
            tracing::warn!(source, length, kept, "a refused message is too large to be put aside whole");
        }
        context.publish_with_headers(self.name.clone(), headers, message.payload.slice(..kept)).await?.await?;
        message.ack_with(AckKind::Term).await
    }

    /// The most bytes of a message that the stream takes. Creates the stream if there is none.
    async fn most(&self, context: &Context) -> Result<usize, BoxError> {
        let known = self.state.lock().most;
        if let Some(most) = known {
            return Ok(most);
        }
        let stream = stream::Config { name: self.name.clone(), max_age: KEEP, ..stream::Config::default() };
        let stream = stream::Config { subjects: vec![self.name.clone()], ..stream };
        let stream = context.get_or_create_stream(stream).await;
        let stream = stream.map_err(|error| not_created(&self.name, error))?;
        // 0 or less is no limit.
        let most = usize::try_from(stream.cached_info().config.max_message_size).ok().filter(|most| *most > 0);
        let most = most.unwrap_or(usize::MAX);
        self.state.lock().most = Some(most);
        Ok(most)
    }
}

/// What to do if the stream of refused messages could not be created because another stream stores its subject.
fn not_created(name: &str, error: CreateStreamError) -> BoxError {
    match error.kind() {
        CreateStreamErrorKind::JetStream(told) if told.error_code() == ErrorCode::STREAM_SUBJECT_OVERLAP => {
            let advice = "another stream stores its subject: limit that stream to other subjects";
            format!("the stream {name} could not be created, because {advice} ({error})").into()
        }
        _ => error.into(),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do")]
mod tests {
    use super::*;

    #[test]
    fn failed_attempt_spares_the_next_messages() {
        let (stream, now) = (RefusedStream::of("S"), Instant::now());
        stream.state.lock().most = Some(7);
        assert!(!stream.is_failing(now));
        stream.failed(now);
        assert!(stream.is_failing(now) && stream.is_failing(now + PATIENCE - Duration::from_millis(1)));
        assert!(!stream.is_failing(now + PATIENCE));
        assert_eq!(stream.state.lock().most, None, "the stream may have been deleted");
    }
}
