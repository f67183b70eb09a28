//! Stated costs and sizes of accepted requests, and of plain requests that are sent again from their dead letters.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

/// A vendor whose limits hold 80 points, and 80,000 bytes of response bodies.
const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
dead_letters = "whole"
retry = { max_retries = 1, first_wait = "100ms" }
[[vendors.v.limits]]
name = "points"
algorithm = "fixed_window"
limit = 100
window = "1h"
unit = "points"
[[vendors.v.limits]]
name = "bytes"
algorithm = "fixed_window"
limit = 100_000
window = "1h"
unit = "response_bytes"
"#;

fn builder(transport: &FakeTransport) -> IntegrationClientBuilder {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(transport.clone())
        .tenant(TenantEntry::new("acme", "v"))
        .store(Store::sqlite(folder().join("s.db")))
}

/// The used units of a limit.
fn used(client: &IntegrationClient, limit: &str) -> u32 {
    let status = client.status("acme", "v").unwrap();
    let limit = status.limits.iter().find(|one| *one.name == *limit).unwrap();
    limit.guard - limit.remaining
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_letter_is_redriven_at_its_cost() {
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number < 2 { 503 } else { 200 }));
    let client = builder(&transport).work().build().await.unwrap();
    let request = Request::get("v", "/a").cost("points", 20);
    let error = client.send("acme", Priority::High, request).await.unwrap_err();
    let (letters, id) = (client.outbox().dead_letters().unwrap(), error.letter_id().unwrap());
    for _ in 0..200 {
        if letters.show(id).await.unwrap().is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = letters.show(id).await.unwrap().expect("the letter is in the store");
    assert_eq!((kept.can_be_sent, kept.letter.costs.get("points")), (true, Some(&20)));
    let before = used(&client, "points");
    assert!(letters.redrive(id).await.unwrap());
    let status = until_ended(&client.outbox().receipt(id).unwrap()).await;
    assert!(matches!(status, Status::Delivered { status: 200, .. }), "{status:?}");
    assert_eq!(used(&client, "points"), before + 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn cost_above_limit_is_not_accepted() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let client = builder(&transport).build().await.unwrap();
    let request = || Request::get("v", "/a").cost("points", 1_000_000);
    let sent = client.send("acme", Priority::Normal, request()).await.unwrap_err();
    let error = client.outbox().enqueue("acme", Priority::Normal, request()).await.unwrap_err();
    assert_eq!((sent.kind(), error.kind()), (ErrorKind::CostAboveCapacity, ErrorKind::CostAboveCapacity), "{error}");
    assert_eq!(error.delivery(), Delivery::NotSent);
    let batch = client.outbox().batch("b").await.unwrap();
    let error = batch.check(1, "acme", Priority::Normal, request()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CostAboveCapacity, "{error}");
    let fits = request().cost("points", 80);
    client.outbox().enqueue("acme", Priority::Normal, fits).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_request_reserves_stated_bytes() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(Duration::from_secs(60)));
    let client = builder(&transport).work().build().await.unwrap();
    let request = Request::get("v", "/a").expect_bytes(0, 50_000);
    client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    for _ in 0..1_000 {
        if !transport.calls().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((transport.calls().len(), used(&client, "bytes")), (1, 50_000));
}

/// The figure was lowered below what two waiting jobs cost.
#[tokio::test(flavor = "multi_thread")]
async fn too_expensive_jobs_are_in_the_published_status() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let store = Store::sqlite(folder().join("s.db"));
    let accepting = builder(&transport).store(store.clone()).build().await.unwrap();
    for cost in [50, 70] {
        let request = Request::get("v", "/a").cost("points", cost);
        accepting.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    }
    accepting.shutdown(Duration::from_secs(1)).await;
    let lowered = VENDOR.replacen("limit = 100\n", "limit = 10\n", 1);
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(lowered).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("acme", "v")).store(store).work();
    let working = builder.publish_status(Duration::from_millis(100)).build().await.unwrap();
    let mut seen: Vec<serde_json::Value> = Vec::new();
    for _ in 0..500 {
        let workers = working.outbox().workers().await.unwrap();
        seen = workers.into_iter().flat_map(|worker| worker.too_expensive).collect();
        if seen.iter().any(|one| one["jobs"] == 2) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let largest = seen.first().and_then(|one| one["holds"].as_u64());
    assert!(seen.len() == 1 && largest.is_some_and(|holds| (1..=10).contains(&holds)), "{seen:?}");
    let named = ["tenant", "vendor", "limit"].map(|name| seen[0][name].as_str());
    assert_eq!(named, [Some("acme"), Some("v"), Some("points")]);
    assert!(seen[0]["cost"] == 70 && seen[0]["jobs"] == 2 && transport.calls().is_empty(), "{seen:?}");
}
