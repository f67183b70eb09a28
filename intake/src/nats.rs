//! NATS JetStream: a durable pull consumer with explicit acknowledgements.
//!
//! The client library reconnects by itself, and the server redelivers messages that were not acknowledged within the
//! consumer's `ack_wait`. A task extends that time for as long as the source holds a message, so that the server's count
//! of deliveries is the count of processes that did not settle the message, and of times it was postponed. A refused
//! message is stored in a stream of refused messages before the server is told not to deliver it any more, so that it
//! cannot get lost.

mod headers;
mod spread;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, Config as ConsumerConfig, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::{self, AckKind, Context, ErrorCode, stream};
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use parking_lot::Mutex;

use self::spread::{MAX_UNACKNOWLEDGED, Spread};
use crate::address::Address;
use crate::error::Error;
use crate::unsettled::Unsettled;
use crate::waits::{self, PATIENCE, Waits};

/// Messages that one pull request asks the server for at most.
const PREFETCH: usize = 1024;
/// The time after which the server redelivers the messages of a process that was killed.
const ACK_WAIT: Duration = Duration::from_secs(300);
/// The most deliveries of a message, unless the URL states another number.
const MAX_DELIVERIES: u64 = 25;
/// The shortest time between two rounds of extensions, for a consumer with a very short `ack_wait`.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
/// The time for which the stream of refused messages keeps a message.
const KEEP_REFUSED: Duration = Duration::from_secs(30 * 86_400);

/// A stream of NATS JetStream as a source of requests.
///
/// The stream must exist. The durable consumer is created if it does not exist, with explicit acknowledgements and an
/// `ack_wait` of five minutes. An existing consumer must have explicit acknowledgements and no limit of deliveries
/// (`max_deliver`). Processes with the same consumer share its messages. A message that is not a valid request is
/// stored for thirty days in the stream `NAME_REFUSED`, subject `NAME_REFUSED`, with the reason in the header
/// `X-Refused-Because`, and its own `Nats-Msg-Id` in the header `X-Refused-Id`. Its other headers are kept, except
/// those that begin with `Nats-`. If the server or that stream does not take a message of its size, its content is cut,
/// and the header `X-Refused-Cut` holds the number of bytes that it had. A message that comes again after more than 25
/// deliveries and a last try without an end is stored there too; `max_deliveries` in the URL states another number, or
/// 0 for no bound.
///
/// A postponed message is delivered again after the wait that the outbox asks for; with more than 4,096 postponed messages
/// the wait is longer, at most sixteen times as long. A consumer that the source creates allows 65,536 of them. While
/// there are as many, the server delivers no other message.
///
/// A redelivered message is recognised by its header `Nats-Msg-Id` if the publisher sets it and it is not empty, and
/// otherwise by its sequence number in the stream.
///
/// Drop the source when `feed_from` has ended: the messages that it still holds are not delivered to others for as long as
/// it exists.
pub struct Nats {
    context: Context,
    stream: String,
    consumer: String,
    name: String,
    max_deliveries: Option<u64>,
    messages: tokio::sync::Mutex<Option<pull::Stream>>,
    unsettled: Arc<Unsettled<Delivery>>,
    spread: Mutex<Spread>,
    extending: tokio::task::JoinHandle<()>,
}

/// A message that was handed over and is not settled.
struct Delivery {
    message: jetstream::Message,
    /// Whether a round of extensions has found the delivery before, so that the next one extends its time.
    is_old: bool,
}

impl Nats {
    /// Connects to `nats://USER:PASSWORD@HOST:PORT?stream=NAME&consumer=NAME&max_deliveries=NUMBER`, or with TLS to
    /// `tls://…`. The consumer is `integration-client` unless the URL names one.
    ///
    /// # Errors
    /// The URL names no stream, the server refuses the connection, the stream does not exist, it stores the subject
    /// `NAME_REFUSED` itself, or the consumer exists and would lose messages: its acknowledgements are not explicit, or
    /// its deliveries are limited.
    pub async fn connect(url: &str) -> Result<Nats, Error> {
        let address = Address::read("NATS", url, &["stream", "consumer", "max_deliveries"])?;
        let no_stream = || Error::new("NATS: the URL must name a stream: nats://HOST?stream=NAME");
        let stream = address.get("stream").ok_or_else(no_stream)?.to_owned();
        let consumer = address.get("consumer").unwrap_or("integration-client").to_owned();
        let max_deliveries = address.max_deliveries(MAX_DELIVERIES)?;
        let place = format!("nats:{}:{stream}", address.place(4222));
        let connecting = async {
            let options = ConnectOptions::new().name("integration-client").connection_timeout(PATIENCE);
            let client = options.connect(address.url.as_str()).await?;
            let context = jetstream::new(client);
            let found = context.get_stream(&stream).await?;
            check_subjects(&stream, &found.cached_info().config.subjects)?;
            // A stream that was deleted and created again repeats sequence numbers, so its creation time is part of the
            // source's name.
            let made = found.cached_info().created.unix_timestamp();
            let (messages, config) = messages_of(&context, &stream, &consumer).await?;
            Ok::<_, BoxError>((context, made, messages, config))
        };
        let connected = tokio::time::timeout(2 * PATIENCE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err("no answer within 20 s".into()));
        let (context, made, messages, config) =
            connected.map_err(|error| Error::new(place.clone()).with_source(error))?;
        let name = format!("{place}:{made}");
        if let Some(advice) = too_few(&stream, &consumer, config.max_ack_pending) {
            tracing::warn!(source = name, advice, "messages for full lanes can stop all others");
        }
        let (messages, unsettled) = (tokio::sync::Mutex::new(Some(messages)), Arc::new(Unsettled::new()));
        let spread = Mutex::new(Spread::new(waits::now()));
        #[expect(clippy::disallowed_methods, reason = "what is held must not be redelivered while nothing is fetched")]
        let extending = tokio::spawn(extend(unsettled.clone(), config.ack_wait / 3));
        Ok(Nats { context, stream, consumer, name, max_deliveries, messages, unsettled, spread, extending })
    }

    /// Sets the name under which the outbox remembers message ids. The default is host, port, stream and the creation
    /// time of the stream. Set a name if the server is reached at different addresses: a message that is redelivered to
    /// a source with another name becomes a second request.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Nats {
        self.name = name.into();
        self
    }

    fn hand_over(&self, message: jetstream::Message) -> Intake {
        let content = message.payload.to_vec();
        let info = message.info().ok();
        let intake = match headers::id(message.headers.as_ref(), info.as_ref().map(|info| info.stream_sequence)) {
            Some(id) => Intake::json(id, content),
            None => Intake::invalid("", "the message has no sequence number"),
        };
        let count = info.as_ref().and_then(|info| u64::try_from(info.delivered).ok());
        let intake = intake.deliveries(count.unwrap_or_default());
        let published = info.and_then(|info| u64::try_from(info.published.unix_timestamp_nanos()).ok());
        let at = published.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(at)));
        let delivery = Delivery { message, is_old: false };
        self.unsettled.keep(at.into_iter().fold(intake, Intake::sent_at), delivery)
    }

    /// Stores a refused message in the stream of refused messages, then tells the server not to deliver it any more.
    async fn put_aside(&self, message: &jetstream::Message, why: &Refusal) -> Result<(), BoxError> {
        let name = refused_stream(&self.stream);
        let stream = stream::Config { name: name.clone(), max_age: KEEP_REFUSED, ..stream::Config::default() };
        let stream = stream::Config { subjects: vec![name.clone()], ..stream };
        let stream = self.context.get_or_create_stream(stream).await;
        let stream = stream.map_err(|error| not_created(&name, error))?;
        // Both the server and the stream may limit the size of a message. 0 or less is no limit of the stream.
        let most = usize::try_from(stream.cached_info().config.max_message_size).ok().filter(|most| *most > 0);
        let most = most.unwrap_or(usize::MAX).min(self.context.client().max_payload());
        let id = message.info().ok().map(|info| format!("{}:{}", self.name, info.stream_sequence));
        let (own, length) = (message.headers.as_ref(), message.payload.len());
        let (headers, kept) = headers::of_refused(own, &why.to_string(), id.as_deref(), length, most);
        if kept < length {
            tracing::warn!(source = self.name, length, kept, "a refused message is too large to be put aside whole");
        }
        self.context.publish_with_headers(name, headers, message.payload.slice(..kept)).await?.await?;
        message.ack_with(AckKind::Term).await
    }
}

/// The stream of refused messages, which is also its subject.
fn refused_stream(stream: &str) -> String {
    format!("{stream}_REFUSED")
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

/// Tells the server that the held messages are still worked on, so that it does not redeliver them. Runs until it is
/// aborted. Messages that are settled soon cost no request.
async fn extend(unsettled: Arc<Unsettled<Delivery>>, every: Duration) {
    loop {
        tokio::time::sleep(every.max(SHORTEST_ROUND)).await;
        let mut old = Vec::new();
        unsettled.for_each(|number, delivery| {
            if std::mem::replace(&mut delivery.is_old, true) {
                old.push((number, delivery.message.clone()));
            }
        });
        for (number, message) in old {
            // It may have been given back in the meantime, with a wait that this would replace.
            if !unsettled.holds(number) {
                continue;
            }
            // If this is lost, the server redelivers the message and the outbox recognises it.
            let _ = message.ack_with(AckKind::Progress).await;
        }
    }
}

/// The messages of the consumer, which is created if there is none, and its settings.
async fn messages_of(
    context: &Context,
    stream: &str,
    consumer: &str,
) -> Result<(pull::Stream, ConsumerConfig), BoxError> {
    let config = pull::Config {
        durable_name: Some(consumer.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: MAX_UNACKNOWLEDGED,
        ..pull::Config::default()
    };
    let found: PullConsumer = context.get_stream(stream).await?.get_or_create_consumer(consumer, config).await?;
    // A consumer that existed before may have other settings than those above.
    let config = &found.cached_info().config;
    check(stream, consumer, config)?;
    let batch = batch(config.max_batch);
    let messages = found.stream().max_messages_per_batch(batch).heartbeat(Duration::from_secs(5)).messages().await?;
    Ok((messages, config.clone()))
}

/// What to do if the consumer allows so few unacknowledged messages that a single full lane may use them up. A number
/// below one is no limit.
fn too_few(stream: &str, consumer: &str, max_ack_pending: i64) -> Option<String> {
    (1..MAX_UNACKNOWLEDGED).contains(&max_ack_pending).then(|| {
        format!(
            "with {max_ack_pending} of them postponed, the server delivers nothing else (max_ack_pending); to raise the \
             number: nats consumer edit {stream} {consumer} --max-pending={MAX_UNACKNOWLEDGED}"
        )
    })
}

/// Fails if the stream stores the subject of refused messages itself. The server allows no second stream to store it,
/// and a refused message that is published to it would come again.
fn check_subjects(stream: &str, subjects: &[String]) -> Result<(), Error> {
    let refused = refused_stream(stream);
    let Some(subject) = subjects.iter().find(|subject| [">", "*", refused.as_str()].contains(&subject.as_str())) else {
        return Ok(());
    };
    Err(Error::new(format!(
        "the stream {stream:?} stores {refused} too, by its subject {subject:?}, and messages that are no valid request \
         need {refused} in a stream of their own: limit this stream to other subjects (nats stream edit {stream} \
         --subjects=SUBJECT)"
    )))
}

/// Fails if the consumer's settings would lose messages.
fn check(stream: &str, consumer: &str, config: &ConsumerConfig) -> Result<(), Error> {
    // Without acknowledgements the server counts a delivered message as settled, and with the policy `all` an
    // acknowledgement settles earlier messages too, which may not be in the store.
    if config.ack_policy != AckPolicy::Explicit {
        return Err(Error::new(format!(
            "the acknowledgements of the consumer {consumer:?} are {:?}, and must be explicit: name another consumer \
             in the URL (consumer=NAME), or delete this one (nats consumer rm {stream} {consumer}), and the next start \
             makes it anew",
            config.ack_policy
        )));
    }
    // A postponed message is delivered again each few seconds. The server gives it up after `max_deliver` deliveries.
    if config.max_deliver > 0 {
        return Err(Error::new(format!(
            "the consumer {consumer:?} delivers a message {} times at most (max_deliver), after which the message is \
             lost: remove the limit (nats consumer edit {stream} {consumer} --max-deliver=-1)",
            config.max_deliver
        )));
    }
    Ok(())
}

/// Messages that one pull request asks for. The server refuses a request for more than the consumer's `max_batch`,
/// where 0 or less is no limit.
fn batch(max_batch: i64) -> usize {
    usize::try_from(max_batch).ok().filter(|limit| *limit > 0).map_or(PREFETCH, |limit| limit.min(PREFETCH))
}

impl IntakeSource for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let mut slot = self.messages.lock().await;
            let mut waits = Waits::default();
            let mut since = waits::now();
            loop {
                let Some(messages) = &mut *slot else {
                    match messages_of(&self.context, &self.stream, &self.consumer).await {
                        Ok((messages, _)) => {
                            *slot = Some(messages);
                            since = waits::now();
                        }
                        Err(error) => {
                            let wait = waits.next();
                            let wait_ms = wait.as_millis() as u64;
                            tracing::warn!(source = self.name, %error, wait_ms, "the broker is away, or refuses");
                            tokio::time::sleep(wait).await;
                        }
                    }
                    continue;
                };
                let problem = match messages.next().await {
                    Some(Ok(first)) => {
                        let mut fetched = vec![self.hand_over(first)];
                        while fetched.len() < most
                            && let Some(Some(Ok(next))) = messages.next().now_or_never()
                        {
                            fetched.push(self.hand_over(next));
                        }
                        return Ok(fetched);
                    }
                    Some(Err(error)) => error.to_string(),
                    None => "the server ended the delivery".to_owned(),
                };
                *slot = None;
                // The server may refuse each request at once, and requests without a wait would keep it and this
                // process busy.
                let wait = waits.after(since.elapsed());
                let wait_ms = wait.as_millis() as u64;
                tracing::warn!(source = self.name, problem, wait_ms, "asking the broker for messages again");
                tokio::time::sleep(wait).await;
            }
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let taken: Vec<_> = messages.iter().filter_map(|message| self.unsettled.take(message)).collect();
            // The source does not wait for the server to confirm: if an acknowledgement is lost, the server redelivers
            // the message and the outbox recognises it.
            join_all(taken.iter().map(|delivery| delivery.message.ack())).await;
            Ok(())
        })
    }

    fn refused<'a>(&'a self, message: &'a MessageRef, why: &'a Refusal) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            if let Some(Delivery { message, .. }) = self.unsettled.take(message)
                && let Err(error) = self.put_aside(&message, why).await
            {
                tracing::warn!(source = self.name, %error, "a refused message could not be put aside; it is delivered again");
                let _ = message.ack_with(AckKind::Nak(Some(PATIENCE))).await;
            }
            Ok(())
        })
    }

    fn can_postpone(&self) -> bool {
        true
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], after: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let back: Vec<_> = messages.iter().filter_map(|message| self.unsettled.take(message)).collect();
            let after = (!after.is_zero()).then(|| self.spread.lock().wait(back.len(), after, waits::now()));
            for delivery in back {
                // If the negative acknowledgement is lost, the server redelivers the message after `ack_wait`.
                let _ = delivery.message.ack_with(AckKind::Nak(after)).await;
            }
            Ok(())
        })
    }

    fn max_deliveries(&self) -> Option<u64> {
        self.max_deliveries
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.extending.abort();
    }
}

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nats").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_within_the_limit_of_the_consumer() {
        for (limit, expected) in [(0, PREFETCH), (-1, PREFETCH), (1, 1), (100, 100), (i64::MAX, PREFETCH)] {
            assert_eq!(batch(limit), expected, "{limit}");
        }
    }

    #[test]
    fn stream_of_refused_subject_is_an_error() {
        let checked = |subject: &str| check_subjects("S", &["A".to_owned(), subject.to_owned()]);
        for subject in [">", "*", "S_REFUSED"] {
            let error = checked(subject).unwrap_err().to_string();
            assert!(error.contains(subject) && error.contains("nats stream edit S --subjects"), "{error}");
        }
        for subject in ["S", "S.>", "S.*", "S_REFUSED.>", "s_refused"] {
            assert!(checked(subject).is_ok(), "{subject}");
        }
    }

    #[test]
    fn consumer_with_few_unacknowledged_messages_is_named() {
        let advice = too_few("S", "C", 1_000).unwrap();
        assert!(advice.contains("nats consumer edit S C --max-pending=65536"), "{advice}");
        for enough in [-1, 0, MAX_UNACKNOWLEDGED, i64::MAX] {
            assert_eq!(too_few("S", "C", enough), None);
        }
    }

    #[test]
    fn consumer_that_would_lose_messages_is_an_error() {
        let config = |ack_policy, max_deliver| ConsumerConfig { ack_policy, max_deliver, ..ConsumerConfig::default() };
        let checked = |config: &ConsumerConfig| check("S", "C", config).map_err(|error| error.to_string());
        for unlimited in [-1, 0] {
            assert_eq!(checked(&config(AckPolicy::Explicit, unlimited)), Ok(()));
        }
        let limited = checked(&config(AckPolicy::Explicit, 5)).unwrap_err();
        assert!(limited.contains("5 times") && limited.contains("edit S C --max-deliver=-1"), "{limited}");
        for policy in [AckPolicy::None, AckPolicy::All] {
            let other = checked(&config(policy, -1)).unwrap_err();
            assert!(other.contains("explicit") && other.contains("rm S C"), "{other}");
        }
    }
}
