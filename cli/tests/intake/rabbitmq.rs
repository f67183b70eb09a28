//! RabbitMQ as the source.

use integration_client::BoxError;
use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use super::{Source, requests_are_sent_once};

struct RabbitMq {
    server: String,
    queue: String,
}

impl RabbitMq {
    /// A new connection. Dropping it closes the channel, and gives messages back.
    async fn connect(&self) -> Result<(Connection, Channel), BoxError> {
        let connection = Connection::connect(&self.server, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok((connection, channel))
    }

    fn refused_queue(&self) -> String {
        format!("{}.refused", self.queue)
    }
}

impl Source for RabbitMq {
    fn url(&self) -> String {
        format!("{}?queue={}", self.server, self.queue)
    }

    async fn publish(&self, messages: &[(String, String)]) -> Result<(), BoxError> {
        let (_connection, channel) = self.connect().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        for queue in [self.queue.clone(), self.refused_queue()] {
            channel.queue_declare(queue.into(), QueueDeclareOptions::durable(), FieldTable::default()).await?;
        }
        for (id, content) in messages {
            let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id.as_str().into());
            let (queue, publish) = (self.queue.as_str(), BasicPublishOptions::default());
            let sent = channel.basic_publish("".into(), queue.into(), publish, content.as_bytes(), properties).await?;
            if !sent.await?.is_ack() {
                return Err("the broker did not keep the message".into());
            }
        }
        Ok(())
    }

    async fn refused(&self) -> Result<Vec<(String, String)>, BoxError> {
        let (_connection, channel) = self.connect().await?;
        let mut refused = Vec::new();
        while let Some(message) = channel.basic_get(self.refused_queue().into(), BasicGetOptions::default()).await? {
            let headers = message.properties.headers().clone().unwrap_or_default();
            let why = headers.inner().get("x-refused-because").and_then(|why| why.as_long_string());
            let why = why.map(ToString::to_string).unwrap_or_default();
            refused.push((String::from_utf8(message.data.clone())?, why));
        }
        Ok(refused)
    }

    async fn left(&self) -> Result<u64, BoxError> {
        let (_connection, channel) = self.connect().await?;
        let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let found = channel.queue_declare(self.queue.as_str().into(), look, FieldTable::default()).await?;
        Ok(found.message_count().into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_rabbitmq_are_sent_once() {
    let server = std::env::var("IC_TEST_RABBITMQ").expect(
        "IC_TEST_RABBITMQ names no server: run `scripts/test.sh test`, or `eval \"$(scripts/rabbitmq.sh start)\"` before",
    );
    let source = RabbitMq { server, queue: format!("cli-{}", std::process::id()) };
    requests_are_sent_once(&source, "rabbitmq").await;
}
