//! Message brokers as sources of requests for [`integration_client`].
//!
//! A message's content is a JSON object, as [`Line`](integration_client::outbox::Line) describes. [`open`] connects to
//! the broker that a URL names, and [`Outbox::feed_from`](integration_client::outbox::Outbox::feed_from) stores its
//! messages as requests:
//!
//! ```no_run
//! # async fn run(client: integration_client::IntegrationClient) -> Result<(), integration_client::BoxError> {
//! let source = integration_client_intake::open("amqp://guest:guest@127.0.0.1:5672/%2f?queue=requests").await?;
//! let accepted = client.outbox().feed_from(&*source).await?;
//! # Ok(()) }
//! ```
//!
//! - A message is acknowledged when its request is on disk. A redelivered message is recognised by its id and does not
//!   become a second request.
//! - A message that is not a valid request is put into a queue of refused messages with the reason, or handled as
//!   docs/INTAKE.md says for the broker.
//! - A message for a tenant whose part of the outbox is full is given back to the broker for a few seconds, or held in
//!   memory if the broker cannot take it back.
//! - If the connection to the broker fails, the source logs that and connects again. The broker then redelivers the
//!   messages that were not acknowledged.
//! - If NATS or Kafka has lost the position up to which messages were acknowledged, and has messages that may have been
//!   accepted so long ago that they are not recognised, the source ends with an error; [`begin_at`] sets a position.
//!
//! The results of requests are sent the other way: [`replies`] connects to a queue, a subject, a topic or a webhook,
//! and [`Outbox::deliver_replies`](integration_client::outbox::Outbox::deliver_replies) delivers the results to it.
//!
//! Each broker is a feature: `kafka`, `nats`, `rabbitmq`, `sqs`; and so is `webhook`. If the feature of a URL's broker
//! is not enabled, the error names the feature.
#![forbid(unsafe_code)]

#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqs"))]
mod address;
mod begin;
mod error;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod memory;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "kafka")]
mod positions;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqs"))]
mod reason;
mod replies;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod spread;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqs"))]
mod unsettled;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqs"))]
mod waits;

use integration_client::outbox::IntakeSource;

pub use self::begin::{Begin, begin_at};
pub use self::error::Error;
#[cfg(feature = "kafka")]
pub use self::kafka::Kafka;
#[cfg(feature = "nats")]
pub use self::nats::Nats;
#[cfg(feature = "rabbitmq")]
pub use self::rabbitmq::RabbitMq;
#[cfg(feature = "sqs")]
pub use self::sqs::Sqs;

#[cfg(feature = "kafka")]
pub use self::replies::KafkaReplies;
#[cfg(feature = "nats")]
pub use self::replies::NatsReplies;
#[cfg(feature = "rabbitmq")]
pub use self::replies::RabbitMqReplies;
#[cfg(feature = "sqs")]
pub use self::replies::SqsReplies;
#[cfg(feature = "webhook")]
pub use self::replies::Webhook;
pub use self::replies::replies;

/// Connects to the broker that a URL names.
///
/// | scheme | broker |
/// |---|---|
/// | `amqp`, `amqps` | RabbitMQ: `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME` |
/// | `kafka` | Kafka: `kafka://USER:PASSWORD@HOST:PORT?topic=NAME&group=NAME` |
/// | `nats`, `tls` | NATS JetStream: `nats://USER:PASSWORD@HOST:PORT?stream=NAME&consumer=NAME` |
/// | `sqs`, `sqs+http` | Amazon SQS, and servers that speak its protocol: `sqs://HOST:PORT/ACCOUNT/QUEUE?dead=QUEUE&region=NAME` |
///
/// In the URL of RabbitMQ, NATS and SQS, `max_deliveries=NUMBER` states how often a message may be delivered until it is
/// refused. In the URL of RabbitMQ, `prefetch=NUMBER` states how many messages the broker delivers before it waits for
/// an acknowledgement.
///
/// # Errors
/// The URL has none of these schemes, the feature of its broker is not enabled, or the first connection fails.
pub async fn open(url: &str) -> Result<Box<dyn IntakeSource>, Error> {
    match url.split_once("://") {
        #[cfg(feature = "rabbitmq")]
        Some(("amqp" | "amqps", _)) => Ok(Box::new(RabbitMq::connect(url).await?)),
        #[cfg(not(feature = "rabbitmq"))]
        Some(("amqp" | "amqps", _)) => {
            Err(Error::new("RabbitMQ needs the feature `rabbitmq` of integration-client-intake"))
        }
        #[cfg(feature = "kafka")]
        Some(("kafka", _)) => Ok(Box::new(Kafka::connect(url).await?)),
        #[cfg(not(feature = "kafka"))]
        Some(("kafka", _)) => Err(Error::new("Kafka needs the feature `kafka` of integration-client-intake")),
        #[cfg(feature = "nats")]
        Some(("nats" | "tls", _)) => Ok(Box::new(Nats::connect(url).await?)),
        #[cfg(not(feature = "nats"))]
        Some(("nats" | "tls", _)) => Err(Error::new("NATS needs the feature `nats` of integration-client-intake")),
        #[cfg(feature = "sqs")]
        Some(("sqs" | "sqs+http", _)) => Ok(Box::new(Sqs::connect(url).await?)),
        #[cfg(not(feature = "sqs"))]
        Some(("sqs" | "sqs+http", _)) => Err(Error::new("SQS needs the feature `sqs` of integration-client-intake")),
        // The message shows no part of the URL, which may hold a password.
        _ => Err(Error::new("the URL of a source begins with amqp://, amqps://, kafka://, nats://, tls:// or sqs://")),
    }
}
