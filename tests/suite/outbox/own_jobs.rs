//! A worker that sends the jobs of its own client, and leaves the others in the store alone.

use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn own_worker_leaves_other_jobs() {
    let (vendor, store) = (vendor(FakeVendor::builder()).await, Store::sqlite(folder().join("s.db")));
    let other = client(&vendor, &store, RETRY).build().await.unwrap();
    let mut left = Vec::new();
    for number in 0..20 {
        let request = post(&format!("/left/{number}"));
        left.push(other.outbox().enqueue("acme", Priority::High, request).await.unwrap());
    }
    let own = client(&vendor, &store, RETRY).work_on_own().build().await.unwrap();
    let receipt = own.outbox().enqueue("acme", Priority::Low, post("/own")).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    assert!(own.shutdown(Duration::from_secs(5)).await);
    assert_eq!(vendor.summary().arrived, 1);
    for receipt in &left {
        let status = receipt.status().await.unwrap();
        assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
    }
    let all = client(&vendor, &store, RETRY).work().build().await.unwrap();
    for receipt in &left {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { attempts: 1, .. }), "{status:?}");
    }
    all.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_worker_sends_adopted_job() {
    let (vendor, store) = (vendor(FakeVendor::builder()).await, Store::sqlite(folder().join("s.db")));
    let other = client(&vendor, &store, RETRY).build().await.unwrap();
    let left = other.outbox().enqueue("acme", Priority::Low, post("/left")).await.unwrap();
    let receipt = other.outbox().enqueue("acme", Priority::Low, post("/adopted")).await.unwrap();
    let own = client(&vendor, &store, RETRY).work_on_own().build().await.unwrap();
    let adopted = own.outbox().adopt(&receipt.id(), "acme", "v", Priority::Low).unwrap();
    let status = until_ended(&adopted).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    let status = left.status().await.unwrap();
    assert!(matches!(status, Status::Waiting { .. }), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn own_worker_retries_its_job() {
    let (vendor, store) = (vendor(FakeVendor::builder()).await, Store::sqlite(folder().join("s.db")));
    let transport = FakeTransport::new(|call| FakeAnswer::status(if call.number == 0 { 503 } else { 200 }));
    let builder = client(&vendor, &store, RETRY).transport(transport.clone()).work_on_own();
    let own = builder.build().await.unwrap();
    let receipt = own.outbox().enqueue("acme", Priority::Normal, post("/own")).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 2, .. }), "{status:?}");
    assert_eq!(transport.calls().len(), 2);
}
