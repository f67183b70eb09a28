//! The durable consumer: how it is found and created, and what to do when it was lost.
//!
//! The consumer alone knows which messages were acknowledged. A new one begins at the first message of its stream.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoError, ConsumerInfoErrorKind};
use async_nats::jetstream::stream::{RetentionPolicy, Stream};
use integration_client::BoxError;

use super::settings::check;
use crate::memory::Memory;
use crate::spread::MAX_UNACKNOWLEDGED;
use crate::waits;

/// The time after which the server redelivers the messages of a process that was killed.
pub(super) const ACK_WAIT: Duration = Duration::from_secs(300);
/// Two times of creation that differ by less are those of one consumer.
const SAME_WITHIN: Duration = Duration::from_secs(1);

/// The consumer; `None` if the stream has none of this name.
pub(super) async fn find(found: &Stream, stream: &str, consumer: &str) -> Result<Option<PullConsumer>, BoxError> {
    let found: PullConsumer = match found.get_consumer(consumer).await {
        Ok(found) => found,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    check(stream, consumer, &found.cached_info().config)?;
    Ok(Some(found))
}

fn is_missing(error: &BoxError) -> bool {
    let error = error.downcast_ref::<ConsumerInfoError>();
    error.is_some_and(|error| error.kind() == ConsumerInfoErrorKind::NotFound)
}

/// Whether the consumer that was `found` is the one of `before`. Both are times of creation in nanoseconds since 1970.
/// A server states the time at which it made the consumer. After a restart it states the time at which it wrote the
/// consumer's file, which is some microseconds later.
fn is_same(before: i128, found: Option<i128>) -> bool {
    found.is_some_and(|found| found.abs_diff(before) < SAME_WITHIN.as_nanos())
}

/// Returns the consumer, which is created if there is none at the first look. `created` is when it was created, in
/// nanoseconds since 1970, and `None` before it was found.
///
/// # Errors
/// The inner error: the consumer is another one than before, or a new one could deliver messages that were accepted and
/// are not recognised.
pub(super) async fn look(
    stream: &Stream,
    consumer: &str,
    created: &mut Option<i128>,
    memory: &Memory,
) -> Result<Result<PullConsumer, BoxError>, BoxError> {
    let info = stream.cached_info();
    let name = info.config.name.as_str();
    let existing = find(stream, name, consumer).await?;
    let found = existing.as_ref().map(|existing| existing.cached_info().created.unix_timestamp_nanos());
    if created.is_some_and(|before| !is_same(before, found)) {
        return Ok(Err(deleted(name, consumer)));
    }
    *created = found;
    if let Some(existing) = existing {
        return Ok(Ok(existing));
    }
    // A work queue deletes a message when it is acknowledged, so none that it holds was accepted.
    let is_queue = info.config.retention == RetentionPolicy::WorkQueue;
    let oldest = time_of(info.state.first_timestamp.unix_timestamp_nanos());
    if info.state.messages > 0 && !is_queue && memory.may_forget(oldest, waits::wall()) {
        return Ok(Err(missing(name, consumer, memory)));
    }
    tracing::info!(stream = name, consumer, "there is no consumer; a new one begins at the first message");
    Ok(Ok(create(stream, name, consumer, DeliverPolicy::All).await?))
}

/// A time that the server states in nanoseconds since 1970. `None` if it is before that.
pub(super) fn time_of(nanos: i128) -> Option<SystemTime> {
    let nanos = u64::try_from(nanos).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
}

/// Creates the consumer, unless another process has just done so.
pub(super) async fn create(
    found: &Stream,
    stream: &str,
    consumer: &str,
    deliver_policy: DeliverPolicy,
) -> Result<PullConsumer, BoxError> {
    let config = pull::Config {
        durable_name: Some(consumer.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: MAX_UNACKNOWLEDGED,
        deliver_policy,
        ..pull::Config::default()
    };
    let created: PullConsumer = found.get_or_create_consumer(consumer, config).await?;
    // A consumer of another process may have other settings than those above.
    check(stream, consumer, &created.cached_info().config)?;
    Ok(created)
}

/// The error of a stream without the consumer, whose first messages may have been accepted and forgotten.
fn missing(stream: &str, consumer: &str, memory: &Memory) -> BoxError {
    let lack = format!("the stream {stream} has no consumer {consumer}");
    let by_hand = format!(
        "this begins at a certain message: nats consumer add {stream} {consumer} --pull --ack=explicit --wait=5m \
         --max-pending={MAX_UNACKNOWLEDGED} --defaults --deliver=NUMBER"
    );
    memory.no_position("this intake has never run", &lack, &by_hand)
}

/// The error of a consumer that was deleted while messages were taken from it.
fn deleted(stream: &str, consumer: &str) -> BoxError {
    let what = format!(
        "the consumer {consumer} of the stream {stream} was deleted, and perhaps created again. With it the record of \
         the messages that were accepted is lost. Start the program again: if there is no consumer then, it creates \
         one, or says what to do if that could send requests again"
    );
    what.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_is_the_same_after_restart_of_server() {
        let before = 1_700_000_000_000_000_000;
        let after = |span: Duration| is_same(before, Some(before + span.as_nanos() as i128));
        assert!(after(Duration::ZERO) && after(Duration::from_micros(80)));
        assert!(!after(Duration::from_secs(2)), "another consumer");
        assert!(!is_same(before, None), "deleted");
    }
}
