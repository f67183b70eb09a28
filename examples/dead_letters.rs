//! A request that is given up becomes a dead letter, and is sent again after the vendor has recovered:
//! `cargo run --release --example dead_letters`.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

use std::error::Error;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::dead_letter::JsonLinesSink;
use integration_client::testing::{FakeVendor, Fault, When};
use integration_client::{IntegrationClient, Priority, Request};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let vendor = FakeVendor::builder().endpoint("labels", "/labels").start().await?;
    vendor.add_fault(When::path("/labels"), Fault::Status(503));

    // Whole letters contain headers and bodies. Without them, a letter is only a record and cannot be sent again.
    let entry = format!(
        r#"
        [vendors.parcels]
        base_url = "{}"
        auth = {{ scheme = "none" }}
        dead_letters = "whole"
        endpoints.labels.paths = ["/labels"]
        retry = {{ max_retries = 2, first_wait = "20ms" }}
        idempotency = {{ header = "idempotency-key" }}
        "#,
        vendor.url()
    );
    let folder = std::env::temp_dir().join(format!("dead-letters-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("letters.jsonl");
    let client = IntegrationClient::builder()
        .vendors_toml(entry)
        .tenant(TenantEntry::new("acme", "parcels"))
        .dead_letter_sink(JsonLinesSink::open(&file, 10_000_000, 3)?)
        .build()
        .await?;

    // The idempotency key makes it safe to send a POST again: by it, the vendor recognizes a request that it has
    // processed already.
    let request = Request::post("parcels", "/labels")
        .json(&serde_json::json!({ "to": "Ada Lovelace", "grams": 350 }))
        .idempotency_key("order-1815")
        .metadata("order", "1815");
    let Err(error) = client.send("acme", Priority::High, request).await else { return Err("not repaired yet".into()) };
    println!("{:?}: {error}", error.kind());

    // The sink writes in the background, so that requests do not wait for it.
    while client.dead_letter_counts().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let letters = JsonLinesSink::read(&file)?;
    let [letter] = &letters[..] else { return Err("not one letter".into()) };
    println!("{}", serde_json::to_string_pretty(letter)?);

    vendor.clear_faults();
    let failed = vendor.arrivals().len();
    let response = client.redrive(letter).await?;
    let (status, again) = (response.status().as_u16(), vendor.arrivals().len() - failed);
    client.shutdown(Duration::from_secs(1)).await;
    std::fs::remove_dir_all(&folder)?;
    println!(
        "1 request: {failed} attempts, {} dead letter; redriven: {again} attempt, answered {status}",
        letters.len()
    );
    Ok(())
}
