//! The store remembers how much plain sends and permits have used of limits with long windows, and the next process
//! counts that.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use ::tower::{Layer, Service, service_fn};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use integration_client::clock::Clock;
use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::transport::{SecretString, Signer, SigningParts};
use integration_client::{BoxError, IntegrationClient, OnRemove, Priority, Request};

use crate::support::text_source::TextSource;

/// A vendor with limits on a day's requests, points, tokens and bytes.
const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
costs = { tokens = 100 }
max_transit = "1s"
connect_timeout = "1s"

[[vendors.v.limits]]
name = "requests"
limit = 1_000
window = "24h"
algorithm = "quota"

[[vendors.v.limits]]
name = "points"
limit = 1_000
window = "24h"
algorithm = "quota"
unit = "points"

[[vendors.v.limits]]
name = "tokens"
limit = 1_000
window = "24h"
algorithm = "quota"
unit = "tokens"

[[vendors.v.limits]]
name = "bytes"
limit = 1_000
window = "24h"
algorithm = "quota"
unit = "bytes"

[vendors.v.dialect.costs]
tokens = "body#/usage/tokens"
"#;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ic-usage-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn client(folder: &Path, works: bool) -> IntegrationClient {
    let body = "{\"usage\":{\"tokens\":30}}";
    let transport =
        FakeTransport::new(move |_| FakeAnswer::status(200).header("content-type", "application/json").body(body));
    client_with(folder, works, transport).await
}

async fn client_with(folder: &Path, works: bool, transport: FakeTransport) -> IntegrationClient {
    let builder = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(transport)
        .tenant(TenantEntry::new("a", "v"))
        .store(Store::sqlite(folder.join("store.db")));
    if works { builder.work() } else { builder }.build().await.unwrap()
}

/// The used units of the limits on requests, points, tokens and bytes.
fn used_units(client: &IntegrationClient) -> [u32; 4] {
    let status = client.status("a", "v").unwrap();
    ["requests", "points", "tokens", "bytes"].map(|name| {
        let limit = status.limits.iter().find(|limit| *limit.name == *name).unwrap();
        limit.limit - limit.remaining
    })
}

async fn send(client: &IntegrationClient, times: u32) {
    for _ in 0..times {
        let request = Request::post("v", "/").cost("points", 7).body(vec![b'x'; 77]);
        client.send("a", Priority::Normal, request).await.unwrap().bytes().await.unwrap();
    }
}

async fn used_by_earlier(folder: &Path, works: bool) -> [u32; 4] {
    let client = client(folder, works).await;
    let mut found = used_units(&client);
    for _ in 0..300 {
        if found[0] > 0 && found[2] > 0 && found[3] > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        found = used_units(&client);
    }
    client.shutdown(Duration::from_secs(1)).await;
    found
}

#[tokio::test]
async fn next_process_counts_plain_sends() {
    for works in [false, true] {
        let folder = folder(if works { "works" } else { "sends" });
        let first = client(&folder, works).await;
        send(&first, 5).await;
        let expected = [5, 35, 150, 500];
        assert_eq!(used_units(&first), expected, "tokens and bytes are those of the answers");
        assert!(first.shutdown(Duration::from_secs(1)).await);
        drop(first);
        assert_eq!(used_by_earlier(&folder, works).await, expected, "works: {works}");
        // Usage that was read from the store is not written again.
        assert_eq!(used_by_earlier(&folder, works).await, expected, "works: {works}");
    }
}

#[tokio::test]
async fn next_process_counts_permits() {
    let folder = folder("permits");
    let first = client(&folder, false).await;
    let lane = first.lane("a", "v").unwrap().costing("tokens", 10).unwrap();
    lane.acquire(Priority::Normal, 7).await.unwrap().finish();
    lane.try_acquire(Priority::Normal, 7).unwrap().finish();
    lane.acquire(Priority::Normal, 7).await.unwrap().not_sent();
    first.try_acquire("a", "v", Priority::Normal, 7).unwrap().finish();
    let answer = |_: http::Request<()>| {
        let answer = http::Response::new(Full::<Bytes>::from("0123456789"));
        std::future::ready(Ok::<_, Infallible>(answer))
    };
    let mut paced = first.layer("a", "v").unwrap().layer(service_fn(answer));
    let request = http::Request::post("https://v.example/").header("content-length", "77").body(()).unwrap();
    paced.call(request).await.unwrap().into_body().collect().await.unwrap();
    drop((lane, paced));
    assert!(first.shutdown(Duration::from_secs(1)).await);
    drop(first);
    // The size of the exchanges that the program made itself is not known.
    assert_eq!(used_by_earlier(&folder, false).await, [4, 22, 220, 87]);
}

/// The handle is older than the limits of a day.
#[tokio::test]
async fn next_process_counts_permits_of_old_handle() {
    let folder = folder("old-handle");
    let source = TextSource::new(VENDOR.replace("24h", "10s"));
    let builder = IntegrationClient::builder().without_catalogue().config_source(source.clone());
    let builder = builder.tenant(TenantEntry::new("a", "v")).store(Store::sqlite(folder.join("store.db")));
    let first = builder.transport(FakeTransport::new(|_| FakeAnswer::status(200))).build().await.unwrap();
    let lane = first.lane("a", "v").unwrap();
    source.set(VENDOR.to_owned());
    first.config().reload().await.unwrap();
    for _ in 0..3 {
        lane.try_acquire(Priority::Normal, 7).unwrap().finish();
    }
    drop(lane);
    assert!(first.shutdown(Duration::from_secs(1)).await);
    drop(first);
    assert_eq!(used_by_earlier(&folder, false).await[..3], [3, 21, 300]);
}

/// Waits for `used` to return `expected`, and then for whether it returns more.
async fn assert_counted<T: PartialEq + Debug>(expected: T, used: impl Fn() -> T) {
    let counted = async {
        while used() != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let is_counted = tokio::time::timeout(Duration::from_secs(10), counted).await.is_ok();
    assert!(is_counted, "{:?}, and not {expected:?}", used());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(used(), expected);
}

#[tokio::test]
async fn tenant_that_comes_back_has_its_usage() {
    let folder = folder("back");
    let first = client(&folder, false).await;
    send(&first, 5).await;
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    let second = client(&folder, false).await;
    assert_counted([5, 35, 150, 500], || used_units(&second)).await;
    for _ in 0..3 {
        assert_eq!(second.tenants().cleanup(&HashSet::<String>::new()).await.len(), 1);
        second.tenants().set(TenantEntry::new("a", "v")).unwrap();
        assert_counted([5, 35, 150, 500], || used_units(&second)).await;
    }
}

/// The limits of an account and of a vendor stay in memory while the tenant is away, because another tenant has them
/// too.
#[tokio::test]
async fn shared_limits_count_returning_tenant_once() {
    let folder = folder("back-shared");
    let limit = |scope: &str| {
        format!(
            "[[vendors.v.limits]]\nname = \"{scope}\"\nscope = \"{scope}\"\nlimit = 1_000\nwindow = \"24h\"\n\
             algorithm = \"quota\"\n"
        )
    };
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\n";
    let vendor = [vendor.to_owned(), limit("account"), limit("vendor")].concat();
    let tenant = |id: &str| TenantEntry::new(id, "v").account("shared");
    let client = async || {
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.as_str());
        let builder = builder.transport(FakeTransport::new(|_| FakeAnswer::status(200)));
        let builder = builder.tenant(tenant("a")).tenant(tenant("b")).store(Store::sqlite(folder.join("store.db")));
        builder.build().await.unwrap()
    };
    let first = client().await;
    for id in ["a", "a", "a", "b", "b"] {
        first.send(id, Priority::Normal, Request::get("v", "/")).await.unwrap().bytes().await.unwrap();
    }
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    let second = client().await;
    let used = || {
        let limits = second.status("b", "v").unwrap().limits;
        limits.iter().map(|limit| limit.limit - limit.remaining).collect::<Vec<_>>()
    };
    assert_counted(vec![5, 5], used).await;
    for _ in 0..3 {
        second.tenants().remove("a", "v", OnRemove::Drain).unwrap();
        second.tenants().set(tenant("a")).unwrap();
        assert_counted(vec![5, 5], used).await;
    }
}

/// A store that cannot be read for a while.
#[derive(Default)]
struct Reads(AtomicBool);

impl Watch for Reads {
    fn at(&self, what: &'static str, _: Moment) -> Fault {
        if what == "read" && self.0.load(Relaxed) { Fault::Broken } else { Fault::None }
    }
}

#[tokio::test]
async fn tenant_gone_during_read_finds_usage() {
    let folder = folder("back-read");
    let first = client(&folder, false).await;
    send(&first, 5).await;
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    let reads = Arc::new(Reads::default());
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    let builder = builder.transport(FakeTransport::new(|_| FakeAnswer::status(200)));
    let store = Store::sqlite(folder.join("store.db")).watched_by(reads.clone());
    let second = builder.store(store).build().await.unwrap();
    reads.0.store(true, Relaxed);
    second.tenants().set(TenantEntry::new("a", "v")).unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    // The read fails now. When it is tried again, the tenant is gone.
    second.tenants().remove("a", "v", OnRemove::Drain).unwrap();
    reads.0.store(false, Relaxed);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    second.tenants().set(TenantEntry::new("a", "v")).unwrap();
    assert_counted([5, 35, 150, 500], || used_units(&second)).await;
}

#[tokio::test]
async fn request_that_never_left_is_not_counted() {
    let folder = folder("unsent");
    let transport = FakeTransport::new(|call| match call.path() {
        "/" => FakeAnswer::status(200).header("content-type", "application/json").body("{\"usage\":{\"tokens\":30}}"),
        _ => FakeAnswer::not_connected(),
    });
    let first = client_with(&folder, false, transport).await;
    let lost = Request::post("v", "/lost").body(vec![b'x'; 77]).deadline(Duration::from_millis(10));
    assert!(first.send("a", Priority::Normal, lost).await.is_err());
    send(&first, 1).await;
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    assert_eq!(used_by_earlier(&folder, false).await, [1, 7, 30, 100]);
}

/// The requests and points that the store states. Waits a while for the `expected` ones: a write may be under way.
async fn stored_usage(folder: &Path, expected: (i64, i64)) -> (i64, i64) {
    use sqlx::{Connection, Row};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.join("store.db"));
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let mut stored = (i64::MAX, i64::MAX);
    for _ in 0..200 {
        let row = sqlx::query("SELECT sum(requests), sum(points) FROM ic_spent").fetch_one(&mut connection).await;
        let row = row.unwrap();
        stored = (row.get(0), row.get(1));
        if stored == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stored
}

#[tokio::test]
async fn job_that_never_left_is_not_counted() {
    let folder = folder("unsent-job");
    let transport = FakeTransport::new(|call| match call.path() {
        "/" => FakeAnswer::status(200).header("content-type", "application/json").body("{\"usage\":{\"tokens\":30}}"),
        _ => FakeAnswer::not_connected(),
    });
    let first = client_with(&folder, true, transport.clone()).await;
    let lost = Request::post("v", "/lost").cost("points", 7).body(vec![b'x'; 77]);
    first.outbox().enqueue("a", Priority::Normal, lost).await.unwrap();
    // Each try is recorded before it fails.
    while transport.calls().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    send(&first, 1).await;
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    assert_eq!(stored_usage(&folder, (1, 7)).await, (1, 7));
    assert_eq!(used_by_earlier(&folder, false).await, [1, 7, 30, 100]);
}

/// A signer that signs nothing, and counts its calls.
#[derive(Clone, Default)]
struct BrokenSigner(Arc<AtomicUsize>);

impl Signer for BrokenSigner {
    fn sign(&self, _: &mut SigningParts<'_>, _: Option<&SecretString>, _: SystemTime) -> Result<(), BoxError> {
        self.0.fetch_add(1, Relaxed);
        Err("the key is away".into())
    }
}

#[tokio::test]
async fn job_that_is_not_signed_is_not_counted() {
    let folder = folder("unsigned-job");
    let (signer, transport) = (BrokenSigner::default(), FakeTransport::new(|_| FakeAnswer::status(200)));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport.clone());
    let builder = builder.tenant(TenantEntry::new("a", "v")).store(Store::sqlite(folder.join("store.db")));
    let client = builder.signer("v", signer.clone()).work().build().await.unwrap();
    for _ in 0..3 {
        let request = Request::post("v", "/").cost("points", 7).body("x");
        client.outbox().enqueue("a", Priority::Normal, request).await.unwrap();
    }
    while signer.0.load(Relaxed) < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.shutdown(Duration::from_secs(1)).await;
    assert_eq!(stored_usage(&folder, (0, 0)).await, (0, 0));
    assert!(transport.calls().is_empty());
}

#[tokio::test]
async fn usage_is_written_while_the_process_runs() {
    let folder = folder("runs");
    let first = client(&folder, false).await;
    send(&first, 3).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // The first client stands for a killed process, which writes nothing at its end. SQLite lets two clients use the
    // file.
    let second = used_by_earlier(&folder, false).await;
    assert_eq!(second, [3, 21, 90, 300]);
    drop(first);
}

/// A disk on which usage cannot be written while it is full, and how many writes have failed.
#[derive(Default)]
struct Disk {
    is_full: AtomicBool,
    failures: AtomicUsize,
}

impl Watch for Disk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if what != "spent" || moment != Moment::Before || !self.is_full.load(Relaxed) {
            return Fault::None;
        }
        self.failures.fetch_add(1, Relaxed);
        Fault::Full
    }
}

#[tokio::test]
async fn usage_outlives_a_store_that_was_away() {
    let folder = folder("away");
    let disk = Arc::new(Disk::default());
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).body("{\"usage\":{\"tokens\":30}}"));
    let first = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(transport)
        .tenant(TenantEntry::new("a", "v"))
        .store(Store::sqlite(folder.join("store.db")).watched_by(disk.clone()))
        .build()
        .await
        .unwrap();
    disk.is_full.store(true, Relaxed);
    send(&first, 3).await;
    while disk.failures.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    disk.is_full.store(false, Relaxed);
    send(&first, 2).await;
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    assert_eq!(used_by_earlier(&folder, false).await[..2], [5, 35]);
}

#[tokio::test]
async fn jobs_count_with_their_settled_cost() {
    let folder = folder("jobs");
    let first = client(&folder, true).await;
    let request = Request::post("v", "/").cost("points", 7).body(vec![b'x'; 77]);
    let receipt = first.outbox().enqueue("a", Priority::Normal, request).await.unwrap();
    for _ in 0..500 {
        if matches!(receipt.status().await.unwrap(), integration_client::outbox::Status::Delivered { .. }) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(used_units(&first), [1, 7, 30, 100]);
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    assert_eq!(used_by_earlier(&folder, true).await, [1, 7, 30, 100]);
}

/// The quota's day ends twelve hours from now, so that the test never runs near its end.
#[tokio::test]
async fn next_process_counts_calendar_quota() {
    let folder = folder("calendar");
    let since = Clock::system().wall().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let hour = (since / 3_600 + 12) % 24;
    let vendor = format!(
        "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"none\" }}\n[[vendors.v.limits]]\n\
         name = \"day\"\nlimit = 10\nresets = \"daily {hour:02}:00\"\n"
    );
    let client = async || {
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor.as_str());
        let builder = builder.transport(FakeTransport::new(|_| FakeAnswer::status(200)));
        builder.tenant(TenantEntry::new("a", "v")).store(Store::sqlite(folder.join("store.db"))).build().await.unwrap()
    };
    let first = client().await;
    for _ in 0..8 {
        first.send("a", Priority::Normal, Request::get("v", "/")).await.unwrap().bytes().await.unwrap();
    }
    let ninth = Request::get("v", "/").deadline(Duration::from_secs(60));
    assert!(first.send("a", Priority::Normal, ninth).await.is_err(), "80 % is used, and the day ends in twelve hours");
    first.shutdown(Duration::from_secs(1)).await;
    drop(first);
    let second = client().await;
    let mut limit = second.status("a", "v").unwrap().limits.remove(0);
    for _ in 0..300 {
        if limit.remaining < 10 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        limit = second.status("a", "v").unwrap().limits.remove(0);
    }
    assert_eq!((limit.limit, limit.remaining), (10, 2));
    let (resets_in, full_in) = (limit.resets_in.unwrap().as_secs(), limit.full_in.unwrap().as_secs());
    assert!((11 * 3_600..=12 * 3_600).contains(&resets_in), "{resets_in}");
    assert_eq!(full_in - resets_in, 1, "the clocks may differ by a second");
}
