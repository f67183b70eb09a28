//! Kafka: a consumer of a group, whose position moves behind the messages that are settled.
//!
//! A partition has one position and no acknowledgement of single messages. So the position is that of the oldest message that
//! is not settled ([`Positions`]), whatever was settled behind it: after a crash some messages are delivered again, and are
//! recognised by their offsets. The client library connects again by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};
use parking_lot::Mutex;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::address::Address;
use crate::error::Error;
use crate::positions::Positions;
use crate::unsettled::Unsettled;
use crate::waits::{PATIENCE, Waits};

/// The header of a refused message that holds the reason.
const WHY: &str = "refused-because";
/// The longest reason that is put into a header.
const LONGEST_WHY: usize = 500;
/// How often a refused message is tried to be put aside.
const TRIES: u32 = 3;
/// Bytes that the client library fetches ahead, for all partitions together.
const AHEAD_KIB: &str = "16384";

/// A topic of Kafka as a source of requests.
///
/// The topic must exist. Processes with the same group share its partitions. Messages that are no valid request are stored in the
/// topic `NAME.refused`, with the reason in the header `refused-because`; it must exist too, unless the brokers make topics by
/// themselves.
///
/// A message is recognised by its partition and offset, so a topic that was deleted and made anew needs another name for the
/// source ([`named`](Kafka::named)).
pub struct Kafka {
    topic: String,
    name: String,
    consumer: StreamConsumer<Context>,
    producer: FutureProducer<Context>,
    positions: Arc<Mutex<Positions>>,
    unsettled: Unsettled<OwnedMessage>,
}

/// What the client library calls.
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
    /// Connects to `kafka://USER:PASSWORD@HOST:PORT?topic=NAME&group=NAME`. The group is `integration-client` unless it is
    /// named. `servers=HOST:PORT,HOST:PORT` names further brokers. All other parameters are settings of librdkafka, such as
    /// `security.protocol=sasl_ssl&sasl.mechanism=SCRAM-SHA-512`; user and password are `sasl.username` and `sasl.password`.
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
        // A broker that is away is tried again here, and not for five minutes by the library.
        producers.set("message.timeout.ms", PATIENCE.as_millis().to_string());
        consumers.set("group.id", address.get("group").unwrap_or("integration-client"));
        consumers.set("auto.offset.reset", "earliest").set("queued.max.messages.kbytes", AHEAD_KIB);
        for (name, value) in address.url.query_pairs() {
            if !is_of_consumers(&name) {
                producers.set(&*name, &*value);
            }
            consumers.set(&*name, &*value);
        }
        // Positions are stored when messages are settled, and committed once a second and at the end.
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
        Ok(Kafka { topic, name, consumer, producer, positions, unsettled })
    }

    /// The name under which message ids are known; by default the cluster's id (its address where it has none) and the topic.
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

    /// Moves the positions behind what is settled.
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
        // It fails for a partition that another consumer has by now, and gets from its last position.
        if moved.count() > 0
            && let Err(error) = self.consumer.store_offsets(&moved)
        {
            tracing::debug!(source = self.name, %error, "a position could not be stored");
        }
    }

    async fn put_aside(&self, message: &OwnedMessage, why: &str) -> Result<(), KafkaError> {
        let topic = format!("{}.refused", self.topic);
        let mut headers = message.headers().cloned().unwrap_or_else(OwnedHeaders::new);
        headers = headers.insert(Header { key: WHY, value: Some(why) });
        let mut record: FutureRecord<'_, [u8], [u8]> = FutureRecord::to(&topic).headers(headers);
        record.key = message.key();
        record.payload = message.payload();
        let sent = self.producer.send(record, Timeout::After(PATIENCE)).await;
        sent.map(|_| ()).map_err(|(error, _)| error)
    }
}

/// What a client's settings begin with: where the brokers are, and who it is there.
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

/// The error of settings, without the value of the one that is wrong: it may be a password.
pub(crate) fn without_value(error: KafkaError) -> BoxError {
    match error {
        KafkaError::ClientConfig(_, why, setting, _) => format!("{why} (setting {setting})").into(),
        error => error.into(),
    }
}

/// Settings that a producer does not know.
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

/// Whether there is such a topic, and the cluster's id. The client library blocks, so it has a thread for it.
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
                match self.consumer.recv().await {
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
            // A header is one line.
            let why: String = why.to_string().chars().take(LONGEST_WHY).collect();
            let why = why.replace(char::is_control, " ");
            let mut waits = Waits::default();
            for tries in 1..=TRIES {
                match self.put_aside(&message, &why).await {
                    Ok(()) => {
                        self.settle(std::iter::once(message));
                        return Ok(());
                    }
                    // The position must not stay here unnoticed while all that is behind goes on.
                    Err(error) if tries == TRIES => {
                        let (partition, offset) = (message.partition(), message.offset());
                        let topic = format!("{}.refused", self.topic);
                        let what = format!(
                            "the message at {partition}:{offset} was refused ({why}), and could not be put aside into the topic \
                             {topic}: {error}. Make the topic; the message is delivered again after the next start"
                        );
                        return Err(what.into());
                    }
                    Err(_) => tokio::time::sleep(waits.next()).await,
                }
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
