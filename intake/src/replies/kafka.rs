//! Publishes replies to a topic of Kafka.

use futures_util::future::join_all;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::{BoxError, BoxFuture};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::util::Timeout;

use super::names::Names;
use crate::address::Address;
use crate::error::Error;
use crate::kafka::{Context, settings, without_value};
use crate::waits::PATIENCE;

/// Bytes of the longest reply: by default a broker accepts messages of up to 1 MB.
const LONGEST: usize = 900_000;

/// A topic of Kafka as a target of replies.
///
/// The topic must exist, unless the brokers create topics automatically. A record's key is the id of the job, and its
/// header `message-id` is [`Reply::message_id`]. A request may name another topic by `reply` in its content, if the
/// name begins with one of the prefixes that `allow` in the URL lists. If that topic does not exist, the reply is
/// published to the URL's topic.
pub struct KafkaReplies {
    producer: FutureProducer<Context>,
    names: Names,
    name: String,
}

impl KafkaReplies {
    /// Connects to `kafka://USER:PASSWORD@HOST:PORT?topic=NAME&allow=START,START`. `servers=HOST:PORT,HOST:PORT` names
    /// further brokers. All other parameters are settings of librdkafka.
    ///
    /// # Errors
    /// The URL names no topic or an unknown setting, or no broker answers.
    pub async fn connect(url: &str) -> Result<KafkaReplies, Error> {
        let address = Address::read("Kafka", url, &["topic", "servers", "allow"])?;
        let no_topic = || Error::new("Kafka: the URL must name a topic: kafka://HOST?topic=NAME");
        let names = Names::new(address.get("topic").ok_or_else(no_topic)?, &address);
        let place = address.place(9092);
        let name = format!("kafka:{place}:{}", names.own);
        let failed = |error: BoxError| Error::new(name.clone()).with_source(error);
        let mut settings = settings(&address, &place);
        settings.set("message.timeout.ms", PATIENCE.as_millis().to_string());
        // A record is confirmed when all in-sync replicas have it. `enable.idempotence` is not set: with it, an error
        // such as a sequence number that is out of order after an unclean election of a leader is fatal to the
        // producer, and every further record fails. Replies have no order, and a receiver recognises a repetition by
        // its `message-id`.
        settings.set("acks", "all");
        // The time after which an unknown topic counts as missing. Shorter than the message timeout, so that the error
        // is that of a missing topic and not a timeout.
        settings.set("topic.metadata.propagation.max.ms", "3000");
        address.url.query_pairs().for_each(|(name, value)| {
            settings.set(&*name, &*value);
        });
        let made = settings.create_with_context(Context::default());
        let producer: FutureProducer<Context> = made.map_err(|error| failed(without_value(error)))?;
        // The call blocks, so it runs on a blocking thread.
        let (asking, topic) = (producer.clone(), names.own.clone());
        let ask = move || asking.client().fetch_metadata(Some(&topic), Timeout::After(PATIENCE)).map(drop);
        let asked = tokio::task::spawn_blocking(ask).await;
        asked.map_err(BoxError::from).and_then(|asked| asked.map_err(BoxError::from)).map_err(failed)?;
        Ok(KafkaReplies { producer, names, name })
    }

    async fn publish(&self, reply: &Reply) -> Result<(), BoxError> {
        let content = reply.json_within(LONGEST);
        if let Some(named) = self.names.named(reply) {
            match self.put(&named, reply, &content).await {
                Ok(()) => return Ok(()),
                Err(KafkaError::MessageProduction(
                    RDKafkaErrorCode::UnknownTopic
                    | RDKafkaErrorCode::UnknownTopicOrPartition
                    | RDKafkaErrorCode::InvalidTopic,
                )) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.put(&self.names.own, reply, &content).await?)
    }

    async fn put(&self, topic: &str, reply: &Reply, content: &str) -> Result<(), KafkaError> {
        let id = reply.message_id();
        let headers = OwnedHeaders::new().insert(Header { key: "message-id", value: Some(&id) });
        let record = FutureRecord::to(topic).key(&reply.id).payload(content).headers(headers);
        let sent = self.producer.send(record, Timeout::After(PATIENCE)).await;
        sent.map(drop).map_err(|(error, _)| error)
    }
}

impl ReplyTarget for KafkaReplies {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        Box::pin(join_all(replies.iter().map(|reply| self.publish(reply))))
    }
}

impl std::fmt::Debug for KafkaReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaReplies").field("name", &self.name).finish_non_exhaustive()
    }
}
