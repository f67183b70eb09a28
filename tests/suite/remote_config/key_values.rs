//! Configuration in Consul and Azure App Configuration, with responses as their documentation describes them.

use aws_lc_rs::{digest, hmac};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use integration_client::config::RemoteSource;

use super::server::{Answer, ConfigServer, ReceivedRequest, response_with, status};
use super::{builder, config_with_limit, folder, limit_in_force, refused, wait_until};

const KEY: &[u8] = b"the key of the store";

fn pairs(vendors: &str) -> Answer {
    let value = |text: &str| BASE64_STANDARD.encode(text);
    let tenants = "[[tenants]]\nid = \"b\"\nvendor = \"v\"\n";
    let body = format!(
        r#"[{{"Key":"ic/","Value":null,"ModifyIndex":1}},{{"Key":"ic/2","Value":"{}","ModifyIndex":2}},
            {{"Key":"ic/1","Value":"{}","ModifyIndex":3}}]"#,
        value(tenants),
        value(vendors)
    );
    response_with(200, &body, &[("x-consul-index", "3")])
}

#[tokio::test]
async fn consul_keys_are_laid_over_each_other() {
    let folder = folder("remote-consul");
    let token = folder.join("token");
    std::fs::write(&token, "hunter2").unwrap();
    let is_right = |asked: &ReceivedRequest| {
        asked.target == "/v1/kv/ic/?recurse=true" && asked.header("x-consul-token") == "hunter2"
    };
    let server =
        ConfigServer::start(move |asked| if is_right(asked) { pairs(&config_with_limit(10)) } else { status(403) })
            .await;
    let source =
        RemoteSource::consul(&server.url(""), "ic/").header("x-consul-token", &format!("file:{}", token.display()));
    let client = builder(source).build().await.unwrap();
    assert_eq!(client.config().current().tenants().count(), 2);
    server.answer(|_| pairs(&config_with_limit(20)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("20")).await;
    // All keys are gone. That is an error, and no empty configuration.
    server.answer(|_| status(404));
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    assert!(limit_in_force(&client).contains("20"));
    server.answer(|_| response_with(200, "[]", &[]));
    wait_until("the problem is told", || client.config().problem().is_some_and(|told| told.contains("no key begins")))
        .await;
}

/// A policy that was edited hides the key with tenant `b`. The tenant is not removed.
#[tokio::test]
async fn keys_that_consul_leaves_out_retire_no_tenant() {
    let server = ConfigServer::start(|_| pairs(&config_with_limit(10))).await;
    let client = builder(RemoteSource::consul(&server.url(""), "ic/")).build().await.unwrap();
    server.answer(|_| {
        let value = BASE64_STANDARD.encode(config_with_limit(20));
        let body = format!(r#"[{{"Key":"ic/1","Value":"{value}","ModifyIndex":4}}]"#);
        response_with(200, &body, &[("x-consul-results-filtered-by-acls", "true")])
    });
    wait_until("the problem is told", || client.config().problem().is_some()).await;
    let problem = client.overview().config_sources[0].problem.clone().unwrap();
    assert!(problem.contains("`key_prefix \"ic/\" { policy = \"read\" }`"), "{problem}");
    assert_eq!(client.config().current().tenants().count(), 2);
    assert!(limit_in_force(&client).contains("limit: 10,"));
    server.answer(|_| pairs(&config_with_limit(20)));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("20")).await;
    assert_eq!((client.config().current().tenants().count(), client.config().problem()), (2, None));
}

/// Whether the request is signed with [`KEY`], as Azure's documentation of HMAC authentication says.
fn is_signed(asked: &ReceivedRequest) -> bool {
    let hash = BASE64_STANDARD.encode(digest::digest(&digest::SHA256, b""));
    let date = asked.header("x-ms-date");
    let text = format!("GET\n{}\n{date};{};{hash}", asked.target, asked.header("host"));
    let signature = BASE64_STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY), text.as_bytes()));
    let expected =
        format!("HMAC-SHA256 Credential=id-1&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature={signature}");
    asked.header("authorization") == expected
        && asked.header("x-ms-content-sha256") == hash
        && date.len() == 29
        && date.ends_with(" GMT")
}

fn items(key: &str, text: &str, next: Option<&str>) -> Answer {
    let item = serde_json::json!({"key": key, "value": text, "etag": format!("{}", text.len()), "label": null});
    let mut page = serde_json::json!({"items": [item]});
    if let Some(next) = next {
        page["@nextLink"] = next.into();
    }
    response_with(200, &page.to_string(), &[])
}

#[tokio::test]
async fn azure_requests_are_signed_and_pages_followed() {
    let folder = folder("remote-azure");
    let connection = folder.join("connection");
    let answer = |limit: u32, next: &'static str| {
        move |asked: &ReceivedRequest| match (is_signed(asked), asked.target.contains("after=")) {
            (false, _) => status(401),
            (true, false) => items("ic/1", &config_with_limit(limit), Some(next)),
            (true, true) => items("ic/2", "[[tenants]]\nid = \"b\"\nvendor = \"v\"\n", None),
        }
    };
    let next = "/kv?key=ic%2F*&api-version=1.0&after=MQ%3D%3D";
    let server = ConfigServer::start(answer(10, next)).await;
    let write = |key: &[u8]| {
        let text = format!("Endpoint={};Id=id-1;Secret={}\n", server.url(""), BASE64_STANDARD.encode(key));
        std::fs::write(&connection, text).unwrap();
    };
    write(KEY);
    let reference = format!("file:{}", connection.display());
    let source = || RemoteSource::azure_app_configuration(&reference, "ic/").label("prod");
    let client = builder(source()).build().await.unwrap();
    assert_eq!(client.config().current().tenants().count(), 2);
    assert_eq!(server.received_requests()[0].target, "/kv?key=ic%2F*&label=prod&api-version=1.0");
    server.answer(answer(20, next));
    wait_until("the new limit is in force", || limit_in_force(&client).contains("20")).await;
    drop(client);

    write(b"another key");
    assert!(refused(source()).await.to_string().contains("answered 401"));
    write(KEY);
    server.answer(answer(20, "https://evil.example.com/kv?after=MQ"));
    assert!(refused(source()).await.to_string().contains("leads to another server"));
    server.answer(answer(20, "/kv"));
    assert!(refused(source()).await.to_string().contains("more than 100 pages"));
}
