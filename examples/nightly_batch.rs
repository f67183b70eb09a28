//! A batch of two thousand low-priority requests beside the day's traffic, with a progress bar and an estimate of its
//! end.
//!
//! `client.estimate` says when the batch will be done, given the requests that wait now. The example asks again as the
//! batch goes on. Meanwhile, high-priority requests go first, and the batch takes the capacity that they leave.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "an example shows something, and measures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit, literal};
use integration_client::{IntegrationClient, Priority, Request};

const BATCH: u64 = 2_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let second = Duration::from_secs(1);
    let vendor = FakeVendor::builder()
        .headers(integration_client::testing::HeaderStyle::Silent)
        .limit(VendorLimit::sliding_window(300, second))
        .latency(Duration::from_millis(20))
        .start()
        .await?;
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor.vendors_toml("records"))
        .tenant(TenantEntry::new("acme", "records").credential("keys:acme"))
        .credential_resolver("keys", literal)
        .build()
        .await?;
    // Forty high-priority requests a second, for which people wait.
    let (urgent, slowest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut day = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, urgent, slowest) = (client.clone(), urgent.clone(), slowest.clone());
        day.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if let Ok(response) = client.send("acme", Priority::High, Request::get("records", "/now")).await {
                    urgent.fetch_add(1, Ordering::Relaxed);
                    slowest.fetch_max(response.waited().as_millis() as u64, Ordering::Relaxed);
                }
            }
        });
    }
    tokio::time::sleep(second).await;

    let began = tokio::time::Instant::now();
    let estimate = client.estimate("acme", "records", Priority::Low, BATCH)?;
    let [earliest, expected, guaranteed] = [estimate.earliest, estimate.expected, estimate.guaranteed]
        .map(|after| after.unwrap_or(Duration::MAX).as_secs_f64());
    println!(
        "{BATCH} requests: in {earliest:.1} s at the earliest, {expected:.1} s as it is now, {guaranteed:.1} s whatever the others send"
    );
    let bar = ProgressBar::new(BATCH).with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}")?);
    let mut batch = tokio::task::JoinSet::new();
    for record in 0..BATCH {
        let (client, bar) = (client.clone(), bar.clone());
        batch.spawn(async move {
            let request =
                Request::put("records", format!("/records/{record}")).body("{}").deadline(Duration::from_secs(120));
            let sent = client.send("acme", Priority::Low, request).await;
            bar.inc(1);
            sent.is_ok_and(|response| response.status().is_success())
        });
    }
    let mut done = 0;
    let mut every = tokio::time::interval(second);
    loop {
        tokio::select! {
            sent = batch.join_next() => match sent {
                Some(sent) => done += u64::from(sent?),
                None => break,
            },
            _ = every.tick() => {
                // One more low-priority request would go last, so its estimate is that of the rest of the batch.
                let left = client.estimate("acme", "records", Priority::Low, 1)?.expected.unwrap_or_default();
                bar.set_message(format!("{:.0} s left", left.as_secs_f64()));
            }
        }
    }
    bar.finish_and_clear();
    let took = began.elapsed().as_secs_f64();
    day.shutdown().await;
    println!(
        "done={done} seconds={took:.1} urgent={} slowest_urgent_ms={} refused={}",
        urgent.load(Ordering::Relaxed),
        slowest.load(Ordering::Relaxed),
        vendor.summary().refused
    );
    Ok(())
}
