//! Letters as text, the writer in paused time, and files of lines.

mod forms;
mod lines;
mod writing;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span;

use super::*;
use crate::config::priority::Priority;

const TIERS: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

/// A letter whose header value, query and body are `hidden-…`.
fn letter(priority: Priority, note: &str) -> DeadLetter {
    let mut headers = HeaderMap::new();
    headers.insert("x-customer", HeaderValue::from_static("hidden-header"));
    headers.insert("x-bytes", HeaderValue::from_bytes(b"\xffhidden").unwrap());
    let request = LetterRequest::whole(&Method::POST, "/orders?name=hidden-query", &headers, "hidden-body");
    let mut letter =
        DeadLetter::new(at("2026-02-03T04:05:06.789Z"), "acme", "shop", priority, Reason::Exhausted, request);
    letter.endpoint = Some("orders".into());
    letter.metadata.insert("order".into(), note.into());
    letter.idempotency_key = Some("key-1".into());
    let mut answered = AttemptRecord::new(at("2026-02-03T04:05:00Z"), Phase::Answered, 12);
    answered.status = Some(429);
    answered.retry_after_ms = Some(3000);
    let mut broken = AttemptRecord::new(at("2026-02-03T04:05:04Z"), Phase::MaybeSent, 30_000);
    broken.error = Some("no answer in time".into());
    letter.attempts = vec![answered, broken];
    letter
}

fn note(letter: &DeadLetter) -> &str {
    &letter.metadata["order"]
}

/// A folder that is deleted with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("integration-client-letters-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("letters.jsonl")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.0.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// The log events of this thread, each with its fields.
#[derive(Clone, Default)]
struct LogEvents(Arc<Mutex<Vec<BTreeMap<String, String>>>>);

impl LogEvents {
    fn with_message(&self, message: &str) -> Vec<BTreeMap<String, String>> {
        self.0.lock().iter().filter(|fields| fields["message"] == message).cloned().collect()
    }

    /// The letters in "dead letter not written" events.
    fn lost_letters(&self) -> Vec<DeadLetter> {
        let events = self.with_message("dead letter not written");
        events.iter().map(|fields| serde_json::from_str(&fields["letter"]).unwrap()).collect()
    }

    fn capture() -> (LogEvents, tracing::subscriber::DefaultGuard) {
        let events = LogEvents::default();
        let guard = tracing::subscriber::set_default(events.clone());
        (events, guard)
    }
}

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl tracing::Subscriber for LogEvents {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        if event.metadata().target().starts_with("integration_client::dead_letter") {
            self.0.lock().push(fields.0);
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
