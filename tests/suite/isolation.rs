//! One tenant that sends a hundred times its limit adds no latency to the others.
//!
//! Ten polite tenants send at 90 % of their budgets, at random times, so that their requests wait for their own limits
//! now and then. A pair of runs measures them once alone, and once while an eleventh tenant offers a hundred times its
//! limit in the same process, under the same lock (one shard) and to the same vendor. Both runs of a pair send at the
//! same times, drawn from a seeded generator.
//!
//! The added latency of a request is the time from the call of `send` to the response headers, less the vendor's own
//! latency, which is constant here. It contains the wait for the permit, the client's own work, sockets, and the
//! processor time that the noisy tenant takes: nothing is left out in the client's favour. The test compares the 99th
//! percentiles over all polite requests, and judges the median of ten pairs, because other load on the machine distorts
//! single pairs.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests: helpers unwrap too, and figures are printed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{Delay, FakeVendor, VendorLimit, literal};
use integration_client::{ErrorKind, IntegrationClient, Priority, Request};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

/// The limit of each tenant in requests a second, and the part of it that the client uses.
const LIMIT: u32 = 50;
const BUDGET: f64 = 0.8 * LIMIT as f64;
const NOISY: u32 = 100 * LIMIT;
const POLITE: usize = 10;
const PAIRS: u64 = 10;
const RUN: Duration = Duration::from_millis(1000);
const VENDORS_LATENCY: Duration = Duration::from_millis(5);

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn now() -> Instant {
    Instant::now()
}

/// The added latencies of one polite tenant, which sends at times drawn from `seed`.
async fn polite(client: IntegrationClient, tenant: String, seed: u64) -> Vec<Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let began = now();
    let mut at = Duration::ZERO;
    let mut sends = JoinSet::new();
    loop {
        // Exponential gaps, so that the arrivals are independent of each other.
        let gap_us = -(1.0 - random.f64()).ln() / (0.9 * BUDGET) * 1e6;
        at += Duration::from_micros(gap_us as u64);
        if at >= RUN {
            break;
        }
        tokio::time::sleep_until(began + at).await;
        let (client, tenant) = (client.clone(), tenant.clone());
        sends.spawn(async move {
            let sent = now();
            let response = client.send(&tenant, Priority::Normal, Request::get("v", "/")).await.unwrap();
            let latency = sent.elapsed();
            assert_eq!(response.status(), 200);
            response.text().await.unwrap();
            latency.saturating_sub(VENDORS_LATENCY)
        });
    }
    sends.join_all().await
}

/// A tenant that offers far too many requests. Its own full queue refuses most of them.
async fn noisy(client: IntegrationClient, offered: Arc<AtomicU64>) {
    let mut sends = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(5));
    // On a machine that is too slow for this load, catching up on missed ticks would measure the machine.
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        offered.fetch_add(u64::from(NOISY / 200), Ordering::Relaxed);
        for _ in 0..NOISY / 200 {
            let client = client.clone();
            sends.spawn(async move {
                match client.send("noisy", Priority::High, Request::get("v", "/")).await {
                    Ok(response) => drop(response.text().await),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::QueueFull, "{error}"),
                }
            });
        }
        while let Some(ended) = sends.try_join_next() {
            ended.unwrap();
        }
    }
}

/// The result of one run.
struct Outcome {
    /// Percentiles of the polite tenants' added latency.
    p50: Duration,
    p99: Duration,
    /// Requests that the noisy tenant offered, per second.
    offered: u64,
}

async fn run(client: &IntegrationClient, seed: u64, with_noisy: bool) -> Outcome {
    let mut beside = JoinSet::new();
    let (began, offered) = (now(), Arc::new(AtomicU64::new(0)));
    if with_noisy {
        beside.spawn(noisy(client.clone(), offered.clone()));
    }
    let mut tenants = JoinSet::new();
    for n in 0..POLITE {
        tenants.spawn(polite(client.clone(), format!("polite-{n}"), seed * 1000 + n as u64));
    }
    let mut latencies = tenants.join_all().await.concat();
    beside.shutdown().await;
    let offered = (offered.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()) as u64;
    latencies.sort_unstable();
    // Lets the buckets fill up again, and dropped exchanges end.
    tokio::time::sleep(Duration::from_millis(250)).await;
    Outcome { p50: latencies[latencies.len() / 2], p99: latencies[latencies.len() * 99 / 100], offered }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn noisy_tenant_adds_no_latency() {
    let limit = VendorLimit::sliding_window(LIMIT, Duration::from_secs(1)).named("requests");
    let vendor = FakeVendor::builder().limit(limit).arrival_delay(Delay::fixed(VENDORS_LATENCY)).start().await.unwrap();
    // A small burst, so that the polite tenants have to wait at all.
    let entry = vendor.vendors_toml("v").replace("limit = 50", "limit = 50\nburst = 4");
    let mut builder = IntegrationClient::builder().without_catalogue().vendors_toml(entry);
    for n in 0..POLITE {
        builder = builder.tenant(TenantEntry::new(format!("polite-{n}"), "v").credential(format!("keys:polite-{n}")));
    }
    builder = builder.tenant(TenantEntry::new("noisy", "v").credential("keys:noisy"));
    let builder = builder.credential_resolver("keys", literal).max_waiting_per_tier(100).shards(1);
    let client = builder.build().await.unwrap();
    run(&client, 0, false).await; // opens connections

    let mut ratios = Vec::new();
    for pair in 1..=PAIRS {
        // The order alternates, so that a drift of the machine does not always favour the same side.
        let noisy_first = pair % 2 == 0;
        let first = run(&client, pair, noisy_first).await;
        let second = run(&client, pair, !noisy_first).await;
        let (beside, alone) = if noisy_first { (first, second) } else { (second, first) };
        println!(
            "pair {pair}: added latency p50 {:.1?} p99 {:.1?} alone, p50 {:.1?} p99 {:.1?} beside a tenant that wants {} a second",
            alone.p50, alone.p99, beside.p50, beside.p99, beside.offered
        );
        ratios.push(beside.p99.as_secs_f64() / alone.p99.as_secs_f64());
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let median = (ratios[4] + ratios[5]) / 2.0;
    println!("median of {PAIRS} pairs: {median:.3}x (from {:.3} to {:.3})", ratios[0], ratios[9]);
    assert_eq!(vendor.refused(), 0);
    assert!(vendor.arrivals().iter().filter(|arrival| &*arrival.key == "noisy").count() > 300, "it was noisy");
    assert!(median <= 1.10, "{median:.3}x");
}
