//! A wait that a vendor states outlives the process that was told: the next one keeps to it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use integration_client::dead_letter::MemorySink;
use integration_client::store::faults::{Fault, Moment, Watch};
use integration_client::testing::{FakeAnswer, FakeTransport};
use sqlx::{Connection, Row, SqliteConnection};
use tokio::time::Instant;

use super::*;

/// Shorter ones are not stored.
const WAIT: Duration = Duration::from_secs(12);
const VENDOR: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

fn limit(scope: &str) -> String {
    format!("[[vendors.v.limits]]\nname = \"minute\"\nscope = \"{scope}\"\nlimit = 600\nwindow = \"1m\"\n")
}

/// A transport that refuses all requests for so many seconds, or none, and when they came.
fn transport(wait: Option<&'static str>) -> (FakeTransport, Arc<Mutex<Vec<Instant>>>) {
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = times.clone();
    let transport = FakeTransport::new(move |_| {
        noted.lock().unwrap().push(now());
        wait.map_or_else(|| FakeAnswer::status(200), |wait| FakeAnswer::status(429).header("retry-after", wait))
    });
    (transport, times)
}

async fn process(folder: &Path, limits: &str, transport: &FakeTransport) -> IntegrationClient {
    process_on(Store::sqlite(folder.join("s.db")), limits, transport).await
}

async fn process_on(store: Store, limits: &str, transport: &FakeTransport) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{VENDOR}{limits}"));
    let builder = builder.tenant(TenantEntry::new("acme", "v").account("one"));
    let builder = builder.tenant(TenantEntry::new("umbra", "v").account("one"));
    builder.transport(transport.clone()).store(store).work().build().await.unwrap()
}

async fn connect(folder: &Path) -> SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.join("s.db"));
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// The end of the last pause of this scope in the store; `%` for all scopes.
async fn stored_end(folder: &Path, scope: &str) -> Option<i64> {
    let query = sqlx::query("SELECT max(until) FROM ic_pause WHERE scope LIKE $1").bind(scope);
    query.fetch_one(&mut connect(folder).await).await.unwrap().get(0)
}

/// Waits until the end of the last pause in the store is other than `before`, and returns it.
async fn changed_end(folder: &Path, before: Option<i64>) -> Option<i64> {
    changed_end_of(folder, "%", before).await
}

async fn changed_end_of(folder: &Path, scope: &str, before: Option<i64>) -> Option<i64> {
    for _ in 0..1_500 {
        let end = stored_end(folder, scope).await;
        if end != before {
            return end;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the pause in the store stays {before:?}");
}

/// A request of `acme` is refused. The process ends with five requests of `waits` that are due, and the next begins.
async fn next_process_waits(limits: &str, waits: &str) {
    let folder = folder();
    let (refusing, refused_at) = transport(Some("12"));
    let first = process(&folder, limits, &refusing).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    changed_end(&folder, None).await;
    for number in 0..5 {
        first.outbox().enqueue(waits, Priority::Normal, post(&format!("/{number}"))).await.unwrap();
    }
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let refused_at = refused_at.lock().unwrap().clone();
    assert_eq!(refused_at.len(), 1, "{limits}");
    let (accepting, times) = transport(None);
    let second = process(&folder, limits, &accepting).await;
    for _ in 0..3_000 {
        if accepting.calls().len() == 6 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let times: Vec<Duration> =
        times.lock().unwrap().iter().map(|at| at.saturating_duration_since(refused_at[0])).collect();
    assert_eq!(times.len(), 6, "{limits}: {times:?}");
    assert!(times.iter().all(|after| *after >= WAIT), "{limits}: {times:?}");
    second.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stated_wait_outlives_the_process() {
    let (of_tenant, of_account) = (limit("tenant"), limit("account"));
    tokio::join!(
        next_process_waits("", "acme"),
        next_process_waits(&of_tenant, "acme"),
        next_process_waits(&of_account, "umbra")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_that_ended_early_delays_no_next_process() {
    let (folder, limits) = (folder(), limit("tenant"));
    let (refusing, refused_at) = transport(Some("12"));
    let first = process(&folder, &limits, &refusing).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    let end = changed_end(&folder, None).await;
    first.tenants().resume("acme", "v").unwrap();
    assert!(changed_end(&folder, end).await < end, "the row is shortened");
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let (accepting, times) = transport(None);
    let second = process(&folder, &limits, &accepting).await;
    let receipt = second.outbox().enqueue("acme", Priority::Normal, post("/second")).await.unwrap();
    assert!(matches!(until_ended(&receipt).await, Status::Delivered { .. }));
    let (refused_at, sent_at) = (refused_at.lock().unwrap()[0], times.lock().unwrap()[0]);
    assert!(sent_at.saturating_duration_since(refused_at) < WAIT);
    second.shutdown(Duration::from_secs(5)).await;
}

/// The account waits for no limit that is configured, and the lane that the operator resumes was told nothing itself.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_bystander_ends_its_accounts_row() {
    let folder = folder();
    let limits = "[vendors.v.dialect]\nanswers = [{ status = [429], scope = \"account\" }]\n";
    let client = process(&folder, limits, &transport(Some("60")).0).await;
    client.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    let end = changed_end_of(&folder, "account", None).await;
    client.tenants().resume("umbra", "v").unwrap();
    assert!(changed_end_of(&folder, "account", end).await < end);
    assert!(stored_end(&folder, "tenant").await >= end.map(|end| end - 10_000), "the refused tenant waits");
    client.shutdown(Duration::from_secs(5)).await;
}

/// A lane that has sent nothing is evicted as soon as its pause ends.
#[tokio::test(flavor = "multi_thread")]
async fn row_of_evicted_lane_is_ended() {
    let folder = folder();
    let first = process(&folder, "", &transport(Some("60")).0).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    let end = changed_end(&folder, None).await;
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let second = process(&folder, "", &transport(None).0).await;
    while second.tenants().paused_for("acme", "v").unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Until the pause is also noted as restored.
    tokio::time::sleep(Duration::from_millis(100)).await;
    second.tenants().resume("acme", "v").unwrap();
    second.tenants().rest(true).await;
    assert!(changed_end(&folder, end).await < end);
    second.shutdown(Duration::from_secs(5)).await;
}

/// While it is set, statements of no kind that the store's faults know fail as on a full disk: those of pauses too.
struct FullDisk(AtomicBool);

impl Watch for FullDisk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let fails = moment == Moment::Before && what == "other" && self.0.load(Relaxed);
        if fails { Fault::Full } else { Fault::None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_is_written_when_disk_has_room_again() {
    let (folder, disk) = (folder(), Arc::new(FullDisk(AtomicBool::new(false))));
    let store = Store::sqlite(folder.join("s.db")).watched_by(disk.clone());
    let client = process_on(store, "", &transport(Some("120")).0).await;
    disk.0.store(true, Relaxed);
    let request = Request::get("v", "/refused").deadline(Duration::from_secs(5));
    assert!(client.send("acme", Priority::Normal, request).await.is_err());
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(stored_end(&folder, "%").await, None);
    disk.0.store(false, Relaxed);
    assert!(changed_end(&folder, None).await.is_some());
    client.shutdown(Duration::from_secs(5)).await;
}

/// While it is set, answers each write of pauses with an error that does not say whether the store or the data is the
/// cause, and counts them.
#[derive(Default)]
struct Refusing {
    is_set: AtomicBool,
    refused: AtomicU32,
}

impl Watch for Refusing {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        if moment != Moment::Before || what != "other" || !self.is_set.load(Relaxed) {
            return Fault::None;
        }
        self.refused.fetch_add(1, Relaxed);
        Fault::Refused
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_error_fails_few_writes() {
    let (folder, store) = (folder(), Arc::new(Refusing::default()));
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    for number in 0..300 {
        builder = builder.tenant(TenantEntry::new(format!("t{number}"), "v"));
    }
    let builder = builder.store(Store::sqlite(folder.join("s.db")).watched_by(store.clone()));
    let builder = builder.transport(transport(Some("120")).0).dead_letter_sink(MemorySink::new(300));
    let client = builder.build().await.unwrap();
    store.is_set.store(true, Relaxed);
    let mut refused = tokio::task::JoinSet::new();
    for number in 0..300 {
        let client = client.clone();
        let request = Request::get("v", "/refused").deadline(Duration::from_secs(5));
        refused.spawn(async move { client.send(&format!("t{number}"), Priority::Normal, request).await.is_err() });
    }
    assert!(refused.join_all().await.into_iter().all(|is_refused| is_refused));
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let failed = store.refused.load(Relaxed);
    assert!((1..150).contains(&failed), "{failed} writes failed");
    assert_eq!(stored_end(&folder, "%").await, None);
    store.is_set.store(false, Relaxed);
    client.shutdown(Duration::from_secs(5)).await;
    assert!(stored_end(&folder, "%").await.is_some());
}

/// The operator resumes a tenant before its row has been read.
#[tokio::test(flavor = "multi_thread")]
async fn resumed_pause_is_not_restored() {
    let folder = folder();
    let first = process(&folder, "", &transport(Some("60")).0).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    let end = changed_end(&folder, None).await;
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    let builder = builder.tenant(TenantEntry::new("umbra", "v")).store(Store::sqlite(folder.join("s.db")));
    let second = builder.transport(transport(None).0).work().build().await.unwrap();
    second.tenants().set(TenantEntry::new("acme", "v").account("one")).unwrap();
    second.tenants().resume("acme", "v").unwrap();
    assert!(changed_end(&folder, end).await < end, "the row is ended");
    assert_eq!(second.tenants().paused_for("acme", "v").unwrap(), None);
    second.shutdown(Duration::from_secs(5)).await;
}

/// The store's clock was a year ahead when the row was written.
#[tokio::test(flavor = "multi_thread")]
async fn restored_end_is_clamped() {
    let folder = folder();
    let first = process(&folder, "", &transport(Some("12")).0).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    changed_end(&folder, None).await;
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let late = "UPDATE ic_pause SET until = until + 31536000000";
    sqlx::query(late).execute(&mut connect(&folder).await).await.unwrap();
    let end = stored_end(&folder, "%").await;
    let second = process(&folder, "", &transport(None).0).await;
    assert!(changed_end(&folder, end).await < end, "the row is shortened");
    let left = second.tenants().paused_for("acme", "v").unwrap().unwrap();
    assert!(left > Duration::from_secs(30 * 86_400) && left <= Duration::from_secs(31 * 86_400), "{left:?}");
    second.shutdown(Duration::from_secs(5)).await;
}
