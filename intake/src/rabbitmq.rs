//! RabbitMQ over AMQP 0-9-1.
//!
//! The source has one consumer and keeps each delivery until it is acknowledged. If the connection breaks, the broker
//! redelivers the messages that were not acknowledged. The deliveries of the old connection are then forgotten, because
//! the outbox recognises the redelivered messages. A message that must go to another queue (a refused one, or one for a
//! full lane) is first published to that queue with the broker's confirmation, and acknowledged only then: it may be in
//! both queues for a moment, but it is always in one of them ([`Side`]).

mod aside;
mod side;
mod unreadable;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join_all;
use futures_util::stream::Peekable;
use futures_util::{FutureExt, StreamExt};
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties, Consumer};
use parking_lot::Mutex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use self::aside::Aside;
use self::side::{Outgoing, Side};
use self::unreadable::{Unreadable, at_the_head, could_not_read};
use crate::address::Address;
use crate::error::Error;
use crate::spread::Spread;
use crate::unsettled::Unsettled;
use crate::waits::{self, PATIENCE, Waits};

/// Unacknowledged messages that the broker delivers to the consumer at most, unless the URL states another number.
const PREFETCH: u16 = 1024;
/// The most deliveries of a message, unless the URL states another number. RabbitMQ 4 deletes a message after 20.
const MAX_DELIVERIES: u64 = 15;

/// A queue of RabbitMQ as a source of requests.
///
/// The queue must exist. The source declares two more queues when it needs them: `NAME.refused` holds messages that are
/// not valid requests, with the reason in the header `x-refused-because`; `NAME.postponed` holds messages for a full lane
/// for a few seconds, after which the broker puts them back into the queue; with more than 4,096 of them the wait is longer,
/// at most sixteen times as long. `NAME.postponed` is a quorum queue, for which
/// RabbitMQ 3.10 or later is needed: a message stays in it until the source's queue has taken it back. The copies in
/// these queues have no property `user_id`, because the broker accepts it from the user of that name only, and no
/// headers `CC` and `BCC`, by which it would route them to further queues. A refused message never expires. While a
/// message cannot be put into its queue, the source keeps it unacknowledged and tries again; the log says why.
///
/// A redelivered message is recognised by its property `message_id`, which the producer sets. A message without it may
/// have an `idempotency_key` in its content instead. A message that has neither is refused, unless
/// [`equal_content_is_equal`](Self::equal_content_is_equal) is set.
///
/// A quorum queue counts how often it delivers a message. A message that comes again after more than 15 deliveries and a
/// last try without an end is refused; `max_deliveries` in the URL states another number, or 0 for no bound.
///
/// The broker delivers up to 1,024 messages before it waits for an acknowledgement, and the process holds them in
/// memory, whatever their size. `prefetch` in the URL states another number, from 1 to 65535. Use a smaller one where
/// messages are large: 64 messages of 256 KiB take 16 MiB.
///
/// A message that the client library cannot read, because a property or the name of a header is no UTF-8, ends the
/// connection. The source then takes one message at a time, and ends with an error when that message is at the head of
/// the queue.
///
/// The property `timestamp`, if it is set, tells how long a message has waited. If a message has the property
/// `reply_to`, the result of its request is sent as a reply to that queue, with the message's `correlation_id`
/// ([`RabbitMqReplies`](crate::RabbitMqReplies)).
pub struct RabbitMq {
    /// The broker's URL, including the password.
    url: String,
    queue: String,
    name: String,
    equal_content: bool,
    max_deliveries: Option<u64>,
    prefetch: u16,
    open: tokio::sync::Mutex<Option<Open>>,
    unsettled: Unsettled<Delivery>,
    /// The numbers of the messages of this connection that the broker still counts as delivered and not acknowledged.
    unacknowledged: Arc<Mutex<BTreeSet<u64>>>,
    /// The ways to the queues of refused and of postponed messages, and the tasks that try again on them.
    to_refused: Arc<Side>,
    to_postponed: Arc<Side>,
    retrying: [tokio::task::JoinHandle<()>; 2],
    /// The waits of postponed messages.
    spread: Mutex<Spread>,
    /// The waits before new connections after open ones failed.
    waits: Mutex<Waits>,
    unreadable: Mutex<Unreadable>,
}

/// An open connection and its consumer.
struct Open {
    connection: Connection,
    consumer: Peekable<Consumer>,
    /// Unacknowledged messages that the broker delivers to the consumer at most.
    prefetch: u16,
    since: Instant,
    /// Whether `fetch` must open another connection instead.
    is_over: bool,
}

impl RabbitMq {
    /// Connects to `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME&max_deliveries=NUMBER&prefetch=NUMBER`, or with TLS
    /// to `amqps://…`.
    ///
    /// # Errors
    /// The URL names no queue, one of its numbers cannot be read, the broker refuses the connection, or the queue does
    /// not exist.
    pub async fn connect(url: &str) -> Result<RabbitMq, Error> {
        let address = Address::read("RabbitMQ", url, &["queue", "max_deliveries", "prefetch"])?;
        // A queue's name has 255 bytes at most, and the names of the two other queues are longer than this one.
        let queue = address.get("queue");
        if queue.is_some_and(|queue| queue.len() > 240) {
            return Err(Error::new(
                "RabbitMQ: the queue's name may have 240 bytes at most, because NAME.refused is a queue too",
            ));
        }
        let no_queue = || Error::new("RabbitMQ: the URL must name a queue: amqp://HOST/VHOST?queue=NAME");
        let queue = queue.ok_or_else(no_queue)?.to_owned();
        let max_deliveries = address.max_deliveries(MAX_DELIVERIES)?;
        let prefetch = address.prefetch(PREFETCH)?;
        let port = if address.url.scheme() == "amqps" { 5671 } else { 5672 };
        let name = format!("rabbitmq:{}{}:{queue}", address.place(port), address.url.path());
        let url = String::from(address.url);
        let unacknowledged = Arc::default();
        let side = || Arc::new(Side::new(url.clone(), Arc::clone(&unacknowledged)));
        let (to_refused, to_postponed) = (side(), side());
        #[expect(clippy::disallowed_methods, reason = "what is left must be put aside while nothing is fetched, too")]
        let retrying = [&to_refused, &to_postponed].map(|side| tokio::spawn(side.clone().retry()));
        let source = RabbitMq {
            url,
            queue,
            name,
            equal_content: false,
            max_deliveries,
            prefetch,
            open: tokio::sync::Mutex::default(),
            unsettled: Unsettled::new(),
            unacknowledged,
            to_refused,
            to_postponed,
            retrying,
            spread: Mutex::new(Spread::new(waits::now())),
            waits: Mutex::default(),
            unreadable: Mutex::default(),
        };
        let open = source.open(prefetch).await.map_err(|error| Error::new(source.name.clone()).with_source(error))?;
        *source.open.lock().await = Some(open);
        Ok(source)
    }

    /// Sets the name under which the outbox remembers message ids. The default is host, port, virtual host and queue.
    /// Set a name if the broker is reached at different addresses: a message that is redelivered to a source with
    /// another name becomes a second request.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> RabbitMq {
        self.name = name.into();
        self
    }

    /// Recognises messages without `message_id` by a hash of their content, instead of refusing them. Do not set this
    /// if a producer sends equal requests on purpose: all but the first would be dropped.
    #[must_use]
    pub fn equal_content_is_equal(mut self) -> RabbitMq {
        self.equal_content = true;
        self
    }

    async fn open(&self, prefetch: u16) -> Result<Open, BoxError> {
        let opening = async {
            let properties = ConnectionProperties::default().with_connection_name("integration-client".into());
            let connection = Connection::connect(&self.url, properties).await?;
            let channel = connection.create_channel().await?;
            let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(self.queue.as_str().into(), look, FieldTable::default()).await?;
            channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
            let consume = BasicConsumeOptions::default();
            let consumer =
                channel.basic_consume(self.queue.as_str().into(), "".into(), consume, FieldTable::default()).await?;
            self.unsettled.forget_all();
            self.to_refused.forget_all();
            self.to_postponed.forget_all();
            self.unacknowledged.lock().clear();
            let consumer = consumer.peekable();
            Ok::<_, BoxError>(Open { connection, consumer, prefetch, since: waits::now(), is_over: false })
        };
        tokio::time::timeout(PATIENCE, opening).await.unwrap_or_else(|_| Err("no answer within 10 s".into()))
    }

    /// Connects to the broker, and retries until the connection succeeds.
    async fn opened(&self, prefetch: u16) -> Open {
        let mut waits = Waits::default();
        loop {
            match self.open(prefetch).await {
                Ok(open) => return open,
                Err(error) => {
                    let wait = waits.next();
                    tracing::warn!(source = self.name, %error, wait_ms = wait.as_millis() as u64, "the broker is away");
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    fn hand_over(&self, delivery: Delivery) -> Intake {
        let intake = self.intake(&delivery);
        let intake = self.unsettled.keep(intake, delivery);
        self.unacknowledged.lock().insert(intake.message().delivery);
        intake
    }

    fn intake(&self, delivery: &Delivery) -> Intake {
        let (properties, content) = (&delivery.properties, &delivery.data);
        let id = match properties.message_id() {
            Some(id) if !id.as_str().is_empty() => id.as_str().to_owned(),
            _ if self.equal_content || has_key(content) => hash(content),
            _ => return Intake::invalid(hash(content), NO_ID),
        };
        // A message that another program moved here may bring a count of its own in the header, until the queue counts.
        let deliveries = if delivery.redelivered { aside::deliveries(properties) } else { 0 };
        let intake = Intake::json(id, content.clone()).deliveries(deliveries);
        let correlation_id = properties.correlation_id().as_ref().map(|id| id.as_str().to_owned());
        let intake = match properties.reply_to() {
            Some(queue) if !queue.as_str().is_empty() => intake.reply_to(queue.as_str(), correlation_id),
            _ => intake,
        };
        let at = properties.timestamp().and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at)));
        at.into_iter().fold(intake, Intake::sent_at)
    }

    /// A message on its way into the queue of refused or of postponed messages.
    fn outgoing(&self, message: &MessageRef, aside: &Aside<'_>) -> Option<Outgoing> {
        let delivery = self.unsettled.take(message)?;
        let (queue, arguments) = aside.queue(&self.queue);
        let properties = aside.properties(&delivery.properties);
        Some(Outgoing { number: message.delivery, delivery, queue, arguments, properties })
    }
}

const NO_ID: &str = "the message has neither the property message_id nor an idempotency_key in its content, by which a \
                     redelivery would be recognised";

/// Whether the content holds an `idempotency_key`, so that its hash tells a redelivered message from another one.
fn has_key(content: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Key {
        idempotency_key: Option<String>,
    }
    serde_json::from_slice::<Key>(content).is_ok_and(|key| key.idempotency_key.is_some())
}

fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold("sha256:".to_owned(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl IntakeSource for RabbitMq {
    fn name(&self) -> &str {
        &self.name
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let mut slot = self.open.lock().await;
            loop {
                let prefetch = self.unreadable.lock().prefetch(self.prefetch);
                if slot.as_ref().is_some_and(|open| open.is_over || open.prefetch != prefetch) {
                    *slot = None;
                }
                let open = match &mut *slot {
                    Some(open) => open,
                    none => none.insert(self.opened(prefetch).await),
                };
                let (problem, is_unreadable) = match open.consumer.next().await {
                    Some(Ok(first)) => {
                        let mut messages = vec![self.hand_over(first)];
                        // An error behind the messages stays for the next fetch.
                        while messages.len() < most
                            && let Some(Some(Ok(next))) =
                                Pin::new(&mut open.consumer).next_if(Result::is_ok).now_or_never()
                        {
                            messages.push(self.hand_over(next));
                        }
                        self.unreadable.lock().have_come(messages.len());
                        return Ok(messages);
                    }
                    Some(Err(error)) => (error.to_string(), could_not_read(&error)),
                    None => ("the broker ended the delivery".to_owned(), false),
                };
                open.is_over = true;
                if is_unreadable && self.unreadable.lock().ended(self.prefetch) {
                    return Err(at_the_head(&self.queue, &problem));
                }
                let wait = self.waits.lock().after(open.since.elapsed());
                let wait_ms = wait.as_millis() as u64;
                let what = if is_unreadable {
                    "a message that cannot be read ended the connection; connecting to the broker again, for one message \
                     at a time"
                } else {
                    "connecting to the broker again"
                };
                tracing::warn!(source = self.name, problem, wait_ms, "{what}");
                // A broker may end the delivery and keep the connection, so this stays open during the wait: its messages
                // can still be acknowledged. Otherwise the same messages would come again and again.
                tokio::time::sleep(wait).await;
            }
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let taken = messages.iter().filter_map(|message| Some((message.delivery, self.unsettled.take(message)?)));
            let mut taken: Vec<(u64, Delivery)> = taken.collect();
            taken.sort_unstable_by_key(|(number, _)| *number);
            let oldest = {
                let mut unacknowledged = self.unacknowledged.lock();
                for (number, _) in &taken {
                    unacknowledged.remove(number);
                }
                unacknowledged.first().copied()
            };
            let before = taken.partition_point(|(number, _)| oldest.is_none_or(|oldest| *number < oldest));
            let (before, behind) = taken.split_at(before);
            // One acknowledgement is enough for all messages before the oldest one that must stay with the broker. An
            // acknowledgement fails only with its connection, and then the broker redelivers the messages.
            if let Some((_, last)) = before.last() {
                let _ = last.ack(BasicAckOptions { multiple: true }).await;
            }
            join_all(behind.iter().map(|(_, delivery)| delivery.ack(BasicAckOptions::default()))).await;
            Ok(())
        })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Refusal)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let refused = messages.iter().filter_map(|(message, why)| self.outgoing(message, &Aside::Refused(why)));
            let refused: VecDeque<Outgoing> = refused.collect();
            self.to_refused.send(refused).await;
            Ok(())
        })
    }

    fn can_postpone(&self) -> bool {
        true
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], after: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            if !after.is_zero() {
                let after = self.spread.lock().wait(messages.len(), after, waits::now());
                let later = messages.iter().filter_map(|message| self.outgoing(message, &Aside::Later(after)));
                let later: VecDeque<Outgoing> = later.collect();
                self.to_postponed.send(later).await;
                return Ok(());
            }
            for message in messages {
                if let Some(delivery) = self.unsettled.take(message) {
                    let back = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                    // A negative acknowledgement fails only with its connection, and then the broker redelivers the
                    // message.
                    let _ = delivery.nack(back).await;
                    self.unacknowledged.lock().remove(&message.delivery);
                }
            }
            Ok(())
        })
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(open) = self.open.lock().await.take() else { return };
            // The broker takes back what is not acknowledged when the connection is closed; the next fetch opens another
            // one. Acknowledgements that are under way are sent before that.
            let _ = tokio::time::timeout(PATIENCE, open.connection.close(200, "".into())).await;
        })
    }

    fn max_deliveries(&self) -> Option<u64> {
        self.max_deliveries
    }
}

impl Drop for RabbitMq {
    fn drop(&mut self) {
        self.retrying.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl std::fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMq").field("name", &self.name).finish_non_exhaustive()
    }
}
