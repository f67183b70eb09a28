//! Idempotency keys are sent as the vendor's entry says, or the request is refused with a reason; they are never
//! dropped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Status;
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeCall, FakeTransport};
use integration_client::{Delivery, Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

use crate::support::text_source::TextSource;

fn builder(entry: &str, transport: &FakeTransport) -> IntegrationClientBuilder {
    let vendor = format!("[vendors.v]\nbase_url = \"https://v.example/base\"\nunpublished = true\n{entry}\n");
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor)
        .transport(transport.clone())
        .tenant(TenantEntry::new("a", "v"))
}

async fn client(entry: &str, transport: &FakeTransport) -> IntegrationClient {
    builder(entry, transport).build().await.unwrap()
}

fn transport_of_200() -> FakeTransport {
    FakeTransport::new(|_| FakeAnswer::status(200))
}

fn order() -> Request {
    Request::post("v", "/orders").json(&serde_json::json!({"total": 17}))
}

async fn refusal_of(client: &IntegrationClient, request: Request) -> Error {
    let error = client.send("a", Priority::Normal, request).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::InvalidRequest, Delivery::NotSent));
    error
}

#[tokio::test(start_paused = true)]
async fn stated_keys_go_where_the_entry_says() {
    for (entry, read) in [
        (
            "header = \"X-Request-Key\"",
            (|call| call.header("x-request-key").unwrap().to_owned()) as fn(&FakeCall) -> String,
        ),
        ("query = \"requestid\"", |call| call.url.split_once("?requestid=").unwrap().1.to_owned()),
        ("body = \"idempotency_key\"", |call| {
            let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
            assert_eq!(body["total"], 17);
            body["idempotency_key"].as_str().unwrap().to_owned()
        }),
    ] {
        let transport = FakeTransport::new(|call| match call.number % 2 {
            0 => FakeAnswer::status(503),
            _ => FakeAnswer::status(200),
        });
        let client = client(&format!("[vendors.v.idempotency]\n{entry}"), &transport).await;
        let response = client.send("a", Priority::Normal, order().idempotency_key("order-17")).await.unwrap();
        assert_eq!(response.attempts(), 2, "{entry}: with the key it may be repeated");
        client.send("a", Priority::Normal, order()).await.unwrap();
        let keys: Vec<String> = transport.calls().iter().map(read).collect();
        assert_eq!(keys[..2], ["order-17", "order-17"], "{entry}");
        assert_eq!((keys[2].len(), &keys[2]), (32, &keys[3]), "{entry}: one of the client's own, in both attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn key_without_an_entry_is_refused() {
    let transport = transport_of_200();
    let client = client("", &transport).await;
    let error = refusal_of(&client, order().idempotency_key("order-17")).await;
    assert!(error.to_string().contains("[vendors.v.idempotency] header ="), "{error}");
    assert!(!error.to_string().contains("order-17"), "{error}");
    client.send("a", Priority::Normal, order()).await.unwrap();
    assert_eq!(transport.calls().len(), 1, "only what stated no key was sent");
}

#[tokio::test(start_paused = true)]
async fn keys_outside_the_entry_are_refused() {
    let entry =
        "[vendors.v.idempotency]\nbody = \"key\"\nmethods = [\"POST\"]\npaths = [\"/orders/**\"]\nmax_length = 40";
    let transport = transport_of_200();
    let client = client(entry, &transport).await;
    let json = |request: Request| request.json(&serde_json::json!({})).idempotency_key("order-17");
    for (request, why) in [
        (json(Request::put("v", "/orders/1")), "POST carry keys, and this is a PUT"),
        (json(Request::post("v", "/refunds")), "none of them"),
        (order().idempotency_key("k".repeat(41)), "41 characters, and this vendor takes at most 40"),
        (Request::post("v", "/orders").body("total=17").idempotency_key("k"), "this body is none"),
        (Request::post("v", "/orders").json(&[17]).idempotency_key("k"), "this body is none"),
        (
            Request::post("v", "/orders").json(&serde_json::json!({"key": 5})).idempotency_key("k"),
            "another key in the member",
        ),
        (
            Request::post("v", "/orders").json(&serde_json::json!({"key": "l"})).idempotency_key("k"),
            "another key in the member",
        ),
    ] {
        let error = refusal_of(&client, request).await;
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(transport.calls().is_empty());
    // Without a stated key these requests are not refused, and their bodies are sent unchanged.
    client.send("a", Priority::Normal, Request::post("v", "/orders").body("total=17")).await.unwrap();
    client.send("a", Priority::Normal, Request::put("v", "/orders/1").body("{}")).await.unwrap();
    let bodies: Vec<_> = transport.calls().iter().map(|call| call.body.clone()).collect();
    assert_eq!(bodies, ["total=17", "{}"]);
}

#[tokio::test(start_paused = true)]
async fn key_in_the_request_counts() {
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number == 0 { 500 } else { 200 }));
    let client = client("[vendors.v.idempotency]\nheader = \"idempotency-key\"", &transport).await;
    let request = order().header("Idempotency-Key", "mine");
    assert_eq!(client.send("a", Priority::Normal, request).await.unwrap().attempts(), 2);
    let both = order().header("Idempotency-Key", "mine").idempotency_key("mine");
    client.send("a", Priority::Normal, both).await.unwrap();
    assert!(transport.calls().iter().all(|call| call.header("idempotency-key") == Some("mine")));
    refusal_of(&client, order().header("Idempotency-Key", "mine").idempotency_key("other")).await;
}

#[tokio::test(start_paused = true)]
async fn request_may_go_without_its_key() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(500));
    let client = client("[vendors.v.idempotency]\non_unsendable = \"warn\"", &transport).await;
    let error = client.send("a", Priority::Normal, order().idempotency_key("order-17")).await.unwrap_err();
    assert_eq!((error.delivery(), transport.calls().len()), (Delivery::Ambiguous, 1), "no repetition without the key");
}

/// The vendor may have acted on the first attempt, and the wait that it states ends when it may have forgotten the key.
#[tokio::test(start_paused = true)]
async fn plain_retry_after_key_is_forgotten_is_ambiguous() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(503).header("retry-after", "10"),
        1 => FakeAnswer::status(503).header("retry-after", "40"),
        _ => FakeAnswer::status(200),
    });
    for (keeps, parked) in [("24h", "fail"), ("1m", "fail"), ("1m", "park")] {
        transport.reset_calls();
        let entry = format!(
            "[vendors.v.retry]\non_ambiguous = \"{parked}\"\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n\
             keeps = \"{keeps}\""
        );
        let client = client(&entry, &transport).await;
        let sent = client.send("a", Priority::Normal, order()).await;
        if keeps == "24h" {
            assert_eq!(sent.unwrap().attempts(), 3);
            continue;
        }
        let error = sent.unwrap_err();
        assert_eq!((error.delivery(), transport.calls().len()), (Delivery::Ambiguous, 2), "{error}");
        assert_eq!(error.letter_id().is_some(), parked == "park", "{error}");
    }
}

/// The limit grants the second attempt only when the vendor may have forgotten the key of the first.
#[tokio::test(start_paused = true)]
async fn wait_for_a_permit_outlasts_the_key() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(503));
    let entry = "[vendors.v.idempotency]\nheader = \"idempotency-key\"\nkeeps = \"1m\"\n[[vendors.v.limits]]\n\
                 name = \"requests\"\nlimit = 1\nwindow = \"2m\"\nalgorithm = \"sliding_window\"";
    let client = client(entry, &transport).await;
    let request = order().deadline(Duration::from_secs(600));
    let error = client.send("a", Priority::Normal, request).await.unwrap_err();
    assert_eq!((error.delivery(), transport.calls().len()), (Delivery::Ambiguous, 1), "{error}");
    assert!(error.to_string().contains("may no longer know the idempotency key"), "{error}");
}

/// The entry says no more that the vendor reads keys, or not there or not on that path, when the second attempt is due.
#[tokio::test(start_paused = true)]
async fn key_that_the_entry_no_longer_names_allows_no_retry() {
    let vendor = |how: &str| {
        let entry = format!("[vendors.v]\nbase_url = \"https://v.example/base\"\nunpublished = true\n{how}\n");
        format!("{entry}[[tenants]]\nid = \"a\"\nvendor = \"v\"\n")
    };
    let keyed = "[vendors.v.idempotency]\nheader = \"idempotency-key\"";
    let other_paths = format!("{keyed}\npaths = [\"/payments/**\"]");
    let other_place = keyed.replace("idempotency-key", "x-key");
    let orders = format!("attempt_timeout = \"29s\"\n{keyed}\npaths = [\"/orders\"]");
    let still = format!("attempt_timeout = \"29s\"\n{keyed}");
    for (later, calls) in [("", 1), (&*other_paths, 1), (&*other_place, 1), (&*still, 2), (&*orders, 2)] {
        let transport = FakeTransport::new(|call| match call.number {
            0 => FakeAnswer::status(503).header("retry-after", "10"),
            _ => FakeAnswer::status(200),
        });
        let source = TextSource::new(vendor(keyed));
        let client = IntegrationClient::builder().config_source(source.clone()).transport(transport.clone());
        let client = client.build().await.unwrap();
        let reload = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            source.set(vendor(later));
            client.config().reload().await.unwrap();
        };
        let (sent, ()) = tokio::join!(client.send("a", Priority::Normal, order().query("x", "1")), reload);
        assert_eq!(transport.calls().len(), calls, "{later}: {sent:?}");
        match calls {
            1 => assert_eq!(sent.unwrap_err().delivery(), Delivery::Ambiguous, "{later}"),
            _ => assert_eq!(sent.unwrap().status(), 200),
        }
    }
}

/// The tenant moves to another account or host while the first exchange is under way, which may take effect, or is not
/// sent. The vendor keeps keys by account.
#[tokio::test(start_paused = true)]
async fn key_counts_in_its_own_account_only() {
    let vendor = "[vendors.v]\nbase_url = \"https://{shop}.v.example\"\nunpublished = true\n\
                  idempotency = { header = \"idempotency-key\" }\n";
    let tenant = |account: &str, shop: &str| TenantEntry::new("a", "v").account(account).variable("shop", shop);
    for (is_sent, later, calls) in [
        (true, tenant("old", "old").weight(2), 2),
        (true, tenant("new", "old"), 1),
        (true, tenant("old", "new"), 1),
        (false, tenant("new", "new"), 3),
    ] {
        let transport = FakeTransport::new(move |call| match call.number {
            0 if is_sent => FakeAnswer::reset().delay(Duration::from_secs(5)),
            0 => FakeAnswer::not_connected().delay(Duration::from_secs(5)),
            1 if !is_sent => FakeAnswer::reset(),
            _ => FakeAnswer::status(200),
        });
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor);
        let client = builder.transport(transport.clone()).tenant(tenant("old", "old")).build().await.unwrap();
        let case = format!("{later:?}");
        let moved = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            client.tenants().set(later).unwrap();
        };
        let (sent, ()) = tokio::join!(client.send("a", Priority::Normal, order()), moved);
        let made = transport.calls();
        assert_eq!(made.len(), calls, "{case}: {sent:?}");
        let key = made[0].header("idempotency-key");
        assert!(key.is_some() && made.iter().all(|call| call.header("idempotency-key") == key), "{case}");
        match calls {
            1 => assert_eq!(sent.unwrap_err().delivery(), Delivery::Ambiguous, "{case}"),
            _ => assert_eq!(sent.unwrap().status(), 200, "{case}"),
        }
    }
}

#[tokio::test]
async fn accepted_request_keeps_its_body_key() {
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number < 2 { 503 } else { 200 }));
    let folder = std::env::temp_dir().join(format!("ic-idempotency-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::sqlite(folder.join("store.db"));
    let entry = "retry = { first_wait = \"50ms\", longest_wait = \"100ms\" }\nidempotency = { body = \"key\" }";
    let client = builder(entry, &transport).store(store).work().build().await.unwrap();
    let outbox = client.outbox();
    let receipt = outbox.clone().enqueue("a", Priority::Normal, order().idempotency_key("order-17")).await.unwrap();
    let again = outbox.clone().enqueue("a", Priority::Normal, order().idempotency_key("order-17")).await.unwrap();
    assert_eq!(receipt.id(), again.id());
    let error = outbox.clone().enqueue("a", Priority::Normal, Request::delete("v", "/x").idempotency_key("k")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidRequest);
    while transport.calls().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for call in transport.calls() {
        assert_eq!(call.body, &br#"{"key":"order-17","total":17}"#[..]);
    }
    client.shutdown(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A request that was accepted with a key keeps it even if the entry no longer says how keys are sent: the stored
/// request contains the key already.
#[tokio::test]
async fn accepted_request_outlives_its_key_entry() {
    let folder = std::env::temp_dir().join(format!("ic-idempotency-entry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::sqlite(folder.join("store.db"));
    let transport = transport_of_200();
    let keyed = builder("idempotency = { header = \"idempotency-key\" }", &transport);
    let client = keyed.store(store.clone()).build().await.unwrap();
    client.outbox().enqueue("a", Priority::Normal, order().idempotency_key("order-17")).await.unwrap();
    client.shutdown(Duration::from_secs(5)).await;
    let client = builder("", &transport).store(store).work().build().await.unwrap();
    while transport.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(transport.calls()[0].header("idempotency-key"), Some("order-17"));
    client.shutdown(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A request that was accepted without a key gets none from an entry that names a place for keys by then: a key of each
/// claim's own would not keep the vendor from acting twice.
#[tokio::test]
async fn request_accepted_without_a_key_gets_none() {
    let folder = std::env::temp_dir().join(format!("ic-idempotency-late-entry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let store = Store::sqlite(folder.join("store.db"));
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number < 2 { 503 } else { 200 }));
    let client = builder("", &transport).store(store.clone()).build().await.unwrap();
    let id = client.outbox().enqueue("a", Priority::Normal, order()).await.unwrap().id();
    client.shutdown(Duration::from_secs(5)).await;
    let entry = "retry = { first_wait = \"50ms\", longest_wait = \"100ms\" }\n\
                 idempotency = { header = \"idempotency-key\" }";
    let client = builder(entry, &transport).store(store).work().build().await.unwrap();
    let receipt = client.outbox().receipt(&id).unwrap();
    let mut status = receipt.status().await.unwrap();
    while matches!(status, Status::Waiting { .. } | Status::UnderWay) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        status = receipt.status().await.unwrap();
    }
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
    let calls = transport.calls();
    assert_eq!((calls.len(), calls[0].header("idempotency-key")), (1, None));
    client.shutdown(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(&folder).unwrap();
}
