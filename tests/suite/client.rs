//! The client under paused time, with a scripted transport and without sockets: no test really waits. There is no
//! jitter.
//!
//! tokio's timers have a resolution of one millisecond, so times are exact to about that.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

mod bytes;
mod changes;
mod chosen_hosts;
mod cleanup;
mod costs;
mod credentials;
mod faults;
mod hosts;
mod rotation;
mod secret_headers;
mod shutdown;
mod status;
mod streams;
mod taken;
mod waiting;
mod watching;

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{
    Delivery, Error, ErrorKind, Headroom, IntegrationClient, IntegrationClientBuilder, Lane, OnRemove, Permit,
    Priority, Request, Response, ResponseBody, WaitReason,
};
use tokio::time::Instant;

/// The entry of a vendor with these limits, as `(name, rest of the table)`.
fn vendor(limits: &[(&str, &str)]) -> String {
    let mut text =
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nretry = { max_retries = 0 }\n"
            .to_owned();
    for (name, rest) in limits {
        text += &format!("[[vendors.v.limits]]\nname = \"{name}\"\n{rest}\n");
    }
    text
}

/// A limit of `limit` requests per second, of which 80 % are used, and of `burst` at once.
fn per_second(limit: u32, burst: u32) -> String {
    format!("algorithm = \"sliding_window\"\nlimit = {limit}\nwindow = \"1s\"\nburst = {burst}")
}

fn builder(vendor: &str, transport: &FakeTransport) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor)
        .transport(transport.clone())
        .tenant(TenantEntry::new("a", "v"))
        .tenant(TenantEntry::new("b", "v"))
        .shards(4)
}

async fn client(limits: &[(&str, &str)], transport: &FakeTransport) -> IntegrationClient {
    builder(&vendor(limits), transport).build().await.unwrap()
}

/// A transport that answers every call with 200 after `delay`.
fn transport_with_delay(delay: Duration) -> FakeTransport {
    FakeTransport::new(move |_| FakeAnswer::status(200).delay(delay).body("done"))
}

fn get(path: &str) -> Request {
    Request::get("v", path)
}

#[expect(clippy::disallowed_methods, reason = "tests measure and spawn")]
fn now() -> Instant {
    Instant::now()
}

/// Spawns a task for a send.
#[expect(clippy::disallowed_methods, reason = "tests measure and spawn")]
fn spawn(
    client: &IntegrationClient,
    priority: Priority,
    request: Request,
) -> tokio::task::JoinHandle<Result<Response, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.send("a", priority, request).await })
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Lets the tasks run, without advancing the time, until `count` requests wait.
async fn wait_for_waiters(client: &IntegrationClient, count: u64) {
    while client.waiting() < count {
        tokio::task::yield_now().await;
    }
    assert_eq!(client.waiting(), count);
}

/// Asserts that no request waits and none is under way.
#[track_caller]
fn assert_idle(client: &IntegrationClient) {
    assert_eq!((client.waiting(), client.in_flight()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn request_is_sent_and_answered() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(201).header("x-id", "7").body("made").delay(ms(30)));
    let client = client(&[("requests", &per_second(10, 8))], &transport).await;
    let began = now();
    let request = Request::post("v", "/things").query("q", "x y").header("x-extra", "1").body("content");
    let response = client.send("a", Priority::Normal, request).await.unwrap();
    assert_eq!(began.elapsed(), ms(30));
    assert_eq!((response.status().as_u16(), response.headers()["x-id"].to_str().unwrap()), (201, "7"));
    assert_eq!((response.attempts(), response.waited(), response.waited_for()), (1, Duration::ZERO, None));
    let headroom = response.headroom().unwrap();
    assert_eq!((headroom.remaining(), headroom.limit(), headroom.percent()), (9, 10, 90));
    assert_idle(&client);
    assert_eq!(response.text().await.unwrap(), "made");

    let calls = transport.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].url.as_str(), &calls[0].body[..]), ("https://v.example/things?q=x%20y", &b"content"[..]));
    assert_eq!(calls[0].header("x-extra"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn slot_is_held_until_the_body_arrives() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/late" => FakeAnswer::status(200).body("late").body_delay(ms(20)),
        _ => FakeAnswer::status(200).body("here"),
    });
    let client = client(&[("slots", "concurrency = 1")], &transport).await;
    let response = client.send("a", Priority::High, get("/late")).await.unwrap();
    assert_eq!(client.in_flight(), 1, "its body is still to come");
    assert_eq!(client.try_send("a", Priority::High, get("/")).await.unwrap_err().kind(), ErrorKind::NotNow);
    assert_eq!(response.text().await.unwrap(), "late");
    // A body that arrived with the headers holds no slot, whether it has been read or not.
    let first = client.try_send("a", Priority::High, get("/")).await.unwrap();
    assert_idle(&client);
    let second = client.try_send("a", Priority::High, get("/")).await.unwrap();
    assert_eq!((first.text().await.unwrap(), second.text().await.unwrap()), ("here".to_owned(), "here".to_owned()));
    assert_idle(&client);
}

/// The vendor states that all its slots are in use, as they are while requests wait for one.
#[tokio::test(start_paused = true)]
async fn reports_of_slots_stop_no_request() {
    let transport = FakeTransport::new(|_| {
        let answer = FakeAnswer::status(200).delay(ms(100)).header("x-concurrency-limit-limit", "10");
        answer.header("x-concurrency-limit-used", "10")
    });
    let client = client(&[("slots", "concurrency = 10"), ("requests", &per_second(1_000, 800))], &transport).await;
    let began = now();
    let sends: Vec<_> = (0..100).map(|_| spawn(&client, Priority::High, get("/"))).collect();
    for send in sends {
        send.await.unwrap().unwrap();
    }
    let took = began.elapsed();
    assert!((1_000..=1_100).contains(&took.as_millis()), "{took:?}: ten by ten");
}

#[tokio::test(start_paused = true)]
async fn large_or_late_body_is_an_error() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/large" => FakeAnswer::status(200).body(vec![b'x'; 2000]),
        _ => FakeAnswer::status(200).body("late").body_delay(ms(5000)),
    });
    let vendor = vendor(&[("slots", "concurrency = 1")]).replace("base_url", "max_response_bytes = 1000\nbase_url");
    let client = builder(&vendor, &transport).build().await.unwrap();
    let response = client.send("a", Priority::High, get("/large")).await.unwrap();
    let error = response.bytes().await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::ResponseTooLarge, Delivery::Delivered));
    assert_idle(&client);
    let response = client.send("a", Priority::High, get("/late").deadline(ms(1000))).await.unwrap();
    let error = response.text().await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Timeout, Delivery::Delivered));
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn unknown_names_are_errors_never_unlimited() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("requests", &per_second(10, 8))], &transport).await;
    for (tenant, request, kind) in [
        ("nobody", get("/"), ErrorKind::UnknownTenant),
        ("a", Request::get("w", "/"), ErrorKind::UnknownVendor),
        ("a", get("/").endpoint("reports"), ErrorKind::UnknownEndpoint),
        ("a", get("no slash"), ErrorKind::InvalidRequest),
        ("a", get("/").header("host", "elsewhere"), ErrorKind::InvalidRequest),
    ] {
        let error = client.send(tenant, Priority::High, request).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (kind, Delivery::NotSent), "{error}");
    }
    assert_eq!(client.lane("nobody", "v").unwrap_err().kind(), ErrorKind::UnknownTenant);
    assert_eq!(client.lane("a", "w").unwrap_err().kind(), ErrorKind::UnknownVendor);
    assert_eq!(client.lane("a", "v").unwrap().endpoint("x").unwrap_err().kind(), ErrorKind::UnknownEndpoint);
    assert_eq!(client.try_acquire("a", "w", Priority::Low, 1).unwrap_err().kind(), ErrorKind::UnknownVendor);
    assert!(transport.calls().is_empty());
    assert_idle(&client);
}

#[tokio::test(start_paused = true)]
async fn existing_requests_go_to_their_vendor() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[], &transport).await;
    let existing = reqwest::Client::new().get("https://v.example/x?y=1").build().unwrap();
    client.send("a", Priority::Normal, existing).await.unwrap();
    let existing = http::Request::put("https://v.example/z").body("content").unwrap();
    client.send("a", Priority::Normal, existing).await.unwrap();
    let elsewhere = http::Request::get("https://w.example/").body(()).unwrap();
    let error = client.send("a", Priority::Normal, elsewhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownVendor);
    let urls: Vec<String> = transport.calls().into_iter().map(|call| call.url).collect();
    assert_eq!(urls, ["https://v.example/x?y=1", "https://v.example/z"]);
}

#[tokio::test(start_paused = true)]
async fn immediate_request_never_waits() {
    let transport = transport_with_delay(Duration::ZERO);
    let client = client(&[("requests", &per_second(10, 2))], &transport).await;
    for _ in 0..2 {
        client.try_send("a", Priority::Low, get("/")).await.unwrap();
    }
    let error = client.try_send("a", Priority::Low, get("/")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::NotNow, Delivery::NotSent));
    let wait = error.retry_after().unwrap();
    assert_eq!(wait, ms(125), "8 a second");
    assert!(error.to_string().contains("the budget of limit `requests` is used up"), "{error}");
    let error = client.try_acquire("a", "v", Priority::Low, 1).unwrap_err();
    assert_eq!((error.kind(), error.retry_after()), (ErrorKind::NotNow, Some(wait)));
    tokio::time::sleep(wait).await;
    client.try_send("a", Priority::Low, get("/")).await.unwrap();
    assert_eq!(transport.calls().len(), 3);
    assert_idle(&client);
}

#[test]
fn public_types_go_between_threads() {
    fn assert_send_and_sync<T: Send + Sync>() {}
    fn send<T: Send>(_: T) {}
    assert_send_and_sync::<IntegrationClient>();
    assert_send_and_sync::<Lane>();
    assert_send_and_sync::<Permit>();
    assert_send_and_sync::<Error>();
    assert_send_and_sync::<Headroom>();
    assert_send_and_sync::<WaitReason>();
    assert_send_and_sync::<OnRemove>();
    assert_send_and_sync::<FakeTransport>();
    // Types with a body are `Send` but not `Sync`, because a body may be a stream.
    fn assert_send<T: Send>() {}
    assert_send::<Request>();
    assert_send::<Response>();
    assert_send::<ResponseBody>();
    assert_send::<IntegrationClientBuilder>();
    let _futures = |client: IntegrationClient, lane: Lane| {
        send(async move { client.send("a", Priority::High, get("/")).await.map(Response::text).is_ok() });
        send(async move { lane.acquire(Priority::High, 1).await.is_ok() });
    };
}
