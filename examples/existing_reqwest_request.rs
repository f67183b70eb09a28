//! Sends requests that a program builds already, unchanged, through the client:
//! `cargo run --release --features testing,reqwest-api --example existing_reqwest_request`.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

use std::error::Error;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, VendorLimit};
use integration_client::{IntegrationClient, Priority};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limit = VendorLimit::sliding_window(5, Duration::from_secs(1));
    let vendor = FakeVendor::builder().limit(limit).start().await?;
    let entry = vendor.vendors_toml("demo").replace("\"bearer\"", "\"none\"");
    let tenant = TenantEntry::new("acme", "demo");
    let client = IntegrationClient::builder().vendors_toml(entry).tenant(tenant).build().await?;

    // Built as before. The URL selects the vendor: it must begin with the base URL of one of the tenant's vendors.
    let existing = reqwest::Client::new()
        .post(format!("{}/orders?dry_run=true", vendor.url()))
        .header("x-tenant", "acme")
        .body("one coffee")
        .timeout(Duration::from_secs(10)) // becomes the deadline, waiting included
        .build()?;
    for n in 1..=8 {
        let copy = existing.try_clone().ok_or("a streaming body cannot be sent twice")?;
        // Before: `reqwest_client.execute(copy).await?`
        let response = client.send("acme", Priority::Normal, copy).await?;
        println!("reqwest {n}: {} after waiting {:.0?}", response.status(), response.waited());
    }

    let existing = http::Request::put(format!("{}/orders/7", vendor.url()))
        .header("x-tenant", "acme")
        .header("content-type", "application/json")
        .body(r#"{"cups": 2}"#)?;
    let response = client.send("acme", Priority::High, existing).await?;
    println!("http:      {} after waiting {:.0?}", response.status(), response.waited());
    println!("the vendor refused {} of {}", vendor.refused(), vendor.arrivals().len());
    Ok(())
}
