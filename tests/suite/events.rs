//! The events that a listener of a client gets, in virtual time: no socket, nothing really sleeps.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic, reason = "tests")]

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use http::StatusCode;
use integration_client::config::{ConfigSource, LoadFuture, Sources, TenantEntry};
use integration_client::events::{Event, EventKind, Events};
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{
    Delivery, Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request, Response,
};

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example/base"
auth = { scheme = "none" }
throttle = "bands"
retry = { first_wait = "1s", longest_wait = "10s" }
[[vendors.v.limits]]
name = "requests"
algorithm = "sliding_window"
limit = 100
window = "1s"
[vendors.v.endpoints.orders]
paths = ["/orders/**"]
"#;

fn builder(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(FakeTransport::new(script))
        .tenant(TenantEntry::new("a", "v"))
}

async fn client(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> IntegrationClient {
    builder(script).build().await.unwrap()
}

async fn send(client: &IntegrationClient, path: &str) -> Result<Response, Error> {
    let request = Request::get("v", path).deadline(Duration::from_secs(3_600));
    client.send("a", Priority::High, request).await
}

/// The events that the listener has not read yet.
async fn pending_events(events: &mut Events) -> Vec<Event> {
    let mut heard = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
        heard.push(event);
    }
    heard
}

/// The kinds of the events, as text. Asserts that all are of request `id` of tenant a at vendor v.
#[track_caller]
fn kinds(events: &[Event], id: u64) -> Vec<String> {
    let kind = |event: &Event| {
        let about = (event.request_id, event.tenant.as_deref(), event.vendor.as_deref());
        assert_eq!(about, (Some(id), Some("a"), Some("v")), "{event:?}");
        format!("{:?}", event.kind)
    };
    events.iter().map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn uncounted_cost_is_an_event_once() {
    let client = client(|_| FakeAnswer::status(200)).await;
    let mut events = client.events();
    for cost in [1, 7, 9] {
        let request = Request::get("v", "/x").cost("points", cost).deadline(Duration::from_secs(3_600));
        client.send("a", Priority::High, request).await.unwrap();
    }
    let ignored = |event: &Event| match event.kind {
        EventKind::CostIgnored { cost, .. } => Some((event.request_id, event.vendor.as_deref() == Some("v"), cost)),
        _ => None,
    };
    let ignored: Vec<_> = pending_events(&mut events).await.iter().filter_map(ignored).collect();
    assert_eq!(ignored, [(Some(2), true, 7)], "a cost of 1 is that of every request, and the second is known");
}

#[tokio::test(start_paused = true)]
async fn unknown_cost_kind_is_an_event() {
    let client = client(|_| FakeAnswer::status(200)).await;
    let mut events = client.events();
    let request = Request::get("v", "/x").cost("input_token", 1).deadline(Duration::from_secs(3_600));
    client.send("a", Priority::High, request).await.unwrap();
    let ignored = |event: &Event| match &event.kind {
        EventKind::CostIgnored { kind, cost, .. } => Some((kind.to_string(), *cost)),
        _ => None,
    };
    let ignored: Vec<_> = pending_events(&mut events).await.iter().filter_map(ignored).collect();
    assert_eq!(ignored, [("input_token".to_owned(), 1)], "a kind is not misspelled in silence");
}

#[tokio::test(start_paused = true)]
async fn cost_in_points_is_no_event() {
    let points = VENDOR.replace("window = \"1s\"\n", "window = \"1s\"\nunit = \"points\"\n");
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(&points);
    let transport = FakeTransport::new(|_: &FakeCall| FakeAnswer::status(200));
    let client = builder.transport(transport).tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let mut events = client.events();
    let request = Request::get("v", "/x").cost("points", 7).deadline(Duration::from_secs(3_600));
    client.send("a", Priority::High, request).await.unwrap();
    let heard = pending_events(&mut events).await;
    assert!(!heard.iter().any(|event| matches!(event.kind, EventKind::CostIgnored { .. })), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn answer_is_dispatched_and_completed() {
    let client = client(|_| FakeAnswer::status(404).delay(Duration::from_millis(30))).await;
    let mut events = client.events();
    assert_eq!(send(&client, "/x").await.unwrap().request_id(), 1);
    assert_eq!(send(&client, "/orders/7").await.unwrap().request_id(), 2);
    let heard = pending_events(&mut events).await;
    assert_eq!(
        kinds(&heard[..2], 1),
        [
            "Dispatched { endpoint: Some(\"/x\"), priority: High, attempt: 1, waited: 0ns }",
            "Completed { status: 404, attempts: 1, elapsed: 30ms }"
        ]
    );
    assert_eq!(
        kinds(&heard[2..], 2),
        [
            "Dispatched { endpoint: Some(\"orders\"), priority: High, attempt: 1, waited: 0ns }",
            "Completed { status: 404, attempts: 1, elapsed: 30ms }"
        ]
    );
}

const REQUESTS: &str = "LimitOf { name: Some(\"requests\"), scope: \"tenant\", endpoint: None }";

#[tokio::test(start_paused = true)]
async fn refusal_pauses_then_recovers() {
    let client = client(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "7"),
        _ => FakeAnswer::status(200),
    })
    .await;
    let mut events = client.events();
    let response = send(&client, "/orders/7").await.unwrap();
    let heard = pending_events(&mut events).await;
    let EventKind::Exhausted { wait, .. } = heard[2].kind else { panic!("{heard:?}") };
    assert!((7_000..=7_700).contains(&wait.as_millis()), "{wait:?}");
    let EventKind::Dispatched { waited, .. } = heard[3].kind else { panic!("{heard:?}") };
    assert!(waited >= wait && waited <= wait + Duration::from_millis(2), "{waited:?}");
    let EventKind::Completed { elapsed, .. } = heard[5].kind else { panic!("{heard:?}") };
    assert_eq!(elapsed, waited);
    assert_eq!(
        kinds(&heard, response.request_id()),
        [
            "Dispatched { endpoint: Some(\"orders\"), priority: High, attempt: 1, waited: 0ns }".to_owned(),
            "Refused { endpoint: Some(\"orders\"), retry_after: Some(7s), attempt: 1 }".to_owned(),
            format!("Exhausted {{ wait: {wait:?}, limit: {REQUESTS} }}"),
            format!("Dispatched {{ endpoint: Some(\"orders\"), priority: High, attempt: 2, waited: {waited:?} }}"),
            format!("Recovered {{ limit: {REQUESTS} }}"),
            format!("Completed {{ status: 200, attempts: 2, elapsed: {elapsed:?} }}"),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn low_headroom_and_lower_limit_are_events() {
    let client = client(|call| match call.number {
        0 => FakeAnswer::status(200).header("x-ratelimit-limit", "100").header("x-ratelimit-remaining", "15"),
        _ => FakeAnswer::status(429),
    })
    .await;
    let mut events = client.events();
    let response = send(&client, "/x").await.unwrap();
    let throttled = pending_events(&mut events).await;
    let EventKind::Throttled { delay, .. } = throttled[1].kind else { panic!("{throttled:?}") };
    assert!(delay > Duration::from_micros(12_500), "slower than 80 a second: {delay:?}");
    assert_eq!(
        kinds(&throttled[1..2], response.request_id()),
        [format!("Throttled {{ remaining_pct: 15, delay: {delay:?}, limit: {REQUESTS} }}")]
    );
    // The vendor refuses although its limit is hardly used, which may be an accident.
    let error = client.try_send("a", Priority::High, Request::get("v", "/x")).await;
    let refused = pending_events(&mut events).await;
    let kinds = kinds(&refused, 2);
    assert!(kinds.iter().any(|kind| kind.starts_with("Exhausted { wait: ")), "{kinds:?} {error:?}");
}

#[tokio::test(start_paused = true)]
async fn refusal_of_used_limit_lowers_rate() {
    let client = client(|call| FakeAnswer::status(if call.number < 60 { 200 } else { 429 })).await;
    for _ in 0..60 {
        send(&client, "/x").await.unwrap();
    }
    let mut events = client.events();
    let error = client.try_send("a", Priority::High, Request::get("v", "/x")).await;
    let refused = pending_events(&mut events).await;
    let kinds = kinds(&refused, 61);
    assert!(kinds.iter().any(|kind| kind.starts_with("Yielded { per_window: ")), "{kinds:?} {error:?}");
}

#[tokio::test(start_paused = true)]
async fn given_up_request_leaves_letter_and_event() {
    let client = client(|_| FakeAnswer::status(429).header("retry-after", "1")).await;
    let mut events = client.events();
    let error = send(&client, "/x").await.unwrap_err();
    let heard = pending_events(&mut events).await;
    let [.., letter, failed] = &kinds(&heard, error.request_id().unwrap())[..] else { panic!("{heard:?}") };
    let id = error.letter_id().unwrap();
    assert_eq!(*letter, format!("DeadLettered {{ id: {id:?}, attempts: 6, reason: Exhausted }}"));
    assert!(failed.starts_with("Failed { kind: Exhausted, delivery: Rejected, attempts: 6, elapsed: "), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn unsent_request_fails_without_attempts() {
    let client = client(|_| FakeAnswer::status(200)).await;
    let mut events = client.events();
    let unknown = client.send("nobody", Priority::Low, Request::get("v", "/x")).await.unwrap_err();
    client.tenants().pause("a", "v").unwrap();
    let late = client.send("a", Priority::Low, Request::get("v", "/x")).await.unwrap_err();
    let heard = pending_events(&mut events).await;
    let failed =
        |kind, elapsed| format!("Failed {{ kind: {kind}, delivery: NotSent, attempts: 0, elapsed: {elapsed} }}");
    assert_eq!(format!("{:?}", heard[0].kind), failed("UnknownTenant", "0ns"));
    assert_eq!((heard[0].request_id, heard[0].tenant.as_deref()), (unknown.request_id(), Some("nobody")));
    assert_eq!((&heard[1].kind, heard[1].request_id), (&EventKind::Paused, None));
    assert_eq!(kinds(&heard[2..], late.request_id().unwrap()), [failed("Deadline", "60s")]);
}

#[tokio::test(start_paused = true)]
async fn host_is_left_alone_and_comes_back() {
    let client = client(|call| match call.number {
        0..5 => FakeAnswer::not_connected(),
        _ => FakeAnswer::status(200),
    })
    .await;
    let mut events = client.events();
    let response = send(&client, "/x").await.unwrap();
    let heard = pending_events(&mut events).await;
    let kinds = kinds(&heard, response.request_id());
    let breaker: Vec<&String> = kinds.iter().filter(|kind| kind.starts_with("Breaker")).collect();
    assert_eq!(
        breaker,
        ["Breaker { host: \"v.example\", open: true }", "Breaker { host: \"v.example\", open: false }"]
    );
    assert_eq!(kinds.iter().filter(|kind| kind.starts_with("Dispatched")).count(), 6);
    assert!(kinds[kinds.len() - 1].starts_with("Completed { status: 200, attempts: 6, "), "{kinds:?}");
}

/// A source whose first two loads return a valid configuration, and all later ones a broken one.
#[derive(Debug)]
struct BreakingSource(std::sync::atomic::AtomicU32);

impl ConfigSource for BreakingSource {
    fn load(&self) -> LoadFuture<'_> {
        let text = match self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => "# nothing yet".to_owned(),
            1 => "[[tenants]]\nid = \"b\"\nvendor = \"v\"\n".to_owned(),
            _ => "[vendors.v]\nnonsense = 1\n".to_owned(),
        };
        Box::pin(async move { Ok(Sources::new().without_catalogue().file("vendors.toml", text)) })
    }
}

#[tokio::test(start_paused = true)]
async fn reloads_are_accepted_or_rejected() {
    let builder = builder(|_| FakeAnswer::status(200)).config_source(BreakingSource(0.into()));
    let client = builder.build().await.unwrap();
    let mut events = client.events();
    client.config().reload().await.unwrap();
    let error = client.config().reload().await.unwrap_err();
    let heard = pending_events(&mut events).await;
    assert_eq!((error.kind(), error.request_id(), client.config().current().version()), (ErrorKind::Config, None, 2));
    assert!(heard.iter().all(|event| event.request_id.is_none() && event.tenant.is_none() && event.vendor.is_none()));
    let kinds: Vec<String> = heard.iter().map(|event| format!("{:?}", event.kind)).collect();
    let changed = &kinds[0];
    assert!(changed.starts_with("ConfigAccepted { version: 2, added: 1, "), "{changed}");
    assert_eq!(kinds[1], format!("ConfigRejected {{ reason: {:?} }}", error.to_string()));
}

#[tokio::test(start_paused = true)]
async fn slow_listener_learns_what_it_missed() {
    let client = builder(|_| FakeAnswer::status(200)).event_capacity(100).build().await.unwrap();
    let (mut slow, mut quick) = (client.events(), client.events());
    let mut seen = 0_u64;
    for _ in 0..10_000 {
        client.send("a", Priority::High, Request::get("v", "/x")).await.unwrap();
        seen += pending_events(&mut quick).await.len() as u64;
    }
    assert_eq!(seen, 20_000);
    let heard = pending_events(&mut slow).await;
    assert_eq!(heard.len(), 1 + 128, "the capacity is a power of two");
    assert!(matches!(heard[0].kind, EventKind::Missed { count, .. } if count == 20_000 - 128), "{:?}", heard[0]);
    assert!(matches!(heard[128].kind, EventKind::Completed { .. }));
    assert_eq!(heard[128].request_id, Some(10_000));
}

#[tokio::test(start_paused = true)]
async fn event_stream_ends_with_the_client() {
    let client = client(|_| FakeAnswer::reset()).await;
    let mut events = client.events();
    let reads = async {
        let mut kinds = Vec::new();
        while let Some(event) = std::future::poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
            kinds.push(event.kind);
        }
        kinds
    };
    let sends = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let post = Request::post("v", "/x");
        let error = client.send("a", Priority::High, post).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Protocol, Delivery::Ambiguous));
        drop(client);
    };
    let (kinds, ()) = tokio::join!(reads, sends);
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn dropped_listener_gets_no_events() {
    let client = client(|_| FakeAnswer::status(200).body("no JSON")).await;
    drop(client.events());
    send(&client, "/x").await.unwrap();
    let mut events = client.events();
    let response = send(&client, "/x").await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let heard = pending_events(&mut events).await;
    assert_eq!(heard.len(), 2, "{heard:?}");
    let id = response.request_id();
    assert_eq!(response.json::<u32>().await.unwrap_err().request_id(), Some(id));
    let _: Arc<str> = heard[0].tenant.clone().unwrap();
}

/// The number of pauses by refusals, of pauses by an operator, and of ends of pauses, among `events`.
fn pauses(events: &[Event]) -> [usize; 3] {
    let count = |is: fn(&EventKind) -> bool| events.iter().filter(|event| is(&event.kind)).count();
    [
        count(|kind| matches!(kind, EventKind::Exhausted { .. })),
        count(|kind| matches!(kind, EventKind::Paused)),
        count(|kind| matches!(kind, EventKind::Recovered { .. })),
    ]
}

/// The events if two requests of each of four tenants of one account are refused at the same time, for five seconds.
async fn eight_refusals(vendors: String) -> Vec<Event> {
    let script = |call: &FakeCall| match call.number {
        0..8 => FakeAnswer::status(429).header("retry-after", "5").delay(Duration::from_millis(50)),
        _ => FakeAnswer::status(200),
    };
    let mut builder =
        IntegrationClient::builder().without_catalogue().vendors_toml(vendors).transport(FakeTransport::new(script));
    for tenant in ["a", "b", "c", "d"] {
        builder = builder.tenant(TenantEntry::new(tenant, "v").account("one"));
    }
    let client = builder.build().await.unwrap();
    let mut events = client.events();
    let mut sends = Vec::new();
    for tenant in ["a", "b", "c", "d", "a", "b", "c", "d"] {
        let client = client.clone();
        let request = Request::get("v", "/x").deadline(Duration::from_secs(3_600));
        sends.push(tokio::spawn(async move { client.send(tenant, Priority::High, request).await.map(drop) }));
    }
    for send in sends {
        send.await.unwrap().unwrap();
    }
    pending_events(&mut events).await
}

#[tokio::test(start_paused = true)]
async fn account_pause_is_one_event() {
    let shared = VENDOR.replace("name = \"requests\"", "name = \"requests\"\nscope = \"account\"");
    let heard = eight_refusals(shared).await;
    let refusals = heard.iter().filter(|event| matches!(event.kind, EventKind::Refused { .. })).count();
    assert_eq!((refusals, pauses(&heard)), (8, [1, 0, 1]), "{heard:#?}");
    for event in &heard {
        if let EventKind::Exhausted { limit, .. } | EventKind::Recovered { limit, .. } = &event.kind {
            assert_eq!((limit.name.as_deref(), limit.scope), (Some("requests"), "account"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unlimited_accounts_refusal_is_one_event() {
    let dialect = "[[vendors.v.dialect.answers]]\nstatus = [429]\nthrottled = true\nscope = \"account\"\n";
    let heard = eight_refusals(format!("{VENDOR}{dialect}")).await;
    assert_eq!(pauses(&heard), [1, 0, 1], "{heard:#?}");
}

#[tokio::test(start_paused = true)]
async fn operator_pause_is_one_event() {
    let client = client(|_| FakeAnswer::status(200)).await;
    let mut events = client.events();
    client.tenants().pause("a", "v").unwrap();
    client.tenants().pause("a", "v").unwrap();
    client.tenants().resume("a", "v").unwrap();
    client.tenants().resume("a", "v").unwrap();
    let heard = pending_events(&mut events).await;
    assert_eq!((heard.len(), pauses(&heard)), (2, [0, 1, 1]), "{heard:?}");
    assert!(heard.iter().all(|event| event.request_id.is_none() && event.tenant.as_deref() == Some("a")));
}

#[tokio::test(start_paused = true)]
async fn pause_without_traffic_ends_by_itself() {
    let client = client(|_| FakeAnswer::status(429).header("retry-after", "7")).await;
    let mut events = client.events();
    let answer = client.try_send("a", Priority::High, Request::get("v", "/x")).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(pauses(&pending_events(&mut events).await), [1, 0, 0]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(pauses(&pending_events(&mut events).await), [0, 0, 0], "who asks now would go alone");
    tokio::time::sleep(Duration::from_secs(1_900)).await;
    let over = pending_events(&mut events).await;
    assert_eq!((over.len(), pauses(&over)), (1, [0, 0, 1]), "{over:?}");
}
