//! Response handlers that block or hang: no job loses its lease or its outcome, and other requests get their threads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::DeadLetter;
use integration_client::outbox::{Delivered, Receipt, ResponseHandler, Status};
use integration_client::store::Store;
use integration_client::testing::{FakeVendor, Fault, HeaderStyle, When, literal};
use integration_client::{IntegrationClient, Priority, Request};

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// A new folder for the store of a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-handlers-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A working client whose vendor honours no idempotency key, so that a job that is taken for lost becomes a dead
/// letter.
async fn client(vendor: &FakeVendor, store: Store, handler: impl ResponseHandler) -> IntegrationClient {
    let text = vendor.vendors_toml("v").replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1);
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text)
        .credential_resolver("keys", literal)
        .tenant(TenantEntry::new("acme", "v").credential("keys:acme"))
        .tenant(TenantEntry::new("umbra", "v").credential("keys:umbra"))
        .store(store)
        .work()
        .response_handler(handler)
        .build()
        .await
        .unwrap()
}

async fn enqueue(client: &IntegrationClient, paths: &[&str]) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for path in paths {
        let request = Request::post("v", *path).json(&["work"]);
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    receipts
}

async fn wait_for_end(receipt: &Receipt, limit: Duration) -> Status {
    let began = now();
    loop {
        let status = receipt.status().await.unwrap();
        if !matches!(status, Status::Waiting { .. } | Status::UnderWay) {
            return status;
        }
        assert!(began.elapsed() < limit, "after {limit:?} it is {status:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A handler that blocks the calling thread for each of the first [`BLOCKED_CALLS`] responses and dead letters.
#[derive(Clone, Default)]
struct BlockingHandler {
    calls: Arc<AtomicU32>,
}

const BLOCKED_CALLS: u32 = 8;
/// Longer than the lease, and than the time after which the store gives a job to another process.
const BLOCKED: Duration = Duration::from_secs(9);

impl BlockingHandler {
    #[expect(clippy::disallowed_methods, reason = "a handler that blocks its thread is what is tested")]
    fn block(&self) {
        if self.calls.fetch_add(1, Relaxed) < BLOCKED_CALLS {
            std::thread::sleep(BLOCKED);
        }
    }
}

impl ResponseHandler for BlockingHandler {
    fn delivered<'a>(&'a self, _: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        self.block();
        Box::pin(async { Ok(()) })
    }

    fn given_up<'a>(&'a self, _: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.block();
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_handler_delays_no_send() {
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/bad", 422).start().await.unwrap();
    let store = Store::sqlite(folder("blocks").join("s.db")).lease(Duration::from_secs(2));
    let client = client(&vendor, store, BlockingHandler::default()).await;
    let receipts = enqueue(&client, &["/bad/1", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let began = now();
    client.send("umbra", Priority::High, Request::post("v", "/now")).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "another tenant's send took {:?}", began.elapsed());
    let status = wait_for_end(&receipts[0], Duration::from_secs(4)).await;
    assert!(matches!(status, Status::Dead { .. }), "{status:?}");
    for receipt in &receipts[1..] {
        let status = wait_for_end(receipt, Duration::from_secs(4)).await;
        assert!(matches!(status, Status::Delivered { status: 200, .. }), "{status:?}");
    }
    // Waits beyond the end of the lease: without the recorded outcomes the store would take the jobs for lost by then.
    tokio::time::sleep(BLOCKED).await;
    for receipt in &receipts[1..] {
        let status = receipt.status().await.unwrap();
        assert!(matches!(status, Status::Delivered { status: 200, .. }), "{status:?}");
    }
    assert_eq!(client.outbox().dead_letters().unwrap().count().await.unwrap(), 1);
    assert_eq!(vendor.arrivals().len(), 11, "each request once");
}

/// A handler that never returns.
struct EndlessHandler;

impl ResponseHandler for EndlessHandler {
    fn delivered<'a>(&'a self, _: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(std::future::pending())
    }

    fn given_up<'a>(&'a self, _: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outcome_is_stored_while_the_handler_runs() {
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).start().await.unwrap();
    let client = client(&vendor, Store::sqlite(folder("endless").join("s.db")), EndlessHandler).await;
    let receipts = enqueue(&client, &["/1", "/2", "/3", "/4", "/5"]).await;
    for receipt in &receipts {
        let status = wait_for_end(receipt, Duration::from_secs(8)).await;
        let Status::Delivered { status: 200, response: Some(kept), .. } = status else { panic!("{status:?}") };
        assert_eq!(&kept.body()[..], b"{}");
    }
    assert_eq!(vendor.arrivals().len(), 5);
}

/// A handler that says whether it keeps what it takes.
#[derive(Clone, Default)]
struct KeepingHandler(Arc<AtomicBool>);

impl ResponseHandler for KeepingHandler {
    fn delivered<'a>(&'a self, _: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn keeps(&self, _: &str) -> bool {
        self.0.load(Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_that_the_handler_keeps_is_not_stored() {
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).start().await.unwrap();
    let handler = KeepingHandler::default();
    let client = client(&vendor, Store::sqlite(folder("keeps").join("s.db")), handler.clone()).await;
    for keeps in [true, false] {
        handler.0.store(keeps, Relaxed);
        let request = Request::post("v", "/1").json(&["work"]).keep_response();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
        let status = wait_for_end(&receipt, Duration::from_secs(8)).await;
        let Status::Delivered { status: 200, response, .. } = status else { panic!("{status:?}") };
        assert_eq!(response.is_some(), !keeps);
    }
}

/// An empty body would pass for the vendor's.
#[tokio::test(flavor = "multi_thread")]
async fn torn_body_is_not_kept() {
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).fault(When::path("/half"), Fault::HalfBody);
    let vendor = vendor.start().await.unwrap();
    let seen: Arc<Mutex<Vec<(bool, usize)>>> = Arc::default();
    let told = seen.clone();
    let handler = move |answer: Delivered| {
        told.lock().unwrap().push((answer.body_is_whole, answer.body.len()));
        async { Ok::<(), BoxError>(()) }
    };
    let client = client(&vendor, Store::sqlite(folder("torn").join("s.db")), handler).await;
    for (path, is_whole) in [("/half", false), ("/1", true)] {
        let request = Request::post("v", path).json(&["work"]).keep_response();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
        let status = wait_for_end(&receipt, Duration::from_secs(8)).await;
        let Status::Delivered { status: 200, response, .. } = status else { panic!("{status:?}") };
        assert_eq!(response.is_some(), is_whole, "{path}");
    }
    assert_eq!(*seen.lock().unwrap(), [(false, 0), (true, 2)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redriven_job_is_sent_while_the_handler_of_its_letter_runs() {
    let vendor = FakeVendor::builder().headers(HeaderStyle::Silent).poisoned("/bad", 422).start().await.unwrap();
    let client = client(&vendor, Store::sqlite(folder("redriven").join("s.db")), EndlessHandler).await;
    let receipt = enqueue(&client, &["/bad/1"]).await.remove(0);
    let status = wait_for_end(&receipt, Duration::from_secs(8)).await;
    assert!(matches!(status, Status::Dead { .. }), "{status:?}");
    assert!(client.outbox().dead_letters().unwrap().redrive(&receipt.id()).await.unwrap());
    let began = now();
    while vendor.arrivals().len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", receipt.status().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
