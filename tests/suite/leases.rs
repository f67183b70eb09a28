//! Which process has a job, and for how long: under steps of the wall clock, stalls of the store, and with second
//! workers. In real time over real sockets, with short leases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::outbox::{Receipt, Status};
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{Delay, FakeVendor, Fault as VendorFault, HeaderStyle, When};
use integration_client::{Error, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

#[cfg(feature = "postgres")]
use crate::support::database;
use crate::support::folder;

/// A vendor that takes `service` for each request, and fails the first one for `/late` with a 503.
async fn vendor(service: Duration) -> FakeVendor {
    let builder = FakeVendor::builder().headers(HeaderStyle::Silent).service_time(Delay::fixed(service));
    builder.fault(When::path("/late").first(1), VendorFault::Status(503)).start().await.unwrap()
}

/// A client that knows the vendor as `keyed`, with an idempotency header, and as `plain`, without one.
fn builder(vendor: &FakeVendor, store: &Store) -> IntegrationClientBuilder {
    let retry = "\n[vendors.keyed.idempotency]\nheader = \"idempotency-key\"\n[vendors.keyed.retry]\nfirst_wait = \"1s\"\n\
                 longest_wait = \"2s\"\n";
    let text = format!("{}{retry}\n{}", vendor.vendors_toml("keyed"), vendor.vendors_toml("plain"));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
    let builder = builder.tenant(TenantEntry::new("acme", "keyed").credential("env:PATH"));
    let builder = builder.tenant(TenantEntry::new("acme", "plain").credential("env:PATH"));
    builder.store(store.clone())
}

/// A client whose worker sends jobs.
async fn client(vendor: &FakeVendor, store: &Store) -> Result<IntegrationClient, Error> {
    builder(vendor, store).work().build().await
}

async fn enqueue(client: &IntegrationClient, vendor: &str, path: &str) -> Receipt {
    client.outbox().enqueue("acme", Priority::Normal, Request::post(vendor, path).json(&["work"])).await.unwrap()
}

/// Accepts three jobs for each of the vendor's names.
async fn enqueue_six(client: &IntegrationClient) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for number in 0..3 {
        for name in ["keyed", "plain"] {
            receipts.push(enqueue(client, name, &format!("/{name}/{number}")).await);
        }
    }
    receipts
}

async fn until_arrived(vendor: &FakeVendor, requests: usize) {
    for _ in 0..2_000 {
        if vendor.arrivals().len() >= requests {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{} of {requests} requests arrived", vendor.arrivals().len());
}

async fn until_ended(receipt: &Receipt) -> Status {
    let mut status = None;
    for _ in 0..3_000 {
        status = receipt.status().await.ok();
        if !matches!(status, None | Some(Status::Waiting { .. } | Status::UnderWay)) {
            return status.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays {status:?}");
}

/// The number of requests that arrived for each path.
fn arrivals_by_path(vendor: &FakeVendor) -> BTreeMap<String, usize> {
    let mut arrived = BTreeMap::new();
    for arrival in vendor.arrivals() {
        *arrived.entry(arrival.path.to_string()).or_default() += 1;
    }
    arrived
}

/// A machine whose wall clock a test can step.
#[derive(Default)]
struct SteppedClock {
    by_ms: AtomicI64,
}

impl Watch for SteppedClock {
    fn at(&self, _: &'static str, _: Moment) -> Fault {
        Fault::None
    }

    fn wall_step_ms(&self) -> i64 {
        self.by_ms.load(Relaxed)
    }
}

const HOUR: i64 = 3_600_000;
const STEPS: [i64; 4] = [HOUR, -HOUR, 24 * HOUR, -24 * HOUR];

async fn step_clock_under_way(by_ms: i64) {
    let vendor = vendor(Duration::from_millis(1_500)).await;
    let machine = Arc::new(SteppedClock::default());
    let store = Store::sqlite(folder("leases").join("s.db")).lease(Duration::from_secs(2)).watched_by(machine.clone());
    let client = client(&vendor, &store).await.unwrap();
    let late = enqueue(&client, "keyed", "/late").await;
    until_arrived(&vendor, 1).await;
    // The vendor fails the request, so the job waits in the store for a second.
    while !matches!(late.status().await.unwrap(), Status::Waiting { .. }) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let receipts = enqueue_six(&client).await;
    until_arrived(&vendor, 7).await;
    machine.by_ms.store(by_ms, Relaxed);
    for receipt in receipts.iter().chain([&late]) {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { status: 200, .. }), "a step of {by_ms} ms: {status:?}");
    }
    let mut arrived = arrivals_by_path(&vendor);
    assert_eq!(arrived.remove("/late"), Some(2), "a step of {by_ms} ms");
    assert!(arrived.values().all(|times| *times == 1), "a step of {by_ms} ms: {arrived:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_steps_under_way_are_harmless() {
    let mut runs = tokio::task::JoinSet::new();
    STEPS.into_iter().for_each(|by_ms| drop(runs.spawn(step_clock_under_way(by_ms))));
    runs.join_all().await;
}

async fn step_clock_between_processes(by_ms: i64) {
    let vendor = vendor(Duration::from_millis(10)).await;
    let machine = Arc::new(SteppedClock::default());
    let store = Store::sqlite(folder("leases").join("s.db")).watched_by(machine.clone());
    let first = client(&vendor, &store).await.unwrap();
    let late = enqueue(&first, "keyed", "/late").await;
    until_arrived(&vendor, 1).await;
    assert!(first.shutdown(Duration::from_secs(10)).await);
    drop(first);
    let accepting = builder(&vendor, &store).build().await.unwrap();
    let useful = Request::post("plain", "/useful").json(&["work"]).deadline(Duration::from_secs(60));
    let useful = accepting.outbox().enqueue("acme", Priority::Normal, useful).await.unwrap();
    drop(accepting);
    machine.by_ms.store(by_ms, Relaxed);
    let second = client(&vendor, &store).await.unwrap();
    for receipt in [late, useful] {
        let status = until_ended(&second.outbox().receipt(&receipt.id()).unwrap()).await;
        assert!(matches!(status, Status::Delivered { status: 200, .. }), "a step of {by_ms} ms: {status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_steps_before_a_start_are_harmless() {
    let mut runs = tokio::task::JoinSet::new();
    STEPS.into_iter().for_each(|by_ms| drop(runs.spawn(step_clock_between_processes(by_ms))));
    runs.join_all().await;
}

/// Another program's connection to the file.
async fn connection(path: &Path) -> sqlx::SqliteConnection {
    use sqlx::Connection;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    sqlx::SqliteConnection::connect_with(&options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn write_lock_beyond_the_lease_is_harmless() {
    use sqlx::Executor;
    let vendor = vendor(Duration::from_millis(1_500)).await;
    let path = folder("leases").join("s.db");
    let client = client(&vendor, &Store::sqlite(&path).lease(Duration::from_secs(2))).await.unwrap();
    let mut other = connection(&path).await;
    let receipts = enqueue_six(&client).await;
    until_arrived(&vendor, 6).await;
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    other.execute("ROLLBACK").await.unwrap();
    for receipt in &receipts {
        let status = until_ended(receipt).await;
        assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{status:?}");
    }
    assert!(arrivals_by_path(&vendor).values().all(|times| *times == 1), "{:?}", arrivals_by_path(&vendor));
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn table_lock_beyond_the_lease_is_harmless() {
    use sqlx::{Connection, Executor};
    let mut runs = tokio::task::JoinSet::new();
    for mode in ["ACCESS EXCLUSIVE", "EXCLUSIVE", "SHARE"] {
        runs.spawn(async move {
            let vendor = vendor(Duration::from_millis(1_500)).await;
            let url = database("leases").await;
            let store = Store::postgres(&url).lease(Duration::from_secs(2));
            // Two workers: each sees that the other makes no progress.
            let (first, _second) = (client(&vendor, &store).await.unwrap(), client(&vendor, &store).await.unwrap());
            let mut other = sqlx::PgConnection::connect(&url).await.unwrap();
            let receipts = enqueue_six(&first).await;
            until_arrived(&vendor, 6).await;
            other.execute("BEGIN").await.unwrap();
            other.execute(sqlx::AssertSqlSafe(format!("LOCK TABLE ic_job IN {mode} MODE"))).await.unwrap();
            tokio::time::sleep(Duration::from_secs(6)).await;
            other.execute("ROLLBACK").await.unwrap();
            for receipt in &receipts {
                let status = until_ended(receipt).await;
                assert!(matches!(status, Status::Delivered { status: 200, attempts: 1, .. }), "{mode}: {status:?}");
            }
            assert!(
                arrivals_by_path(&vendor).values().all(|times| *times == 1),
                "{mode}: {:?}",
                arrivals_by_path(&vendor)
            );
        });
    }
    runs.join_all().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn symlinked_store_has_one_worker() {
    let (vendor, folder) = (vendor(Duration::from_millis(10)).await, folder("leases"));
    let (path, link) = (folder.join("s.db"), folder.join("link.db"));
    let _first = client(&vendor, &Store::sqlite(&path)).await.unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = client(&vendor, &Store::sqlite(&link)).await.unwrap_err();
    assert!(error.is_store_in_use(), "{error}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn removed_lock_file_admits_no_second_worker() {
    let vendor = vendor(Duration::from_millis(10)).await;
    let path = folder("leases").join("s.db");
    let store = Store::sqlite(&path).lease(Duration::from_secs(2));
    let first = client(&vendor, &store).await.unwrap();
    std::fs::remove_file(path.with_extension("db.work")).unwrap();
    let error = client(&vendor, &store).await.unwrap_err();
    assert!(error.is_store_in_use(), "{error}");
    // The first process keeps its lease by its heartbeat while it works.
    let receipt = enqueue(&first, "plain", "/a").await;
    assert!(matches!(until_ended(&receipt).await, Status::Delivered { .. }));
    assert!(first.shutdown(Duration::from_secs(5)).await);
    client(&vendor, &store).await.unwrap();
}

/// Does `harm` to the files of a store in use, asserts that it accepts no more jobs, and returns the error's text.
async fn error_after_harm(harm: impl Fn(&Path)) -> String {
    let vendor = vendor(Duration::from_millis(10)).await;
    let path = folder("leases").join("s.db");
    let client = client(&vendor, &Store::sqlite(&path)).await.unwrap();
    let receipt = enqueue(&client, "plain", "/before").await;
    until_ended(&receipt).await;
    harm(&path);
    let mut said = String::new();
    for number in 0..5 {
        let request = Request::post("plain", format!("/after/{number}")).json(&["work"]);
        let error =
            client.outbox().enqueue("acme", Priority::Normal, request).await.expect_err("it must not be acknowledged");
        assert_eq!(error.kind(), ErrorKind::Store);
        said = error.to_string();
        let problem = client.outbox().problem().unwrap_or_default();
        assert!(problem.contains("deleted or replaced while it was in use"), "{said}: {problem}");
    }
    said
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn deleted_store_file_acknowledges_nothing() {
    let said = error_after_harm(|path| std::fs::remove_file(path).unwrap()).await;
    assert!(said.contains("deleted or replaced"), "{said}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn replaced_store_file_acknowledges_nothing() {
    let said = error_after_harm(|path| {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        std::fs::rename(copy, path).unwrap();
    })
    .await;
    assert!(said.contains("deleted or replaced"), "{said}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn removed_write_ahead_log_acknowledges_nothing() {
    let said = error_after_harm(|path| std::fs::remove_file(path.with_extension("db-wal")).unwrap()).await;
    assert!(said.contains("-wal"), "{said}");
}
