//! A client whose metrics Prometheus can scrape: `cargo run --release --features metrics --example prometheus`.
//!
//! Three tenants send to a vendor on this machine for three seconds, more than it allows. Then the program fetches the
//! page that Prometheus would scrape, and prints a few of its lines.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![expect(clippy::disallowed_methods, reason = "an application spawns and measures; the library does not")]

use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::JoinSet;

const SENDS: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Install the recorder before the client sends: the client uses the recorder that is installed when it records its
    // first metric. Inside a runtime, `install` serves the page and runs the recorder's upkeep; with
    // `install_recorder`, call `run_upkeep` on a timer.
    let address = free_address()?;
    let exporter = PrometheusBuilder::new().with_http_listener(address);
    exporter.set_buckets(&[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0])?.install()?;

    let limit = VendorLimit::sliding_window(50, Duration::from_secs(1));
    let vendor = FakeVendor::builder().limit(limit).latency(Duration::from_millis(5)).start().await?;
    // The fake vendor can tell its callers apart by a header as well as by a credential.
    let entry = vendor.vendors_toml("demo").replace("\"bearer\"", "\"none\"");
    let mut builder = IntegrationClient::builder().vendors_toml(entry).tenant_labels(2);
    for tenant in ["acme", "globex", "initech"] {
        builder = builder.tenant(TenantEntry::new(tenant, "demo"));
    }
    let client = builder.build().await?;

    let until = Instant::now() + SENDS;
    let mut senders = JoinSet::new();
    for (tenant, priority) in [("acme", Priority::High), ("globex", Priority::Normal), ("initech", Priority::Low)] {
        for _ in 0..10 {
            let client = client.clone();
            senders.spawn(async move {
                while Instant::now() < until {
                    let request = Request::get("demo", "/orders").header("x-tenant", tenant);
                    if let Ok(response) = client.send(tenant, priority, request).await {
                        let _ = response.bytes().await;
                    }
                }
            });
        }
    }
    senders.join_all().await;
    // The client updates counters and gauges once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;

    let url = format!("http://{address}/metrics");
    let page = reqwest::get(&url).await?.error_for_status()?.text().await?;
    println!("{url}: {} lines, among them", page.lines().count());
    let shown =
        ["integration_client_requests_total", "integration_client_headroom", "integration_client_wait_seconds_count"];
    for line in page.lines().filter(|line| shown.iter().any(|name| line.starts_with(name))) {
        println!("{line}");
    }
    println!("the vendor refused {}", vendor.refused());
    Ok(())
}

/// An unused address, chosen here because the exporter does not report which one it uses.
fn free_address() -> std::io::Result<std::net::SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
