//! What `send` does when the vendor refuses requests or fails, in virtual time: no socket, nothing really sleeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxFuture;
use integration_client::config::{OnAmbiguous, TenantEntry};
use integration_client::dead_letter::{DeadLetter, LetterRequest, MemorySink, Phase, Reason};
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::transport::{CredentialResolver, SecretString};
use integration_client::{
    Class, Classifier, Delivery, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request,
};
use tokio::time::Instant;

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "bearer" }
dead_letters = "whole"
idempotency = { header = "idempotency-key" }
retry = { first_wait = "1s", longest_wait = "10s" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 100
window = "1s"
[vendors.v.endpoints.poisoned]
paths = ["/poisoned/**"]
"#;

/// The part of the vendor's entry about idempotency keys.
const KEYS: &str = "idempotency = { header = \"idempotency-key\" }\n";

/// A resolver whose credential changes with each call.
#[derive(Clone, Default)]
struct ChangingCredential(Arc<Mutex<u32>>);

impl CredentialResolver for ChangingCredential {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<SecretString, Box<dyn std::error::Error + Send + Sync>>> {
        let mut count = self.0.lock().unwrap();
        *count += 1;
        let key = format!("key-{count}");
        Box::pin(async move { Ok(key.into()) })
    }
}

fn builder(transport: &FakeTransport) -> IntegrationClientBuilder {
    builder_with(VENDOR, transport)
}

fn builder_with(vendor: &str, transport: &FakeTransport) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor)
        .credential_resolver("keys", ChangingCredential::default())
        .transport(transport.clone())
        .tenant(TenantEntry::new("a", "v").credential("keys:a"))
}

async fn client(
    script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static,
) -> (IntegrationClient, FakeTransport) {
    let transport = FakeTransport::new(script);
    (builder(&transport).build().await.unwrap(), transport)
}

fn with_long_deadline(request: Request) -> Request {
    request.deadline(Duration::from_secs(36_000))
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// The gaps between successive calls, in milliseconds.
fn gaps(transport: &FakeTransport) -> Vec<u128> {
    let calls = transport.calls();
    calls.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_millis()).collect()
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_a_floor() {
    let (client, transport) = client(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "7"),
        1 => FakeAnswer::status(503).header("retry-after", "3"),
        _ => FakeAnswer::status(200),
    })
    .await;
    let response = client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 3));
    let gaps = gaps(&transport);
    assert!((7_000..=7_702).contains(&gaps[0]), "{gaps:?}: jitter only adds, a tenth at most");
    assert!((3_000..=6_400).contains(&gaps[1]), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn paused_lane_sends_one_probe_first() {
    let (client, transport) = client(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "5"),
        _ => FakeAnswer::status(200).delay(Duration::from_millis(300)),
    })
    .await;
    let sends = (0..20).map(|_| client.send("a", Priority::Normal, Request::get("v", "/x")));
    let refused = client.send("a", Priority::High, Request::get("v", "/x"));
    let later = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(client.tenants().paused_for("a", "v").unwrap().unwrap() >= Duration::from_millis(4_998));
        for result in join_all(sends).await {
            assert_eq!(result.unwrap().status(), 200);
        }
    };
    let (first, ()) = tokio::join!(refused, later);
    assert_eq!(first.unwrap().status(), 200);
    let gaps = gaps(&transport);
    assert!(gaps[0] >= 5_000 && gaps[1] >= 300, "one alone, until it is answered: {gaps:?}");
    assert_eq!(client.tenants().paused_for("a", "v").unwrap(), None);
}

async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.map(Box::pin).collect();
    let mut results: Vec<Option<F::Output>> = pinned.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, result) in pinned.iter_mut().zip(&mut results) {
            if result.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *result = Some(value);
            }
        }
        match results.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[tokio::test(start_paused = true)]
async fn wait_beyond_the_deadline_is_returned() {
    let (client, transport) = client(|_| FakeAnswer::status(429).header("retry-after", "3600")).await;
    let began = now();
    let minute = Request::get("v", "/x").deadline(Duration::from_secs(60));
    let error = client.send("a", Priority::Normal, minute).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::RetryLater, Delivery::Rejected));
    assert!(error.retry_after().unwrap() >= Duration::from_secs(3_600));
    assert_eq!((error.response().unwrap().status().as_u16(), error.letter_id()), (429, None));
    let error = client.send("a", Priority::High, with_long_deadline(Request::get("v", "/x"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RetryLater, "longer than anybody is kept");
    assert_eq!((transport.calls().len(), began.elapsed().as_secs()), (1, 0));
    assert_eq!(client.overview().failed, BTreeMap::from([("retry_later", 2)]));
}

/// A client with a sink that the test can read, and a vendor with the default retry waits.
async fn client_with_sink(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> ClientWithSink {
    let transport = FakeTransport::new(script);
    let sink = Arc::new(MemorySink::new(100));
    let vendor = VENDOR.replace("first_wait = \"1s\", longest_wait = \"10s\"", "");
    let client = builder_with(&vendor, &transport).dead_letter_sink(sink.clone()).build().await.unwrap();
    ClientWithSink { client, transport, sink }
}

struct ClientWithSink {
    client: IntegrationClient,
    transport: FakeTransport,
    sink: Arc<MemorySink>,
}

impl ClientWithSink {
    /// Sends a request that must fail. Returns the kind of the error, the reasons of all dead letters so far, and the
    /// number of exchanges.
    async fn expect_failure(&self, request: Request) -> (ErrorKind, Vec<Reason>, usize) {
        let error = self.client.send("a", Priority::Normal, request).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(10)).await;
        let letters = self.sink.letters();
        assert_eq!(letters.last().map(|letter| &*letter.id), error.letter_id());
        (error.kind(), letters.iter().map(|letter| letter.reason).collect(), self.transport.calls().len())
    }
}

#[tokio::test(start_paused = true)]
async fn retries_without_deadline_use_the_whole_schedule() {
    let get = || Request::get("v", "/x");
    for (wait, least, most) in [(None, 155, 280), (Some("60"), 300, 335), (Some("600"), 3_000, 3_030)] {
        let refused = move |_: &FakeCall| match wait {
            Some(wait) => FakeAnswer::status(429).header("retry-after", wait),
            None => FakeAnswer::status(429),
        };
        let began = now();
        let end = client_with_sink(refused).await.expect_failure(get()).await;
        assert_eq!(end, (ErrorKind::Exhausted, vec![Reason::Exhausted], 6), "{wait:?}");
        let took = began.elapsed().as_secs();
        assert!((least..=most).contains(&took), "{wait:?}: {took}");
    }
    let end = client_with_sink(|_| FakeAnswer::status(503)).await.expect_failure(get()).await;
    assert_eq!(end, (ErrorKind::Exhausted, vec![Reason::Exhausted], 6));
    let (kind, reasons, calls) = client_with_sink(|_| FakeAnswer::not_connected()).await.expect_failure(get()).await;
    assert_eq!((kind, reasons), (ErrorKind::Exhausted, vec![Reason::Exhausted]), "for `max_age`, {calls} tries");
}

#[tokio::test(start_paused = true)]
async fn shorter_retry_policy_makes_no_letter() {
    let refused = |_: &FakeCall| FakeAnswer::status(429).header("retry-after", "60");
    let minute = Duration::from_secs(60);
    let end = client_with_sink(refused).await.expect_failure(Request::get("v", "/x").deadline(minute)).await;
    assert_eq!(end, (ErrorKind::RetryLater, vec![], 1));

    let transport = FakeTransport::new(refused);
    let client = builder(&transport).default_deadline(minute).build().await.unwrap();
    let error = client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap_err();
    assert_eq!((error.kind(), error.letter_id(), transport.calls().len()), (ErrorKind::RetryLater, None, 1));

    let transport = FakeTransport::new(refused);
    let client = builder(&transport).build().await.unwrap();
    let answer = client.try_send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((answer.status().as_u16(), transport.calls().len()), (429, 1));
    // `try_send`, and then a send with a longest wait of one second: neither waits for the end of the pause.
    let error = client.try_send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotNow | ErrorKind::RetryLater), "{error:?}");
    let began = now();
    let second = Request::get("v", "/x").max_wait(Duration::from_secs(1));
    let error = client.send("a", Priority::Normal, second).await.unwrap_err();
    assert_eq!((error.kind(), error.letter_id(), began.elapsed().as_secs()), (ErrorKind::RetryLater, None, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_request_without_deadline_leaves_letter() {
    let sunk = client_with_sink(|_| FakeAnswer::status(429).header("retry-after", "3600")).await;
    let end = sunk.expect_failure(Request::get("v", "/x")).await;
    assert_eq!(end, (ErrorKind::RetryLater, vec![Reason::Expired], 1));
    assert_eq!(sunk.sink.letters()[0].endpoint.as_deref(), Some("/x"));
    // A request that was never sent does not become a dead letter: its caller gets the error.
    let error = sunk.client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap_err();
    assert_eq!((error.kind(), error.letter_id()), (ErrorKind::RetryLater, None));
    assert_eq!(sunk.client.redrive(&sunk.sink.letters()[0]).await.unwrap_err().kind(), ErrorKind::RetryLater);
}

/// A request waits for a pause of two minutes, which is longer than the default deadline. It does not wait for ever if
/// each attempt renews the pause.
#[tokio::test(start_paused = true)]
async fn pause_extends_the_default_deadline() {
    let first = |call: &FakeCall| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "120"),
        _ => FakeAnswer::status(200),
    };
    let (client, transport) = client(first).await;
    let send = || client.send("a", Priority::Normal, Request::get("v", "/x"));
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        send().await
    };
    let (refused, waited) = tokio::join!(send(), later);
    assert_eq!((refused.unwrap().attempts(), waited.unwrap().attempts()), (2, 1));
    assert!(gaps(&transport)[0] >= 120_000);

    let slow = |_: &FakeCall| FakeAnswer::status(429).header("retry-after", "120").delay(Duration::from_millis(50));
    let sunk = client_with_sink(slow).await;
    let began = now();
    let sends = (0..40).map(|_| sunk.client.send("a", Priority::Normal, Request::get("v", "/x")));
    let results = join_all(sends).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let errors: Vec<_> = results.into_iter().map(Result::unwrap_err).collect();
    // All forty requests were sent before the first refusal, so each becomes a dead letter, whatever ends it.
    assert!(errors.iter().all(|error| error.letter_id().is_some()), "{errors:?}");
    assert_eq!(sunk.sink.letters().len(), 40);
    assert!(began.elapsed() <= 6 * Duration::from_secs(17 * 60), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn default_wait_counts_as_a_stated_one() {
    let transport = FakeTransport::new(|call| match call.number {
        0 | 1 => FakeAnswer::status(429),
        2 => FakeAnswer::refused_stream(),
        _ => FakeAnswer::status(200),
    });
    let vendor = VENDOR.replace("first_wait", "default_wait = \"60s\", first_wait");
    let client = builder_with(&vendor, &transport).build().await.unwrap();
    client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    let gaps = gaps(&transport);
    assert!(gaps.len() == 3 && gaps.iter().all(|gap| (60_000..=66_100).contains(gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn exhausted_retries_leave_resendable_letter() {
    let transport = FakeTransport::new(|call| match call.number {
        0..6 => FakeAnswer::status(429).body("slow down"),
        _ => FakeAnswer::status(200),
    });
    let sink = Arc::new(MemorySink::new(10));
    let client = builder(&transport).dead_letter_sink(sink.clone()).build().await.unwrap();
    let request = Request::post("v", "/poisoned/1").query("q", 1).body("content").metadata("order", "17");
    let error = client.send("a", Priority::High, with_long_deadline(request)).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Exhausted, Delivery::Rejected));
    let last = error.response().unwrap();
    assert_eq!((last.status().as_u16(), &last.body()[..]), (429, &b"slow down"[..]));
    let gaps = gaps(&transport);
    for (number, gap) in gaps.iter().enumerate() {
        let least = (1_000_u128 << number).min(5_000);
        assert!(*gap >= least, "wait {number} of {gaps:?}");
    }

    tokio::time::sleep(Duration::from_millis(10)).await;
    let [letter] = &sink.letters()[..] else { panic!("{:?}", sink.letters()) };
    assert_eq!(Some(&*letter.id), error.letter_id());
    assert_eq!((&*letter.tenant, &*letter.vendor, letter.endpoint.as_deref()), ("a", "v", Some("poisoned")));
    assert_eq!((letter.priority, letter.reason, letter.attempts.len()), (Priority::High, Reason::Exhausted, 6));
    assert!(letter.attempts.iter().all(|attempt| attempt.phase == Phase::Answered && attempt.status == Some(429)));
    assert_eq!(letter.metadata["order"], "17");
    let LetterRequest::Whole { method, path, body, .. } = &letter.request else { panic!() };
    assert_eq!((&**method, &**path, &body.as_bytes()[..]), ("POST", "/poisoned/1?q=1", &b"content"[..]));
    assert_eq!(client.dead_letter_counts().written, 1);

    let copy: DeadLetter = serde_json::from_str(&serde_json::to_string(letter).unwrap()).unwrap();
    client.tenants().resume("a", "v").unwrap();
    assert_eq!(client.redrive(&copy).await.unwrap().status(), 200);
    let calls = transport.calls();
    let keys: Vec<_> = calls.iter().map(|call| call.header("idempotency-key").unwrap()).collect();
    assert!(keys[0].len() == 32 && keys.iter().all(|key| *key == keys[0]), "one key for all: {keys:?}");
    assert_eq!(calls[6].url, "https://v.example/base/poisoned/1?q=1");
    assert_eq!(calls[6].body, "content");
}

#[tokio::test(start_paused = true)]
async fn ambiguous_request_without_key_is_not_resent() {
    let script = |call: &FakeCall| match call.path() {
        "/base/reset" => FakeAnswer::reset(),
        _ => FakeAnswer::status(500),
    };
    let transport = FakeTransport::new(script);
    let without_key = VENDOR.replace(KEYS, "");
    let client = builder_with(&without_key, &transport).build().await.unwrap();
    for path in ["/reset", "/500"] {
        transport.reset_calls();
        let error = client.send("a", Priority::Normal, Request::post("v", path)).await.unwrap_err();
        assert_eq!((error.delivery(), transport.calls().len()), (Delivery::Ambiguous, 1), "{path}");
        let again = Request::post("v", path).on_ambiguous(OnAmbiguous::Resend);
        client.send("a", Priority::Normal, with_long_deadline(again)).await.unwrap_err();
        assert_eq!(transport.calls().len(), 1 + 6, "{path}");
        client.tenants().resume("a", "v").unwrap();
    }
}

/// After the request was sent, the connection is reset, the vendor answers with a 5xx, or never answers.
#[tokio::test(start_paused = true)]
async fn ambiguous_request_is_parked_on_request() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/base/reset" => FakeAnswer::reset(),
        "/base/stall" => FakeAnswer::stall(),
        _ => FakeAnswer::status(500).body("halfway"),
    });
    let sink = Arc::new(MemorySink::new(10));
    let vendor = VENDOR.replace(KEYS, "").replace("\"10s\" }", "\"10s\", on_ambiguous = \"park\" }");
    let client = builder_with(&vendor, &transport).dead_letter_sink(sink.clone()).build().await.unwrap();
    let written = async |id: &str| {
        tokio::time::sleep(Duration::from_millis(10)).await;
        sink.letters().into_iter().find(|letter| letter.id == id).unwrap()
    };
    for (path, kind, phase) in [
        ("/reset", ErrorKind::Protocol, Phase::MaybeSent),
        ("/stall", ErrorKind::Timeout, Phase::MaybeSent),
        ("/500", ErrorKind::Status, Phase::Answered),
    ] {
        transport.reset_calls();
        let request = Request::post("v", path).body("content").metadata("order", "17");
        let error = client.send("a", Priority::High, request).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery(), transport.calls().len()), (kind, Delivery::Ambiguous, 1), "{path}");
        let letter = written(error.letter_id().unwrap()).await;
        assert!(error.to_string().contains(&letter.id), "{error}");
        assert_eq!((letter.reason, letter.attempts.len(), letter.attempts[0].phase), (Reason::Ambiguous, 1, phase));
        let LetterRequest::Whole { body, .. } = &letter.request else { panic!("{path}") };
        assert_eq!((&body.as_bytes()[..], &*letter.metadata["order"]), (&b"content"[..], "17"));
        if path == "/500" {
            assert_eq!(&error.response().unwrap().body()[..], b"halfway");
        }

        // The request's own setting overrides the vendor's, and an idempotent request is never ambiguous.
        let error = client.send("a", Priority::High, Request::post("v", path).on_ambiguous(OnAmbiguous::Fail)).await;
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.delivery(), error.letter_id()), (kind, Delivery::Ambiguous, None), "{path}");
        let error = client.send("a", Priority::High, with_long_deadline(Request::put("v", path))).await.unwrap_err();
        assert_eq!(written(error.letter_id().unwrap()).await.reason, Reason::Exhausted, "{path}");
        client.tenants().resume("a", "v").unwrap();
    }
    // A `try_send` is not retried, but becomes a dead letter.
    let error = client.try_send("a", Priority::Low, Request::post("v", "/reset")).await.unwrap_err();
    assert_eq!(written(error.letter_id().unwrap()).await.reason, Reason::Ambiguous);
    assert_eq!((client.dead_letter_counts().written, client.in_flight()), (7, 0));
}

#[tokio::test(start_paused = true)]
async fn refused_credential_is_refreshed_once() {
    let (client, transport) = client(|call| match call.header("authorization") {
        Some("Bearer key-2") => FakeAnswer::status(200),
        _ => FakeAnswer::status(401),
    })
    .await;
    let response = client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), transport.calls().len()), (200, 2));
    let (never, transport) = self::client(|_| FakeAnswer::status(401)).await;
    let response = never.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), transport.calls().len()), (401, 2));
}

#[tokio::test(start_paused = true)]
async fn unreachable_host_gets_single_probes() {
    let (client, transport) = client(|_| FakeAnswer::not_connected()).await;
    let minute = || Request::get("v", "/x").deadline(Duration::from_secs(60));
    let sends = (0..50).map(|_| client.send("a", Priority::Normal, minute()));
    for result in join_all(sends).await {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Connect, Delivery::NotSent));
    }
    // Five calls at first, and then one probe after 1, 2, 4 … 30 s, until the deadline of a minute.
    let calls = transport.calls().len();
    assert!((5..=15).contains(&calls), "{calls}");
    assert_eq!(client.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn outage_adds_a_tenth_of_load() {
    let transport = FakeTransport::new(|call| match call.at.as_nanos() / 1_000_000_000 {
        0..3_600 => FakeAnswer::status(500).delay(Duration::from_millis(20)),
        _ => FakeAnswer::status(200).delay(Duration::from_millis(20)),
    });
    let sink = Arc::new(MemorySink::new(1_000_000));
    let client = builder(&transport).dead_letter_sink(sink.clone()).build().await.unwrap();
    let (mut answered, mut letters, mut handed_back, mut sent) = (0, 0, 0, 0);
    // One request each second, for an hour and ten minutes.
    let mut running = Vec::new();
    for _ in 0..4_200 {
        sent += 1;
        let client = client.clone();
        #[expect(clippy::disallowed_methods, reason = "a test spawns")]
        running.push(tokio::spawn(async move { client.send("a", Priority::Normal, Request::get("v", "/x")).await }));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for task in running {
        match task.await.unwrap() {
            Ok(_) => answered += 1,
            Err(error) if error.letter_id().is_some() => letters += 1,
            Err(_) => handed_back += 1,
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(sink.letters().len(), letters);
    assert_eq!(answered + letters + handed_back, sent);
    let calls = transport.calls();
    println!(
        "outage: sent={sent} answered={answered} letters={letters} handed_back={handed_back} exchanges={}",
        calls.len()
    );
    assert!(calls.len() as f64 <= 1.1 * sent as f64 + 10.0, "{}", calls.len());
    assert!(answered >= 590, "recovered: {answered}");
    let busiest = calls.windows(100).map(|window| window[99].at.since(window[0].at)).min().unwrap();
    assert!(busiest >= Duration::from_millis(990), "no second overload: 100 within {busiest:?}");
}

struct Forbidden;

impl Classifier for Forbidden {
    fn classify(&self, status: http::StatusCode, _: &http::HeaderMap) -> Option<Class> {
        (status == 403).then_some(Class::RateLimited)
    }
}

#[tokio::test(start_paused = true)]
async fn classifier_knows_better_than_the_status() {
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number == 0 { 403 } else { 200 }));
    let client = builder(&transport).classifier("v", Forbidden).build().await.unwrap();
    let response = client.send("a", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (200, 2));
}

#[tokio::test(start_paused = true)]
async fn operator_pause_is_waited_out_until_deadline() {
    let (client, transport) = client(|_| FakeAnswer::status(200)).await;
    client.tenants().pause("a", "v").unwrap();
    assert_eq!(client.tenants().paused_for("a", "v").unwrap(), Some(Duration::MAX));
    let error = client.send("a", Priority::High, Request::get("v", "/x")).await.unwrap_err();
    assert_eq!((error.kind(), transport.calls().len()), (ErrorKind::Deadline, 0));
    assert!(error.to_string().contains("`resume`"), "{error}");
    let send = client.send("a", Priority::High, Request::get("v", "/x"));
    let resume = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        client.tenants().resume("a", "v").unwrap();
    };
    assert_eq!(tokio::join!(send, resume).0.unwrap().waited(), Duration::from_secs(5));
}
