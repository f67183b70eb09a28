//! Kafka: a consumer of a group, which commits offsets as messages are settled.
//!
//! Kafka has one committed offset per partition and no acknowledgement of single messages. So the source commits the
//! offset of the oldest message that is not settled ([`Positions`]), even if later messages are settled. After a crash
//! Kafka redelivers some settled messages, and the outbox recognises them by their offsets. The client library
//! reconnects by itself. Before the first message of a partition is handed over, the source asks for the group's
//! position, because the client library does not say whether it has begun there. If there is none, it sets the position
//! to that message, although nothing is settled yet. So a partition without a position was never begun, or has lost it.

mod aside;
mod begin;
mod held;
mod options;
mod place;
mod refused;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::join_all;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::sync::Notify;

use self::aside::{Aside, Attempt, Left, left_for_too_long};
use self::held::Held;
use self::options::{Target, consumers, is_of_consumers};
pub(crate) use self::options::{settings, without_value};
use self::place::Place;
use self::refused::Refused;
use crate::error::Error;
use crate::memory::Memory;
use crate::positions::Positions;
use crate::reason;
use crate::waits::{self, PATIENCE, Waits};

/// Bytes of the largest record that is published to the topic of refused messages, if the topic takes it: 64 MiB. The
/// client library's own limit of 1 MB is below the size of messages that a topic may hold. At 100 MiB a broker would
/// close the connection, which looks like a broker that is away.
const LARGEST_BYTES: &str = "67108864";

/// A topic of Kafka as a source of requests.
///
/// The topic must exist. Processes with the same group share its partitions. A message that is not a valid request is
/// published to the topic `NAME.refused`, with the reason in the header `refused-because`. That topic must exist too,
/// unless the brokers create topics automatically. If that topic does not take a message of its size, the message
/// is cut, and the header `refused-cut` holds the number of bytes that its content had. While the brokers do not take a
/// refused message, because a partition of that topic has no leader or too few replicas, the message waits, and others
/// are accepted. With 256 of them, or 64 MiB, the source receives no others. When one has waited for a quarter of
/// [`Store::keep_seen`](integration_client::store::Store::keep_seen), `feed_from` ends with an error: the message holds
/// the position of its partition back, and those that were accepted behind it must be recognised after the next start.
///
/// A redelivered message is recognised by its partition and offset. A topic that was deleted and created again repeats
/// offsets, so its source needs another name ([`named`](Kafka::named)). A message that Kafka delivers again while the
/// source holds it, because the group was rebalanced, is handed over once.
///
/// The source begins at the first message of a partition in which its group has no position, unless that message is
/// older than [`Store::keep_seen`](integration_client::store::Store::keep_seen): accepted messages would be sent again,
/// and `feed_from` ends with an error that says how to set the position. So it does if a partition goes on before its
/// position, because the brokers have lost messages.
pub struct Kafka {
    topic: String,
    group: String,
    name: String,
    memory: Memory,
    /// The settings of the consumer.
    settings: ClientConfig,
    /// The consumer of this hand-over. Each hand-over has one of its own, which begins at the committed position: one
    /// that went on would skip the messages that it has received and that were not settled.
    consumer: Mutex<Option<Arc<Reader>>>,
    held: Held,
    aside: Aside,
    /// Refused messages that are not put aside yet, because the brokers did not take them.
    left: Mutex<Left>,
    /// Notified when a message is added to them.
    is_left: Notify,
    /// The attempt to put the oldest of them aside. It is kept from one fetch to the next: an attempt that was dropped
    /// and begun again would publish the message once more.
    attempt: tokio::sync::Mutex<Option<Attempt>>,
}

type Reader = StreamConsumer<Context>;

/// The callbacks of the client library: logs its errors, and forgets the positions of revoked partitions.
#[derive(Clone, Default)]
pub(crate) struct Context {
    positions: Arc<Mutex<Positions>>,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::warn!(%error, reason, "the Kafka client");
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, _: &BaseConsumer<Context>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(lost) = rebalance {
            let mut positions = self.positions.lock();
            lost.elements().iter().for_each(|lost| positions.lost(lost.partition()));
        }
    }
}

impl Kafka {
    /// Connects to `kafka://USER:PASSWORD@HOST:PORT?topic=NAME&group=NAME`. The group is `integration-client` unless
    /// the URL names one. `servers=HOST:PORT,HOST:PORT` names further brokers. All other parameters are settings of
    /// librdkafka, such as `security.protocol=sasl_ssl&sasl.mechanism=SCRAM-SHA-512`; user and password are
    /// `sasl.username` and `sasl.password`.
    ///
    /// # Errors
    /// The URL names no topic or an unknown setting, no broker answers, or the topic does not exist.
    pub async fn connect(url: &str) -> Result<Kafka, Error> {
        let Target { address, place, topic, group } = Target::read(url)?;
        let mut producers = settings(&address, &place);
        // This source retries by itself: the library's own retries would take up to five minutes to report a broker
        // that is away.
        producers.set("message.timeout.ms", PATIENCE.as_millis().to_string());
        // A shorter time than that, so that the error about a missing topic does not look like a broker that is away.
        producers.set("topic.metadata.propagation.max.ms", "3000").set("message.max.bytes", LARGEST_BYTES);
        let others = address.url.query_pairs().filter(|(name, _)| !is_of_consumers(name));
        for (name, value) in others {
            producers.set(&*name, &*value);
        }
        let settings = consumers(&address, &place, &group);
        let failed = |error: BoxError| Error::new(format!("kafka:{place}:{topic}")).with_source(error);
        let consumer: Reader =
            settings.create_with_context(Context::default()).map_err(|error| failed(without_value(error)))?;
        let producer =
            producers.create_with_context(Context::default()).map_err(|error| failed(without_value(error)))?;
        let (consumer, cluster) = exists(consumer, topic.clone()).await.map_err(failed)?;
        consumer.subscribe(&[&topic]).map_err(|error| failed(error.into()))?;
        let name = format!("kafka:{}:{topic}", cluster.unwrap_or(place));
        let aside = Aside { producer, topic: format!("{topic}.refused") };
        let (memory, consumer) = (Memory::default(), Mutex::new(Some(Arc::new(consumer))));
        let (held, left, is_left) = (Held::new(), Mutex::default(), Notify::new());
        let attempt = tokio::sync::Mutex::default();
        Ok(Kafka { topic, group, name, memory, settings, consumer, held, aside, left, is_left, attempt })
    }

    /// Sets the name under which the outbox remembers message ids. The default is the cluster's id (its address if it
    /// has no id) and the topic.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Kafka {
        self.name = name.into();
        self
    }

    /// The consumer of this hand-over, which is created if there is none.
    fn reader(&self) -> Result<Arc<Reader>, BoxError> {
        let mut consumer = self.consumer.lock();
        if let Some(consumer) = &*consumer {
            return Ok(consumer.clone());
        }
        let created: Reader = self.settings.create_with_context(Context::default()).map_err(without_value)?;
        created.subscribe(&[&self.topic])?;
        Ok(consumer.insert(Arc::new(created)).clone())
    }

    /// Makes a message of the outbox of a received one. Returns `None` if the outbox has the message already.
    ///
    /// # Errors
    /// The messages of the partition do not go on where they ended.
    async fn hand_over(&self, reader: &Arc<Reader>, message: OwnedMessage) -> Result<Option<Intake>, BoxError> {
        let (partition, offset) = (message.partition(), message.offset());
        let at = message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok());
        let at = at.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at)));
        let positions = &reader.context().positions;
        let next = positions.lock().next(partition);
        let position = match next {
            Some(next) => Some(next),
            None => self.position(reader, partition).await,
        };
        let is_old = position.is_none() && self.memory.may_forget(at, waits::wall());
        let place = Place { topic: &self.topic, group: &self.group, partition, offset, position, is_old };
        // Another process may have taken the partition over, and settled the message. The outbox recognises it then.
        if let Some(problem) = place.problem(&self.memory)
            && !reader.assignment_lost()
        {
            return Err(problem);
        }
        if position.is_none() && !is_old {
            let first = HashMap::from([((self.topic.clone(), partition), Offset::Offset(offset))]);
            self.store(reader, &first);
        }
        // Only then the look at what is held: a held message that is settled in between moves the position. The other way
        // round it would stay open without a delivery that settles it.
        positions.lock().fetched(partition, offset);
        if self.held.has(&message) {
            return Ok(None);
        }
        let intake = Intake::json(format!("{partition}:{offset}"), message.payload().unwrap_or_default());
        Ok(Some(self.held.keep(at.into_iter().fold(intake, Intake::sent_at), message)))
    }

    /// The group's position in a partition. Waits while the brokers are away.
    async fn position(&self, reader: &Arc<Reader>, partition: i32) -> Option<i64> {
        let mut waits = Waits::default();
        loop {
            match self.committed(reader.clone(), partition).await {
                Ok(position) => return position,
                Err(error) => {
                    tracing::warn!(source = self.name, partition, %error, "the position is asked for again");
                    tokio::time::sleep(waits.next()).await;
                }
            }
        }
    }

    /// Asks for the group's position in a partition. The call blocks, so it runs on a blocking thread.
    async fn committed(&self, reader: Arc<Reader>, partition: i32) -> Result<Option<i64>, BoxError> {
        let topic = self.topic.clone();
        let asking = tokio::task::spawn_blocking(move || -> Result<Option<i64>, KafkaError> {
            let mut asked = TopicPartitionList::new();
            asked.add_partition(&topic, partition);
            let told = reader.committed_offsets(asked, Timeout::After(PATIENCE))?;
            let Some(told) = told.find_partition(&topic, partition) else { return Ok(None) };
            told.error()?;
            Ok(match told.offset() {
                Offset::Offset(position) => Some(position),
                _ => None,
            })
        });
        Ok(asking.await??)
    }

    /// Marks the messages at these partitions and offsets as settled, and stores the offsets up to which all messages
    /// of a partition are settled.
    fn settle(&self, places: impl Iterator<Item = (i32, i64)>) {
        let Some(reader) = self.consumer.lock().clone() else { return };
        let mut moved = HashMap::new();
        let mut positions = reader.context().positions.lock();
        for (partition, offset) in places {
            if let Some(position) = positions.settled(partition, offset) {
                moved.insert((self.topic.clone(), partition), Offset::Offset(position));
            }
        }
        drop(positions);
        self.store(&reader, &moved);
    }

    /// Stores positions in the client library, which commits them.
    fn store(&self, reader: &Reader, positions: &HashMap<(String, i32), Offset>) {
        let Ok(positions) = TopicPartitionList::from_topic_map(positions) else { return };
        // This fails for a partition that was reassigned to another consumer, which continues from the committed
        // offset.
        if positions.count() > 0
            && let Err(error) = reader.store_offsets(&positions)
        {
            tracing::debug!(source = self.name, %error, "a position could not be stored");
        }
    }

    /// Puts a refused message aside and settles it, or leaves it to `fetch` while brokers are away.
    ///
    /// # Errors
    /// The topic of refused messages does not take the message.
    async fn put_aside(&self, message: &MessageRef, why: &Refusal) -> Result<(), BoxError> {
        let Some(message) = self.held.take(message) else { return Ok(()) };
        let refused = Arc::new(Refused::new(message, &why.to_string()));
        // While brokers are away, each attempt takes seconds. So `fetch` makes the further attempts: at a shutdown it is
        // dropped, whereas this call is awaited.
        let is_first = self.left.lock().is_empty();
        if is_first && self.aside.put(&refused).await? {
            self.settle(std::iter::once(refused.place()));
            return Ok(());
        }
        self.left.lock().add(refused, waits::now());
        self.is_left.notify_one();
        Ok(())
    }

    /// Puts the oldest of the refused messages that were left aside, and settles it. Waits while none is left. If this
    /// future is dropped, the attempt that it awaits goes on in the next call.
    ///
    /// # Errors
    /// The topic of refused messages does not take the message, or the message was left for too long.
    async fn put_oldest_aside(&self, attempt: &mut Option<Attempt>) -> Result<(), BoxError> {
        loop {
            let oldest = self.left.lock().oldest();
            let Some((refused, since)) = oldest else {
                self.is_left.notified().await;
                continue;
            };
            let running = attempt.get_or_insert_with(|| self.aside.put_at_last(refused.clone()));
            // The outbox may have held the message for half of `keep_seen` before it refused it. What is left of the
            // time is for the next start.
            let longest = self.memory.keep_seen() / 4;
            let within = longest.saturating_sub(since.elapsed());
            let Ok(put) = tokio::time::timeout(within, running.as_mut()).await else {
                return Err(left_for_too_long(&self.aside.topic, &refused, longest));
            };
            *attempt = None;
            put?;
            self.left.lock().remove_oldest();
            self.settle(std::iter::once(refused.place()));
            return Ok(());
        }
    }
}

/// Fails unless the topic exists, and returns the consumer and the cluster's id. The calls block, so they run on a
/// blocking thread.
async fn exists(
    consumer: StreamConsumer<Context>,
    topic: String,
) -> Result<(StreamConsumer<Context>, Option<String>), BoxError> {
    let asked = tokio::task::spawn_blocking(move || {
        let found = consumer.fetch_metadata(Some(&topic), Timeout::After(PATIENCE))?;
        let known = found.topics().iter().find(|known| known.name() == topic);
        match known.map(|known| (known.error(), known.partitions().len())) {
            Some((None, 1..)) => {
                let cluster = consumer.client().fetch_cluster_id(Timeout::After(PATIENCE));
                Ok((consumer, cluster))
            }
            _ => Err(format!("there is no topic {topic:?}; make it first, or correct the URL").into()),
        }
    });
    asked.await?
}

impl IntakeSource for Kafka {
    fn name(&self) -> &str {
        &self.name
    }

    fn begin(&self, keep_seen: Duration) {
        self.memory.set(keep_seen);
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let mut waits = Waits::default();
            let reader = self.reader()?;
            let next = || Some(reader.recv().now_or_never()?.ok()?.detach());
            let mut attempt = self.attempt.lock().await;
            loop {
                let is_full = self.left.lock().is_full();
                if is_full {
                    tracing::warn!(source = self.name, "no messages are received before a refused one is put aside");
                }
                let received = tokio::select! {
                    // The attempt comes first, so that a steady flow of messages does not hide its error.
                    biased;
                    put = self.put_oldest_aside(&mut attempt) => {
                        put?;
                        continue;
                    }
                    received = reader.recv(), if !is_full => received.map(|message| message.detach()),
                };
                match received {
                    Ok(first) => {
                        let mut fetched: Vec<Intake> = self.hand_over(&reader, first).await?.into_iter().collect();
                        while fetched.len() < most
                            && let Some(next) = next()
                        {
                            fetched.extend(self.hand_over(&reader, next).await?);
                        }
                        // An empty answer would mean that the source has ended.
                        if !fetched.is_empty() {
                            return Ok(fetched);
                        }
                    }
                    Err(KafkaError::MessageConsumption(RDKafkaErrorCode::PartitionEOF)) => {}
                    Err(error) => {
                        tracing::warn!(source = self.name, %error, "the broker is away, or refuses");
                        tokio::time::sleep(waits.next()).await;
                    }
                }
            }
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        let taken = messages.iter().filter_map(|message| self.held.take(message));
        self.settle(taken.map(|message| (message.partition(), message.offset())));
        Box::pin(std::future::ready(Ok(())))
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Refusal)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            for some in messages.chunks(reason::AT_ONCE) {
                let told = join_all(some.iter().map(|(message, why)| self.put_aside(message, why))).await;
                told.into_iter().collect::<Result<(), BoxError>>()?;
            }
            Ok(())
        })
    }

    fn acknowledges_in_order(&self) -> bool {
        true
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.held.forget_all();
            *self.left.lock() = Left::default();
            *self.attempt.lock().await = None;
            // The library closes a consumer when it is dropped: it commits what is settled, and gives the partitions
            // back. The call blocks, and longer if the brokers are away.
            let reader = self.consumer.lock().take();
            let _ = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(move || drop(reader))).await;
        })
    }
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka").field("name", &self.name).finish_non_exhaustive()
    }
}
