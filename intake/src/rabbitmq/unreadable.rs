//! What the source does about a message that the client library cannot read. Pure.
//!
//! The library ends its connection at a message with a property, a header's name or a routing key that is no UTF-8. The
//! broker then delivers this message again, and with it all others that it had delivered on that connection. A quorum
//! queue counts these deliveries, and RabbitMQ 4 deletes a message after 20. So the next connections get one message at a
//! time, until as many have come as the broken one may have had: then only the unreadable message is counted.

use integration_client::BoxError;
use lapin::{Error, ErrorKind};

/// Connections with one message at a time that end in a row at an unreadable message, before the source gives up.
const MOST_IN_A_ROW: u32 = 3;

/// What is known of unreadable messages.
#[derive(Default)]
pub(super) struct Unreadable {
    /// Messages that still come one at a time.
    singly: u16,
    /// Connections with one message at a time that ended in a row at an unreadable message. None delivered another one.
    in_a_row: u32,
}

impl Unreadable {
    /// The messages that the broker may deliver to a connection ahead, if they are `usual` otherwise.
    pub(super) fn prefetch(&self, usual: u16) -> u16 {
        if self.singly > 0 { 1 } else { usual }
    }

    /// Notes that this many messages have come.
    pub(super) fn have_come(&mut self, messages: usize) {
        self.singly = self.singly.saturating_sub(u16::try_from(messages).unwrap_or(u16::MAX));
        self.in_a_row = 0;
    }

    /// Notes that a connection ended at an unreadable message. Returns whether further connections are useless: this
    /// message alone is at the head of the queue.
    pub(super) fn ended(&mut self, usual: u16) -> bool {
        if self.singly > 0 {
            self.in_a_row += 1;
        }
        self.singly = usual;
        self.in_a_row >= MOST_IN_A_ROW
    }
}

/// Whether a connection ended because the library could not read what the broker sent.
pub(super) fn could_not_read(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ParsingError(_))
}

/// The error of a queue with an unreadable message at its head, and what to do about it.
pub(super) fn at_the_head(queue: &str, problem: &str) -> BoxError {
    let what = format!(
        "the message at the head of the queue {queue} cannot be read, and no other comes before it is gone: one of its \
         properties (message_id, type, reply_to and others), the name of one of its headers or its routing key is most \
         likely not UTF-8 ({problem}). Remove the message and start the program again. In RabbitMQ's management page, \
         `Get messages` with the mode `Reject requeue false` takes one message from the queue, and moves it to the \
         dead-letter exchange if the queue has one. A quorum queue with a limit of deliveries removes it by itself after \
         some starts of the program"
    );
    what.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: u16 = 1024;

    #[test]
    fn unreadable_message_comes_alone_after_first_time() {
        let mut unreadable = Unreadable::default();
        unreadable.have_come(5);
        assert_eq!(unreadable.prefetch(USUAL), USUAL);
        assert!(!unreadable.ended(USUAL));
        // The messages before it come again, and then all that were behind it.
        for come in 1..USUAL {
            unreadable.have_come(1);
            assert_eq!(unreadable.prefetch(USUAL), 1, "{come}");
        }
        unreadable.have_come(1);
        assert_eq!(unreadable.prefetch(USUAL), USUAL);
    }

    #[test]
    fn unreadable_message_at_the_head_is_final() {
        for usual in [1, USUAL] {
            let mut unreadable = Unreadable::default();
            assert_eq!([(); 3].map(|()| unreadable.ended(usual)), [false; 3], "{usual}");
            assert!(unreadable.ended(usual), "{usual}");
        }
        let mut unreadable = Unreadable::default();
        for _ in 0..10 {
            assert!(!unreadable.ended(USUAL) && !unreadable.ended(USUAL));
            unreadable.have_come(1);
        }
    }

    #[test]
    fn error_names_queue_and_cause() {
        let error = at_the_head("requests", "failed to parse").to_string();
        assert!(error.contains("the queue requests cannot be read") && error.contains("not UTF-8"), "{error}");
    }
}
