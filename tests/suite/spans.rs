//! The spans of a send, and their cost without a subscriber.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{IntegrationClient, Priority, Request};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "none" }
retry = { first_wait = "1s", longest_wait = "10s" }
[vendors.v.endpoints.orders]
paths = ["/orders/**"]
"#;

#[derive(Default, Debug)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    /// The number of events inside the span.
    events: u32,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber that keeps spans at the index id - 1; if its flag is set, only those up to level info.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<(Vec<Seen>, Vec<u64>)>>, bool);

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("integration_client") && !(self.1 && *metadata.level() > Level::INFO)
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let (spans, entered) = &mut *self.0.lock().unwrap();
        let current = entered.last().copied().filter(|_| attributes.is_contextual());
        let parent = attributes.parent().map(Id::into_u64).or(current);
        let mut span = Seen { name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut span);
        spans.push(span);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.0.lock().unwrap().0[span.into_u64() as usize - 1]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        let (spans, entered) = &mut *self.0.lock().unwrap();
        if let Some(current) = entered.last() {
            spans[*current as usize - 1].events += 1;
        }
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().1.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().1.pop();
    }

    fn clone_span(&self, id: &Id) -> Id {
        id.clone()
    }
}

async fn client(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    let builder = builder.transport(FakeTransport::new(script)).tenant(TenantEntry::new("a", "v"));
    builder.build().await.unwrap()
}

fn get(path: &str) -> Request {
    Request::get("v", path).deadline(Duration::from_secs(3_600))
}

#[tokio::test(start_paused = true)]
async fn send_is_a_span_with_attempt_children() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    let client = client(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "7"),
        1 => FakeAnswer::not_connected(),
        _ => FakeAnswer::status(200),
    })
    .await;
    let response = client.send("a", Priority::Low, get("/orders/7?key=hidden")).await.unwrap();
    assert_eq!(response.request_id(), 1);
    let seen = &spans.0.lock().unwrap().0;
    let told: Vec<String> = seen
        .iter()
        .map(|span| {
            let fields: Vec<String> = span.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{:?} {}: {}", span.parent, span.name, fields.join(" "))
        })
        .collect();
    let waited = seen[2].fields["waited_ms"].parse::<u64>().unwrap();
    assert!((7_000..=7_701).contains(&waited), "{waited}");
    assert_eq!(
        told,
        [
            "None integration_client.send: attempts=3 endpoint=\"orders\" http.request.method=\"GET\" \
             http.response.status_code=200 priority=low request_id=1 tenant=\"a\" vendor=\"v\""
                .to_owned(),
            "Some(1) attempt: attempt=1 error.type=\"429\" http.request.method=\"GET\" \
             http.response.status_code=429 otel.kind=\"client\" server.address=\"v.example\" waited_ms=0"
                .to_owned(),
            format!(
                "Some(1) attempt: attempt=2 error.type=\"connect\" http.request.method=\"GET\" \
                 http.request.resend_count=1 otel.kind=\"client\" server.address=\"v.example\" waited_ms={waited}"
            ),
            "Some(1) attempt: attempt=3 http.request.method=\"GET\" http.request.resend_count=2 \
             http.response.status_code=200 otel.kind=\"client\" server.address=\"v.example\" waited_ms=0"
                .to_owned(),
        ]
    );
    assert!(seen[0].events >= 3, "the log events of a send are inside its span: {:?}", seen[0]);
}

#[tokio::test(start_paused = true)]
async fn info_level_has_no_spans() {
    let spans = Spans(Arc::default(), true);
    let _guard = tracing::subscriber::set_default(spans.clone());
    let client = client(|_| FakeAnswer::status(200)).await;
    client.send("a", Priority::Low, get("/x")).await.unwrap();
    assert!(spans.0.lock().unwrap().0.is_empty(), "{:?}", spans.0.lock().unwrap().0);
}

#[tokio::test(start_paused = true)]
async fn failed_sends_leave_no_span_entered() {
    let spans = Spans::default();
    let _guard = tracing::subscriber::set_default(spans.clone());
    let client = client(|call| match call.number {
        0 => FakeAnswer::reset(),
        _ => FakeAnswer::stall(),
    })
    .await;
    client.send("a", Priority::High, Request::post("v", "/x")).await.unwrap_err();
    let send = client.send("a", Priority::High, get("/x"));
    tokio::time::timeout(Duration::from_secs(1), send).await.unwrap_err();
    let (seen, entered) = &*spans.0.lock().unwrap();
    assert_eq!((seen.len(), entered.len()), (4, 0));
    assert_eq!((&*seen[0].fields["error.type"], &*seen[0].fields["attempts"]), ("\"protocol\"", "1"));
    assert_eq!(&*seen[1].fields["error.type"], "\"protocol\"");
    assert!(!seen[2].fields.contains_key("attempts"), "{:?}", seen[2]);
}

#[tokio::test(start_paused = true)]
async fn future_of_a_send_stays_small() {
    let client = client(|_| FakeAnswer::status(200)).await;
    let future = client.send("a", Priority::High, get("/x"));
    let bytes = size_of_val(&future);
    println!("the future of a send: {bytes} bytes");
    assert!(bytes <= MOST_BYTES, "{bytes}");
    drop(future);
}

const MOST_BYTES: usize = 1_024;
