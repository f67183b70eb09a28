//! The store is back at an earlier state while a job is in hand, as after a failover to a standby without the last
//! commits.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::transport::{Answer, Exchange, Transport, TransportError};
use sqlx::{Connection, Row, SqliteConnection};
use tokio::sync::watch;

use super::*;

/// Holds the answers to requests for `/held` back until `is_open`.
struct GatedTransport {
    inner: FakeTransport,
    is_open: watch::Receiver<bool>,
}

impl Transport for GatedTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let is_held = exchange.url.path().ends_with("/held");
        let (answer, mut is_open) = (self.inner.execute(exchange), self.is_open.clone());
        Box::pin(async move {
            let answer = answer.await;
            if is_held {
                is_open.wait_for(|is_open| *is_open).await.unwrap();
            }
            answer
        })
    }
}

async fn connect(path: &std::path::Path) -> SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// A client of a vendor that takes idempotency keys as `keys` states, and a job whose exchange is in flight.
async fn client_with_held_job(
    path: &std::path::Path,
    inner: &FakeTransport,
    gate: &watch::Sender<bool>,
    keys: &str,
) -> (IntegrationClient, Receipt) {
    let transport = GatedTransport { inner: inner.clone(), is_open: gate.subscribe() };
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{text}{keys}"));
    let builder = builder.transport(transport).tenant(TenantEntry::new("acme", "v")).store(Store::sqlite(path));
    let client = builder.work().build().await.unwrap();
    let held = client.outbox().enqueue("acme", Priority::Normal, post("/held")).await.unwrap();
    while inner.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (client, held)
}

/// Sets the rows of all jobs back to what they were before the first claim.
async fn lose_claims(path: &std::path::Path) -> SqliteConnection {
    let mut connection = connect(path).await;
    let lose_claim = "UPDATE ic_job SET state = 0, fence = 0, claims = 0, started = 0, begun = 0, owner = NULL, \
                      lease_until = NULL";
    sqlx::query(lose_claim).execute(&mut connection).await.unwrap();
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn job_in_hand_is_not_sent_by_a_second_claim() {
    let (vendor, path) = (vendor(FakeVendor::builder()).await, folder().join("s.db"));
    let (inner, gate) = (FakeTransport::new(|_| FakeAnswer::status(201)), watch::Sender::new(false));
    let transport = GatedTransport { inner: inner.clone(), is_open: gate.subscribe() };
    let client = client(&vendor, &Store::sqlite(&path), RETRY).transport(transport).work().build().await.unwrap();
    let held = client.outbox().enqueue("acme", Priority::Normal, post("/held")).await.unwrap();
    while inner.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut connection = lose_claims(&path).await;
    // The worker claims it again together with the next job of the lane.
    let next = client.outbox().enqueue("acme", Priority::Normal, post("/next")).await.unwrap();
    assert!(matches!(until_ended(&next).await, Status::Delivered { status: 201, .. }));
    let claims = "SELECT count(*) FROM ic_job WHERE state = 1 AND fence > 0 AND started = 0";
    let claims: i64 = sqlx::query(claims).fetch_one(&mut connection).await.unwrap().get(0);
    assert_eq!(claims, 1, "it is claimed, and no exchange of that claim is recorded");
    gate.send_replace(true);
    let status = until_ended(&held).await;
    assert!(matches!(status, Status::Delivered { status: 201, attempts: 1, .. }), "{status:?}");
    assert!(client.shutdown(Duration::from_secs(5)).await);
    assert_eq!(inner.calls().iter().filter(|call| call.path().ends_with("/held")).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_claim_with_an_unknown_outcome_is_not_sent_again() {
    let path = folder().join("s.db");
    let (inner, gate) = (
        FakeTransport::new(|call| match call.path().ends_with("/held") {
            true => FakeAnswer::reset(),
            false => FakeAnswer::status(201),
        }),
        watch::Sender::new(false),
    );
    let (client, held) = client_with_held_job(&path, &inner, &gate, "").await;
    lose_claims(&path).await;
    // The worker claims it again together with the next job of the lane.
    let next = client.outbox().enqueue("acme", Priority::Normal, post("/next")).await.unwrap();
    assert!(matches!(until_ended(&next).await, Status::Delivered { status: 201, .. }));
    gate.send_replace(true);
    let status = until_ended(&held).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
    assert!(client.shutdown(Duration::from_secs(5)).await);
    assert_eq!(inner.calls().iter().filter(|call| call.path().ends_with("/held")).count(), 1);
}

/// The process has claimed a job again that it has in hand, and the reply to that claim was lost.
#[tokio::test(flavor = "multi_thread")]
async fn later_claim_with_a_lost_reply_is_released() {
    let (path, calls) = (folder().join("s.db"), AtomicUsize::new(0));
    let inner = FakeTransport::new(move |_| match calls.fetch_add(1, Relaxed) {
        0 => FakeAnswer::reset(),
        _ => FakeAnswer::status(201),
    });
    let gate = watch::Sender::new(false);
    let keys = "idempotency = { header = \"idempotency-key\" }\n";
    let (client, held) = client_with_held_job(&path, &inner, &gate, keys).await;
    let mut connection = connect(&path).await;
    let claim = "UPDATE ic_job SET fence = fence + 1, begun = begun + 1";
    sqlx::query(claim).execute(&mut connection).await.unwrap();
    gate.send_replace(true);
    let status = until_ended(&held).await;
    assert!(matches!(status, Status::Delivered { status: 201, .. }), "{status:?}");
    assert!(client.shutdown(Duration::from_secs(5)).await);
    assert_eq!(inner.calls().len(), 2);
}
