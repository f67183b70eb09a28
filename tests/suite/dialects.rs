//! Clients of vendors that refuse requests in forms of their own, in virtual time: no socket, nothing really sleeps.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "tests: they measure and spawn")]

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, StatusCode};
use hyper::body::{Body, Frame};
use integration_client::config::TenantEntry;
use integration_client::events::{EventKind, Events};
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::transport::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError};
use integration_client::{BoxFuture, ErrorKind, IntegrationClient, Priority, Request};
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

fn pending_event_kinds(events: &mut Events) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    let mut context = Context::from_waker(std::task::Waker::noop());
    while let Poll::Ready(Some(event)) = Pin::new(&mut *events).poll_next(&mut context) {
        kinds.push(event.kind);
    }
    kinds
}

/// Answers the first `n` calls by `refuse` and the others by `take`.
fn refuse_first(
    n: usize,
    refuse: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync,
    take: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync,
) -> impl Fn(&FakeCall) -> FakeAnswer + Send + Sync {
    let calls = Arc::new(AtomicUsize::new(0));
    move |call| if calls.fetch_add(1, Ordering::Relaxed) < n { refuse(call) } else { take(call) }
}

#[tokio::test(start_paused = true)]
async fn refusal_in_200_body_is_retried() {
    let refuse = |_: &FakeCall| FakeAnswer::status(200).body("{\"ok\":false,\"error\":\"ratelimited\"}");
    let client = client(refuse_first(1, refuse, |_| FakeAnswer::status(200).body("{\"ok\":true}"))).await;
    let began = Instant::now();
    // A POST is not idempotent. It is sent again all the same, because the vendor has not acted.
    let post = Request::post("v", "/x").deadline(Duration::from_secs(600));
    let response = client.send("a", Priority::High, post).await.unwrap();
    assert_eq!(response.attempts(), 2);
    let waited = began.elapsed();
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(30), "{waited:?}");
    // The caller still gets the part of the body that the client has read ahead.
    assert_eq!(response.text().await.unwrap(), "{\"ok\":true}");
}

/// Only gzip is decoded: in any other coding that an SDK accepts, the body would hide the refusal.
#[tokio::test(start_paused = true)]
async fn brotli_of_the_sdk_hides_no_refusal() {
    let in_coding = |call: &FakeCall, text: &'static str| match call.header("accept-encoding") {
        Some(codings) if codings.contains("br") => {
            FakeAnswer::status(200).header("content-encoding", "br").body(&b"\x0b\x0e\x80 packed"[..])
        }
        _ => FakeAnswer::status(200).body(text),
    };
    let refuse = move |call: &FakeCall| in_coding(call, "{\"ok\":false,\"error\":\"ratelimited\"}");
    let transport = FakeTransport::new(refuse_first(1, refuse, move |call| in_coding(call, "{\"ok\":true}")));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport.clone());
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let post = Request::post("v", "/x").header("accept-encoding", "gzip, br").deadline(Duration::from_secs(600));
    let response = client.send("a", Priority::High, post).await.unwrap();
    assert_eq!(response.attempts(), 2);
    assert_eq!(response.text().await.unwrap(), "{\"ok\":true}");
    let asked: Vec<_> = transport.calls().iter().map(|call| call.headers.get("accept-encoding").cloned()).collect();
    assert_eq!(asked, [None, None], "the transport adds what it decodes");
}

#[tokio::test(start_paused = true)]
async fn status_429_without_limit_is_returned() {
    let client = client(|_| FakeAnswer::status(429).body("{\"error\":\"quota\"}")).await;
    let mut events = client.events();
    let response = client.send("a", Priority::High, get("/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (429, 1));
    assert_eq!(response.text().await.unwrap(), "{\"error\":\"quota\"}");
    assert!(!pending_event_kinds(&mut events).iter().any(|kind| matches!(kind, EventKind::Refused { .. })));
}

#[tokio::test(start_paused = true)]
async fn wait_in_a_body_is_waited_for() {
    let refuse = |_: &FakeCall| FakeAnswer::status(429).body("{\"parameters\":{\"retry_after\":123}}");
    let client = client(refuse_first(1, refuse, |_| FakeAnswer::status(204))).await;
    let began = Instant::now();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().attempts(), 2);
    assert!(began.elapsed() >= Duration::from_secs(123), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn forbidden_with_nothing_left_is_a_refusal() {
    let refuse = |_: &FakeCall| {
        FakeAnswer::status(403).header("x-acme-ratelimit-remaining", "0").header("x-acme-ratelimit-reset", "40")
    };
    let client = client(refuse_first(1, refuse, |_| FakeAnswer::status(204))).await;
    let began = Instant::now();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().attempts(), 2);
    assert!(began.elapsed() >= Duration::from_secs(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn wait_in_body_of_forbidden_counts() {
    let refuse =
        |_: &FakeCall| FakeAnswer::status(403).header("x-acme-ratelimit-remaining", "0").body("{\"retry_after\":123}");
    let client = client(refuse_first(1, refuse, |_| FakeAnswer::status(204))).await;
    let began = Instant::now();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().attempts(), 2);
    assert!(began.elapsed() >= Duration::from_secs(123), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn endpoint_refusal_holds_up_no_other() {
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
    // A request to the refused endpoint itself waits, or fails with an error.
    let error = client.send("a", Priority::High, get("/orders/2").deadline(Duration::from_secs(60))).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::RetryLater | ErrorKind::Timeout), "{error:?}");
}

/// The response does not say of which of two limits nothing is left.
#[tokio::test(start_paused = true)]
async fn nothing_left_without_a_limit_is_waited_for() {
    let burst = "[[vendors.v.limits]]\nname = \"burst\"\nalgorithm = \"fixed_window\"\nlimit = 10\nwindow = \"1s\"\n";
    let vendor = VENDOR.replace("sliding_window", "fixed_window");
    let vendor = vendor.replacen("[vendors.v.endpoints", &format!("{burst}[vendors.v.endpoints"), 1);
    let script = |call: &FakeCall| match call.number {
        0 => FakeAnswer::status(204).header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", "30"),
        _ => FakeAnswer::status(204),
    };
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor);
    let client =
        builder.transport(FakeTransport::new(script)).tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    let began = Instant::now();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    assert!((30..=32).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lower_stated_limit_is_reported_once() {
    let script = |_: &FakeCall| FakeAnswer::status(204).header("ratelimit-policy", "\"requests\";q=30;w=60");
    let client = client(script).await;
    let mut events = client.events();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    let began = Instant::now();
    for _ in 0..24 {
        client.send("a", Priority::High, get("/x")).await.unwrap();
    }
    // The pace is 80 % of 30 requests a minute. At a limit of 100 a minute all would have been sent at once.
    assert!(began.elapsed() >= Duration::from_secs(45), "{:?}", began.elapsed());
    let stated = |kind: &EventKind| matches!(kind, EventKind::LimitStated { configured: 100, stated: 30, .. });
    assert_eq!(pending_event_kinds(&mut events).iter().filter(|kind| stated(kind)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn higher_stated_limit_is_reported_only() {
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
    // The event comes at once, and again after each minute.
    let said = pending_event_kinds(&mut events).iter().filter(|kind| stated(kind)).count();
    assert_eq!(said, 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap());
}

/// All forms in which a server can state a wait of `wait` seconds, as headers and a body. The server's clock shows
/// 2026-01-15T10:00:00Z, whatever the client's clock shows.
#[expect(clippy::type_complexity, reason = "a table: what it is called, headers, body")]
fn stated_wait_forms(wait: u64) -> Vec<(&'static str, Vec<(&'static str, String)>, String)> {
    const NOW: i64 = 1_768_471_200;
    let moment = NOW + i64::try_from(wait).unwrap();
    let iso = jiff::Timestamp::from_second(moment).unwrap();
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    let date = printer.timestamp_to_rfc9110_string(&iso).unwrap();
    let duration = format!("{}m{}s", wait / 60, wait % 60);
    let spent = |reset: String| vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", reset)];
    let one = |name: &'static str, value: String| vec![(name, value)];
    let none = String::new;
    let field = format!("\"a\";r=4;t=1, \"b\";r=0;t={wait}");
    vec![
        ("seconds", one("retry-after", format!("{wait}")), none()),
        ("a decimal", one("retry-after", format!("{wait}.000")), none()),
        ("a date", one("retry-after", date.clone()), none()),
        ("ISO 8601", one("retry-after", iso.to_string()), none()),
        ("a duration", one("retry-after", duration.clone()), none()),
        ("a moment", one("x-ratelimit-retryafter", format!("{moment}")), none()),
        ("milliseconds", one("retry-after-ms", format!("{wait}000")), none()),
        ("a reset", spent(format!("{wait}")), none()),
        ("a reset as a moment", spent(format!("{moment}")), none()),
        ("a reset in milliseconds", spent(format!("{moment}000")), none()),
        ("a reset as a date", spent(date), none()),
        ("a reset as a duration", spent(duration.clone()), none()),
        ("a structured field", one("ratelimit", field), none()),
        ("a member", vec![], format!("{{\"error\":{{\"retry_after\":{wait}}}}}")),
        ("milliseconds in a member", vec![], format!("{{\"retry_after_ms\":{wait}000}}")),
        ("a sentence", vec![], format!("{{\"message\":\"Please try again in {duration}.\"}}")),
        ("two headers", vec![("retry-after", "1".into()), ("retry-after", format!("{wait}"))], none()),
    ]
}

#[tokio::test(start_paused = true)]
async fn stated_wait_is_read_in_any_form() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..12 {
        let wait = random.u64(2..=600);
        for (form, lines, body) in stated_wait_forms(wait) {
            let refuse = move |_: &FakeCall| {
                let answer = FakeAnswer::status(429).header("date", "Thu, 15 Jan 2026 10:00:00 GMT");
                lines.iter().fold(answer, |answer, (name, value)| answer.header(name, value)).body(body.clone())
            };
            // When the first request after the refusal was sent.
            let sent = Arc::new(OnceLock::new());
            let take = {
                let sent = sent.clone();
                move |_: &FakeCall| {
                    sent.get_or_init(Instant::now);
                    FakeAnswer::status(204)
                }
            };
            let client = client(refuse_first(1, refuse, take)).await;
            let began = Instant::now();
            // One request is refused, and another one arrives during the wait.
            let other = tokio::spawn({
                let client = client.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    client.send("a", Priority::High, get("/y").deadline(Duration::from_secs(1200))).await
                }
            });
            client.send("a", Priority::Low, get("/x").deadline(Duration::from_secs(1200))).await.unwrap();
            other.await.unwrap().unwrap();
            let waited = sent.get().unwrap().duration_since(began);
            assert!(waited >= Duration::from_secs(wait), "{form}, round {round}: {wait} s, sent after {waited:?}");
            assert!(waited <= Duration::from_secs(wait + wait / 5 + 10), "{form}: {wait} s, sent after {waited:?}");
        }
    }
}

/// Status codes outside the standard. The entry says what they mean; 420 and 509 mean the same at every vendor that
/// uses them.
#[tokio::test(start_paused = true)]
async fn vendor_codes_of_refusals_are_retried() {
    for (vendor, status) in [("anthropic", 529), ("notion", 529), ("github", 420), ("github", 509)] {
        let transport = FakeTransport::new(refuse_first(
            1,
            move |_| FakeAnswer::status(status).header("retry-after", "3"),
            |_| FakeAnswer::status(200),
        ));
        let builder = IntegrationClient::builder().transport(transport.clone());
        let builder = builder.credential_resolver("test", |_: String| async { Ok("key".into()) });
        let client = builder.tenant(TenantEntry::new("a", vendor).credential("test:key")).build().await.unwrap();
        let response = client.send("a", Priority::Normal, Request::post(vendor, "/x").body("{}")).await.unwrap();
        assert_eq!((response.status().as_u16(), response.attempts()), (200, 2), "{vendor} {status}");
        let calls = transport.calls();
        assert!(calls[1].at.since(calls[0].at) >= Duration::from_secs(3), "{vendor} {status}: as it asked");
    }
    let client = client(|_| FakeAnswer::status(529)).await;
    let error = client.send("a", Priority::Normal, Request::post("v", "/x")).await.unwrap_err();
    assert!(error.to_string().contains("the vendor answered 529, and may have acted"), "{error}");
}

/// Answers each batch with its first part, which is refused, and breaks the connection off then.
#[derive(Clone, Default)]
struct BreakingVendor {
    calls: Arc<AtomicUsize>,
}

impl Transport for BreakingVendor {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let begun = Begun(Some("{\"responses\":[{\"status\":429},"));
            let body = AnswerBody::new(begun, exchange.vendor.max_response_bytes, exchange.deadline);
            Ok(Answer::new(StatusCode::OK, HeaderMap::new(), body))
        })
    }
}

/// The beginning of a body, and an error after it.
struct Begun(Option<&'static str>);

impl Body for Begun {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        Poll::Ready(Some(match self.0.take() {
            Some(text) => Ok(Frame::data(Bytes::from_static(text.as_bytes()))),
            None => Err(TransportError::new(Sent::Answered, ErrorKind::Protocol, "the connection broke")),
        }))
    }
}

/// The parts that are missing may have been done.
#[tokio::test(start_paused = true)]
async fn broken_batch_is_not_sent_again() {
    const BATCHES: &str =
        "answers = [{ status = [200], from = \"body#/responses/*/status\", is = [429], throttled = true }]";
    let vendor = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n[vendors.v.dialect]\n{BATCHES}\n"
    );
    let transport = BreakingVendor::default();
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport.clone());
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let response = client.send("a", Priority::Normal, Request::post("v", "/$batch").body("[]")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 1));
    assert_eq!(response.text().await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(transport.calls.load(Ordering::Relaxed), 1);
}

/// The limit is the account's, and the response states no wait.
#[tokio::test(start_paused = true)]
async fn refused_part_of_a_batch_pauses_its_account() {
    const BATCHES: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
scope = "tenant"
limit = 100
window = "1m"
[vendors.v.dialect]
answers = [{ status = [200], from = "body#/responses/*/status", is = [429], throttled = true, scope = "account" }]
"#;
    let transport =
        FakeTransport::new(|_| FakeAnswer::status(200).body("{\"responses\":[{\"status\":429},{\"status\":201}]}"));
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(BATCHES).transport(transport);
    let tenants = [("a", "one"), ("b", "one"), ("c", "two")];
    for (tenant, account) in tenants {
        builder = builder.tenant(TenantEntry::new(tenant, "v").account(account));
    }
    let client = builder.build().await.unwrap();
    let mut events = client.events();
    let response = client.send("a", Priority::Normal, Request::post("v", "/$batch").body("[]")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 1));
    let paused = tenants.map(|(tenant, _)| client.tenants().paused_for(tenant, "v").unwrap().is_some());
    assert_eq!(paused, [true, true, false]);
    let refusals = pending_event_kinds(&mut events);
    assert_eq!(refusals.iter().filter(|kind| matches!(kind, EventKind::Refused { .. })).count(), 1, "{refusals:?}");
}
