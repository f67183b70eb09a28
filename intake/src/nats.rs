//! NATS JetStream: a durable pull consumer with explicit acknowledgements.
//!
//! The client library reconnects by itself, and the server redelivers messages that were not acknowledged within the
//! consumer's `ack_wait`. A task extends that time for as long as the source holds a message, so that the server's count
//! of deliveries is the count of processes that did not settle the message, and of times it was postponed. A refused
//! message is stored in a stream of refused messages before the server is told not to deliver it any more, so that it
//! cannot get lost.

mod aside;
mod batch;
mod begin;
mod breaks;
mod consumer;
mod headers;
mod settings;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind, Context};
use futures_util::FutureExt;
use futures_util::future::join_all;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use parking_lot::Mutex;

use self::aside::RefusedStream;
use self::batch::{Batch, Problem};
use self::breaks::{Breaks, ends_clients};
use self::consumer::{ACK_WAIT, time_of};
use self::settings::{batch, too_few};
use self::target::{Target, connect, find_stream, has_ended};
use crate::address::Address;
use crate::error::Error;
use crate::memory::Memory;
use crate::reason;
use crate::spread::{MAX_UNACKNOWLEDGED, Spread};
use crate::unsettled::Unsettled;
use crate::waits::{self, PATIENCE, Waits};

/// The most deliveries of a message, unless the URL states another number.
const MAX_DELIVERIES: u64 = 25;
/// The shortest time between two rounds of extensions, for a consumer with a very short `ack_wait`.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);
/// How often the stream and the consumer are looked at while requests succeed: each look takes two round trips.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A stream of NATS JetStream as a source of requests.
///
/// The stream must exist. The durable consumer is created by the first fetch if it does not exist, with explicit
/// acknowledgements and an `ack_wait` of five minutes, and begins at the first message. An existing consumer must have
/// explicit acknowledgements and no limit of deliveries (`max_deliver`). Processes with the same consumer share its
/// messages. A message that is not a valid request is stored for thirty days in the stream `NAME_REFUSED`, subject
/// `NAME_REFUSED`, with the reason in the header `X-Refused-Because`, and its own `Nats-Msg-Id` in the header
/// `X-Refused-Id`. Its other headers are kept, except those that begin with `Nats-`. If the server or that stream does
/// not take a message of its size, its content is cut, and the header `X-Refused-Cut` holds the number of bytes that it
/// had. A message that comes again after more than 25 deliveries and a last try without an end is stored there too;
/// `max_deliveries` in the URL states another number, or 0 for no bound.
///
/// A postponed message is delivered again after the wait that the outbox asks for; with more than 4,096 postponed messages
/// the wait is longer, at most sixteen times as long. A consumer that the source creates allows 65,536 of them. While
/// there are as many, the server delivers no other message.
///
/// A redelivered message is recognised by its header `Nats-Msg-Id` if the publisher sets it and it is not empty, and
/// otherwise by its sequence number in the stream. A stream that was deleted and created again counts from one again, so
/// `feed_from` ends with an error when it finds that; another start takes the new stream.
///
/// A message with headers that the client library cannot read breaks the connection, and is never acknowledged. The source
/// then asks for one message at a time for a while, once that has happened twice within `ack_wait`.
///
/// The consumer alone knows which messages were accepted. If it is deleted, `feed_from` ends with an error. The next
/// start creates another if the stream is a work queue, or holds no message that is older than
/// [`Store::keep_seen`](integration_client::store::Store::keep_seen): all that were accepted are recognised then.
/// Otherwise `feed_from` ends with an error, also if there was none before: see [`begin_at`](Self::begin_at).
///
/// When `feed_from` ends, the messages that are not in the store go back to the server. If its future is dropped before
/// it has ended, drop the source too: the messages that it still holds are not delivered to others for as long as it
/// exists.
pub struct Nats {
    /// The server's URL, including the password.
    address: Address,
    /// The client, which is replaced when it has ended.
    context: Mutex<Context>,
    stream: String,
    consumer: String,
    name: String,
    /// When the stream was created, in seconds since 1970.
    made: i64,
    /// The consumer's time after which the server delivers a message again.
    ack_wait: Duration,
    max_deliveries: Option<u64>,
    memory: Memory,
    asked: tokio::sync::Mutex<Asked>,
    unsettled: Arc<Unsettled<Delivery>>,
    spread: Mutex<Spread>,
    refused: RefusedStream,
    extending: tokio::task::JoinHandle<()>,
}

/// What the source asks the server for.
#[derive(Default)]
struct Asked {
    batch: Option<Batch>,
    /// The consumer of the last look, and the time of the look. `None` after a failure.
    seen: Option<(PullConsumer, Instant)>,
    /// When the consumer was created, in nanoseconds since 1970. `None` before it was found.
    created: Option<i128>,
    /// Whether a message has come, so that the outbox asks for as many as fit by their size.
    has_come: bool,
    breaks: Breaks,
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
        let Target { address, place, stream, consumer } = Target::read(url)?;
        let max_deliveries = address.max_deliveries(MAX_DELIVERIES)?;
        let connecting = async {
            let (context, found) = find_stream(&address, &stream).await?;
            // A stream that was deleted and created again repeats sequence numbers, so its creation time is part of the
            // source's name.
            let made = found.cached_info().created.unix_timestamp();
            let existing = consumer::find(&found, &stream, &consumer).await?;
            let limits = existing.map_or((ACK_WAIT, MAX_UNACKNOWLEDGED), |existing| {
                let config = &existing.cached_info().config;
                (config.ack_wait, config.max_ack_pending)
            });
            Ok::<_, BoxError>((context, made, limits))
        };
        let connected = tokio::time::timeout(2 * PATIENCE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err("no answer within 20 s".into()));
        let (context, made, (ack_wait, max_ack_pending)) =
            connected.map_err(|error| Error::new(place.clone()).with_source(error))?;
        let name = format!("{place}:{made}");
        if let Some(advice) = too_few(&stream, &consumer, max_ack_pending) {
            tracing::warn!(source = name, advice, "messages for full lanes can stop all others");
        }
        let (asked, unsettled) = (tokio::sync::Mutex::default(), Arc::new(Unsettled::new()));
        let spread = Mutex::new(Spread::new(waits::now()));
        #[expect(clippy::disallowed_methods, reason = "what is held must not be redelivered while nothing is fetched")]
        let extending = tokio::spawn(extend(unsettled.clone(), ack_wait / 3));
        let (context, memory, refused) = (Mutex::new(context), Memory::default(), RefusedStream::of(&stream));
        Ok(Nats {
            address,
            context,
            stream,
            consumer,
            name,
            made,
            ack_wait,
            max_deliveries,
            memory,
            asked,
            unsettled,
            spread,
            refused,
            extending,
        })
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
        let at = info.and_then(|info| time_of(info.published.unix_timestamp_nanos()));
        let delivery = Delivery { message, is_old: false };
        self.unsettled.keep(at.into_iter().fold(intake, Intake::sent_at), delivery)
    }

    fn context(&self) -> Context {
        self.context.lock().clone()
    }

    /// Makes a client in place of one that has ended. The messages of that one are acknowledged by the new one.
    async fn replace_client(&self) -> Result<Context, BoxError> {
        let context = connect(&self.address).await?;
        self.unsettled.for_each(|_, delivery| delivery.message.context = context.clone());
        *self.context.lock() = context.clone();
        Ok(context)
    }

    /// Asks the server for `most` messages at most, and for few before one has come.
    ///
    /// # Errors
    /// The inner error ends the hand-over: the stream or the consumer is another one than before, or a new consumer
    /// could deliver messages that were accepted and are not recognised. After the outer one the source asks again.
    async fn ask(&self, asked: &mut Asked, most: usize) -> Result<Result<(), BoxError>, BoxError> {
        let (mut context, now) = (self.context(), waits::now());
        let recent = asked.seen.take().filter(|(_, at)| now.saturating_duration_since(*at) <= LOOK_EVERY);
        let (consumer, at) = match recent {
            Some(recent) => recent,
            None => {
                if has_ended(&context) {
                    context = self.replace_client().await?;
                }
                let stream = context.get_stream(&self.stream).await?;
                if stream.cached_info().created.unix_timestamp() != self.made {
                    return Ok(Err(made_anew(&self.stream)));
                }
                match consumer::look(&stream, &self.consumer, &mut asked.created, &self.memory).await? {
                    Ok(consumer) => (consumer, now),
                    Err(why) => return Ok(Err(why)),
                }
            }
        };
        let config = &consumer.cached_info().config;
        let most = asked.breaks.batch(most.min(batch(config.max_batch, !asked.has_come)), now);
        asked.batch = Some(Batch::ask(&context, &consumer, most, config.max_expires).await?);
        asked.seen = Some((consumer, at));
        Ok(Ok(()))
    }

    /// Puts a refused message into its stream, or gives it back if that does not take it.
    async fn put_aside(&self, message: &MessageRef, why: &Refusal) {
        let Some(Delivery { message, .. }) = self.unsettled.take(message) else { return };
        if !self.refused.is_failing(waits::now()) {
            let Err(error) = self.refused.put(&self.context(), &self.name, &message, why).await else { return };
            self.refused.failed(waits::now());
            tracing::warn!(
                source = self.name,
                %error,
                "a refused message could not be put aside; it is delivered again, and so are those of the next 10 s"
            );
        }
        let after = self.spread.lock().wait(1, PATIENCE, waits::now());
        give_back(&[message], Some(after)).await;
    }

    /// Ends the request for messages, if there is one, and returns its messages that were not fetched. Call it before
    /// messages are given back: the server would deliver them to the same request again.
    async fn rest(&self) -> Vec<jetstream::Message> {
        let batch = self.asked.lock().await.batch.take();
        match batch {
            Some(batch) => batch.rest().await,
            None => Vec::new(),
        }
    }
}

/// Tells the server to deliver messages again. If that is lost, it does so after `ack_wait`.
async fn give_back(messages: &[jetstream::Message], after: Option<Duration>) {
    for message in messages {
        let _ = message.ack_with(AckKind::Nak(after)).await;
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

/// The error of a stream that is another one than at the start. Its messages would be taken for those of the old one.
fn made_anew(stream: &str) -> BoxError {
    let what = format!(
        "the stream {stream} was deleted and created again, so the sequence numbers by which its messages are \
         recognised begin again. Start the program again: the source then has another name; if the program sets the \
         name, change it"
    );
    what.into()
}

impl IntakeSource for Nats {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, keep_seen: Duration) {
        self.memory.set(keep_seen);
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let mut guard = self.asked.lock().await;
            let asked = &mut *guard;
            let mut waits = Waits::default();
            let mut since = waits::now();
            loop {
                let Some(batch) = &mut asked.batch else {
                    match self.ask(asked, most).await {
                        Ok(Ok(())) => since = waits::now(),
                        Ok(Err(why)) => return Err(why),
                        Err(error) => {
                            let wait = waits.next();
                            let wait_ms = wait.as_millis() as u64;
                            tracing::warn!(source = self.name, %error, wait_ms, "the broker is away, or refuses");
                            tokio::time::sleep(wait).await;
                        }
                    }
                    continue;
                };
                let problem = match batch.next().await {
                    Ok(Some(first)) => {
                        asked.has_come = true;
                        asked.breaks.has_come();
                        let mut fetched = vec![self.hand_over(first)];
                        while fetched.len() < most
                            && let Some(Ok(Some(next))) = batch.next().now_or_never()
                        {
                            fetched.push(self.hand_over(next));
                        }
                        return Ok(fetched);
                    }
                    Ok(None) => None,
                    Err(problem) => Some(problem),
                };
                asked.batch = None;
                let Some(problem) = problem else { continue };
                asked.seen = None;
                if !matches!(problem, Problem::Other(_)) && asked.breaks.broke(self.ack_wait, waits::now()) {
                    tracing::warn!(
                        source = self.name,
                        "about to ask for one message at a time for a while: the headers of a message may be what broke the connection, and \
                         what the server had sent behind it comes again after `ack_wait`. If this is repeated each time \
                         that `ack_wait` is over, find that message and delete it"
                    );
                }
                if matches!(problem, Problem::ClientEnded) && asked.breaks.client_ended() {
                    return Err(ends_clients(&self.stream, &self.consumer));
                }
                // The server may refuse each request at once, and requests without a wait would keep it and this
                // process busy.
                let wait = waits.after(since.elapsed());
                let wait_ms = wait.as_millis() as u64;
                tracing::warn!(source = self.name, %problem, wait_ms, "asking the broker for messages again");
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

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Refusal)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            for some in messages.chunks(reason::AT_ONCE) {
                join_all(some.iter().map(|(message, why)| self.put_aside(message, why))).await;
            }
            Ok(())
        })
    }

    fn can_postpone(&self) -> bool {
        true
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], after: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let back = messages.iter().filter_map(|message| Some(self.unsettled.take(message)?.message));
            let mut back: Vec<jetstream::Message> = back.collect();
            let after = (!after.is_zero()).then(|| self.spread.lock().wait(back.len(), after, waits::now()));
            if after.is_some() {
                give_back(&back, after).await;
                return Ok(());
            }
            back.extend(self.rest().await);
            // The hand-over ends, and the server may be away.
            let _ = tokio::time::timeout(PATIENCE, give_back(&back, None)).await;
            Ok(())
        })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let rest = self.rest().await;
            let held = self.unsettled.take_all().into_iter().map(|delivery| delivery.message);
            let back: Vec<jetstream::Message> = held.chain(rest).collect();
            let giving = async {
                give_back(&back, None).await;
                // The process may end now, and with it what is not sent.
                let _ = self.context().client().flush().await;
            };
            // The server may be away.
            let _ = tokio::time::timeout(PATIENCE, giving).await;
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
