//! The messages that were handed over to the outbox and are not settled. Kafka delivers them again when the process gets
//! a partition back that it has lost.

use std::collections::HashMap;

use integration_client::outbox::{Intake, MessageRef};
use parking_lot::Mutex;
use rdkafka::message::{Message, OwnedMessage};

use crate::unsettled::Unsettled;

/// The messages that were handed over to the outbox and are not settled.
///
/// A rebalance takes all partitions from the process and returns some of them, which go on at their committed positions.
/// The outbox still has the messages without room behind these positions, and nothing takes them back. So a message that is
/// here is not handed over again: each rebalance would add a copy, until the outbox holds as many as it may, and no message
/// of any tenant is received. The first delivery moves the position of the new assignment.
///
/// Messages of a partition that another process has meanwhile stay here, too, also if that process settles them. Such a
/// copy counts among the messages in hand until its lane has room. Then it is written, and the store recognises its id, as
/// that of any message that comes twice: no second request is sent. The copy moves no position, because the partition goes
/// on behind it. The store forgets an id after `keep_seen`. A hand-over that has settled a message behind the copy ends
/// half of that time later. So only a process that settles nothing behind the copy for half of that time, and finds no
/// room for the whole of it, could send the request again.
pub(super) struct Held {
    messages: Unsettled<OwnedMessage>,
    /// The numbers of the messages, by partition and offset.
    numbers: Mutex<HashMap<(i32, i64), u64>>,
}

fn place(message: &OwnedMessage) -> (i32, i64) {
    (message.partition(), message.offset())
}

impl Held {
    pub(super) fn new() -> Held {
        Held { messages: Unsettled::new(), numbers: Mutex::default() }
    }

    /// Whether this message was handed over and is not settled. A message with other content or another time is a new
    /// one: brokers that have lost messages, and topics that were created again, give an offset twice.
    pub(super) fn has(&self, message: &OwnedMessage) -> bool {
        let number = self.numbers.lock().get(&place(message)).copied();
        let is_same =
            |held: &OwnedMessage| held.timestamp() == message.timestamp() && held.payload() == message.payload();
        number.is_some_and(|number| self.messages.holds_such(number, is_same))
    }

    /// Stores a message that is handed over, and puts its number into `intake`.
    pub(super) fn keep(&self, intake: Intake, message: OwnedMessage) -> Intake {
        let place = place(&message);
        let intake = self.messages.keep(intake, message);
        self.numbers.lock().insert(place, intake.message().delivery);
        intake
    }

    /// Removes and returns a message. Returns `None` if it was taken before, or forgotten.
    pub(super) fn take(&self, message: &MessageRef) -> Option<OwnedMessage> {
        let taken = self.messages.take(message)?;
        let (place, mut numbers) = (place(&taken), self.numbers.lock());
        // A new message may have come with the same offset.
        if numbers.get(&place) == Some(&message.delivery) {
            numbers.remove(&place);
        }
        Some(taken)
    }

    /// Forgets all messages, because the hand-over has ended and Kafka delivers them again.
    pub(super) fn forget_all(&self) {
        self.messages.forget_all();
        self.numbers.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;

    use super::*;

    fn message(partition: i32, offset: i64, content: &str) -> OwnedMessage {
        let (content, at) = (Some(content.as_bytes().to_vec()), Timestamp::CreateTime(1_000));
        OwnedMessage::new(content, None, "t".to_owned(), at, partition, offset, None)
    }

    fn keep(held: &Held, message: OwnedMessage) -> MessageRef {
        let id = format!("{}:{}", message.partition(), message.offset());
        held.keep(Intake::json(id, ""), message).message().clone()
    }

    #[test]
    fn held_message_is_known_until_settled() {
        let held = Held::new();
        let (first, second) = (keep(&held, message(0, 7, "a")), keep(&held, message(0, 8, "b")));
        let known = || {
            [(0, 7, "a"), (0, 8, "b"), (0, 9, "a"), (1, 7, "a")].map(|(at, n, text)| held.has(&message(at, n, text)))
        };
        assert_eq!(known(), [true, true, false, false]);
        assert_eq!(held.take(&first).map(|taken| place(&taken)), Some((0, 7)));
        assert!(held.take(&first).is_none(), "taken before");
        assert_eq!(known(), [false, true, false, false]);
        held.forget_all();
        assert!(!known().contains(&true) && held.take(&second).is_none());
    }

    #[test]
    fn new_message_at_held_offset_is_another() {
        let held = Held::new();
        let old = keep(&held, message(0, 7, "a"));
        assert!(!held.has(&message(0, 7, "b")), "another content");
        let later = Timestamp::CreateTime(2_000);
        assert!(!held.has(&OwnedMessage::new(Some(b"a".to_vec()), None, "t".to_owned(), later, 0, 7, None)));
        let new = keep(&held, message(0, 7, "b"));
        assert!(held.take(&old).is_some() && held.has(&message(0, 7, "b")));
        assert!(held.take(&new).is_some() && !held.has(&message(0, 7, "b")));
    }
}
