//! The client as middleware of reqwest-middleware, in virtual time.
#![allow(clippy::unwrap_used, reason = "a request that cannot be made fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeTransport, literal};
use integration_client::{Error, ErrorKind, IntegrationClient, SendOptions};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};

const VENDOR: &str = "[vendors.v]\nextends = \"none\"\nbase_url = \"https://v.example/v1\"\nauth = { scheme = \"bearer\" }\n\
    [[vendors.v.limits]]\nname = \"slots\"\nconcurrency = 1\n";

async fn client(transport: &FakeTransport) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR);
    let tenant = TenantEntry::new("acme", "v").credential("literal:s3cr3t");
    builder.credential_resolver("literal", literal).transport(transport.clone()).tenant(tenant).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn middleware_chain_sends_through_the_lane() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(201).body("made"));
    let client = client(&transport).await;
    let lane = client.lane("acme", "v").unwrap();
    let http = ClientBuilder::new(reqwest::Client::new()).with(lane.middleware()).build();
    let request = http.post("https://v.example/v1/things").bearer_auth("the SDK's").body("thing");
    let response = request.with_extension(SendOptions::new().idempotency_key("k")).send().await;
    // The vendor takes no keys, so the error shows that the option was read.
    let error = response.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::InvalidRequest);

    let request = http.post("https://v.example/v1/things").bearer_auth("the SDK's").body("thing");
    let response = request.header("integration-priority", "high").send().await.unwrap();
    assert_eq!(response.url().as_str(), "https://v.example/v1/things");
    assert_eq!((response.status().as_u16(), response.text().await.unwrap()), (201, "made".to_owned()));
    let calls = transport.calls();
    assert_eq!((calls.len(), &*calls[0].url), (1, "https://v.example/v1/things"));
    assert_eq!((calls[0].header("authorization"), &calls[0].body[..]), (Some("Bearer s3cr3t"), &b"thing"[..]));
    assert_eq!(calls[0].header("integration-priority"), None);
}

/// A last middleware that answers itself, in place of the inner client.
#[derive(Default)]
struct Own(Arc<AtomicUsize>);

#[async_trait::async_trait]
impl Middleware for Own {
    async fn handle(
        &self,
        request: reqwest::Request,
        _: &mut http::Extensions,
        _: Next<'_>,
    ) -> Result<reqwest::Response> {
        assert_eq!(request.headers()["authorization"], "Bearer own");
        assert!(!request.headers().contains_key("integration-max-wait"));
        self.0.fetch_add(1, SeqCst);
        Ok(http::Response::new("x").into())
    }
}

#[tokio::test(start_paused = true)]
async fn pacing_middleware_holds_slot_until_read() {
    let client = client(&FakeTransport::new(|_| FakeAnswer::status(500))).await;
    let own = Own::default();
    let sent = own.0.clone();
    let http = ClientBuilder::new(reqwest::Client::new())
        .with(client.pacing_middleware("acme", "v").unwrap())
        .with(own)
        .build();
    let get = || http.get("https://v.example/v1/a").bearer_auth("own").header("integration-max-wait", "0").send();
    let first = get().await.unwrap();
    assert_eq!(client.in_flight(), 1);
    let reqwest_middleware::Error::Middleware(full) = get().await.unwrap_err() else {
        panic!("no error of the client's")
    };
    assert_eq!(full.downcast_ref::<Error>().unwrap().kind(), ErrorKind::NotNow);
    assert_eq!(first.text().await.unwrap(), "x");
    assert_eq!(get().await.unwrap().status(), 200);
    assert_eq!(sent.load(SeqCst), 2);
    assert!(client.pacing_middleware("nobody", "v").is_err());
    client.shutdown(Duration::from_secs(1)).await;
}
