//! A limit that changes while requests wait: `cargo run --release --example live_reload`.
//!
//! Writes a file of vendors, sends as fast as the file allows, and replaces the file: with a lower limit, with half a
//! file, and with a higher limit. The client notices each change by itself.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![expect(clippy::disallowed_methods, reason = "an application measures; the library does not")]

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{IntegrationClient, Priority, Request};
use tokio::task::JoinSet;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(200, SECOND)).start().await?;
    let entry = vendor.vendors_toml("demo").replace("\"bearer\"", "\"none\"");
    let file = |limit: u32| {
        entry.replace("limit = 200", &format!("limit = {limit}")) + "[[tenants]]\nid = \"acme\"\nvendor = \"demo\"\n"
    };
    let folder = std::env::temp_dir().join(format!("live-reload-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("vendors.toml");
    replace(&path, &file(50))?;

    let client = IntegrationClient::builder().without_catalogue().vendors_file(&path).build().await?;
    let mut sending = JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        sending.spawn(async move {
            // Ends when the client shuts down. A real program looks at the errors.
            while let Ok(response) = client.send("acme", Priority::Normal, Request::get("demo", "/orders")).await {
                let _ = response.bytes().await;
            }
        });
    }
    report(&client, &vendor, "limit 50").await;
    replace(&path, &file(10))?;
    changed(&client, 1).await;
    report(&client, &vendor, "limit 10").await;
    replace(&path, &file(200)[..90])?;
    tokio::time::sleep(SECOND * 3 / 2).await;
    let problem = client.config().problem().unwrap_or_default();
    println!("half a file: {}", problem.lines().next().unwrap_or_default());
    report(&client, &vendor, "still 10").await;
    replace(&path, &file(200))?;
    changed(&client, 2).await;
    report(&client, &vendor, "limit 200").await;

    sending.shutdown().await;
    client.shutdown(SECOND).await;
    std::fs::remove_dir_all(&folder)?;
    let config = client.config().current();
    println!("live_reload: version={} hash={:016x} refused={}", config.version(), config.hash(), vendor.refused());
    Ok(())
}

/// Writes a new file beside the old one and renames it, so that no reader ever sees half of it.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

async fn changed(client: &IntegrationClient, version: u64) {
    let began = Instant::now();
    while client.config().current().version() <= version {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("a new file is in use after {:.1?}", began.elapsed());
}

/// Counts the requests that arrive at the vendor in one second, after one second in which a change can take effect.
async fn report(client: &IntegrationClient, vendor: &FakeVendor, what: &str) {
    tokio::time::sleep(SECOND).await;
    let before = vendor.arrivals().len();
    tokio::time::sleep(SECOND).await;
    let arrived = vendor.arrivals().len() - before;
    println!("{what}: {arrived} requests a second, {} wait", client.waiting());
}
