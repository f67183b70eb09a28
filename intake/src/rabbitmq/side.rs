//! Publishes the messages that are put aside, and keeps those that it cannot publish yet.
//!
//! A failure must not end the consumer's connection: the broker would deliver all unacknowledged messages again, and a
//! quorum queue counts that. RabbitMQ 4 deletes a message after 20 deliveries. So a message that cannot be put aside
//! stays unacknowledged, and the attempts go on. They have a connection of their own, because the broker stops reading
//! from a connection that publishes while it has an alarm, and acknowledgements on that connection would be stuck.
//!
//! A confirmation takes a round trip and a sync to the broker's disk. So messages are published in groups, and their
//! confirmations are awaited together. The queue is declared once for each channel: if it is deleted later, the broker
//! returns the copies. lapin (4.12) does not search for the confirmation that belongs to a returned message: the next
//! confirmation on the same channel carries it. So if one of a group's confirmations carries a returned message, none
//! of the group counts as stored, and a channel on which a confirmation is missing is used no more.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use integration_client::BoxError;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::aside;
use crate::waits::{PATIENCE, Waits};

/// The most messages of a group.
const TOGETHER: usize = 128;
/// Bytes of a group, after which no further message is a part of it. The client library keeps the copies in memory until
/// they are sent.
const BYTES_TOGETHER: usize = 4 << 20;

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

impl Outgoing {
    fn size(&self) -> usize {
        self.delivery.data.len()
    }
}

/// Messages that could not be put aside, and why.
struct Failed {
    messages: Vec<Outgoing>,
    error: BoxError,
}

/// What the broker said of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Stored,
    NotStored,
    /// A copy of the same group is in no queue.
    Returned,
}

/// Whether the broker has stored each copy of a group.
fn stored(said: &[Said]) -> Vec<bool> {
    let is_any_returned = said.contains(&Said::Returned);
    said.iter().map(|said| !is_any_returned && *said == Said::Stored).collect()
}

/// Takes the first messages out of a queue: `most` at most, and no further one after [`BYTES_TOGETHER`].
fn take_group<M>(from: &mut VecDeque<M>, most: usize, size: impl Fn(&M) -> usize) -> Vec<M> {
    let (mut group, mut bytes) = (Vec::new(), 0usize);
    while group.len() < most
        && bytes < BYTES_TOGETHER
        && let Some(message) = from.pop_front()
    {
        bytes = bytes.saturating_add(size(&message));
        group.push(message);
    }
    group
}

/// The way to one other queue. Refused and postponed messages have one each, so that what is wrong with one queue does
/// not delay the messages for the other.
pub(super) struct Side {
    /// The broker's URL, including the password.
    url: String,
    /// The numbers of the messages that the broker still counts as delivered and not acknowledged.
    unacknowledged: Arc<Mutex<BTreeSet<u64>>>,
    open: tokio::sync::Mutex<Option<Open>>,
    left: Mutex<Left<Outgoing>>,
    /// Notified when a message is added to those that are left.
    is_left: Notify,
}

/// An open connection, and its channel unless a confirmation is missing on it. The channel is taken out while a group is
/// under way, so that it is closed if the future of the group is dropped.
struct Open {
    connection: Connection,
    channel: Option<Channel>,
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

    /// The messages of the next attempt, `most` at most. Those that failed before come last, each alone and in turn.
    fn next(&mut self, most: usize, size: impl Fn(&M) -> usize) -> Vec<M> {
        match self.untried.is_empty() {
            true => self.tried.pop_front().into_iter().collect(),
            false => take_group(&mut self.untried, most, size),
        }
    }

    /// Puts back messages of an attempt that failed. Those of a group are tried again before others, because one of them
    /// may have made the others fail.
    fn failed(&mut self, messages: Vec<M>, was_alone: bool) {
        match was_alone {
            true => self.tried.extend(messages),
            false => messages.into_iter().rev().for_each(|message| self.untried.push_front(message)),
        }
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

    /// Puts messages aside and acknowledges them, a group at a time. If that fails, or failed for an earlier message that
    /// [`retry`](Side::retry) has not tried again yet, messages are left to it.
    pub(super) async fn send(&self, mut messages: VecDeque<Outgoing>) {
        while !messages.is_empty() {
            let takes_new = self.left.lock().takes_new();
            if takes_new {
                let group = take_group(&mut messages, TOGETHER, Outgoing::size);
                let Err(Failed { messages: failed, error }) = self.put(group).await else { continue };
                self.fails(&failed, &error);
                self.left.lock().untried.extend(failed);
            } else {
                self.left.lock().untried.append(&mut messages);
            }
            self.is_left.notify_one();
        }
    }

    /// Forgets the messages that are left, because the broker delivers them again.
    pub(super) fn forget_all(&self) {
        self.left.lock().forget_all();
    }

    /// Tries again to put aside the messages that are left. Runs until it is aborted.
    pub(super) async fn retry(self: Arc<Self>) {
        let mut waits = Waits::default();
        // After a failure one message is tried, and then twice as many each time.
        let mut most = 1;
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
            let mut group = self.left.lock().next(most, Outgoing::size);
            // The connection on which the others came is closed, and the broker delivers them again on the next one.
            group.retain(|message| message.delivery.usable());
            let Some(queue) = group.first().map(|message| message.queue.clone()) else { continue };
            let was_alone = group.len() == 1;
            match self.put(group).await {
                Ok(()) => {
                    most = (2 * most).min(TOGETHER);
                    let problem = {
                        let mut left = self.left.lock();
                        if left.is_empty() { left.problem.take() } else { None }
                    };
                    if problem.is_some() {
                        tracing::info!(queue, "messages can be put aside again");
                    }
                }
                Err(Failed { messages, error }) => {
                    most = 1;
                    self.fails(&messages, &error);
                    self.left.lock().failed(messages, was_alone);
                    tokio::time::sleep(waits.next()).await;
                }
            }
        }
    }

    /// Records why an attempt failed, and logs it unless the last failure had the same text.
    fn fails(&self, messages: &[Outgoing], error: &BoxError) {
        let queue = messages.first().map(|message| message.queue.as_str());
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

    /// Publishes the copies of a group with the broker's confirmations, and then acknowledges the messages.
    async fn put(&self, group: Vec<Outgoing>) -> Result<(), Failed> {
        let (is_stored, problem) = self.publish(&group).await;
        let mut is_stored = is_stored.into_iter();
        let (done, left): (Vec<Outgoing>, Vec<Outgoing>) =
            group.into_iter().partition(|_| is_stored.next().unwrap_or(false));
        // An acknowledgement fails only with its connection, and then the broker redelivers the message.
        let acks = done.iter().map(|message| message.delivery.ack(BasicAckOptions::default()));
        let _ = tokio::time::timeout(PATIENCE, join_all(acks)).await;
        {
            let mut unacknowledged = self.unacknowledged.lock();
            for message in &done {
                unacknowledged.remove(&message.number);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        let error = problem.unwrap_or_else(|| "the broker did not keep the message".into());
        Err(Failed { messages: left, error })
    }

    /// Publishes the copies of a group. Returns whether the broker has stored each of them, and what was wrong.
    async fn publish(&self, group: &[Outgoing]) -> (Vec<bool>, Option<BoxError>) {
        let Some(first) = group.first() else { return (Vec::new(), None) };
        let mut open = self.open.lock().await;
        let publishing = async {
            let channel = self.channel(&mut open, first).await?;
            let mut confirms = Vec::with_capacity(group.len());
            for Outgoing { delivery, queue, properties, .. } in group {
                let publish = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let properties = properties.clone();
                let sent = channel.basic_publish("".into(), queue.as_str().into(), publish, &delivery.data, properties);
                confirms.push(sent.await?);
            }
            Ok::<_, BoxError>((channel, confirms))
        };
        let no_answer = || BoxError::from("no answer within 10 s");
        let published = tokio::time::timeout(PATIENCE, publishing).await.unwrap_or_else(|_| Err(no_answer()));
        let (mut is_stored, mut problem) = (Vec::new(), None);
        match published {
            Ok((channel, confirms)) => {
                let told = confirms.into_iter().map(|confirm| tokio::time::timeout(PATIENCE, confirm));
                let said = join_all(told).await.into_iter().map(|told| match told {
                    Ok(Ok(Confirmation::Ack(None))) => Said::Stored,
                    Ok(Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)))) => Said::Returned,
                    Ok(Ok(_)) => Said::NotStored,
                    Ok(Err(error)) => {
                        problem = Some(BoxError::from(error));
                        Said::NotStored
                    }
                    Err(_) => {
                        problem = Some(no_answer());
                        Said::NotStored
                    }
                });
                let said: Vec<Said> = said.collect();
                is_stored = stored(&said);
                if let Some(open) = open.as_mut().filter(|_| !is_stored.contains(&false)) {
                    open.channel = Some(channel);
                }
            }
            Err(error) => problem = Some(error),
        }
        // A blocked connection is kept, because the next one would learn that it is blocked only after it has sent more
        // copies, which the broker would take when its alarm ends.
        let is_kept = open.as_ref().is_some_and(|open| open.channel.is_some() || open.connection.status().blocked());
        if !is_kept {
            *open = None;
        }
        (is_stored, problem)
    }

    /// Takes the open channel out, or opens one and declares the queue of `message` on it.
    async fn channel(&self, open: &mut Option<Open>, message: &Outgoing) -> Result<Channel, BoxError> {
        if open.as_ref().is_some_and(|open| !open.connection.status().connected()) {
            *open = None;
        }
        let open = match &mut *open {
            Some(open) => open,
            none => {
                let name = "integration-client put aside".into();
                let properties = ConnectionProperties::default().with_connection_name(name);
                let connection = Connection::connect(&self.url, properties).await?;
                none.insert(Open { connection, channel: None })
            }
        };
        if open.connection.status().blocked() {
            return Err("the broker takes no messages: it has an alarm of memory or disk".into());
        }
        if let Some(channel) = open.channel.take().filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel = open.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let Outgoing { queue, arguments, .. } = message;
        let declared = channel.queue_declare(queue.as_str().into(), QueueDeclareOptions::durable(), arguments.clone());
        declared.await.map_err(|error| aside::not_declared(queue, error))?;
        Ok(channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_that_always_fails_blocks_no_other() {
        let mut left = Left::<i32>::new();
        left.untried.extend([0, 1, 2]);
        assert!(!left.takes_new(), "the broker may be at fault");
        let mut put = Vec::new();
        for _ in 0..5 {
            let group = left.next(1, |_| 1);
            match group == [0] {
                true => left.failed(group, true),
                false => put.extend(group),
            }
        }
        assert_eq!((put, left.takes_new(), left.is_empty()), (vec![1, 2], true, false));
        left.untried.push_back(3);
        assert_eq!([(); 3].map(|()| left.next(9, |_| 1)), [vec![3], vec![0], vec![]]);
    }

    #[test]
    fn failed_messages_are_tried_in_turn() {
        let mut left = Left::<i32>::new();
        left.tried.extend([0, 1]);
        let turns: Vec<Vec<i32>> = (0..4)
            .map(|_| {
                let group = left.next(9, |_| 1);
                left.failed(group.clone(), true);
                group
            })
            .collect();
        assert_eq!(turns, [[0], [1], [0], [1]]);
    }

    #[test]
    fn failed_group_is_tried_again_in_order() {
        let mut left = Left::<i32>::new();
        left.untried.extend(0..5);
        let group = left.next(3, |_| 1);
        assert_eq!(group, [0, 1, 2]);
        // The broker has stored the first one.
        left.failed(group[1..].to_vec(), false);
        assert_eq!((left.next(1, |_| 1), left.next(9, |_| 1)), (vec![1], vec![2, 3, 4]));
    }

    #[test]
    fn group_ends_by_number_and_by_bytes() {
        let mut small: VecDeque<usize> = std::iter::repeat_n(1, TOGETHER + 1).collect();
        assert_eq!(take_group(&mut small, TOGETHER, |size| *size).len(), TOGETHER);
        assert_eq!(take_group(&mut small, TOGETHER, |size| *size).len(), 1);
        let mut large = VecDeque::from([BYTES_TOGETHER - 1, 1, 1, 2 * BYTES_TOGETHER, 1]);
        let lengths = [(); 4].map(|()| take_group(&mut large, TOGETHER, |size| *size).len());
        assert_eq!(lengths, [2, 2, 1, 0]);
    }

    /// Any confirmation of the group may carry the returned message of another one.
    #[test]
    fn returned_copy_leaves_its_whole_group() {
        assert_eq!(stored(&[Said::Stored, Said::NotStored, Said::Stored]), [true, false, true]);
        assert_eq!(stored(&[Said::Stored, Said::Returned, Said::Stored]), [false; 3]);
    }
}
