//! Base URL and credential of a tenant change together: no secret is sent to a host that it was not configured with.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use integration_client::BoxFuture;
use integration_client::config::Tenant;
use integration_client::testing::literal;
use integration_client::transport::{SecretString, Token, TokenSource};

use super::*;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A transport that answers 503 for the host `old`, and 200 for every other host.
fn failing_at_old() -> FakeTransport {
    FakeTransport::new(|call| match call.url.contains("//old.") {
        true => FakeAnswer::status(503),
        false => FakeAnswer::status(200),
    })
}

const VENDOR: &str = r#"
[vendors.v]
base_url = "https://{shop}.v.example/api"
auth = { scheme = "bearer" }
retry = { max_retries = 20, first_wait = "1s", longest_wait = "1s" }
"#;

fn tenant(shop: &str) -> TenantEntry {
    TenantEntry::new("a", "v").variable("shop", shop).credential(format!("keys:{shop}"))
}

async fn client_of_old_shop(
    transport: &FakeTransport,
    change: impl FnOnce(IntegrationClientBuilder) -> IntegrationClientBuilder,
) -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(transport.clone());
    change(builder.credential_resolver("keys", literal).tenant(tenant("old"))).build().await.unwrap()
}

/// The first label of the host and the credential, for every call.
fn hosts_and_credentials(transport: &FakeTransport) -> Vec<(String, String)> {
    let pair = |call: &integration_client::testing::FakeCall| {
        let host = call.url.trim_start_matches("https://").split('.').next().unwrap_or_default().to_owned();
        (host, call.header("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned())
    };
    transport.calls().iter().map(pair).collect()
}

#[tokio::test(start_paused = true)]
async fn retry_uses_one_versions_url_and_credential() {
    let transport = failing_at_old();
    let client = client_of_old_shop(&transport, |builder| builder).await;
    let send = spawn(&client, Priority::High, get("/x").query("q", "1").deadline(Duration::from_secs(60)));
    while transport.calls().len() < 3 {
        tokio::time::sleep(ms(100)).await;
    }
    client.tenants().set(tenant("new")).unwrap();
    let answered = send.await.unwrap();
    let pairs = hosts_and_credentials(&transport);
    assert!(pairs.iter().all(|(host, secret)| host == secret), "{pairs:?}");
    assert_eq!(answered.unwrap().status(), 200);
    let last = transport.calls().pop().unwrap();
    assert_eq!(last.url, "https://new.v.example/api/x?q=1");
}

/// A request with a whole URL names the old host. It is sent to no other host, and not to the old one with the new
/// secret.
#[tokio::test(start_paused = true)]
async fn request_for_removed_host_is_not_sent() {
    let transport = failing_at_old();
    let client = client_of_old_shop(&transport, |builder| builder).await;
    let request: Request = http::Request::get("https://old.v.example/api/x").body(()).unwrap().into();
    let send = spawn(&client, Priority::High, request.deadline(Duration::from_secs(60)));
    while transport.calls().len() < 3 {
        tokio::time::sleep(ms(100)).await;
    }
    client.tenants().set(tenant("new")).unwrap();
    let error = send.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    let pairs = hosts_and_credentials(&transport);
    assert!(pairs.iter().all(|(host, secret)| host == secret), "{pairs:?}");
}

/// A token that was fetched for one base URL is not sent to another.
#[tokio::test(start_paused = true)]
async fn token_goes_only_to_its_url() {
    struct Tokens(Arc<AtomicUsize>);
    impl TokenSource for Tokens {
        fn token<'a>(&'a self, tenant: &'a Tenant) -> BoxFuture<'a, Result<Token, BoxError>> {
            Box::pin(async move {
                self.0.fetch_add(1, SeqCst);
                Ok(Token::new(tenant.variables["shop"].clone(), None))
            })
        }
    }
    let (transport, fetched) = (failing_at_old(), Arc::<AtomicUsize>::default());
    let client = client_of_old_shop(&transport, |builder| builder.token_source("v", Tokens(fetched.clone()))).await;
    let send = spawn(&client, Priority::High, get("/x").deadline(Duration::from_secs(60)));
    while transport.calls().len() < 3 {
        tokio::time::sleep(ms(100)).await;
    }
    client.tenants().set(tenant("new")).unwrap();
    send.await.unwrap().unwrap();
    client.send("a", Priority::High, get("/y")).await.unwrap();
    let pairs = hosts_and_credentials(&transport);
    assert!(pairs.iter().all(|(host, secret)| host == secret), "{pairs:?}");
    assert_eq!(fetched.load(SeqCst), 2, "one for each version");
}

/// An immediate request is sent once. Its caller gets the 401, and the next request reads a fresh credential.
#[tokio::test(start_paused = true)]
async fn immediate_request_is_not_repeated_after_401() {
    let transport = FakeTransport::new(|call| match call.header("authorization") {
        Some("Bearer key-0" | "Bearer key-2") => FakeAnswer::status(401),
        _ => FakeAnswer::status(200),
    });
    let reads = AtomicUsize::new(0);
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(VENDOR)
        .transport(transport.clone())
        .credential_resolver("keys", move |_: String| {
            let number = reads.fetch_add(1, SeqCst);
            async move { Ok(SecretString::from(format!("key-{number}"))) }
        })
        .tenant(tenant("shop"))
        .build()
        .await
        .unwrap();
    let mut answered = Vec::new();
    for _ in 0..2 {
        let response = client.try_send("a", Priority::High, get("/x")).await.unwrap();
        answered.push((response.status().as_u16(), response.attempts(), transport.calls().len()));
    }
    assert_eq!(answered, [(401, 1, 1), (200, 1, 2)]);

    // The same holds for a request that may not wait.
    let other = TenantEntry::new("b", "v").variable("shop", "other").credential("keys:other");
    client.tenants().set(other).unwrap();
    let request = get("/x").max_wait(Duration::ZERO);
    assert_eq!(client.send("b", Priority::High, request).await.unwrap().status(), 401);
    assert_eq!(transport.calls().len(), 3);
    assert_eq!(client.send("b", Priority::High, get("/x")).await.unwrap().status(), 200);
}

/// A request uses the credential of the account whose limits it has taken units from, even if its tenant changed
/// accounts while the request waited. A vendor counts a request for the account of its credential. Each account has its
/// own credential here.
#[tokio::test(start_paused = true)]
async fn waiting_request_uses_its_accounts_credential() {
    let vendor = "[vendors.v]\nbase_url = \"https://v.example\"\nauth = { scheme = \"bearer\" }\n\
                  [[vendors.v.limits]]\nname = \"parallel\"\nscope = \"account\"\nconcurrency = 1\n";
    let in_account = |account: &str| TenantEntry::new("a", "v").account(account).credential(format!("keys:{account}"));
    let transport = transport_with_delay(Duration::from_secs(1));
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport.clone());
    let client = builder.credential_resolver("keys", literal).tenant(in_account("old")).build().await.unwrap();
    let first = spawn(&client, Priority::High, get("/1"));
    tokio::time::sleep(ms(10)).await;
    let waiting = spawn(&client, Priority::High, get("/2"));
    tokio::time::sleep(ms(10)).await;
    assert_eq!(transport.calls().len(), 1, "the second waits for the slot of the old account");

    client.tenants().set(in_account("new")).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    let secrets: Vec<String> = hosts_and_credentials(&transport).into_iter().map(|(_, secret)| secret).collect();
    assert_eq!(secrets, ["old", "new"]);
}

/// A lane whose limits are the account's own may have to move to another shard.
#[tokio::test(start_paused = true)]
async fn account_move_in_long_pause_ends_no_request() {
    for scope in ["tenant", "account"] {
        let vendor = format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nauth = {{ scheme = \"bearer\" }}\n\
             [[vendors.v.limits]]\nname = \"parallel\"\nscope = \"{scope}\"\nconcurrency = 10\n"
        );
        let in_account =
            |account: &str| TenantEntry::new("a", "v").account(account).credential(format!("keys:{account}"));
        let transport = FakeTransport::new(|call| match call.number {
            0 => FakeAnswer::status(429).header("retry-after", "300"),
            _ => FakeAnswer::status(200),
        });
        let builder =
            IntegrationClient::builder().without_catalogue().vendors_toml(vendor).transport(transport.clone());
        let builder = builder.credential_resolver("keys", literal).tenant(in_account("old")).shards(16);
        let client = builder.build().await.unwrap();
        let mut sends = vec![spawn(&client, Priority::High, get("/1"))];
        tokio::time::sleep(ms(10)).await;
        sends.extend((0..3).map(|_| spawn(&client, Priority::High, get("/2"))));
        // Longer than the time of a request without a deadline.
        tokio::time::sleep(ms(100_000)).await;
        for account in ["second", "third", "new"] {
            client.tenants().set(in_account(account)).unwrap();
        }
        for send in sends {
            assert_eq!(send.await.unwrap().unwrap().status(), 200, "{scope}");
        }
        let secrets: Vec<String> = hosts_and_credentials(&transport).into_iter().map(|(_, secret)| secret).collect();
        assert_eq!(secrets, ["old", "new", "new", "new", "new"], "{scope}");
    }
}
