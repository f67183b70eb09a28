//! For how long the outbox recognises messages. A source whose broker has lost the position up to which messages were
//! acknowledged must not begin at messages that may be forgotten: those that were accepted would be sent again.

use std::time::{Duration, SystemTime};

use integration_client::BoxError;
use parking_lot::Mutex;

/// The time for which the outbox recognises a message that it has accepted. Nothing counts as recognised before the
/// hand-over [begins](integration_client::outbox::IntakeSource::begin).
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Duration>);

impl Memory {
    pub(crate) fn set(&self, keep_seen: Duration) {
        *self.0.lock() = keep_seen;
    }

    /// The time for which the outbox recognises a message that it has accepted.
    #[cfg(feature = "kafka")]
    pub(crate) fn keep_seen(&self) -> Duration {
        *self.0.lock()
    }

    /// Whether the outbox may have accepted a message so long ago that it does not recognise it at `now`. A message is
    /// accepted when it was sent, or later. One of which that time is not known may be forgotten.
    pub(crate) fn may_forget(&self, sent_at: Option<SystemTime>, now: SystemTime) -> bool {
        let keep_seen = *self.0.lock();
        sent_at.is_none_or(|at| now.duration_since(at).is_ok_and(|age| age > keep_seen))
    }

    /// The error of a source without a position, whose first messages may have been accepted and forgotten. `unbegun`
    /// says when none was accepted, `lack` which position is missing, and `by_hand` how to set it to a certain message.
    pub(crate) fn no_position(&self, unbegun: &str, lack: &str, by_hand: &str) -> BoxError {
        let span = self.span();
        let what = format!(
            "if {unbegun}: run the command once more with `--begin-at first`, by which it begins at the first message \
             (in a program: integration_client_intake::begin_at). Otherwise {lack}, which would tell the messages that were \
             accepted, and of the messages that are there, those that were accepted more than {span} ago (keep_seen) \
             would be sent again; a longer keep_seen brings no ids back. `--begin-at {span}` takes no message that is \
             older, and `--begin-at new` takes none of those that are there: both skip messages that were never \
             accepted. And {by_hand}"
        );
        what.into()
    }

    /// The time in a form that the brokers' own programs read, such as `168h` or `90s`.
    pub(crate) fn span(&self) -> String {
        match self.0.lock().as_secs() {
            seconds if seconds > 0 && seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
            seconds => format!("{seconds}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_message_may_be_forgotten() {
        let (memory, day) = (Memory::default(), Duration::from_secs(86_400));
        let now = SystemTime::UNIX_EPOCH + 20_000 * day;
        let may_forget = |age: Duration| memory.may_forget(Some(now - age), now);
        assert!(may_forget(Duration::from_millis(1)), "the hand-over has not begun");
        memory.set(7 * day);
        assert_eq!([day, 7 * day, 8 * day].map(may_forget), [false, false, true]);
        assert!(memory.may_forget(None, now));
        assert!(!memory.may_forget(Some(now + day), now), "the clocks differ");
    }

    #[test]
    fn span_is_readable() {
        let memory = Memory::default();
        let spans = [0, 90, 3_600, 7 * 86_400].map(|seconds| {
            memory.set(Duration::from_secs(seconds));
            memory.span()
        });
        assert_eq!(spans, ["0s", "90s", "1h", "168h"]);
    }
}
