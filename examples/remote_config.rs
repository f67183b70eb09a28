//! Configuration on a server: a change on the server takes effect without a restart, and an outage of the server stops
//! nothing.
//!
//! `cargo run --example remote_config --features remote-config`. The server runs in this process, on loopback.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use httpmock::prelude::*;
use integration_client::config::RemoteSource;
use integration_client::testing::{FakeAnswer, FakeTransport};
use integration_client::{IntegrationClient, IntegrationClientBuilder, Priority, Request};

/// A configuration with one tenant and a vendor that allows `limit` requests per second.
fn vendors(limit: u32) -> String {
    format!(
        "[vendors.parcels]\nbase_url = \"https://api.example.com\"\nauth = {{ scheme = \"none\" }}\n\
         [[vendors.parcels.limits]]\nname = \"second\"\nlimit = {limit}\nwindow = \"1s\"\n\
         [[tenants]]\nid = \"acme\"\nvendor = \"parcels\"\n"
    )
}

fn builder(source: RemoteSource) -> IntegrationClientBuilder {
    // Every vendor answers 200, because this example is about the configuration.
    let transport = FakeTransport::new(|_| FakeAnswer::status(200));
    IntegrationClient::builder().config_source(source).watch_config(Duration::from_millis(100)).transport(transport)
}

/// Waits until the version of the configuration is above `version`, and returns it.
async fn version_above(client: &IntegrationClient, version: u64) -> u64 {
    while client.config().current().version() <= version {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.config().current().version()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = MockServer::start_async().await;
    let first = server.mock(|when, then| {
        when.path("/vendors.toml");
        then.status(200).header("etag", "\"1\"").body(vendors(10));
    });
    let folder = std::env::temp_dir().join(format!("ic-remote-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let copy = folder.join("vendors.copy.json");
    let source = || RemoteSource::http(server.url("/vendors.toml")).keep_copy_in(&copy);

    let client = builder(source()).build().await?;
    println!("version {} from {}", client.config().current().version(), server.url("/vendors.toml"));

    first.delete_async().await;
    let second = server.mock(|when, then| {
        when.path("/vendors.toml");
        then.status(200).header("etag", "\"2\"").body(vendors(20));
    });
    println!("version {} after a change on the server", version_above(&client, 1).await);

    // Without a mock the server answers 404.
    second.delete_async().await;
    while client.config().problem().is_none() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("problem: {}", client.config().problem().unwrap_or_default());
    let answer = client.send("acme", Priority::Normal, Request::get("parcels", "/")).await?;
    println!("answer {} while the server is away", answer.status().as_u16());
    drop(client);

    let client = builder(source()).build().await?;
    println!("started with the copy: {}", client.config().problem().unwrap_or_default());
    let answer = client.send("acme", Priority::Normal, Request::get("parcels", "/")).await?;
    std::fs::remove_dir_all(&folder)?;
    println!("remote_config: last={}", answer.status().as_u16());
    Ok(())
}
