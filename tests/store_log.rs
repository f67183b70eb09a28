//! How much is logged while the store fails.
//!
//! One test, in a process of its own: tracing remembers for all threads whether an event is wanted, and a thread
//! without a subscriber may be the first to ask.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::store::faults::{Fault, Moment, WHAT, Watch};
use integration_client::testing::{Delay, FakeVendor, HeaderStyle};
use integration_client::{IntegrationClient, Priority, Request};

/// A subscriber that keeps the messages of warnings and errors.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("integration_client") && *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// A disk on which nothing can be written or read while the flag is set.
#[derive(Default)]
struct FailingDisk(AtomicBool);

impl Watch for FailingDisk {
    fn at(&self, what: &'static str, moment: Moment) -> Fault {
        let concerns = moment == Moment::Before && (what == "read" || WHAT.contains(&what));
        if concerns && self.0.load(Relaxed) { Fault::Full } else { Fault::None }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_logged_once_per_kind() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let vendor =
        FakeVendor::builder().headers(HeaderStyle::Silent).service_time(Delay::fixed(Duration::from_millis(300)));
    let vendor = vendor.start().await.unwrap();
    let path = std::env::temp_dir().join(format!("ic-store-log-{}.db", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let disk = Arc::new(FailingDisk::default());
    let text = vendor.vendors_toml("v") + "[[vendors.v.limits]]\nname = \"slots\"\nconcurrency = 20\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text);
    let builder = builder.tenant(TenantEntry::new("acme", "v").credential("env:PATH"));
    let client = builder.store(Store::sqlite(&path).watched_by(disk.clone())).work().build().await.unwrap();
    let request = || Request::post("v", "/a").json(&["work"]);
    for _ in 0..200 {
        client.outbox().enqueue("acme", Priority::Normal, request()).await.unwrap();
    }
    while vendor.arrivals().len() < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    disk.0.store(true, Relaxed);
    let mut refused = 0;
    for _ in 0..300 {
        refused += u32::from(client.outbox().enqueue("acme", Priority::Normal, request()).await.is_err());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(refused > 250, "{refused} of 300 were refused");
    disk.0.store(false, Relaxed);
    let lines = log.0.lock().unwrap().clone();
    let kinds = 6;
    assert!(
        (1..=kinds).contains(&lines.len()),
        "{} lines: {:#?}",
        lines.len(),
        lines.iter().take(20).collect::<Vec<_>>()
    );
    assert!(lines.iter().all(|line| line.contains("the disk is full")), "{lines:#?}");
    // Once the disk works again, the client recovers by itself.
    while vendor.arrivals().len() < 200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.outbox().enqueue("acme", Priority::Normal, request()).await.unwrap();
    while client.outbox().problem().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.shutdown(Duration::from_secs(5)).await;
    let _ = std::fs::remove_file(&path);
}
