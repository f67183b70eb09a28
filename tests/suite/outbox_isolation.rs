//! Jobs of one vendor or tenant that hang or are paused do not delay those of others, in one worker with one store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::Reason;
use integration_client::outbox::Status;
use integration_client::store::Store;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};
use tokio::task::JoinSet;

/// Long compared to a claim on a busy machine, and short compared to the time that a job may hang.
const SOON: Duration = Duration::from_secs(3);

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

fn store() -> Store {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("ic-isolation-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
    let folder: PathBuf = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    Store::sqlite(folder.join("s.db"))
}

/// A transport that never answers requests below `/hangs`, and takes 200 ms for those below `/slow`.
fn transport() -> FakeTransport {
    FakeTransport::new(|call| match call.path() {
        path if path.starts_with("/hangs") => FakeAnswer::stall(),
        path if path.starts_with("/slow") => FakeAnswer::status(200).delay(Duration::from_millis(200)),
        _ => FakeAnswer::status(200),
    })
}

fn client(transport: &FakeTransport) -> IntegrationClientBuilder {
    let vendor = |name: &str| {
        format!(
            "[vendors.{name}]\nbase_url = \"https://{name}.example\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n"
        )
    };
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor("one") + &vendor("two"));
    for (tenant, vendor) in [("acme", "one"), ("umbra", "one"), ("acme", "two"), ("umbra", "two")] {
        builder = builder.tenant(TenantEntry::new(tenant, vendor));
    }
    builder.transport(transport.clone()).store(store()).work()
}

async fn enqueue(client: &IntegrationClient, tenant: &str, vendor: &str, requests: Vec<(Priority, String, String)>) {
    let mut calls = JoinSet::new();
    for (priority, path, body) in requests {
        let (client, tenant, request) = (client.clone(), tenant.to_owned(), Request::post(vendor, path).body(body));
        calls.spawn(async move { client.outbox().enqueue(&tenant, priority, request).await.map(drop) });
    }
    for result in calls.join_all().await {
        result.unwrap();
    }
}

fn calls_below(transport: &FakeTransport, path: &str) -> usize {
    transport.calls().iter().filter(|call| call.path().starts_with(path)).count()
}

async fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let began = now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Enqueues jobs of `umbra` at `vendor` one after another, while jobs of `acme` at `one` hang, and asserts that each is
/// sent within [`SOON`].
async fn assert_sent_soon(client: &IntegrationClient, transport: &FakeTransport, vendor: &str) {
    let mut waits = Vec::new();
    for number in 0..30 {
        let (began, path) = (now(), format!("/well/{number}"));
        enqueue(client, "umbra", vendor, vec![(Priority::High, path.clone(), String::new())]).await;
        while calls_below(transport, &path) == 0 && began.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        waits.push(began.elapsed());
    }
    waits.sort_unstable();
    assert!(waits[29] < SOON, "not each was sent within {SOON:?}: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_vendor_delays_no_job_of_another() {
    let transport = transport();
    let client = client(&transport).max_jobs(200).build().await.unwrap();
    let jobs = (0..1_000).map(|number| (Priority::High, format!("/hangs/{number}"), String::new())).collect();
    enqueue(&client, "acme", "one", jobs).await;
    wait_until("the pool is used by the only one with work", || calls_below(&transport, "/hangs") >= 200).await;
    assert_sent_soon(&client, &transport, "two").await;
    assert_eq!(calls_below(&transport, "/hangs"), 200, "one vendor has what is configured, and no more");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_tenant_delays_no_other() {
    let transport = transport();
    let client = client(&transport).max_jobs(200).build().await.unwrap();
    // Both tenants have jobs before those of `acme` hang.
    let jobs = (0..1_000).map(|number| (Priority::High, format!("/hangs/{number}"), String::new())).collect();
    let (hangs, well) = (enqueue(&client, "acme", "one", jobs), assert_sent_soon(&client, &transport, "one"));
    tokio::join!(hangs, well);
}

/// An operator pauses most tenants of a vendor.
#[tokio::test(flavor = "multi_thread")]
async fn paused_tenants_delay_no_other() {
    let transport = transport();
    let tenants: Vec<String> = (0..20).map(|number| format!("paused-{number}")).collect();
    let entries = tenants.iter().map(|tenant| TenantEntry::new(tenant, "one"));
    let builder = entries.fold(client(&transport).max_jobs(40), IntegrationClientBuilder::tenant);
    let client = builder.build().await.unwrap();
    for tenant in &tenants {
        client.tenants().pause(tenant, "one").unwrap();
        let jobs = (0..20).map(|number| (Priority::High, format!("/paused/{number}"), String::new())).collect();
        enqueue(&client, tenant, "one", jobs).await;
    }
    let late = Request::post("one", "/paused/late").deadline(Duration::from_millis(500));
    let late = client.outbox().enqueue(&tenants[0], Priority::High, late).await.unwrap();
    assert_sent_soon(&client, &transport, "one").await;
    let began = now();
    while !matches!(late.status().await.unwrap(), Status::Dead { reason: Some(Reason::Expired), .. }) {
        assert!(began.elapsed() < Duration::from_secs(30), "a deadline passes in a pause too");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(calls_below(&transport, "/paused"), 0);
    tenants.iter().for_each(|tenant| client.tenants().resume(tenant, "one").unwrap());
    wait_until("all are sent after the pauses", || calls_below(&transport, "/paused") == 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_keep_shares_of_slow_vendor() {
    let transport = transport();
    let client = client(&transport).max_jobs(20).build().await.unwrap();
    let tiers = [(Priority::High, "high"), (Priority::Normal, "normal"), (Priority::Low, "low")];
    let job = |number: usize| (tiers[number % 3].0, format!("/slow/{}/{number}", tiers[number % 3].1), String::new());
    enqueue(&client, "acme", "one", (0..900).map(job).collect()).await;
    let before = calls_below(&transport, "/slow");
    wait_until("400 are sent", || calls_below(&transport, "/slow") >= before + 400).await;
    let calls = transport.calls();
    let share = |tier: &str| {
        let calls = calls[before..before + 400].iter();
        calls.filter(|call| call.path().starts_with(&format!("/slow/{tier}/"))).count() / 4
    };
    let shares = tiers.map(|(_, tier)| share(tier));
    let is_near = shares[0].abs_diff(60) <= 5 && shares[1].abs_diff(30) <= 5 && shares[2].abs_diff(10) <= 5;
    assert!(is_near, "{shares:?} of what is claimed");
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_jobs_are_bounded_by_bytes() {
    let transport = transport();
    let client = client(&transport).max_job_bytes(4 << 20).build().await.unwrap();
    let body = "x".repeat(500 << 10);
    let jobs = (0..40).map(|number| (Priority::High, format!("/hangs/{number}"), body.clone())).collect();
    enqueue(&client, "acme", "one", jobs).await;
    wait_until("as many are sent as fit", || calls_below(&transport, "/hangs") >= 8).await;
    assert_sent_soon(&client, &transport, "two").await;
    let in_hand = calls_below(&transport, "/hangs");
    assert!((8..=11).contains(&in_hand), "{in_hand} jobs of 500 KiB, and 4 MiB are allowed");
}
