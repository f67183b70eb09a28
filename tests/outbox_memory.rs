//! How much memory a process uses for the jobs that it has in hand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: helpers unwrap too")]

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use integration_client::BoxFuture;
use integration_client::config::TenantEntry;
use integration_client::store::Store;
use integration_client::transport::{Answer, Exchange, Transport, TransportError};
use integration_client::{IntegrationClient, Priority, Request};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn bytes_in_use() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.wrapping_sub(stats.bytes_deallocated)
}

/// A transport that keeps each exchange, counts it and never answers.
#[derive(Clone, Default)]
struct HangingTransport(Arc<AtomicUsize>);

impl Transport for HangingTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let calls = self.0.clone();
        Box::pin(async move {
            calls.fetch_add(1, Relaxed);
            std::future::pending::<()>().await;
            drop(exchange);
            unreachable!("nothing comes after that")
        })
    }
}

const JOBS: usize = 60;
const BODY: usize = 500 << 10;

/// The only test of this file, because it measures the memory of the whole process.
#[tokio::test(flavor = "multi_thread")]
async fn job_in_hand_holds_its_payload_once() {
    let folder = std::env::temp_dir().join(format!("ic-memory-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let text = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
    let transport = HangingTransport::default();
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(text)
        .tenant(TenantEntry::new("acme", "v"))
        .transport(transport.clone())
        .store(Store::sqlite(folder.join("s.db")))
        .work()
        .build()
        .await
        .unwrap();
    let before = bytes_in_use();
    for number in 0..JOBS {
        let request = Request::post("v", format!("/{number}")).body("x".repeat(BODY));
        client.outbox().enqueue("acme", Priority::Normal, request).await.unwrap();
    }
    for _ in 0..1_000 {
        if transport.0.load(Relaxed) == JOBS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(transport.0.load(Relaxed), JOBS);
    // By then the buffers are free through which the jobs went into the store and out of it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let each = bytes_in_use().saturating_sub(before) / JOBS;
    assert!(each < BODY * 13 / 10, "{each} bytes are in use for a job of {BODY}");
}
