//! A client that is refused in its vendor's own way, on virtual time: no socket, nothing sleeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_core::Stream;
use integration_client::config::TenantEntry;
use integration_client::events::{EventKind, Events};
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use tokio::time::Instant;

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "none" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 100
window = "1m"
[vendors.v.endpoints.orders]
paths = ["/orders/**"]
[vendors.v.endpoints.stock]
paths = ["/stock/**"]
[vendors.v.dialect]
answers = [
    { status = [200], from = "body#/error", is = ["ratelimited"], throttled = true, wait = "20s" },
    { status = [429], from = "body#/error", is = ["quota"], throttled = false },
    { status = [429], from = "x-scope", is = ["route"], scope = "endpoint" },
]
"#;

async fn client(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    builder.transport(FakeTransport::new(script)).tenant(TenantEntry::new("a", "v")).build().await.unwrap()
}

fn get(path: &str) -> Request {
    Request::get("v", path).deadline(Duration::from_secs(600))
}

fn heard(events: &mut Events) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while let std::task::Poll::Ready(Some(event)) = Pin::new(&mut *events).poll_next(&mut context) {
        kinds.push(event.kind);
    }
    kinds
}

/// Counts calls: the first `n` are answered by the first script.
fn first(
    n: usize,
    refuse: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync,
    take: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync,
) -> impl Fn(&FakeCall) -> FakeAnswer + Send + Sync {
    let calls = Arc::new(AtomicUsize::new(0));
    move |call| if calls.fetch_add(1, Ordering::Relaxed) < n { refuse(call) } else { take(call) }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_the_body_of_a_200_is_sent_again_after_the_vendors_default_wait() {
    let refuse = |_: &FakeCall| FakeAnswer::status(200).body("{\"ok\":false,\"error\":\"ratelimited\"}");
    let client = client(first(1, refuse, |_| FakeAnswer::status(200).body("{\"ok\":true}"))).await;
    let began = Instant::now();
    // Not idempotent: it is sent again all the same, for the vendor did not act.
    let post = Request::post("v", "/x").deadline(Duration::from_secs(600));
    let response = client.send("a", Priority::High, post).await.unwrap();
    assert_eq!(response.attempts(), 2);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(30), "{waited:?}");
    // What was read ahead is the caller's.
    assert_eq!(response.text().await.unwrap(), "{\"ok\":true}");
}

#[tokio::test(start_paused = true)]
async fn a_429_that_is_no_limit_is_the_callers() {
    let client = client(|_| FakeAnswer::status(429).body("{\"error\":\"quota\"}")).await;
    let mut events = client.events();
    let response = client.send("a", Priority::High, get("/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (429, 1));
    assert_eq!(response.text().await.unwrap(), "{\"error\":\"quota\"}");
    assert!(!heard(&mut events).iter().any(|kind| matches!(kind, EventKind::Refused { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_a_body_is_waited_for() {
    let refuse = |_: &FakeCall| FakeAnswer::status(429).body("{\"parameters\":{\"retry_after\":123}}");
    let client = client(first(1, refuse, |_| FakeAnswer::status(204))).await;
    let began = Instant::now();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().attempts(), 2);
    assert!(began.elapsed() >= Duration::from_secs(123), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn forbidden_with_nothing_left_is_a_refusal() {
    let refuse = |_: &FakeCall| {
        FakeAnswer::status(403).header("x-acme-ratelimit-remaining", "0").header("x-acme-ratelimit-reset", "40")
    };
    let client = client(first(1, refuse, |_| FakeAnswer::status(204))).await;
    let began = Instant::now();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().attempts(), 2);
    assert!(began.elapsed() >= Duration::from_secs(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_an_endpoints_own_limit_holds_up_no_other() {
    let script = |call: &FakeCall| match call.path().contains("orders") {
        true => FakeAnswer::status(429).header("x-scope", "route").header("retry-after", "300"),
        false => FakeAnswer::status(204),
    };
    let client = client(script).await;
    let orders = tokio::spawn({
        let client = client.clone();
        async move { client.send("a", Priority::High, get("/orders/1").deadline(Duration::from_secs(60))).await }
    });
    let error = orders.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryLater);
    let began = Instant::now();
    client.send("a", Priority::Low, get("/stock/1")).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    // And what goes to the endpoint itself waits, or is handed back.
    let error = client.send("a", Priority::High, get("/orders/2").deadline(Duration::from_secs(60))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RetryLater | ErrorKind::Timeout), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lower_limit_that_the_vendor_states_is_kept_to_and_said_once() {
    let script = |_: &FakeCall| FakeAnswer::status(204).header("ratelimit-policy", "\"requests\";q=30;w=60");
    let client = client(script).await;
    let mut events = client.events();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    let began = Instant::now();
    for _ in 0..24 {
        client.send("a", Priority::High, get("/x")).await.unwrap();
    }
    // Four fifths of thirty a minute; of a hundred a minute, they would have gone at once.
    assert!(began.elapsed() >= Duration::from_secs(45), "{:?}", began.elapsed());
    let stated = |kind: &EventKind| matches!(kind, EventKind::LimitStated { configured: 100, stated: 30, .. });
    assert_eq!(heard(&mut events).iter().filter(|kind| stated(kind)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_that_the_vendor_states_changes_nothing_and_is_said() {
    let script = |_: &FakeCall| {
        let answer = FakeAnswer::status(204).header("x-ratelimit-limit", "200").header("x-ratelimit-window", "60");
        answer.header("x-ratelimit-remaining", "190")
    };
    let client = client(script).await;
    let mut events = client.events();
    let began = Instant::now();
    for _ in 0..101 {
        client.send("a", Priority::High, get("/x")).await.unwrap();
    }
    assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
    let stated = |kind: &EventKind| matches!(kind, EventKind::LimitStated { configured: 100, stated: 200, .. });
    // At once, and again after a minute.
    let said = heard(&mut events).iter().filter(|kind| stated(kind)).count();
    assert_eq!(said, 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap());
}
