//! Publishes the messages that are put aside, and keeps those that it cannot publish yet.
//!
//! A failure must not end the consumer's connection: the broker would deliver all unacknowledged messages again, and a
//! quorum queue counts that. RabbitMQ 4 deletes a message after 20 deliveries. So a message that cannot be put aside
//! stays unacknowledged, and the attempts go on. They have a connection of their own, because the broker stops reading
//! from a connection that publishes while it has an alarm, and acknowledgements on that connection would be stuck.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use integration_client::BoxError;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::aside;
use crate::waits::{PATIENCE, Waits};

/// A message on its way to another queue.
pub(super) struct Outgoing {
    /// The number of the delivery.
    pub(super) number: u64,
    pub(super) delivery: Delivery,
    /// The name of the other queue, and its arguments.
    pub(super) queue: String,
    pub(super) arguments: FieldTable,
    /// The properties of the copy.
    pub(super) properties: BasicProperties,
}

/// The way to one other queue. Refused and postponed messages have one each, so that what is wrong with one queue does
/// not delay the messages for the other.
pub(super) struct Side {
    /// The broker's URL, including the password.
    url: String,
    /// The numbers of the messages that the broker still counts as delivered and not acknowledged.
    unacknowledged: Arc<Mutex<BTreeSet<u64>>>,
    open: tokio::sync::Mutex<Option<(Connection, Channel)>>,
    left: Mutex<Left<Outgoing>>,
    /// Notified when a message is added to those that are left.
    is_left: Notify,
}

/// The messages that are not put aside yet. Some can never be, such as one that is larger than the broker allows by
/// now, and the others must not wait for them.
struct Left<M> {
    /// Messages that [`Side::retry`] has not tried yet. While there are such messages, the broker may be at fault, and
    /// each attempt may cost a connection.
    untried: VecDeque<M>,
    /// Messages that it has tried in vain.
    tried: VecDeque<M>,
    /// What the last failure was, until no message is left.
    problem: Option<String>,
}

impl<M> Left<M> {
    fn new() -> Left<M> {
        Left { untried: VecDeque::new(), tried: VecDeque::new(), problem: None }
    }

    /// Whether a new message is tried at once, and does not wait for the next attempt.
    fn takes_new(&self) -> bool {
        self.untried.is_empty()
    }

    /// The message of the next attempt. Those that failed before come last, each in turn.
    fn next(&mut self) -> Option<M> {
        self.untried.pop_front().or_else(|| self.tried.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.untried.is_empty() && self.tried.is_empty()
    }

    fn forget_all(&mut self) {
        self.untried.clear();
        self.tried.clear();
    }
}

impl Side {
    pub(super) fn new(url: String, unacknowledged: Arc<Mutex<BTreeSet<u64>>>) -> Side {
        let (open, left, is_left) = (tokio::sync::Mutex::default(), Mutex::new(Left::new()), Notify::new());
        Side { url, unacknowledged, open, left, is_left }
    }

    /// Puts a message aside and acknowledges it. If that fails, or failed for an earlier message that
    /// [`retry`](Side::retry) has not tried again yet, the message is left to it.
    pub(super) async fn send(&self, message: Outgoing) {
        let takes_new = self.left.lock().takes_new();
        if takes_new {
            match self.put(&message).await {
                Ok(()) => return,
                Err(error) => self.fails(&message.queue, &error),
            }
        }
        self.left.lock().untried.push_back(message);
        self.is_left.notify_one();
    }

    /// Forgets the messages that are left, because the broker delivers them again.
    pub(super) fn forget_all(&self) {
        self.left.lock().forget_all();
    }

    /// Tries again to put aside the messages that are left. Runs until it is aborted.
    pub(super) async fn retry(self: Arc<Self>) {
        let mut waits = Waits::default();
        loop {
            let is_idle = {
                let mut left = self.left.lock();
                let is_idle = left.is_empty();
                // What was left may also have been forgotten.
                left.problem = left.problem.take().filter(|_| !is_idle);
                is_idle
            };
            if is_idle {
                waits = Waits::default();
                self.is_left.notified().await;
                // The attempt that left the message has just failed.
                tokio::time::sleep(waits.next()).await;
            }
            let next = self.left.lock().next();
            let Some(message) = next else { continue };
            // The connection on which it came is closed, and the broker delivers it again on the next one.
            if !message.delivery.usable() {
                continue;
            }
            match self.put(&message).await {
                Ok(()) => {
                    let problem = {
                        let mut left = self.left.lock();
                        if left.is_empty() { left.problem.take() } else { None }
                    };
                    if problem.is_some() {
                        tracing::info!(queue = message.queue, "messages can be put aside again");
                    }
                }
                Err(error) => {
                    self.fails(&message.queue, &error);
                    self.left.lock().tried.push_back(message);
                    tokio::time::sleep(waits.next()).await;
                }
            }
        }
    }

    /// Records why an attempt failed, and logs it unless the last failure had the same text.
    fn fails(&self, queue: &str, error: &BoxError) {
        let problem = error.to_string();
        let before = self.left.lock().problem.replace(problem.clone());
        if before.as_ref() != Some(&problem) {
            tracing::warn!(
                queue,
                problem,
                "messages cannot be put aside; they are kept, unacknowledged, and tried again. With as many of them as \
                 `prefetch` in the URL states (1,024 by default), the broker delivers no other"
            );
        }
    }

    /// Declares the queue, publishes the copy with the broker's confirmation, and then acknowledges the message.
    async fn put(&self, message: &Outgoing) -> Result<(), BoxError> {
        let Outgoing { number, delivery, queue, arguments, properties } = message;
        let mut open = self.open.lock().await;
        let putting = async {
            let channel = self.channel(&mut open).await?;
            let durable = QueueDeclareOptions::durable();
            let declared = channel.queue_declare(queue.as_str().into(), durable, arguments.clone()).await;
            declared.map_err(|error| aside::not_declared(queue, error))?;
            let publish = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let properties = properties.clone();
            let sent = channel.basic_publish("".into(), queue.as_str().into(), publish, &delivery.data, properties);
            match sent.await?.await? {
                Confirmation::Ack(None) => {}
                _ => return Err("the broker did not keep the message".into()),
            }
            // An acknowledgement fails only with its connection, and then the broker redelivers the message.
            let _ = delivery.ack(BasicAckOptions::default()).await;
            self.unacknowledged.lock().remove(number);
            Ok::<_, BoxError>(())
        };
        let put = tokio::time::timeout(PATIENCE, putting).await.unwrap_or_else(|_| Err("no answer within 10 s".into()));
        // A blocked connection is kept, because the next one would learn that it is blocked only after it has sent one
        // more copy, which the broker would take when its alarm ends.
        let is_blocked = open.as_ref().is_some_and(|(connection, _)| connection.status().blocked());
        if put.is_err() && !is_blocked {
            *open = None;
        }
        put
    }

    /// The open channel, or a channel of a new connection if there is none.
    async fn channel(&self, open: &mut Option<(Connection, Channel)>) -> Result<Channel, BoxError> {
        if let Some((connection, channel)) = open.as_ref().filter(|(_, channel)| channel.status().connected()) {
            return match connection.status().blocked() {
                true => Err("the broker takes no messages: it has an alarm of memory or disk".into()),
                false => Ok(channel.clone()),
            };
        }
        *open = None;
        let properties = ConnectionProperties::default().with_connection_name("integration-client put aside".into());
        let connection = Connection::connect(&self.url, properties).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        *open = Some((connection, channel.clone()));
        Ok(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_always_fails_blocks_no_other() {
        let mut left = Left::new();
        left.untried.extend([0, 1, 2]);
        assert!(!left.takes_new(), "the broker may be at fault");
        let mut put = Vec::new();
        for _ in 0..5 {
            let message = left.next().unwrap();
            match message {
                0 => left.tried.push_back(message),
                _ => put.push(message),
            }
        }
        assert_eq!((put, left.takes_new(), left.is_empty()), (vec![1, 2], true, false));
        left.untried.push_back(3);
        assert_eq!((left.next(), left.next(), left.next()), (Some(3), Some(0), None));
    }

    #[test]
    fn failed_messages_are_tried_in_turn() {
        let mut left = Left::new();
        left.tried.extend([0, 1]);
        let turns: Vec<i32> = (0..4)
            .map(|_| {
                let message = left.next().unwrap();
                left.tried.push_back(message);
                message
            })
            .collect();
        assert_eq!(turns, [0, 1, 0, 1]);
    }
}
