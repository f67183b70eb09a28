//! Log events have the fields that `docs/RATE_LIMITS.md` states.
//!
//! Each test needs a process of its own: tracing remembers for all threads whether an event is wanted, and a thread
//! without a subscriber may be the first to ask.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::support::tables;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use tables::rows;

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "none" }
retry = { first_wait = "1s", longest_wait = "10s" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 100
window = "1s"
[vendors.v.endpoints.poisoned]
paths = ["/poisoned/**"]
"#;

/// A subscriber that keeps level, message and field names of all events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("integration_client")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        #[derive(Default)]
        struct Fields(String, Vec<String>);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                match field.name() {
                    "message" => self.0 = format!("{value:?}"),
                    name => self.1.push(name.to_owned()),
                }
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(format!("{} {}: {}", event.metadata().level(), fields.0, fields.1.join(" ")));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn events_have_exactly_their_fields() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let transport = FakeTransport::new(|call: &FakeCall| match (call.path(), call.number) {
        ("/base/poisoned/x", 0..6) => FakeAnswer::status(429).header("retry-after", "1"),
        ("/base/poisoned/x", _) => FakeAnswer::status(200),
        ("/base/failing", _) => FakeAnswer::status(429).header("retry-after", "100"),
        (path, _) => FakeAnswer::status(200)
            .header("x-ratelimit-limit", "100")
            .header("x-ratelimit-remaining", if path == "/base/y" { "15" } else { "7" })
            .header("x-ratelimit-reset", "60"),
    });
    let client = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport);
    let client = client.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let hours = |path| Request::get("v", path).deadline(Duration::from_secs(36_000));
    client.send("a", Priority::Normal, hours("/poisoned/x")).await.unwrap_err();
    client.send("a", Priority::Normal, hours("/poisoned/x")).await.unwrap();
    client.send("a", Priority::Normal, Request::get("v", "/y")).await.unwrap();
    client.send("a", Priority::Normal, Request::get("v", "/z")).await.unwrap();
    let soon = Request::get("v", "/failing").deadline(Duration::from_secs(60));
    client.send("a", Priority::Normal, soon).await.unwrap_err();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut seen = log.0.lock().unwrap().clone();
    seen.sort();
    seen.dedup();
    let events = rows(include_str!("../../docs/RATE_LIMITS.md"), "event in the log");
    assert_eq!(events.len(), 7);
    for row in events {
        let event = format!("{} {}", row[1].to_uppercase(), row[0].split(" (").next().unwrap().trim_matches('`'));
        let of_it: Vec<_> = seen.iter().filter(|line| line.starts_with(&event)).collect();
        assert_eq!(of_it, [&format!("{event}: {}", row[2].replace(',', ""))], "in {seen:#?}");
    }
}

/// Refusals of immediate requests are expected and not logged. They use up none of the lines of a second.
#[tokio::test(start_paused = true)]
async fn refused_immediate_requests_take_no_lines() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\n\
                  retry = { max_retries = 0 }\n[[vendors.v.limits]]\nname = \"slots\"\nconcurrency = 1\n";
    let transport = FakeTransport::new(|_| FakeAnswer::not_connected());
    let client = IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport);
    let client = client.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let held = client.try_acquire("a", "v", Priority::Low, 1).unwrap();
    for _ in 0..20 {
        let error = client.try_send("a", Priority::Low, Request::get("v", "/x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotNow);
    }
    held.not_sent();
    client.send("a", Priority::Low, Request::get("v", "/x")).await.unwrap_err();
    let seen = log.0.lock().unwrap().clone();
    let failed: Vec<&String> = seen.iter().filter(|line| line.contains("request failed")).collect();
    assert_eq!(failed, ["WARN request failed: tenant vendor endpoint kind delivery attempts"], "in {seen:#?}");
}
