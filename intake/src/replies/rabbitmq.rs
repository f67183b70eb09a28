//! Publishes replies to a queue of RabbitMQ.
//!
//! **One message at a time on a channel.** The broker returns a message that it cannot route to any queue, and confirms
//! it afterwards. lapin (4.12) does not search for the confirmation that belongs to a returned message: the next
//! confirmation on the same channel carries it, whichever message that confirms. With several messages under way on a
//! channel, a returned reply could count as stored and be lost, and a stored reply could be published again. Comparing
//! ids would help only while every confirmation arrives in time. Therefore a channel carries one message until the
//! confirmation arrives, and is closed if it does not arrive. Besides, if the broker closes a channel because of a
//! message, it does not affect other replies. Channels are kept for the next replies.

use std::sync::Arc;

use futures_util::future::join_all;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::{BoxError, BoxFuture};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use tokio::sync::Mutex;

use super::names::Names;
use crate::address::Address;
use crate::error::Error;
use crate::waits::PATIENCE;

/// The delivery mode of persistent messages, which survive a restart of the broker.
const KEEP: u8 = 2;
/// The most bytes of a message: the default `max_message_size` of RabbitMQ 4 (16 MiB), less room for properties.
const LONGEST: usize = 16_000_000;

/// A queue of RabbitMQ as a target of replies.
///
/// The queue must exist. A reply's `message_id` is [`Reply::message_id`]. Its `correlation_id` is the metadata
/// `correlation_id` of its request; a request that came by RabbitMQ has that metadata from its message's property
/// `correlation_id`. A request may name another queue by the property `reply_to` of its message, or by `reply` in its
/// content, if the name begins with one of the prefixes that `allow` in the URL lists. If that queue does not exist,
/// the reply goes to the URL's queue.
///
/// Each reply of a call is published on a channel of its own, so that the connection has up to 64 channels.
pub struct RabbitMqReplies {
    /// The broker's URL, including the password.
    url: String,
    names: Names,
    name: String,
    open: Mutex<Option<Arc<Connection>>>,
    /// The channels of the connection that carry no message now: at most as many as replies were published at once.
    idle: parking_lot::Mutex<Vec<Channel>>,
}

impl RabbitMqReplies {
    /// Connects to `amqp://USER:PASSWORD@HOST:PORT/VHOST?queue=NAME&allow=START,START`, or with TLS to `amqps://…`.
    ///
    /// # Errors
    /// The URL names no queue, the broker refuses the connection, or the queue does not exist.
    pub async fn connect(url: &str) -> Result<RabbitMqReplies, Error> {
        let address = Address::read("RabbitMQ", url, &["queue", "allow"])?;
        let no_queue = || Error::new("RabbitMQ: the URL must name a queue: amqp://HOST/VHOST?queue=NAME");
        let names = Names::new(address.get("queue").ok_or_else(no_queue)?, &address);
        let port = if address.url.scheme() == "amqps" { 5671 } else { 5672 };
        let name = format!("rabbitmq:{}{}:{}", address.place(port), address.url.path(), names.own);
        let (open, idle) = (Mutex::default(), parking_lot::Mutex::default());
        let target = RabbitMqReplies { url: address.url.into(), names, name, open, idle };
        let looked = async {
            let channel = target.connection().await?.create_channel().await?;
            let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(target.names.own.as_str().into(), look, FieldTable::default()).await?;
            Ok::<_, BoxError>(())
        };
        let looked = tokio::time::timeout(2 * PATIENCE, looked).await;
        let looked = looked.unwrap_or_else(|_| Err("no answer within 20 s".into()));
        looked.map_err(|error| Error::new(target.name.clone()).with_source(error))?;
        Ok(target)
    }

    /// The open connection, or a new one if there is none.
    async fn connection(&self) -> Result<Arc<Connection>, BoxError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| connection.status().connected()) {
            // A blocked connection would keep messages in this process's memory and send all of them when the alarm
            // ends.
            return match connection.status().blocked() {
                true => Err("the broker takes no messages: it has an alarm of memory or disk".into()),
                false => Ok(connection.clone()),
            };
        }
        *open = None;
        self.idle.lock().clear();
        let properties = ConnectionProperties::default().with_connection_name("integration-client replies".into());
        let opened = tokio::time::timeout(PATIENCE, Connection::connect(&self.url, properties)).await;
        let connection = Arc::new(opened.map_err(|_| "no answer within 10 s")??);
        *open = Some(connection.clone());
        Ok(connection)
    }

    /// A channel that carries no message.
    async fn channel(&self, connection: &Connection) -> Result<Channel, lapin::Error> {
        if let Some(channel) = self.take_idle() {
            return Ok(channel);
        }
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// Takes a channel out of those that are kept, and drops those that the broker has closed.
    fn take_idle(&self) -> Option<Channel> {
        let mut idle = self.idle.lock();
        while let Some(channel) = idle.pop() {
            if channel.status().connected() {
                return Some(channel);
            }
        }
        None
    }

    async fn publish(&self, connection: &Connection, reply: &Reply) -> Result<(), BoxError> {
        let mut properties = BasicProperties::default()
            .with_delivery_mode(KEEP)
            .with_content_type("application/json".into())
            .with_message_id(reply.message_id().into());
        // AMQP limits this property to 255 bytes.
        if let Some(id) = reply.metadata("correlation_id").filter(|id| id.len() <= 255) {
            properties = properties.with_correlation_id(id.into());
        }
        let content = reply.json_within(LONGEST);
        if let Some(named) = self.names.named(reply)
            && self.put(connection, &named, &content, properties.clone()).await?
        {
            return Ok(());
        }
        match self.put(connection, &self.names.own, &content, properties).await? {
            true => Ok(()),
            false => Err(format!("there is no queue {}", self.names.own).into()),
        }
    }

    /// Publishes a message to a queue. Returns `false` if the queue does not exist.
    async fn put(
        &self,
        connection: &Connection,
        queue: &str,
        content: &str,
        properties: BasicProperties,
    ) -> Result<bool, BoxError> {
        let publish = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sending = async {
            let channel = self.channel(connection).await?;
            let sent = channel.basic_publish("".into(), queue.into(), publish, content.as_bytes(), properties);
            let confirmation = sent.await?.await?;
            // Before the confirmation, dropping this future drops the channel, which closes it.
            self.idle.lock().push(channel);
            Ok::<_, lapin::Error>(confirmation)
        };
        // One missing confirmation must not delay the results of the other replies.
        let sent = tokio::time::timeout(PATIENCE, sending).await.map_err(|_| "no confirmation within 10 s")?;
        match sent? {
            Confirmation::Ack(None) => Ok(true),
            // The broker returned the message, because it cannot route it to any queue.
            Confirmation::Ack(Some(_)) => Ok(false),
            _ => Err("the broker did not keep the message".into()),
        }
    }
}

impl ReplyTarget for RabbitMqReplies {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        Box::pin(async move {
            match self.connection().await {
                Ok(connection) => join_all(replies.iter().map(|reply| self.publish(&connection, reply))).await,
                Err(error) => vec![Err(error)],
            }
        })
    }
}

impl std::fmt::Debug for RabbitMqReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqReplies").field("name", &self.name).finish_non_exhaustive()
    }
}
