//! Headers with secrets beside the credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use integration_client::BoxError;
use integration_client::testing::literal;
use integration_client::transport::SecretString;

use super::*;

/// A client that has no tenant yet, at a vendor whose requests carry `x-second` beside the credential that `auth` says.
fn two_keys(transport: &FakeTransport, auth: &str, reference: &str) -> IntegrationClientBuilder {
    let text = vendor(&[]).replace("none", auth) + &format!("secret_headers = {{ x-second = \"{reference}\" }}\n");
    IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport.clone())
}

/// The values of the header in each call.
fn second(transport: &FakeTransport) -> Vec<Vec<String>> {
    let values = |call: &integration_client::testing::FakeCall| -> Vec<String> {
        let all = call.headers.get_all("x-second").iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    transport.calls().iter().map(values).collect()
}

#[tokio::test(start_paused = true)]
async fn secret_header_replaces_those_of_vendor_and_caller() {
    let transport = transport_with_delay(Duration::ZERO);
    let own = TenantEntry::new("b", "v").credential("keys:b").secret_header("X-Second", "keys:second-of-b");
    let builder = two_keys(&transport, "bearer", "keys:second-of-all").credential_resolver("keys", literal);
    let builder = builder.tenant(TenantEntry::new("a", "v").credential("keys:a")).tenant(own);
    let client = builder.build().await.unwrap();
    for tenant in ["a", "b"] {
        let request = get("/x").header("x-second", "the caller's").header("X-SECOND", "another of the caller");
        client.send(tenant, Priority::High, request).await.unwrap();
        client.send(tenant, Priority::High, get("/y")).await.unwrap();
    }
    assert_eq!(second(&transport), [["second-of-all"], ["second-of-all"], ["second-of-b"], ["second-of-b"]]);
    let calls = transport.calls();
    let credentials: Vec<_> = calls.iter().map(|call| call.header("authorization").unwrap()).collect();
    assert_eq!(credentials, ["Bearer a", "Bearer a", "Bearer b", "Bearer b"]);
    assert!(calls.iter().all(|call| call.headers["x-second"].is_sensitive()));
}

#[tokio::test(start_paused = true)]
async fn changed_secret_header_counts_for_the_next_request() {
    let transport = transport_with_delay(Duration::ZERO);
    let builder = two_keys(&transport, "none", "keys:first").credential_resolver("keys", literal);
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    client.tenants().set(TenantEntry::new("a", "v").secret_header("x-second", "keys:other")).unwrap();
    client.send("a", Priority::High, get("/x")).await.unwrap();
    assert_eq!(second(&transport), [["first"], ["other"]]);
}

#[tokio::test(start_paused = true)]
async fn missing_secret_header_is_named() {
    let transport = transport_with_delay(Duration::ZERO);
    let builder = two_keys(&transport, "none", "env:IC_NO_SECOND_KEY");
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    let error = client.send("a", Priority::High, get("/x")).await.unwrap_err();
    assert_eq!((error.kind(), error.delivery()), (ErrorKind::Credential, Delivery::NotSent));
    let text = error.to_string();
    assert!(text.contains("no secret for the header x-second: env:IC_NO_SECOND_KEY is not set"), "{text}");
    assert!(transport.calls().is_empty());
    assert_idle(&client);
}

/// The vendor needs no other credential.
#[tokio::test(start_paused = true)]
async fn refused_secret_header_is_read_again() {
    let transport = FakeTransport::new(|call| match call.header("x-second") {
        Some("second-1") => FakeAnswer::status(200),
        _ => FakeAnswer::status(401),
    });
    let reads = AtomicUsize::new(0);
    let resolver = move |_: String| {
        let number = reads.fetch_add(1, SeqCst);
        async move { Ok(SecretString::from(format!("second-{number}"))) }
    };
    let builder = two_keys(&transport, "none", "keys:second").credential_resolver("keys", resolver);
    let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
    assert_eq!(client.send("a", Priority::High, get("/x")).await.unwrap().status(), 200);
    assert_eq!(second(&transport), [["second-0"], ["second-1"]]);
}

/// The own key of `a` is revoked. `b` needs the same second key, and the vault is away for a moment.
#[tokio::test(start_paused = true)]
async fn revoked_key_of_one_tenant_leaves_the_second_key_of_all() {
    let transport = FakeTransport::new(|call| match call.header("authorization") {
        Some("Bearer a") => FakeAnswer::status(401),
        _ => FakeAnswer::status(200),
    });
    let is_away = Arc::new(AtomicBool::new(false));
    let vault = is_away.clone();
    let resolver = move |key: String| {
        let is_away = vault.load(SeqCst);
        async move {
            match is_away {
                true => Err(BoxError::from("the vault is away")),
                false => Ok(SecretString::from(key)),
            }
        }
    };
    let builder = two_keys(&transport, "bearer", "keys:second").credential_resolver("keys", resolver);
    let tenants = ["a", "b"].map(|id| TenantEntry::new(id, "v").credential(format!("keys:{id}")));
    let client = tenants.into_iter().fold(builder, IntegrationClientBuilder::tenant).build().await.unwrap();
    let send = async |tenant: &'static str| {
        let before = transport.calls().len();
        let status = client.send(tenant, Priority::High, get("/x")).await.unwrap().status().as_u16();
        (status, transport.calls().len() - before)
    };
    assert_eq!((send("b").await, send("a").await), ((200, 1), (401, 2)), "all secrets of `a` are read again");
    assert_eq!(send("a").await, (401, 1), "they are the same");
    is_away.store(true, SeqCst);
    // A route keeps its secrets for a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((send("a").await, send("b").await), ((401, 1), (200, 1)));
}
