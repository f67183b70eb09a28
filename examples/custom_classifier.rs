//! A vendor that answers 403 where others answer 429: `cargo run --release --example custom_classifier`.
//!
//! To the client a 403 is an answer like any other and goes to the caller. A [`Classifier`] tells it what this vendor
//! means: nothing was done, so also a POST without a key may go again, after a pause.

#![allow(clippy::print_stdout, reason = "a program for the command line")]

use std::error::Error;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeVendor, Fault, When};
use integration_client::{Class, Classifier, IntegrationClient, Priority, Request};

/// Every 403 of this vendor is a rate limit. Where some are not, a header must tell which.
struct TooMuch;

impl Classifier for TooMuch {
    fn classify(&self, status: StatusCode, _: &HeaderMap) -> Option<Class> {
        (status == StatusCode::FORBIDDEN).then_some(Class::RateLimited)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // `/places` is refused for ever, everything else twice.
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
