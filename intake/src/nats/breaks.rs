//! What the source does when a message may have broken the connection. Pure.
//!
//! The client library drops its connection at a message whose headers it cannot read, such as a name with a blank, a line
//! without a colon or a value that is no UTF-8, and connects again. At a carriage return within a value the library's
//! task ends by a panic, and the client with it. What the server had sent behind such a message is lost, and comes again
//! when `ack_wait` is over, together with that message. So after a second break in that time the source asks for one
//! message at a time around the moment when the message comes again, so that it takes no other with it. A single break is
//! usually the network's, or the server's restart.

use std::time::{Duration, Instant};

use integration_client::BoxError;

/// How much earlier or later than `ack_wait` after a break the lost messages may come again: the server delivered them
/// before the break was noticed, and delivers them again one after the other.
const MARGIN: Duration = Duration::from_secs(30);
/// Clients that end in a row, without a message between, before the source gives up.
const MOST_IN_A_ROW: u32 = 3;

/// What is known of broken connections.
#[derive(Default)]
pub(super) struct Breaks {
    /// When a connection broke last.
    last: Option<Instant>,
    /// From when until when the source asks for one message at a time.
    singly: Option<(Instant, Instant)>,
    /// Clients that ended in a row, without a message between.
    in_a_row: u32,
}

impl Breaks {
    /// The most messages of one request, if it is for `usual` otherwise.
    pub(super) fn batch(&self, usual: usize, now: Instant) -> usize {
        if self.singly.is_some_and(|(from, until)| (from..until).contains(&now)) { 1 } else { usual }
    }

    /// Notes that a message has come.
    pub(super) fn has_come(&mut self) {
        self.in_a_row = 0;
    }

    /// Notes that a connection broke. Returns whether the source will ask for one message at a time when the lost messages
    /// come again.
    pub(super) fn broke(&mut self, ack_wait: Duration, now: Instant) -> bool {
        let longest = ack_wait.saturating_add(MARGIN);
        let before = self.last.replace(now);
        if before.is_none_or(|before| now.saturating_duration_since(before) > longest) {
            return false;
        }
        let from = now.checked_add(ack_wait.saturating_sub(MARGIN));
        self.singly = from.zip(now.checked_add(longest));
        self.singly.is_some()
    }

    /// Notes that a client ended. Returns whether further ones are useless.
    pub(super) fn client_ended(&mut self) -> bool {
        self.in_a_row += 1;
        self.in_a_row >= MOST_IN_A_ROW
    }
}

/// The error of a stream with a message that ends each client, and what to do about it.
pub(super) fn ends_clients(stream: &str, consumer: &str) -> BoxError {
    let what = format!(
        "a message of the stream {stream} has ended the client {MOST_IN_A_ROW} times, and no other message came between: \
         most likely there is a carriage return in the value of one of its headers. Delete the message and start the \
         program again. It is most likely the first one behind the acknowledgement floor that `nats consumer info \
         {stream} {consumer}` shows: nats stream rmm {stream} NUMBER"
    );
    what.into()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any moment will do")]
mod tests {
    use super::*;

    const ACK_WAIT: Duration = Duration::from_secs(300);

    #[test]
    fn messages_come_singly_after_a_second_break() {
        let (mut breaks, start) = (Breaks::default(), Instant::now());
        // The server restarts now and then.
        for number in 0..5 {
            let now = start + number * 2 * ACK_WAIT;
            assert!(!breaks.broke(ACK_WAIT, now));
            assert_eq!(breaks.batch(1_024, now + ACK_WAIT), 1_024);
        }
        let now = start + 9 * ACK_WAIT;
        assert!(breaks.broke(ACK_WAIT, now));
        breaks.has_come();
        let (second, longest) = (Duration::from_secs(1), ACK_WAIT + MARGIN);
        let after = [Duration::ZERO, ACK_WAIT - MARGIN - second, ACK_WAIT, longest - second, longest];
        assert_eq!(after.map(|after| breaks.batch(1_024, now + after)), [1_024, 1_024, 1, 1, 1_024]);
        // The same message breaks the connection again, alone.
        let again = now + ACK_WAIT;
        breaks.broke(ACK_WAIT, again);
        assert_eq!(breaks.batch(1_024, again + ACK_WAIT), 1);
    }

    #[test]
    fn message_that_ends_clients_is_final() {
        let mut breaks = Breaks::default();
        assert_eq!([(); 3].map(|()| breaks.client_ended()), [false, false, true]);
        let mut breaks = Breaks::default();
        for _ in 0..10 {
            assert!(!breaks.client_ended() && !breaks.client_ended());
            breaks.has_come();
        }
        let error = ends_clients("S", "C").to_string();
        assert!(error.contains("nats consumer info S C") && error.contains("carriage return"), "{error}");
    }
}
