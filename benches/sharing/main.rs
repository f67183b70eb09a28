//! Four clients that share one limit through a store, beside four clients that count each send in Redis.
//!
//! ```text
//! for server in postgres redis etcd s3; do eval "$(scripts/$server.sh start)"; done
//! cargo bench --bench sharing --features postgres,redis,etcd,object-store,sqlite,testing
//! ```
//!
//! Prints a line for each store. `reached` is the percentage of the limit that the vendor accepted; the limit is a
//! sliding log of 100 in 1 s, of which clients use 80 %. For etcd and the object store it is 100 in 60 s, and the run
//! is a minute longer. `refused` counts the vendor's refusals, `jain` says how evenly the clients shared the limit,
//! `asks_per_s` counts the calls of all four clients to the store, and `cold_ms` is the time from the first request of
//! a new limit to its answer. The lines of the limiter in Redis have `added_us` instead: the median time that its call
//! adds to each send.

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the time itself, and has callers beside each other")]
#![expect(clippy::unwrap_used, reason = "whatever goes wrong ends the run")]

mod counted;

use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, HeaderStyle, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};

const CLIENTS: usize = 4;
const CALLERS: usize = 20;
const LIMIT: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const RUN: Duration = Duration::from_secs(15);

/// A vendor with a delay of 5 to 15 ms each way, which sends no rate-limit headers.
async fn vendor(window: Duration) -> FakeVendor {
    let limit = VendorLimit::sliding_window(LIMIT, window);
    let vendor = FakeVendor::builder().limit(limit).headers(HeaderStyle::Silent);
    vendor.latency(Duration::from_millis(5)).jitter(Duration::from_millis(10)).seed(7).start().await.unwrap()
}

fn entry(vendor: &FakeVendor, name: &str) -> String {
    let transit = "\nconnect_timeout = \"200ms\"\nmax_transit = \"300ms\"\nauth = { scheme = \"none\" }\n# auth";
    vendor.vendors_toml(name).replacen("\nauth", transit, 1)
}

async fn client(vendor: &FakeVendor, name: &str, through: &str) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry(vendor, name));
    builder.tenant(TenantEntry::new("acme", name)).share_through(through).build().await.unwrap()
}

/// Returns the number of answers of each client, while all of them send as much as they can.
async fn send(clients: &[IntegrationClient], name: &str, time: Duration) -> Vec<f64> {
    let ends = Instant::now() + time;
    let mut each = Vec::new();
    for client in clients {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (client, name) = (client.clone(), name.to_owned());
            callers.spawn(async move {
                let mut answered = 0.0;
                while Instant::now() < ends {
                    let left = ends.saturating_duration_since(Instant::now());
                    let request = Request::get(name.as_str(), "/orders").header("x-tenant", "acme").deadline(left);
                    if client.send("acme", Priority::Normal, request).await.is_ok() {
                        answered += 1.0;
                    }
                }
                answered
            });
        }
        each.push(callers);
    }
    let mut answered = Vec::new();
    for callers in each {
        answered.push(callers.join_all().await.into_iter().sum());
    }
    answered
}

/// Jain's fairness index: 1 if all shares are equal, 1/n if one client has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares.max(f64::MIN_POSITIVE))
}

async fn measure_shared_limit(store: &str, through: &str, window: Duration) {
    let vendor = vendor(window).await;
    let name = format!("bench-{store}-{}", std::process::id());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(client(&vendor, &name, through).await);
    }
    let first = Request::get(name.as_str(), "/orders").header("x-tenant", "acme").deadline(SECOND * 30);
    let began = Instant::now();
    clients[0].send("acme", Priority::Normal, first).await.unwrap();
    let cold = began.elapsed();
    // Runs until the units are held where they are wanted.
    send(&clients, &name, SECOND * 3 + (window - SECOND)).await;
    let before = (vendor.summary().admitted, answered_store_calls(&clients));
    let began = Instant::now();
    let answered = send(&clients, &name, RUN.max(window)).await;
    let took = began.elapsed().as_secs_f64();
    let windows = took / window.as_secs_f64();
    let reached = (vendor.summary().admitted - before.0) as f64 / windows / f64::from(LIMIT) * 100.0;
    let asked = (answered_store_calls(&clients) - before.1) as f64 / took;
    println!(
        "sharing: processes={CLIENTS} limit={LIMIT}/{}s store={store} reached={reached:.1} refused={} jain={:.3} \
         calls_per_s={:.1} cold_ms={} asks_per_s={asked:.1}",
        window.as_secs(),
        vendor.refused(),
        jain(&answered),
        answered.iter().sum::<f64>() / took,
        cold.as_millis(),
    );
    for client in clients {
        client.shutdown(SECOND).await;
    }
}

fn answered_store_calls(clients: &[IntegrationClient]) -> u64 {
    clients.iter().filter_map(|client| client.sharing()).map(|sharing| sharing.answered).sum()
}

fn variable(name: &str, script: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        println!("{name} is not set: eval \"$({script} start)\"");
        std::process::exit(2);
    })
}

#[tokio::main]
async fn main() {
    let (postgres, redis) =
        (variable("IC_TEST_POSTGRES", "scripts/postgres.sh"), variable("IC_TEST_REDIS", "scripts/redis.sh"));
    let (etcd, s3) = (variable("IC_TEST_ETCD", "scripts/etcd.sh"), variable("IC_TEST_S3", "scripts/s3.sh"));
    let folder = std::env::temp_dir().join(format!("ic-bench-sharing-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = format!("sqlite:{}", folder.join("capacity.db").display());
    for (store, through) in [("sqlite", &file), ("postgres", &postgres), ("redis", &redis)] {
        measure_shared_limit(store, through, SECOND).await;
    }
    for (store, through) in [("etcd", &etcd), ("s3", &s3)] {
        measure_shared_limit(store, through, MINUTE).await;
    }
    for (kind, units) in
        [(counted::Kind::FixedWindow, 80), (counted::Kind::SlidingWindow, 80), (counted::Kind::SlidingWindow, 100)]
    {
        counted::run(&redis, kind, units).await;
    }
    std::fs::remove_dir_all(folder).unwrap();
}
