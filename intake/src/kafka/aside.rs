//! Publishes refused messages, and keeps those that the brokers do not take yet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use integration_client::{BoxError, BoxFuture};
use rdkafka::producer::FutureProducer;
use rdkafka::util::Timeout;

use super::Context;
use super::refused::{Part, Refused, Step};
use crate::waits::{PATIENCE, Waits};

/// Messages that wait at most while further ones are received.
const MOST: usize = 256;
/// Bytes of their content.
const MOST_BYTES: usize = 64 << 20;

/// An attempt to put a message aside, which goes on until the brokers have taken the message.
pub(super) type Attempt = BoxFuture<'static, Result<(), BoxError>>;

/// The way to the topic of refused messages.
#[derive(Clone)]
pub(super) struct Aside {
    pub(super) producer: FutureProducer<Context>,
    /// The topic of refused messages.
    pub(super) topic: String,
}

impl Aside {
    /// Publishes a refused message. Returns false if the brokers do not take it now.
    ///
    /// # Errors
    /// The topic does not take the message. An unsettled message holds the partition's offset back. That must not go
    /// unnoticed while later messages are accepted, so the error ends the hand-over.
    pub(super) async fn put(&self, refused: &Refused) -> Result<bool, BoxError> {
        let topic = &self.topic;
        let (partition, offset) = refused.place();
        let (mut part, mut tries, mut waits) = (Part::Whole, 1, Waits::default());
        loop {
            let sent = self.producer.send(refused.record(topic, part), Timeout::After(PATIENCE)).await;
            let Err((error, _)) = sent else { return Ok(true) };
            match refused.step(&error, part, tries) {
                Step::Cut(smaller) => {
                    let length = refused.length();
                    tracing::warn!(
                        topic, partition, offset, length, part = ?smaller,
                        "a refused message is too large for the topic of refused messages; a part of it is put aside"
                    );
                    part = smaller;
                }
                Step::Again => {
                    tries += 1;
                    tokio::time::sleep(waits.next()).await;
                }
                Step::Later => {
                    tracing::warn!(topic, partition, offset, %error, "a refused message waits for the brokers");
                    return Ok(false);
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

    /// Publishes a refused message, as soon as the brokers take it.
    pub(super) fn put_at_last(&self, refused: Arc<Refused>) -> Attempt {
        let aside = self.clone();
        Box::pin(async move {
            let mut waits = Waits::default();
            while !aside.put(&refused).await? {
                tokio::time::sleep(waits.next()).await;
            }
            Ok(())
        })
    }
}

/// The error of a message that the topic of refused messages did not take for the time `longest`.
pub(super) fn left_for_too_long(topic: &str, refused: &Refused, longest: Duration) -> BoxError {
    let ((partition, offset), why, waited_s) = (refused.place(), &refused.why, longest.as_secs());
    let what = format!(
        "the message at {partition}:{offset} was refused ({why}), and the topic {topic} has not taken it for \
         {waited_s} s, a quarter of the time for which ids of messages are kept (keep_seen). While it waits, the \
         position of its partition stays before it, and messages behind it would be sent again if they came after \
         their ids are forgotten. Give each partition of {topic} a leader and enough in-sync replicas, and start the \
         intake again soon: the message is delivered again then"
    );
    what.into()
}

/// The refused messages that the brokers did not take, and since when each waits, in the order in which they came.
#[derive(Default)]
pub(super) struct Left {
    messages: VecDeque<(Arc<Refused>, Instant)>,
    bytes: usize,
}

impl Left {
    /// Adds a message, unless it waits already: Kafka delivers a message again if this process loses the partition and
    /// gets it back.
    pub(super) fn add(&mut self, refused: Arc<Refused>, now: Instant) {
        if self.messages.iter().all(|(left, _)| left.place() != refused.place()) {
            self.bytes += refused.length();
            self.messages.push_back((refused, now));
        }
    }

    pub(super) fn oldest(&self) -> Option<(Arc<Refused>, Instant)> {
        self.messages.front().cloned()
    }

    pub(super) fn remove_oldest(&mut self) {
        if let Some((refused, _)) = self.messages.pop_front() {
            self.bytes -= refused.length();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether no further messages are received before one of these is put aside.
    pub(super) fn is_full(&self) -> bool {
        self.messages.len() >= MOST || self.bytes >= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::OwnedMessage;

    use super::*;
    use crate::waits;

    fn refused(partition: i32, offset: i64, length: usize) -> Arc<Refused> {
        let content = Some(vec![b'x'; length]);
        let (topic, at) = ("t".to_owned(), Timestamp::NotAvailable);
        let message = OwnedMessage::new(content, None, topic, at, partition, offset, None);
        Arc::new(Refused::new(message, "not JSON"))
    }

    #[test]
    fn left_messages_keep_their_order_and_wait_once() {
        let mut left = Left::default();
        assert!(left.is_empty() && left.oldest().is_none());
        let first = waits::now();
        let second = first + Duration::from_secs(60);
        for (partition, offset) in [(0, 7), (1, 7), (0, 8)] {
            left.add(refused(partition, offset, 10), first);
            left.add(refused(partition, offset, 10), second);
        }
        let mut places = Vec::new();
        while let Some((oldest, since)) = left.oldest() {
            assert_eq!(since, first, "the time of the first delivery");
            places.push(oldest.place());
            left.remove_oldest();
        }
        assert_eq!(places, [(0, 7), (1, 7), (0, 8)]);
        assert!(left.is_empty());
        left.remove_oldest();
        assert_eq!(left.bytes, 0);
    }

    #[test]
    fn full_by_number_and_by_bytes() {
        let now = waits::now();
        let mut left = Left::default();
        (1..256).for_each(|offset| left.add(refused(0, offset, 0), now));
        assert!(!left.is_full());
        left.add(refused(0, 256, 0), now);
        assert!(left.is_full());
        left.remove_oldest();
        assert!(!left.is_full());
        left.add(refused(1, 0, MOST_BYTES), now);
        assert!(left.is_full());
    }

    #[test]
    fn error_of_a_message_that_waits_too_long_says_what_to_do() {
        let error = left_for_too_long("t.refused", &refused(3, 7, 10), Duration::from_secs(151_200)).to_string();
        assert!(error.starts_with("the message at 3:7 was refused (not JSON), and the topic t.refused"), "{error}");
        assert!(error.contains("for 151200 s") && error.contains("a leader and enough in-sync replicas"), "{error}");
    }
}
