//! Kafka: a consumer of a group, which commits offsets as messages are settled.
//!
//! Kafka has one committed offset per partition and no acknowledgement of single messages. So the source commits the
//! offset of the oldest message that is not settled ([`Positions`]), even if later messages are settled. After a crash
//! Kafka redelivers some settled messages, and the outbox recognises them by their offsets. The client library
//! reconnects by itself.

mod refused;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Message, OwnedMessage};
use rdkafka::producer::FutureProducer;
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::sync::Notify;

use self::refused::{Part, Refused, Step};
use crate::address::Address;
use crate::error::Error;
use crate::positions::Positions;
use crate::unsettled::Unsettled;
use crate::waits::{PATIENCE, Waits};

/// Bytes of the largest record that is published to the topic of refused messages, if the topic takes it: 64 MiB. The
/// client library's own limit of 1 MB is below the size of messages that a topic may hold. At 100 MiB a broker would
/// close the connection, which looks like a broker that is away.
const LARGEST_BYTES: &str = "67108864";
/// KiB of messages that the client library fetches ahead, for all partitions together.
const AHEAD_KIB: &str = "16384";

/// A topic of Kafka as a source of requests.
///
/// The topic must exist. Processes with the same group share its partitions. A message that is not a valid request is
/// published to the topic `NAME.refused`, with the reason in the header `refused-because`. That topic must exist too,
/// unless the brokers create topics automatically. If that topic does not take a message of its size, the message
/// is cut, and the header `refused-cut` holds the number of bytes that its content had.
///
/// A redelivered message is recognised by its partition and offset. A topic that was deleted and created again repeats
/// offsets, so its source needs another name ([`named`](Kafka::named)).
pub struct Kafka {
    topic: String,
    name: String,
    consumer: StreamConsumer<Context>,
    producer: FutureProducer<Context>,
    positions: Arc<Mutex<Positions>>,
    unsettled: Unsettled<OwnedMessage>,
    /// Refused messages that are not put aside yet, because the brokers were away.
    left: Mutex<VecDeque<Refused>>,
    /// Notified when a message is added to them.
    is_left: Notify,
}

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
        let address = Address::read("Kafka", url, &["topic", "group", "servers"])?;
        let no_topic = || Error::new("Kafka: the URL must name a topic: kafka://HOST?topic=NAME");
        let topic = address.get("topic").ok_or_else(no_topic)?.to_owned();
        let place = address.place(9092);
        let common = settings(&address, &place);
        let (mut consumers, mut producers) = (common.clone(), common);
        // This source retries by itself: the library's own retries would take up to five minutes to report a broker
        // that is away.
        producers.set("message.timeout.ms", PATIENCE.as_millis().to_string());
        // A shorter time than that, so that the error about a missing topic does not look like a broker that is away.
        producers.set("topic.metadata.propagation.max.ms", "3000").set("message.max.bytes", LARGEST_BYTES);
        consumers.set("group.id", address.get("group").unwrap_or("integration-client"));
        consumers.set("auto.offset.reset", "earliest").set("queued.max.messages.kbytes", AHEAD_KIB);
        for (name, value) in address.url.query_pairs() {
            if !is_of_consumers(&name) {
                producers.set(&*name, &*value);
            }
            consumers.set(&*name, &*value);
        }
        // The source stores an offset in the library when messages are settled. The library commits the stored offsets
        // once a second and when it is closed.
        consumers.set("enable.auto.offset.store", "false").set("enable.auto.commit", "true");
        consumers.set("auto.commit.interval.ms", "1000");
        let failed = |error: BoxError| Error::new(format!("kafka:{place}:{topic}")).with_source(error);
        let context = Context::default();
        let consumer: StreamConsumer<Context> =
            consumers.create_with_context(context.clone()).map_err(|error| failed(without_value(error)))?;
        let producer = producers.create_with_context(context.clone()).map_err(|error| failed(without_value(error)))?;
        let (consumer, cluster) = exists(consumer, topic.clone()).await.map_err(failed)?;
        consumer.subscribe(&[&topic]).map_err(|error| failed(error.into()))?;
        let name = format!("kafka:{}:{topic}", cluster.unwrap_or(place));
        let (positions, unsettled) = (context.positions, Unsettled::new());
        let (left, is_left) = (Mutex::default(), Notify::new());
        Ok(Kafka { topic, name, consumer, producer, positions, unsettled, left, is_left })
    }

    /// Sets the name under which the outbox remembers message ids. The default is the cluster's id (its address if it
    /// has no id) and the topic.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Kafka {
        self.name = name.into();
        self
    }

    fn hand_over(&self, message: OwnedMessage) -> Intake {
        let (partition, offset) = (message.partition(), message.offset());
        self.positions.lock().fetched(partition, offset);
        let intake = Intake::json(format!("{partition}:{offset}"), message.payload().unwrap_or_default());
        let at = message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok());
        let at = at.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at)));
        self.unsettled.keep(at.into_iter().fold(intake, Intake::sent_at), message)
    }

    /// Marks messages as settled, and stores the offsets up to which all messages of a partition are settled.
    fn settle(&self, messages: impl Iterator<Item = OwnedMessage>) {
        let mut moved = HashMap::new();
        let mut positions = self.positions.lock();
        for message in messages {
            if let Some(position) = positions.settled(message.partition(), message.offset()) {
                moved.insert((self.topic.clone(), message.partition()), Offset::Offset(position));
            }
        }
        drop(positions);
        let Ok(moved) = TopicPartitionList::from_topic_map(&moved) else { return };
        // This fails for a partition that was reassigned to another consumer, which continues from the committed
        // offset.
        if moved.count() > 0
            && let Err(error) = self.consumer.store_offsets(&moved)
        {
            tracing::debug!(source = self.name, %error, "a position could not be stored");
        }
    }

    /// Publishes a refused message to the topic of refused messages, and settles it. Gives the message back if the
    /// brokers are away.
    ///
    /// # Errors
    /// The topic does not take the message. An unsettled message holds the partition's offset back. That must not go
    /// unnoticed while later messages are accepted, so the error ends the hand-over.
    async fn put_aside(&self, refused: Refused) -> Result<Option<Refused>, BoxError> {
        let topic = format!("{}.refused", self.topic);
        let (partition, offset) = (refused.message.partition(), refused.message.offset());
        let (mut part, mut tries, mut waits) = (Part::Whole, 1, Waits::default());
        loop {
            let sent = self.producer.send(refused.record(&topic, part), Timeout::After(PATIENCE)).await;
            let Err((error, _)) = sent else {
                self.settle(std::iter::once(refused.message));
                return Ok(None);
            };
            match refused.step(&error, part, tries) {
                Step::Cut(smaller) => {
                    let length = refused.length();
                    tracing::warn!(
                        source = self.name, partition, offset, length, part = ?smaller,
                        "a refused message is too large for the topic of refused messages; a part of it is put aside"
                    );
                    part = smaller;
                }
                Step::Again => {
                    tries += 1;
                    tokio::time::sleep(waits.next()).await;
                }
                Step::Later => {
                    tracing::warn!(source = self.name, %error, "a refused message waits for the broker");
                    return Ok(Some(refused));
                }
                Step::Fail => {
                    let why = &refused.why;
                    let what = format!(
                        "the message at {partition}:{offset} was refused ({why}), and could not be put aside into the \
                         topic {topic}: {error}. Make the topic, or correct its settings; the message is delivered \
                         again after the next start"
                    );
                    return Err(what.into());
                }
            }
        }
    }

    /// Puts the refused messages aside that were left because the brokers were away. Waits until none is left.
    async fn put_left_aside(&self) -> Result<(), BoxError> {
        let mut waits = Waits::default();
        loop {
            // If this future is dropped, the message is forgotten here. It is not settled, so Kafka delivers it again
            // after the next start.
            let next = self.left.lock().pop_front();
            let Some(refused) = next else { return Ok(()) };
            match self.put_aside(refused).await? {
                None => waits = Waits::default(),
                Some(refused) => {
                    self.left.lock().push_front(refused);
                    tokio::time::sleep(waits.next()).await;
                }
            }
        }
    }
}

/// The settings that consumers and producers share: brokers, client id, user and password.
pub(crate) fn settings(address: &Address, place: &str) -> ClientConfig {
    let mut common = ClientConfig::new();
    let servers = address.get("servers").into_iter().fold(place.to_owned(), |all, more| format!("{all},{more}"));
    common.set("bootstrap.servers", servers).set("client.id", "integration-client");
    let text = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    if !address.url.username().is_empty() {
        common.set("sasl.username", text(address.url.username()));
        common.set("sasl.password", text(address.url.password().unwrap_or_default()));
    }
    common
}

/// Converts an error. An error about a setting loses the setting's value, which may be a password.
pub(crate) fn without_value(error: KafkaError) -> BoxError {
    match error {
        KafkaError::ClientConfig(_, why, setting, _) => format!("{why} (setting {setting})").into(),
        error => error.into(),
    }
}

/// Whether a setting applies to consumers only; a producer would reject it.
fn is_of_consumers(name: &str) -> bool {
    [
        "session.",
        "heartbeat.",
        "group.",
        "partition.assignment",
        "max.poll",
        "fetch.",
        "queued.",
        "auto.offset",
        "isolation.",
    ]
    .iter()
    .any(|of_consumers| name.starts_with(of_consumers))
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

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            let mut waits = Waits::default();
            loop {
                self.put_left_aside().await?;
                let received = tokio::select! {
                    received = self.consumer.recv() => received,
                    () = self.is_left.notified() => continue,
                };
                match received {
                    Ok(first) => {
                        let mut fetched = vec![self.hand_over(first.detach())];
                        while fetched.len() < most
                            && let Some(Ok(next)) = self.consumer.recv().now_or_never()
                        {
                            fetched.push(self.hand_over(next.detach()));
                        }
                        return Ok(fetched);
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
        self.settle(messages.iter().filter_map(|message| self.unsettled.take(message)));
        Box::pin(std::future::ready(Ok(())))
    }

    fn refused<'a>(&'a self, message: &'a MessageRef, why: &'a Refusal) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let Some(message) = self.unsettled.take(message) else { return Ok(()) };
            let refused = Refused::new(message, &why.to_string());
            // While brokers are away, each attempt takes seconds. So `fetch` makes the further attempts: at a shutdown
            // it is dropped, whereas this call is awaited.
            let is_first = self.left.lock().is_empty();
            let left = if is_first { self.put_aside(refused).await? } else { Some(refused) };
            if let Some(refused) = left {
                self.left.lock().push_back(refused);
                self.is_left.notify_one();
            }
            Ok(())
        })
    }
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kafka").field("name", &self.name).finish_non_exhaustive()
    }
}
