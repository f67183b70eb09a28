//! A client ends while its store cannot be written: it keeps the outcomes that it knows for as long as a shutdown waits
//! for it, and it ends in time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Status;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, WHAT, Watch};
use integration_client::testing::{Delay, FakeVendor, HeaderStyle};
use integration_client::{Error, IntegrationClient, Priority, Request};

use crate::support::folder;

/// A disk that is full for a while.
#[derive(Default)]
struct Disk {
    /// All writes fail.
    is_full: AtomicBool,
    /// How many of the next deliveries cannot be written.
    ends: AtomicI64,
}

impl Watch for Disk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if moment != Moment::Before {
            return Fault::None;
        }
        let fails = (self.is_full.load(Relaxed) && WHAT.contains(&what))
            || (what == "done" && self.ends.fetch_sub(1, Relaxed) > 0);
        if fails { Fault::Full } else { Fault::None }
    }
}

async fn vendor() -> FakeVendor {
    let service = Delay::fixed(Duration::from_millis(500));
    FakeVendor::builder().headers(HeaderStyle::Silent).service_time(service).start().await.unwrap()
}

/// A client that works on the store. The vendor takes no idempotency keys, so that a POST with an unknown outcome is not
/// sent again.
async fn client(vendor: &FakeVendor, store: Store) -> Result<IntegrationClient, Error> {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.vendors_toml("v"));
    builder.tenant(TenantEntry::new("acme", "v").credential("env:PATH")).store(store).work().build().await
}

/// A client with a POST that the vendor has received and not answered yet, and the id of the receipt.
async fn client_with_post(vendor: &FakeVendor, store: Store) -> (IntegrationClient, String) {
    let client = client(vendor, store).await.unwrap();
    let request = Request::post("v", "/a").json(&["work"]);
    let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    while vendor.arrivals().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (client, receipt.id())
}

/// How the request ends for the client that works on the store next. It can do so when the one before has ended.
async fn status_at_next(vendor: &FakeVendor, store: Store, id: &str) -> Status {
    let next = async {
        loop {
            match client(vendor, store.clone()).await {
                Ok(client) => return client,
                Err(error) => assert!(error.is_store_in_use(), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let client = tokio::time::timeout(Duration::from_secs(20), next).await.expect("the client before ends");
    let receipt = client.outbox().receipt(id).unwrap();
    let ended = async {
        loop {
            match receipt.status().await.unwrap() {
                Status::Waiting { .. } | Status::UnderWay => tokio::time::sleep(Duration::from_millis(10)).await,
                ended => return ended,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the request ends")
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_write_in_shutdown_loses_no_outcome() {
    let (vendor, disk, path) = (vendor().await, Arc::new(Disk::default()), folder("shutdown").join("s.db"));
    let (client, id) = client_with_post(&vendor, Store::sqlite(&path).watched_by(disk.clone())).await;
    // Twice: a write that fails in a group is tried by itself at once.
    disk.ends.store(2, Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(9), client.shutdown(Duration::from_secs(10))).await;
    assert!(ended.expect("it ends when the outcome is written"));
    assert!(disk.ends.load(Relaxed) < 0, "writes failed, and the last one did not");
    drop(client);
    let status = status_at_next(&vendor, Store::sqlite(&path), &id).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_in_time_while_store_fails() {
    let (vendor, disk, path) = (vendor().await, Arc::new(Disk::default()), folder("shutdown").join("s.db"));
    let (client, id) = client_with_post(&vendor, Store::sqlite(&path).watched_by(disk.clone())).await;
    disk.is_full.store(true, Relaxed);
    let ended = tokio::time::timeout(Duration::from_secs(6), client.shutdown(Duration::from_secs(2))).await;
    ended.expect("it ends a second after its grace period");
    drop(client);
    // The process goes on, and the outcome is written when the disk has room.
    disk.is_full.store(false, Relaxed);
    let status = status_at_next(&vendor, Store::sqlite(&path), &id).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_client_ends_while_store_fails() {
    let (vendor, disk, path) = (vendor().await, Arc::new(Disk::default()), folder("shutdown").join("s.db"));
    let store = Store::sqlite(&path).lease(Duration::from_secs(2)).watched_by(disk.clone());
    let (client, id) = client_with_post(&vendor, store).await;
    disk.is_full.store(true, Relaxed);
    drop(client);
    // The outcome was known to the first client alone.
    let status = status_at_next(&vendor, Store::sqlite(&path), &id).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
    assert_eq!(vendor.arrivals().len(), 1);
}
