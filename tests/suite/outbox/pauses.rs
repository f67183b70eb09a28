//! A wait that a vendor states outlives the process that was told: the next one keeps to it.

use std::path::Path;

use integration_client::testing::{FakeAnswer, FakeTransport};
use tokio::time::Instant;

use super::*;

/// Shorter ones are not stored.
const WAIT: Duration = Duration::from_secs(12);
const VENDOR: &str =
    "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";

fn limit(scope: &str) -> String {
    format!("[[vendors.v.limits]]\nname = \"minute\"\nscope = \"{scope}\"\nlimit = 600\nwindow = \"1m\"\n")
}

/// A transport that refuses all requests or none, and when they came.
fn transport(refuses: bool) -> (FakeTransport, Arc<Mutex<Vec<Instant>>>) {
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = times.clone();
    let transport = FakeTransport::new(move |_| {
        noted.lock().unwrap().push(now());
        if refuses { FakeAnswer::status(429).header("retry-after", "12") } else { FakeAnswer::status(200) }
    });
    (transport, times)
}

async fn process(folder: &Path, limits: &str, transport: &FakeTransport) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(format!("{VENDOR}{limits}"));
    let builder = builder.tenant(TenantEntry::new("acme", "v").account("one"));
    let builder = builder.tenant(TenantEntry::new("umbra", "v").account("one"));
    builder.transport(transport.clone()).store(Store::sqlite(folder.join("s.db"))).work().build().await.unwrap()
}

/// The end of the last pause in the store.
async fn stored_end(folder: &Path) -> Option<i64> {
    use sqlx::{Connection, Row};
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(folder.join("s.db"));
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::query("SELECT max(until) FROM ic_pause").fetch_one(&mut connection).await.unwrap().get(0)
}

/// Waits until the end of the last pause in the store is other than `before`, and returns it.
async fn changed_end(folder: &Path, before: Option<i64>) -> Option<i64> {
    for _ in 0..500 {
        let end = stored_end(folder).await;
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
    let (refusing, refused_at) = transport(true);
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
    let (accepting, times) = transport(false);
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
    let (refusing, refused_at) = transport(true);
    let first = process(&folder, &limits, &refusing).await;
    first.outbox().enqueue("acme", Priority::Normal, post("/first")).await.unwrap();
    let end = changed_end(&folder, None).await;
    first.tenants().resume("acme", "v").unwrap();
    assert!(changed_end(&folder, end).await < end, "the row is shortened");
    assert!(first.shutdown(Duration::from_secs(5)).await);
    drop(first);
    let (accepting, times) = transport(false);
    let second = process(&folder, &limits, &accepting).await;
    let receipt = second.outbox().enqueue("acme", Priority::Normal, post("/second")).await.unwrap();
    assert!(matches!(until_ended(&receipt).await, Status::Delivered { .. }));
    let (refused_at, sent_at) = (refused_at.lock().unwrap()[0], times.lock().unwrap()[0]);
    assert!(sent_at.saturating_duration_since(refused_at) < WAIT);
    second.shutdown(Duration::from_secs(5)).await;
}
