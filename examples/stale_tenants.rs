//! Tenants that come and go: `cargo run --release --example stale_tenants`.
//!
//! Fifty thousand tenants send one request each. The client drops idle lanes by itself, and a cleanup removes tenants
//! that are no longer active. The memory is then free for other use. How much of it the allocator returns to the system
//! is up to the allocator; `cargo bench --bench tenants` counts what the library holds.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

use std::collections::HashSet;
use std::error::Error;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, OnRemove, Priority, Request};

const TENANTS: usize = 50_000;

const VENDORS: &str = r#"
[vendors.demo]
base_url = "https://demo.example"
auth = { scheme = "none" }
max_transit = "200ms"
[[vendors.demo.limits]]
name = "second"
algorithm = "sliding_window"
limit = 10
window = "1s"
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDORS).on_remove(OnRemove::Refuse);
    let client = builder.transport(transport).build().await?;
    for n in 0..TENANTS {
        client.tenants().set(TenantEntry::new(id(n), "demo"))?;
    }
    report(&client, "known");
    for n in 0..TENANTS {
        // Takes a permit without sending, because the fake transport would keep a record of each request.
        client.try_acquire(&id(n), "demo", Priority::Normal, 1)?.finish();
    }
    report(&client, "used once each");

    // One of the tenants has many requests waiting for its limit. They are refused when the tenant is removed.
    let loud: Vec<_> =
        (0..40).map(|_| client.send("tenant-000000", Priority::Low, Request::get("demo", "/"))).collect();
    let waiting = async {
        let mut refused = 0;
        for send in loud {
            refused += usize::from(send.await.is_err());
        }
        refused
    };
    let active: HashSet<String> = (TENANTS / 2..TENANTS).map(id).collect();
    let cleanup = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.tenants().cleanup(&active).await.len()
    };
    let (refused, retired) = tokio::join!(waiting, cleanup);
    println!("cleanup: {retired} tenants retired, {refused} requests of theirs refused");
    report(&client, "after the cleanup");

    // Each shard looks for idle lanes every ten seconds.
    for _ in 0..120 {
        if client.tenants().lanes() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    report(&client, "after the sweep");
    println!("stale_tenants: retired={retired} lanes={}", client.tenants().lanes());
    Ok(())
}

fn id(n: usize) -> String {
    format!("tenant-{n:06}")
}

fn report(client: &IntegrationClient, when: &str) {
    println!("{when:<18} {:>6} lanes, {:>4} MiB resident", client.tenants().lanes(), resident_mib());
}

/// The resident memory of this process in MiB; 0 on systems without Linux's `/proc`.
fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kib / 1024
}
