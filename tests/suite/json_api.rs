//! The client against a mocked JSON API: which requests reach the vendor, and which responses the caller gets.

#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

use httpmock::prelude::*;
use integration_client::config::TenantEntry;
use integration_client::{Delivery, ErrorKind, IntegrationClient, Priority, Request};
use serde_json::{Value, json};

async fn client(server: &MockServer, auth: &str) -> IntegrationClient {
    let vendor = format!(
        r#"
[vendors.crm]
base_url = "{}/v2"
auth = {auth}
headers = {{ accept = "application/json" }}
[[vendors.crm.limits]]
name = "requests"
limit = 100
window = "1s"
algorithm = "sliding_window"
"#,
        server.base_url()
    );
    let key = std::env::temp_dir().join(format!("integration-client-{}-{}", std::process::id(), server.port()));
    std::fs::write(&key, "s3cr3t\n").unwrap();
    let tenant = TenantEntry::new("acme", "crm").credential(format!("file:{}", key.display()));
    let client = IntegrationClient::builder().without_catalogue().vendors_toml(vendor).tenant(tenant).build().await;
    client.unwrap()
}

#[tokio::test]
async fn json_is_sent_with_the_tenants_credential() {
    let server = MockServer::start_async().await;
    let created = server
        .mock_async(|when, then| {
            when.method(POST)
                .path("/v2/contacts")
                .query_param("notify", "no & never")
                .header("authorization", "Bearer s3cr3t")
                .header("accept", "application/json")
                .json_body(json!({ "name": "Ada" }));
            then.status(201).json_body(json!({ "id": 7 }));
        })
        .await;
    let client = client(&server, r#"{ scheme = "bearer" }"#).await;
    let request = Request::post("crm", "/contacts").query("notify", "no & never").json(&json!({ "name": "Ada" }));
    let response = client.send("acme", Priority::High, request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.attempts()), (201, 1));
    assert_eq!(response.headroom().map(|headroom| (headroom.remaining(), headroom.limit())), Some((99, 100)));
    assert_eq!(response.json::<Value>().await.unwrap(), json!({ "id": 7 }));
    created.assert_async().await;
}

#[tokio::test]
async fn query_key_shows_in_no_error() {
    let server = MockServer::start_async().await;
    let refused = server
        .mock_async(|when, then| {
            when.method(GET).path("/v2/contacts").query_param("api_key", "s3cr3t");
            then.status(403).body("no");
        })
        .await;
    let client = client(&server, r#"{ scheme = "query", name = "api_key" }"#).await;
    let response = client.send("acme", Priority::Normal, Request::get("crm", "/contacts")).await.unwrap();
    let error = response.error_for_status().unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Status, Delivery::Rejected));
    assert!(!format!("{error} {error:?}").contains("s3cr3t"));
    refused.assert_async().await;
}

#[tokio::test]
async fn json_error_names_its_place() {
    let server = MockServer::start_async().await;
    server
        .mock_async(|when, then| {
            when.path("/v2/broken");
            then.status(200).body("{ \"id\": \n oops }");
        })
        .await;
    let client = client(&server, r#"{ scheme = "bearer" }"#).await;
    let response = client.send("acme", Priority::Low, Request::get("crm", "/broken")).await.unwrap();
    let error = response.json::<Value>().await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Decode, Delivery::Delivered));
    assert!(error.to_string().contains("line 2") && !error.to_string().contains("oops"), "{error}");
}
