//! Tests of who calls the console.

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
