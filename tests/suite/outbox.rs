//! The outbox against a vendor with a socket, in real time: every accepted request is delivered or kept, whatever
//! happens in between.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::BoxError;
use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::dead_letter::{DeadLetter, LetterRequest, Reason};
use integration_client::outbox::{Delivered, Receipt, ResponseHandler, Status};
use integration_client::store::Store;
use integration_client::testing::{
    FakeVendor, FakeVendorBuilder, Fault, HeaderStyle, Outage, Reply, VendorLimit, When,
};
use integration_client::transport::SecretString;
use integration_client::{Delivery, ErrorKind, IntegrationClient, IntegrationClientBuilder, Priority, Request};

mod blocked;
mod changed_sealing;
mod costs;
mod forgotten_keys;
mod kept_headers;
mod missing_key;
mod missing_lane;
mod outcomes;
mod own_credentials;
mod own_jobs;
mod pauses;
mod redriven_keys;
mod refusals;
mod rolled_back;

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Must appear in no file.
const CANARY: &str = "canary-3f9a1c77";

fn folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-outbox-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn vendor(builder: FakeVendorBuilder) -> FakeVendor {
    builder.headers(HeaderStyle::Silent).start().await.unwrap()
}

/// Additions to a vendor's entry: the vendor takes idempotency keys, and retries are quick.
const RETRY: &str = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nfirst_wait = \"100ms\"\n\
                     longest_wait = \"200ms\"\nmax_retries = 3\n";

fn client(vendor: &FakeVendor, store: &Store, retry: &str) -> IntegrationClientBuilder {
    // On one machine no request is under way for longer.
    let text = vendor.vendors_toml("v").replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1);
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text + retry)
        .credential_resolver("keys", |key: String| async move { Ok(SecretString::from(format!("{CANARY}-{key}"))) })
        .tenant(TenantEntry::new("acme", "v").credential("keys:acme"))
        .tenant(TenantEntry::new("umbra", "v").credential("keys:umbra"))
        .store(store.clone())
}

async fn wait_for_status(receipt: &Receipt, what: impl Fn(&Status) -> bool) -> Status {
    let mut status = receipt.status().await.unwrap();
    for _ in 0..1_000 {
        if what(&status) {
            return status;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        status = receipt.status().await.unwrap();
    }
    panic!("it stays {status:?}");
}

async fn until_ended(receipt: &Receipt) -> Status {
    wait_for_status(receipt, |status| !matches!(status, Status::Waiting { .. } | Status::UnderWay)).await
}

fn post(path: &str) -> Request {
    Request::post("v", path).json(&["work"])
}

#[derive(Clone, Default)]
struct CollectingHandler {
    delivered: Arc<Mutex<Vec<Delivered>>>,
    letters: Arc<Mutex<Vec<DeadLetter>>>,
}

impl ResponseHandler for CollectingHandler {
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        self.delivered.lock().unwrap().push(answer.clone());
        Box::pin(async { Ok(()) })
    }

    fn given_up<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        self.letters.lock().unwrap().push(letter.clone());
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn receipt_reports_delivery() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let collected = CollectingHandler::default();
    let client = client(&vendor, &store, RETRY).work().response_handler(collected.clone()).build().await.unwrap();
    let request = post("/labels").metadata("order", "17").keep_response();
    let receipt = client.outbox().enqueue("acme", Priority::High, request).await.unwrap();
    let status = until_ended(&receipt).await;
    let Status::Delivered { status: 200, attempts: 1, response: Some(kept), .. } = status else { panic!("{status:?}") };
    assert_eq!((&kept.body()[..], kept.content_type()), (&b"{}"[..], Some("application/json")));
    let told = collected.delivered.lock().unwrap().clone();
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0].id, told[0].metadata["order"].as_str()), (&receipt.id(), "17"));
    assert_eq!(
        client.outbox().receipt(&receipt.id()).unwrap().status().await.unwrap(),
        receipt.status().await.unwrap()
    );
    assert_eq!(vendor.arrivals().len(), 1);
    assert_eq!(vendor.arrivals()[0].idempotency_key.len(), 32, "made when it was accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn accepting_process_leaves_sending_to_a_worker() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let accepting = client(&vendor, &store, RETRY).build().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..20 {
        receipts
            .push(accepting.outbox().enqueue("acme", Priority::Low, post(&format!("/jobs/{number}"))).await.unwrap());
    }
    assert!(vendor.arrivals().is_empty());
    let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
    for receipt in &receipts {
        assert!(matches!(until_ended(receipt).await, Status::Delivered { .. }));
    }
    // While one client works, the other still accepts jobs.
    let late = accepting.outbox().enqueue("acme", Priority::Low, post("/jobs/late")).await.unwrap();
    assert!(matches!(until_ended(&late).await, Status::Delivered { .. }));
    assert_eq!(vendor.arrivals().len(), 21, "each once");
    assert!(working.shutdown(Duration::from_secs(5)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn same_key_is_accepted_once() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let first = client.outbox().enqueue("acme", Priority::Normal, post("/a").idempotency_key("k-1")).await.unwrap();
    let again = client.outbox().enqueue("acme", Priority::Normal, post("/a").idempotency_key("k-1")).await.unwrap();
    assert_eq!(first.id(), again.id());
    assert!(again.was_accepted_before() && !first.was_accepted_before());
    let error = client.outbox().enqueue("acme", Priority::Normal, post("/b").idempotency_key("k-1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyReused, "{error}");
    client.outbox().enqueue("umbra", Priority::Normal, post("/b").idempotency_key("k-1")).await.unwrap();
    until_ended(&first).await;
    let of_acme = vendor.arrivals().iter().filter(|arrival| arrival.key.ends_with("acme")).count();
    assert_eq!(of_acme, 1);
    assert!(vendor.arrivals().iter().all(|arrival| &*arrival.idempotency_key == "k-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_retries_use_one_key() {
    let vendor = vendor(FakeVendor::builder().fault(When::any().first(3), Fault::Status(503))).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 4, .. }), "{status:?}");
    let keys: std::collections::BTreeSet<_> =
        vendor.arrivals().iter().map(|arrival| arrival.idempotency_key.clone()).collect();
    assert_eq!((vendor.arrivals().len(), keys.len()), (4, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_job_leaves_resendable_letter() {
    let vendor = vendor(FakeVendor::builder()).await;
    vendor.set_outage(Outage::Unavailable);
    let store = Store::sqlite(folder().join("s.db"));
    let collected = CollectingHandler::default();
    let client = client(&vendor, &store, RETRY).work().response_handler(collected.clone()).build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/a?token=s3cret")).await.unwrap();
    let status = until_ended(&receipt).await;
    assert_eq!(status, wait_for_status(&receipt, |_| true).await);
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Exhausted), .. }), "{status:?}");
    assert_eq!(collected.letters.lock().unwrap().len(), 1);
    let letters = client.outbox().dead_letters().unwrap();
    let kept = letters.show(&receipt.id()).await.unwrap().unwrap();
    assert_eq!(kept.letter.attempts.len(), 4);
    assert!(kept.letter.attempts.iter().all(|attempt| attempt.status == Some(503)), "{:?}", kept.letter.attempts);
    assert!(matches!(&kept.letter.request, LetterRequest::Redacted { path, .. } if path == "/a"), "{kept:?}");
    assert_eq!(letters.clone().tenant("umbra").list(None, 10).await.unwrap().len(), 0);
    assert_eq!(letters.clone().tenant("acme").list(None, 10).await.unwrap().len(), 1);
    assert!(letters.clone().tenant("umbra").show(&receipt.id()).await.unwrap().is_none());

    vendor.set_outage(None);
    assert!(letters.redrive(&receipt.id()).await.unwrap());
    assert!(!letters.redrive(&receipt.id()).await.unwrap(), "it is a job again");
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Delivered { status: 200, .. }), "{status:?}");
    assert_eq!(letters.count().await.unwrap(), 0);
    let keys: std::collections::BTreeSet<_> =
        vendor.arrivals().iter().map(|arrival| arrival.idempotency_key.clone()).collect();
    assert_eq!((vendor.arrivals().len(), keys.len()), (5, 1), "with the same key");
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_that_dies_again_is_resent_once() {
    const LETTERS: usize = 20;
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 410)).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..LETTERS {
        let path = format!("/gone?{number}");
        receipts.push(client.outbox().enqueue("acme", Priority::High, post(&path)).await.unwrap());
    }
    for receipt in &receipts {
        until_ended(receipt).await;
    }
    assert_eq!(vendor.arrivals().len(), LETTERS);
    let letters = client.outbox().dead_letters().unwrap();
    for calls in 1..=2 {
        // The jobs become dead letters again while the call goes on, because a job fails faster than the next letter is
        // redriven. The call must end nevertheless.
        let again = tokio::time::timeout(Duration::from_secs(20), letters.redrive_all(usize::MAX)).await;
        let again = again.expect("the call ends").unwrap();
        assert_eq!((again.jobs, again.unsendable), (LETTERS, 0));
        for receipt in &receipts {
            until_ended(receipt).await;
        }
        assert_eq!(vendor.arrivals().len(), LETTERS * (calls + 1), "each letter once per call");
    }
    assert_eq!(letters.redrive_all(5).await.unwrap().jobs, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn final_refusal_makes_a_letter_at_once() {
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 410)).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::Normal, post("/gone")).await.unwrap();
    let status = until_ended(&receipt).await;
    assert!(matches!(status, Status::Dead { reason: Some(Reason::Rejected), .. }), "{status:?}");
    let kept = client.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap().unwrap();
    assert_eq!(kept.letter.attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(), [Some(410)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_job_is_not_sent() {
    let vendor = vendor(FakeVendor::builder().limit(VendorLimit::fixed_window(2, Duration::from_secs(3600)))).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..5 {
        let request = post(&format!("/{number}")).deadline(Duration::from_millis(1500));
        receipts.push(client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap());
    }
    let mut expired = 0;
    for receipt in &receipts {
        match until_ended(receipt).await {
            Status::Dead { reason: Some(Reason::Expired), .. } => expired += 1,
            Status::Delivered { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(expired >= 3, "{expired}");
    assert_eq!(vendor.refused(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_retry_after_waits_in_store() {
    use integration_client::testing::{FakeAnswer, FakeTransport};
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let refuses = FakeTransport::new(|_| FakeAnswer::status(429).header("retry-after", "7200"));
    let client = client(&vendor, &store, RETRY).transport(refuses).work().build().await.unwrap();
    let receipt = client.outbox().enqueue("acme", Priority::High, post("/a")).await.unwrap();
    let is_parked = |status: &Status| matches!(status, Status::Waiting { due_in, .. } if due_in.as_secs() > 7_000);
    wait_for_status(&receipt, is_parked).await;
    assert!(client.shutdown(Duration::from_secs(5)).await, "nothing is held in memory for it");
    drop(client);
    let next = self::client(&vendor, &store, RETRY).build().await.unwrap();
    let status = next.outbox().receipt(&receipt.id()).unwrap().status().await.unwrap();
    assert!(is_parked(&status), "another process knows: {status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_puts_back_what_has_not_begun() {
    let vendor = vendor(FakeVendor::builder().limit(VendorLimit::sliding_window(2, Duration::from_secs(60)))).await;
    let store = Store::sqlite(folder().join("s.db"));
    let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let mut receipts = Vec::new();
    for number in 0..10 {
        receipts.push(working.outbox().enqueue("acme", Priority::High, post(&format!("/{number}"))).await.unwrap());
    }
    until_ended(&receipts[0]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let began = now();
    working.shutdown(Duration::from_secs(10)).await;
    assert!(began.elapsed() < Duration::from_secs(3), "nothing is waited for that need not be");
    let reading = client(&vendor, &store, RETRY).build().await.unwrap();
    let mut waiting = 0;
    for receipt in &receipts {
        match reading.outbox().receipt(&receipt.id()).unwrap().status().await.unwrap() {
            Status::Waiting { .. } => waiting += 1,
            Status::Delivered { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waiting + vendor.arrivals().len(), 10);
    assert!(waiting >= 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_was_shut_down_accepts_nothing() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    for works in [true, false] {
        let builder = client(&vendor, &store, RETRY);
        let client = if works { builder.work() } else { builder }.build().await.unwrap();
        let receipt = client.outbox().enqueue("acme", Priority::High, post("/before")).await.unwrap();
        client.shutdown(Duration::from_secs(2)).await;
        let error = client.outbox().enqueue("acme", Priority::High, post("/after")).await.unwrap_err();
        assert_eq!((error.kind(), error.delivery()), (ErrorKind::Shutdown, Delivery::NotSent), "{error}");
        receipt.status().await.expect("what was accepted can still be asked for");
    }
    let reading = client(&vendor, &store, RETRY).build().await.unwrap();
    let waiting: u64 = reading.outbox().queues(10).await.unwrap().iter().map(|queue| queue.waiting).sum();
    assert!(waiting <= 2, "{waiting}");
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_job_stays_unambiguous_after_shutdown() {
    let limit = VendorLimit::sliding_window(1, Duration::from_secs(3));
    let vendor = vendor(FakeVendor::builder().limit(limit).fault(When::any().first(1), Fault::Status(401))).await;
    let store = Store::sqlite(folder().join("s.db"));
    // The vendor takes no keys, so a request with an unknown outcome would become a dead letter.
    let working = client(&vendor, &store, "").work().build().await.unwrap();
    let receipt = working.outbox().enqueue("acme", Priority::High, post("/a")).await.unwrap();
    while vendor.arrivals().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The job has a fresh credential now and waits for the limit.
    tokio::time::sleep(Duration::from_millis(300)).await;
    working.shutdown(Duration::from_millis(100)).await;
    assert_eq!(vendor.arrivals().len(), 1);
    let next = client(&vendor, &store, "").work().build().await.unwrap();
    let status = until_ended(&next.outbox().receipt(&receipt.id()).unwrap()).await;
    assert!(matches!(status, Status::Delivered { status: 200, attempts: 2, .. }), "{status:?}");
    assert_eq!((vendor.arrivals().len(), vendor.refused()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn new_process_replays_usage() {
    let limit = VendorLimit::sliding_window(20, Duration::from_secs(4));
    let vendor = vendor(FakeVendor::builder().limit(limit)).await;
    let store = Store::sqlite(folder().join("s.db"));
    let mut receipts = Vec::new();
    // Three processes in a row, each with nearly enough jobs to use the whole limit.
    for process in 0..3 {
        let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
        for number in 0..15 {
            let path = format!("/{process}/{number}");
            receipts.push(working.outbox().enqueue("acme", Priority::High, post(&path)).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
        working.shutdown(Duration::from_secs(2)).await;
    }
    let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
    for receipt in &receipts {
        let receipt = working.outbox().receipt(&receipt.id()).unwrap();
        let status =
            wait_for_status(&receipt, |status| matches!(status, Status::Delivered { .. } | Status::Dead { .. })).await;
        assert!(matches!(status, Status::Delivered { .. }), "{status:?}");
    }
    assert_eq!(vendor.refused(), 0);
    assert_eq!(vendor.arrivals().len(), 45);
}

/// Runs four processes in a row, each with enough jobs to use the whole limit. Each learns of the tenant only after
/// `build`, and must still count what the ones before have sent.
async fn assert_late_tenant_counts_usage(by: TenantArrival) {
    let limit = VendorLimit::sliding_window(20, Duration::from_secs(5));
    let vendor = vendor(FakeVendor::builder().limit(limit)).await;
    let folder = folder();
    let store = Store::sqlite(folder.join("s.db"));
    let text = vendor.vendors_toml("v").replacen("\nauth", "\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth", 1);
    let tenant = "\n[[tenants]]\nid = \"acme\"\nvendor = \"v\"\ncredential = \"keys:acme\"\n";
    let other =
        "[vendors.other]\nbase_url = \"https://other.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let mut accepted = 0;
    for process in 0..4 {
        let file = folder.join(format!("{process}.toml"));
        std::fs::write(&file, if by == TenantArrival::Vendor { other } else { &*text }).unwrap();
        let builder = IntegrationClient::builder().without_catalogue().without_watching().vendors_file(&file);
        let builder = builder
            .credential_resolver("keys", |key: String| async move { Ok(SecretString::from(format!("{CANARY}-{key}"))) })
            .store(store.clone())
            .work();
        let client = builder.build().await.unwrap();
        if process > 0 {
            // By then the process has read the stored usage. It claims no jobs of tenants that it does not know.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        match by {
            TenantArrival::SetTenant => {
                client.tenants().set(TenantEntry::new("acme", "v").credential("keys:acme")).unwrap()
            }
            TenantArrival::Reload | TenantArrival::Vendor => {
                std::fs::write(&file, text.clone() + tenant).unwrap();
                client.config().reload().await.map(drop).unwrap();
            }
        }
        for number in 0..30 {
            client.outbox().enqueue("acme", Priority::High, post(&format!("/{process}/{number}"))).await.unwrap();
            accepted += 1;
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
        // The shutdown ends as soon as no request is under way.
        client.shutdown(Duration::from_secs(30)).await;
    }
    assert_eq!(vendor.refused(), 0, "{by:?}: of {} that arrived", vendor.arrivals().len());
    assert!((10..accepted).contains(&vendor.arrivals().len()), "{by:?}: {}", vendor.arrivals().len());
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum TenantArrival {
    SetTenant,
    Reload,
    Vendor,
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_replayed_for_tenants_set_later() {
    assert_late_tenant_counts_usage(TenantArrival::SetTenant).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_replayed_for_reloaded_tenants() {
    assert_late_tenant_counts_usage(TenantArrival::Reload).await;
    assert_late_tenant_counts_usage(TenantArrival::Vendor).await;
}

/// The usage of a lane is read even behind a million older rows of other lanes, which is more than an earlier version
/// read at all.
#[tokio::test(flavor = "multi_thread")]
async fn usage_is_replayed_behind_a_million_rows() {
    use sqlx::Connection;
    let limit = VendorLimit::sliding_window(20, Duration::from_secs(60));
    let vendor = vendor(FakeVendor::builder().limit(limit)).await;
    let path = folder().join("s.db");
    let store = Store::sqlite(&path);
    // Building a client makes the tables.
    drop(client(&vendor, &store, RETRY).build().await.unwrap());
    let mut database = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    for statement in [
        "PRAGMA synchronous = OFF".to_owned(),
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1050000) \
             INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
             SELECT printf('other-%07d', i / 100), 'v', '', i % 100, x'00', 0, 1, 1, {now} - 2000000 + i, {now} + 60000 FROM n"
        ),
        format!(
            "INSERT INTO ic_spent (tenant, vendor, endpoint, slot, owner, high, requests, points, last_at, until) \
             VALUES ('acme', 'v', '', 1, x'00', 0, 20, 20, {now}, {now} + 60000)"
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut database).await.unwrap();
    }
    database.close().await.unwrap();
    let working = client(&vendor, &store, RETRY).work().build().await.unwrap();
    working.outbox().enqueue("acme", Priority::High, post("/acme")).await.unwrap();
    let other = working.outbox().enqueue("umbra", Priority::High, post("/umbra")).await.unwrap();
    until_ended(&other).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let paths: Vec<String> = vendor.arrivals().iter().map(|arrival| arrival.path.to_string()).collect();
    assert_eq!(paths, ["/umbra"], "the limit of the other tenant was used up before");
}

/// Enqueues `request` in a process that dies in the middle of the exchange, and returns the id of the job.
fn enqueue_in_dying_process(vendor: &FakeVendor, store: &Store, retry: &str, request: Request) -> String {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let id = runtime.block_on(async {
        let client = client(vendor, store, retry).work().build().await.unwrap();
        let receipt = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
        while vendor.arrivals().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        receipt.id()
    });
    // Every task ends at its current await, as in a process that is killed.
    runtime.shutdown_timeout(Duration::from_secs(5));
    id
}

#[test]
fn process_death_leaves_letter_or_same_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (retry, delivered) in [(RETRY, true), ("", false)] {
        let stalls = FakeVendor::builder().fault(When::any().first(1), Fault::Stall);
        let vendor = runtime.block_on(vendor(stalls));
        let store = Store::sqlite(folder().join("s.db"));
        let id = enqueue_in_dying_process(&vendor, &store, retry, post("/a"));
        runtime.block_on(async {
            let next = client(&vendor, &store, retry).work().build().await.unwrap();
            let status = until_ended(&next.outbox().receipt(&id).unwrap()).await;
            if delivered {
                assert!(matches!(status, Status::Delivered { attempts: 2, .. }), "{status:?}");
                let arrivals = vendor.arrivals();
                assert_eq!(arrivals.len(), 2);
                assert_eq!(arrivals[0].idempotency_key, arrivals[1].idempotency_key);
            } else {
                assert!(matches!(status, Status::Dead { reason: Some(Reason::Ambiguous), .. }), "{status:?}");
                assert_eq!(vendor.arrivals().len(), 1, "nobody knows whether it acted: not sent again");
            }
        });
    }
}

/// The deadline of the job passes before the next process starts.
#[test]
fn possibly_sent_job_expires_as_ambiguous() {
    const DEADLINE: Duration = Duration::from_secs(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for (retry, expected) in [(RETRY, Reason::Expired), ("", Reason::Ambiguous)] {
        let stalls = FakeVendor::builder().fault(When::any().first(1), Fault::Stall);
        let vendor = runtime.block_on(vendor(stalls));
        let store = Store::sqlite(folder().join("s.db"));
        let id = enqueue_in_dying_process(&vendor, &store, retry, post("/a").deadline(DEADLINE));
        runtime.block_on(async {
            tokio::time::sleep(DEADLINE).await;
            let next = client(&vendor, &store, retry).work().build().await.unwrap();
            let status = until_ended(&next.outbox().receipt(&id).unwrap()).await;
            assert!(matches!(status, Status::Dead { reason: Some(reason), .. } if reason == expected), "{status:?}");
            assert_eq!(vendor.arrivals().len(), 1, "{expected:?}: it is too late to send it again");
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_file() {
    let echo = Reply::json(400, format!("{{\"authorization\":\"Bearer {CANARY}-acme\"}}"));
    let vendor = vendor(FakeVendor::builder().poisoned("/gone", 404).reply_at("/echo", echo)).await;
    let folder = folder();
    let store = Store::sqlite(folder.join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    for path in ["/a", "/gone", "/echo"] {
        until_ended(&client.outbox().enqueue("acme", Priority::Normal, post(path)).await.unwrap()).await;
    }
    for header in ["authorization", "cookie"] {
        let request = post("/a").header(header, CANARY);
        let error = client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    assert!(vendor.arrivals().iter().all(|arrival| arrival.key.contains(CANARY)), "it was sent with it");
    // A plain send may bring a credential of its own, and leaves a letter.
    let open = format!("[vendors.open]\nbase_url = \"{}\"\nauth = {{ scheme = \"none\" }}\n", vendor.url());
    let open =
        open + "unpublished = true\ndead_letters = \"whole\"\nretry = { max_retries = 1, first_wait = \"1ms\" }\n";
    let other = IntegrationClient::builder().without_catalogue().vendors_toml(open).store(store.clone());
    let other = other.tenant(TenantEntry::new("acme", "open")).build().await.unwrap();
    vendor.set_outage(Outage::Unavailable);
    for header in ["authorization", "cookie"] {
        let error = other.send("acme", Priority::Normal, Request::get("open", "/a").header(header, CANARY)).await;
        assert!(error.unwrap_err().letter_id().is_some(), "{header}");
    }
    other.shutdown(Duration::from_secs(5)).await;
    let mut looked = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        looked += bytes.len();
        assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));
    }
    assert!(looked > 10_000, "{looked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_outbox_refuses_with_advice() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db")).max_backlog(3).max_payload_bytes(10_000);
    let client = client(&vendor, &store, RETRY).build().await.unwrap();
    let large = Request::post("v", "/a").body(vec![b'x'; 20_000]);
    let error = client.outbox().enqueue("acme", Priority::Normal, large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("max_payload_bytes"), "{error}");
    for _ in 0..3 {
        client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap();
    }
    let error = client.outbox().enqueue("acme", Priority::Normal, post("/a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QueueFull);
    assert!(error.to_string().contains("max_backlog"), "{error}");
    let none = IntegrationClient::builder().build().await.unwrap();
    assert_eq!(none.outbox().receipt(&"0".repeat(32)).unwrap_err().kind(), ErrorKind::Store);
    let unknown = client.outbox().enqueue("nobody", Priority::Normal, post("/a")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownTenant);
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_accepted_in_the_callers_transaction() {
    use sqlx::{Connection, Row};
    let vendor = vendor(FakeVendor::builder()).await;
    let path = folder().join("s.db");
    let store = Store::sqlite(&path);
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut own = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("CREATE TABLE orders (n INTEGER)").execute(&mut own).await.unwrap();
    let mut ids = Vec::new();
    for keep in [false, true] {
        let mut tx = own.begin_with("BEGIN IMMEDIATE").await.unwrap();
        sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut *tx).await.unwrap();
        let receipt = client.outbox().enqueue_in(&mut *tx, "acme", Priority::High, post("/order")).await.unwrap();
        assert_eq!(receipt.status().await.unwrap(), Status::Unknown, "not before it is committed");
        match keep {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
        ids.push(receipt);
    }
    assert!(matches!(wait_for_status(&ids[1], |status| *status != Status::Unknown).await, _));
    assert!(matches!(until_ended(&ids[1]).await, Status::Delivered { .. }));
    assert_eq!(ids[0].status().await.unwrap(), Status::Unknown);
    let orders: i64 = sqlx::query("SELECT count(*) FROM orders").fetch_one(&mut own).await.unwrap().get(0);
    assert_eq!((orders, vendor.arrivals().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_send_letters_are_stored() {
    let vendor = vendor(FakeVendor::builder()).await;
    vendor.set_outage(Outage::Unavailable);
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).work().build().await.unwrap();
    let error = client.send("acme", Priority::High, Request::get("v", "/a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exhausted);
    let letters = client.outbox().dead_letters().unwrap();
    let id = error.letter_id().unwrap();
    let mut found = None;
    for _ in 0..200 {
        found = letters.show(id).await.unwrap();
        if found.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let kept = found.expect("the letter is in the store");
    assert!(!kept.can_be_sent, "of a plain send no more is kept than its vendor's entry says");
    let error = letters.redrive(id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    assert_eq!(letters.purge(10).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_tenants_are_used_within_two_seconds() {
    let vendor = vendor(FakeVendor::builder()).await;
    let store = Store::sqlite(folder().join("s.db"));
    let client = client(&vendor, &store, RETRY).config_in_store().build().await.unwrap();
    let unknown = client.send("late", Priority::High, Request::get("v", "/a")).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownTenant);
    let row = "[[tenants]]\nid = \"late\"\nvendor = \"v\"\ncredential = \"keys:late\"\n\
               [vendors.v]\nattempt_timeout = \"7s\"\n";
    client.config().set_stored("late", Some(row)).await.unwrap();
    let written = now();
    while client.send("late", Priority::High, Request::get("v", "/a")).await.is_err() {
        assert!(written.elapsed() < Duration::from_secs(2), "{:?}", client.config().problem());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The row overrides the text, and settings that the row does not state come from the text.
    let config = client.config().current();
    let timeout = config.vendor("v", "live").unwrap().attempt_timeout;
    assert_eq!(timeout, Duration::from_secs(7));
    client.config().set_stored("z-bad", Some("[vendors.v]\nattempt_timeout = \"soon\"\n")).await.unwrap();
    while client.config().problem().is_none() {
        assert!(written.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let problem = client.config().problem().unwrap();
    assert!(problem.contains("row `z-bad` of ic_config") && problem.contains(":2:"), "{problem}");
    assert_eq!(client.config().current().version(), config.version());
    assert_eq!(client.send("late", Priority::High, Request::get("v", "/a")).await.unwrap().status(), 200);
    // While one row is bad the other rows are used, even if they are written during that time.
    let row = "[[tenants]]\nid = \"later\"\nvendor = \"v\"\ncredential = \"keys:later\"\n";
    client.config().set_stored("later", Some(row)).await.unwrap();
    while client.send("later", Priority::High, Request::get("v", "/a")).await.is_err() {
        assert!(written.elapsed() < Duration::from_secs(15), "{:?}", client.config().problem());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(client.config().problem().is_some_and(|problem| problem.contains("row `z-bad` of ic_config")));
    assert_eq!(client.config().current().vendor("v", "live").unwrap().attempt_timeout, timeout);
    client.config().set_stored("z-bad", None).await.unwrap();
    while client.config().problem().is_some() {
        assert!(written.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letter_holds_the_vendors_reason() {
    let said = format!("the postcode is missing {}", "é".repeat(300));
    let vendor = vendor(
        FakeVendor::builder()
            .reply_at("/labels", Reply::text(422, said.clone()))
            .reply_at("/denied", Reply::text(403, format!("no access for {CANARY}-acme")))
            .reply_at("/binary", Reply::text(422, vec![0xff; 400])),
    )
    .await;
    for (keep, characters) in [("redacted", 200), ("no_answer", 0), ("whole", said.chars().count())] {
        let store = Store::sqlite(folder().join("s.db"));
        let keeps = format!("{RETRY}\n[vendors.v.environments.other]\ndead_letters = \"{keep}\"\n");
        let other = TenantEntry::new("other", "v").credential("keys:acme").environment("other");
        let client = client(&vendor, &store, &keeps).tenant(other).work().build().await.unwrap();
        for (path, expected) in [("/labels", characters), ("/denied", 0), ("/binary", 0)] {
            if (path, keep) == ("/denied", "whole") {
                continue;
            }
            let receipt = client.outbox().enqueue("other", Priority::Normal, post(path)).await.unwrap();
            assert!(matches!(until_ended(&receipt).await, Status::Dead { reason: Some(Reason::Rejected), .. }));
            let kept = client.outbox().dead_letters().unwrap().show(&receipt.id()).await.unwrap().unwrap();
            let answer = kept.letter.attempts.last().unwrap().answer.clone().unwrap_or_default();
            assert_eq!(answer, said.chars().take(expected).collect::<String>(), "{keep} {path}");
        }
    }
}
