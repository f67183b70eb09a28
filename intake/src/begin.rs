//! Where an intake begins that has no position in its broker: at its first start, or after the position was lost.

use std::time::Duration;

use crate::error::Error;
#[cfg(feature = "kafka")]
use crate::kafka::Kafka;
#[cfg(feature = "nats")]
use crate::nats::Nats;

/// The first message that a source takes, which has no position in its broker yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// The first message of the stream or topic.
    First,
    /// The first message that is published from now on. Those that are there are never taken, accepted or not.
    New,
    /// The first message that was published no longer than this time ago. Older ones are never
    /// taken, accepted or not.
    Last(Duration),
}

/// Sets where the source of a URL begins, and takes no message. NATS: creates the durable consumer. Kafka: commits a
/// position in each partition in which the group has none. Returns what was set, in one line.
///
/// Use this before the first start if the stream or topic has messages that are older than
/// [`Store::keep_seen`](integration_client::store::Store::keep_seen): the source does not begin at them by itself,
/// because it cannot distinguish a first start from a lost position.
///
/// # Errors
/// The consumer exists, or the group has a position in each partition; the broker keeps none (RabbitMQ, SQS); the broker
/// does not take it; and as for [`open`](crate::open).
pub async fn begin_at(url: &str, begin: Begin) -> Result<String, Error> {
    match url.split_once("://") {
        #[cfg(feature = "kafka")]
        Some(("kafka", _)) => Kafka::begin_at(url, begin).await,
        #[cfg(feature = "nats")]
        Some(("nats" | "tls", _)) => Nats::begin_at(url, begin).await,
        Some(("amqp" | "amqps" | "sqs" | "sqs+http", _)) => Err(Error::new(
            "a queue of RabbitMQ or SQS has no position: it holds the messages that were not accepted, so start the intake",
        )),
        _ => {
            let _ = begin;
            crate::open(url).await?;
            Err(Error::new("this source has no position"))
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn queue_has_no_position() {
        for url in ["amqp://u:hunter2@mq/?queue=a", "sqs://host/1/q"] {
            let error = begin_at(url, Begin::First).now_or_never().unwrap().unwrap_err().to_string();
            assert!(error.contains("has no position") && !error.contains("hunter2"), "{error}");
        }
        let error = begin_at("mq", Begin::First).now_or_never().unwrap().unwrap_err().to_string();
        assert!(error.contains("the URL of a source begins with"), "{error}");
    }
}
