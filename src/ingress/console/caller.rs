//! The caller of a call, and the audit lines of what the caller did.

use super::access::Access;
use crate::error::Error;

/// The target of audit lines.
const TARGET: &str = "integration_client::console";
/// What an [`Action`] changes.
const LETTERS: &str = "dead letters";

/// The user or program that makes a call.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) name: String,
    pub(super) access: Access,
    /// The digest of the id of the session that identifies the user, if it was not a token.
    pub(super) session: Option<[u8; 32]>,
}

/// Logs an action of an operator, with the operator's name.
pub(super) fn audit(who: &Who, action: &'static str, on: &str, count: Option<u64>) {
    tracing::info!(target: TARGET, caller = who.name, action, on, count, "an operator acted");
}

/// An action of an operator on dead letters, while it goes on. Its begin and its end are logged, also if it ends with
/// an error, or if its caller goes away, with which its future is dropped.
pub(super) struct Action<'w> {
    who: &'w Who,
    name: &'static str,
    /// The number of letters that were changed so far; `None` if it is unknown.
    pub(super) changed: Option<u64>,
    has_ended: bool,
}

impl<'w> Action<'w> {
    /// Begins an action on `letters` letters.
    pub(super) fn begin(who: &'w Who, name: &'static str, letters: u64) -> Action<'w> {
        tracing::info!(
            target: TARGET,
            caller = who.name,
            action = name,
            on = LETTERS,
            count = letters,
            "an operator begins an action"
        );
        Action { who, name, changed: Some(0), has_ended: false }
    }

    /// Ends the action. Returns the number of letters that were changed.
    pub(super) fn end(mut self, result: Result<(), Error>) -> Result<u64, Error> {
        self.has_ended = true;
        let (caller, action, count) = (&*self.who.name, self.name, self.changed);
        match result {
            Ok(()) => {
                audit(self.who, action, LETTERS, count);
                Ok(count.unwrap_or(0))
            }
            Err(error) => {
                tracing::warn!(
                    target: TARGET, caller, action, on = LETTERS, count, %error, "an action of an operator failed"
                );
                Err(error)
            }
        }
    }
}

impl Drop for Action<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let (caller, action, count) = (&*self.who.name, self.name, self.changed);
            tracing::warn!(
                target: TARGET, caller, action, on = LETTERS, count, "an operator went away before the end of an action"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;
    use crate::error::{Delivery, ErrorKind};

    /// A subscriber that keeps the fields of all events.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.0.push_str(&format!("{}={value:?};", field.name()));
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == TARGET
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().push(line.0);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn each_end_of_an_action_is_logged() {
        let log = Log::default();
        let who = Who { name: "ann".to_owned(), access: Access::Operate, session: None };
        tracing::subscriber::with_default(log.clone(), || {
            let begin = |changed| {
                let mut action = Action::begin(&who, "purge", 9);
                action.changed = changed;
                action
            };
            assert_eq!(begin(Some(9)).end(Ok(())).unwrap(), 9);
            let error = Error::new(ErrorKind::Store, Delivery::Ambiguous, "the disk is full");
            assert!(begin(Some(5)).end(Err(error)).is_err());
            drop(begin(Some(4)));
            drop(begin(None));
        });
        let lines = log.0.lock().clone();
        assert_eq!(lines.len(), 8, "{lines:?}");
        for (number, line) in lines.iter().enumerate() {
            assert!(line.contains("caller=\"ann\";") && line.contains("action=\"purge\";"), "{line}");
            let is_begin = line.contains("begins an action") && line.contains("count=9;");
            assert_eq!(is_begin, number % 2 == 0, "{line}");
        }
        for (number, said, count) in [
            (1, "an operator acted", Some("count=9;")),
            (3, "the disk is full", Some("count=5;")),
            (5, "went away", Some("count=4;")),
            (7, "went away", None),
        ] {
            let line = &lines[number];
            assert!(line.contains(said), "{line}");
            assert!(count.map_or(!line.contains("count="), |count| line.contains(count)), "{line}");
        }
    }
}
