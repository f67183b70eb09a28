//! Outcomes that the store refuses for a while, or that are too large for it.

use std::sync::atomic::AtomicBool;

use integration_client::store::faults::{Fault as StoreFault, Moment, Watch};

use super::*;

/// A store that refuses deliveries, as a server that lets the client change only some of its tables.
struct RefusesDeliveries(AtomicBool);

impl Watch for RefusesDeliveries {
    fn at(&self, what: &'static str, moment: Moment) -> StoreFault {
        let is_hit = what == "done" && moment == Moment::Before && self.0.load(Relaxed);
        if is_hit { StoreFault::Refused } else { StoreFault::None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_deliveries_are_kept_and_nothing_is_resent() {
    let vendor = vendor(FakeVendor::builder()).await;
    let refuses = Arc::new(RefusesDeliveries(AtomicBool::new(true)));
    let store = Store::sqlite(folder().join("s.db")).lease(Duration::from_secs(60)).watched_by(refuses.clone());
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..10 {
        let request = post(&format!("/{number}"));
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    // Longer than it takes to try one of them again and again.
    tokio::time::sleep(Duration::from_secs(12)).await;
    for receipt in &receipts {
        let status = receipt.status().await.unwrap();
        assert!(matches!(status, Status::UnderWay), "{status:?}");
    }
    refuses.0.store(false, Relaxed);
    for receipt in &receipts {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    }
    assert_eq!(vendor.arrivals().len(), 10, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn response_too_large_to_be_kept_is_a_delivery() {
    let large = Reply::text(200, vec![b'a'; 17 << 20]);
    let vendor = vendor(FakeVendor::builder().reply_at("/large", large)).await;
    let text = vendor.vendors_toml("v").replacen("\nauth", "\nmax_response_bytes = 33554432\nauth", 1);
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text)
        .tenant(TenantEntry::new("acme", "v").credential("env:PATH"))
        .store(Store::sqlite(folder().join("s.db")))
        .work()
        .build()
        .await
        .unwrap();
    for (path, is_kept) in [("/large", false), ("/small", true)] {
        let request = post(path).keep_response();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
        let status = until_ended(&receipt).await;
        let Status::Delivered { status: 200, attempts: 1, response, .. } = status else { panic!("{path}: {status:?}") };
        assert_eq!(response.is_some(), is_kept, "{path}");
    }
}
