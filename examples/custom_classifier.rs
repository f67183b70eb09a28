//! A vendor that answers 403 where others answer 429: `cargo run --release --example custom_classifier`.
//!
//! The client hands a 403 to the caller like any other response. A [`Classifier`] tells the client what this vendor
//! means by it: the vendor did nothing, so the client may send even a POST without an idempotency key again, after a
//! pause.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

use std::error::Error;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, Fault, When};
use integration_client::{Class, Classifier, IntegrationClient, Priority, Request};

/// Treats every 403 of this vendor as a rate limit. If only some of them were, a header would have to tell them apart.
struct TooMuch;

impl Classifier for TooMuch {
    fn classify(&self, status: StatusCode, _: &HeaderMap) -> Option<Class> {
        (status == StatusCode::FORBIDDEN).then_some(Class::RateLimited)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // `/places` is always refused. The fault that is added below refuses `/routes` twice.
    let vendor = FakeVendor::builder().poisoned("/places", 403).start().await?;
    let retry = "[vendors.maps.retry]\nmax_retries = 3\nfirst_wait = \"100ms\"\n";
    let entry = vendor.vendors_toml("maps").replace("\"bearer\"", "\"none\"") + retry;
    let builder = || IntegrationClient::builder().vendors_toml(&entry).tenant(TenantEntry::new("acme", "maps"));
    let post = |path: &str| Request::post("maps", path).body("Marylebone");

    let plain = builder().build().await?;
    let handed_out = plain.send("acme", Priority::Normal, post("/places")).await?;
    println!("without: {} after {} attempt", handed_out.status(), handed_out.attempts());

    let client = builder().classifier("maps", TooMuch).build().await?;
    vendor.add_fault(When::path("/routes").first(2), Fault::Status(403));
    let look = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.tenants().paused_for("acme", "maps")
    };
    let (response, pause) = tokio::join!(client.send("acme", Priority::Normal, post("/routes")), look);
    println!("with:    acme at maps is paused for another {:.0?}", pause?.unwrap_or_default());
    let response = response?;
    println!("with:    {} after {} attempts", response.status(), response.attempts());

    let result = client.send("acme", Priority::Normal, post("/places")).await;
    let Err(error) = result else { return Err("not poisoned".into()) };
    println!("with:    {:?}, {:?}: {error}", error.kind(), error.delivery());

    let log = vendor.arrivals();
    let refused = log.iter().filter(|arrival| arrival.status == 403).count();
    println!("{} attempts, {refused} answered 403; with the classifier none of these was handed out", log.len());
    Ok(())
}
