//! The targets of replies: the brokers that are also sources of requests, and webhooks.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(any(feature = "kafka", feature = "nats", feature = "rabbitmq", feature = "sqs"))]
mod names;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "sqs")]
mod sqs;
#[cfg(feature = "webhook")]
mod webhook;

use integration_client::outbox::ReplyTarget;

use crate::error::Error;

#[cfg(feature = "kafka")]
pub use self::kafka::KafkaReplies;
#[cfg(feature = "nats")]
pub use self::nats::NatsReplies;
#[cfg(feature = "rabbitmq")]
pub use self::rabbitmq::RabbitMqReplies;
#[cfg(feature = "sqs")]
pub use self::sqs::SqsReplies;
#[cfg(feature = "webhook")]
pub use self::webhook::Webhook;

/// Connects to the reply target that a URL names, for
/// [`Outbox::deliver_replies`](integration_client::outbox::Outbox::deliver_replies).
///
/// | scheme | target |
/// |---|---|
/// | `amqp`, `amqps` | a queue of RabbitMQ: `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME` |
/// | `kafka` | a topic of Kafka: `kafka://USER:PASSWORD@HOST:PORT?topic=NAME` |
/// | `nats`, `tls` | a subject of NATS JetStream: `nats://USER:PASSWORD@HOST:PORT?subject=NAME` |
/// | `sqs`, `sqs+http` | a queue of Amazon SQS: `sqs://HOST:PORT/ACCOUNT/QUEUE?region=NAME` |
/// | `https`, `http` | a webhook, signed with `secret` as Standard Webhooks specifies; `http` only to this machine |
///
/// In the URL of a broker, `allow=START,START` lets a request name another queue, subject or topic for its reply, if
/// that name begins with one of these prefixes. If the named one does not exist, the reply goes to the one that the URL
/// names.
///
/// # Errors
/// The URL has none of these schemes, the feature of its scheme is not enabled, the first connection to the broker
/// fails, or there is no secret for a webhook.
pub async fn replies(url: &str, secret: Option<&str>) -> Result<Box<dyn ReplyTarget>, Error> {
    let _ = secret;
    match url.split_once("://") {
        #[cfg(feature = "rabbitmq")]
        Some(("amqp" | "amqps", _)) => Ok(Box::new(RabbitMqReplies::connect(url).await?)),
        #[cfg(not(feature = "rabbitmq"))]
        Some(("amqp" | "amqps", _)) => {
            Err(Error::new("RabbitMQ needs the feature `rabbitmq` of integration-client-intake"))
        }
        #[cfg(feature = "kafka")]
        Some(("kafka", _)) => Ok(Box::new(KafkaReplies::connect(url).await?)),
        #[cfg(not(feature = "kafka"))]
        Some(("kafka", _)) => Err(Error::new("Kafka needs the feature `kafka` of integration-client-intake")),
        #[cfg(feature = "nats")]
        Some(("nats" | "tls", _)) => Ok(Box::new(NatsReplies::connect(url).await?)),
        #[cfg(not(feature = "nats"))]
        Some(("nats" | "tls", _)) => Err(Error::new("NATS needs the feature `nats` of integration-client-intake")),
        #[cfg(feature = "sqs")]
        Some(("sqs" | "sqs+http", _)) => Ok(Box::new(SqsReplies::connect(url).await?)),
        #[cfg(not(feature = "sqs"))]
        Some(("sqs" | "sqs+http", _)) => Err(Error::new("SQS needs the feature `sqs` of integration-client-intake")),
        #[cfg(feature = "webhook")]
        Some(("https" | "http", _)) => Ok(Box::new(Webhook::new(url, secret)?)),
        #[cfg(not(feature = "webhook"))]
        Some(("https" | "http", _)) => {
            Err(Error::new("a webhook needs the feature `webhook` of integration-client-intake"))
        }
        // The message shows no part of the URL, which may hold a password.
        _ => Err(Error::new(
            "the URL of a place for replies begins with amqp://, amqps://, kafka://, nats://, tls://, sqs:// or https://",
        )),
    }
}
