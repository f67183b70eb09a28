//! How much a noisy tenant delays a quiet one: `cargo run --release --example noisy_neighbour`.
//!
//! `quiet` sends 20 requests a second, first alone and then beside `noisy`, which wants 5,000 a second. The vendor
//! allows each of them 50.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![expect(clippy::disallowed_methods, reason = "an application measures; the library does not")]

use std::error::Error;
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = VendorLimit::sliding_window(50, SECOND);
    let vendor = FakeVendor::builder().limit(limit).latency(Duration::from_millis(5)).start().await?;
    // The fake vendor can tell its callers apart by a header as well as by a credential.
    let entry = vendor.vendors_toml("demo").replace("\"bearer\"", "\"none\"");
    let builder = IntegrationClient::builder().vendors_toml(entry).max_waiting_per_tier(100);
    let builder = builder.tenant(TenantEntry::new("quiet", "demo")).tenant(TenantEntry::new("noisy", "demo"));
    let client = builder.build().await?;

    quiet(&client, 10).await?; // opens connections
    let alone = quiet(&client, 80).await?;
    println!("quiet, alone:            p99 {alone:.1?}");

    let mut noise = JoinSet::new();
    noise.spawn(noisy(client.clone()));
    let beside = quiet(&client, 80).await?;
    noise.shutdown().await;
    println!("quiet, beside the noisy: p99 {beside:.1?}");

    let log = vendor.arrivals();
    let of_noisy = log.iter().filter(|arrival| &*arrival.key == "noisy").count();
    println!("noisy got {of_noisy} requests through; the vendor refused {}", vendor.refused());
    Ok(())
}

/// The 99th percentile of the time from `send` to the response.
async fn quiet(client: &IntegrationClient, requests: usize) -> Result<Duration, Box<dyn Error>> {
    let mut times = Vec::new();
    let mut tick = tokio::time::interval(SECOND / 20);
    for _ in 0..requests {
        tick.tick().await;
        let sent = Instant::now();
        let response = client.send("quiet", Priority::Normal, get("quiet")).await?;
        times.push(sent.elapsed());
        response.bytes().await?;
    }
    times.sort_unstable();
    Ok(times[times.len() * 99 / 100])
}

/// Sends 5,000 requests a second. Requests that the tenant's full queue refuses are dropped.
async fn noisy(client: IntegrationClient) {
    let mut tick = tokio::time::interval(SECOND / 100);
    // Skips missed ticks, so that a process short of CPU time does not fall ever further behind.
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut sends = JoinSet::new();
    loop {
        tick.tick().await;
        for _ in 0..50 {
            let client = client.clone();
            sends.spawn(async move { client.send("noisy", Priority::High, get("noisy")).await });
        }
        while sends.try_join_next().is_some() {}
    }
}

fn get(tenant: &str) -> Request {
    Request::get("demo", "/orders").header("x-tenant", tenant)
}
