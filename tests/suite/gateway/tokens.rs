//! How the tokens of many callers are read again, in virtual time.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::tower::Service as _;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use integration_client::BoxError;
use integration_client::clock::Clock;
use integration_client::testing::{FakeAnswer, FakeTransport};

use super::*;

const ENTRY: &str =
    "[vendors.shop]\nbase_url = \"https://shop.example\"\nauth = { scheme = \"none\" }\nunpublished = true\n";
/// The token that replaces `billing`'s.
const RENEWED: &str = "renewed-token-of-32-characters-0";
/// The token of a caller that is added.
const LATE: &str = "late-token-of-32-characters-0000";
/// The token of one of many callers.
const SEVENTH: &str = "token-behind-other-7";

#[derive(Default)]
struct Vault {
    /// Whether it does not answer for the many callers.
    hangs: AtomicBool,
    /// Whether `billing` has another token.
    renewed: AtomicBool,
}

/// A gateway with 901 callers, the last of which is `billing`.
struct Many {
    vault: Arc<Vault>,
    file: PathBuf,
    transport: FakeTransport,
    client: IntegrationClient,
    gateway: Gateway,
    clock: Clock,
}

fn caller(name: &str) -> String {
    callers(name).replace("kept:billing", &format!("kept:{name}"))
}

impl Many {
    async fn start() -> Many {
        let vault = Arc::new(Vault::default());
        let asked = vault.clone();
        let resolver = move |key: String| {
            let vault = asked.clone();
            async move {
                let secret = match &*key {
                    "billing" if vault.renewed.load(Relaxed) => RENEWED.to_owned(),
                    "billing" => TOKEN.to_owned(),
                    "late" => LATE.to_owned(),
                    _ if vault.hangs.load(Relaxed) => std::future::pending::<String>().await,
                    _ => format!("token-behind-{key}"),
                };
                Ok::<_, BoxError>(SecretString::from(secret))
            }
        };
        let file = crate::support::folder("tokens").join("vendors.toml");
        let others: String = (0..900).map(|n| caller(&format!("other-{n}"))).collect();
        std::fs::write(&file, ENTRY.to_owned() + &others + &caller("billing")).unwrap();
        let transport = FakeTransport::new(|_| FakeAnswer::status(200));
        let builder = IntegrationClient::builder().without_catalogue().without_watching().vendors_file(&file);
        let builder = builder.credential_resolver("kept", resolver).transport(transport.clone());
        let client = builder.tenant(TenantEntry::new("acme", "shop")).build().await.unwrap();
        let gateway = Gateway::builder(client.clone()).build();
        Many { vault, file, transport, client, gateway, clock: Clock::system() }
    }

    /// Sends a request with this token and another header. Returns the status of the response, and how long it took.
    async fn ask_with(&self, token: &str, header: (&str, &str)) -> (u16, Duration) {
        let request = Request::get("/acme/shop/x").header("host", "gateway").header(header.0, header.1);
        let request = request.header("authorization", format!("Bearer {token}"));
        let began = self.clock.now();
        let answered: Result<_, Infallible> =
            self.gateway.clone().call(request.body(Full::<Bytes>::default()).unwrap()).await;
        (answered.unwrap().status().as_u16(), self.clock.now().since(began))
    }

    async fn ask(&self, token: &str) -> (u16, Duration) {
        self.ask_with(token, ("idempotency-key", "order-7")).await
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_resolver_of_many_delays_no_known_caller() {
    let many = Many::start().await;
    assert_eq!(many.ask(TOKEN).await.0, 200);
    many.vault.hangs.store(true, Relaxed);
    for seconds in (0..200).step_by(5) {
        for token in [TOKEN, SEVENTH] {
            let (status, took) = many.ask(token).await;
            assert!(status == 200 && took < SECOND, "after {seconds} s: {status} in {took:?}");
        }
        tokio::time::sleep(5 * SECOND).await;
    }

    // Nobody asks for a while, so the tokens may have been replaced long ago.
    tokio::time::sleep(600 * SECOND).await;
    for token in [TOKEN, SEVENTH] {
        let (status, took) = many.ask(token).await;
        assert!(status == 200 && took < 4 * SECOND, "after a pause: {status} in {took:?}");
    }
    let (status, took) = many.ask("wrong-token-of-32-characters-0000").await;
    assert!(status == 401 && took < 10 * SECOND, "an unknown token: {status} in {took:?}");
    let (status, took) = many.ask(SEVENTH).await;
    assert!(status == 200 && took < SECOND, "after the reading: {status} in {took:?}");
}

#[tokio::test(start_paused = true)]
async fn replaced_token_loses_its_access() {
    let many = Many::start().await;
    assert_eq!(many.ask(TOKEN).await.0, 200);
    // Other callers' tokens cannot be read meanwhile.
    many.vault.hangs.store(true, Relaxed);
    many.vault.renewed.store(true, Relaxed);
    for _ in 0..14 {
        many.ask(TOKEN).await;
        tokio::time::sleep(5 * SECOND).await;
    }
    assert_eq!((many.ask(TOKEN).await.0, many.ask(RENEWED).await.0), (401, 200), "70 s after the replacement");

    // After a pause the first request finds out, if the tokens can be read.
    many.vault.hangs.store(false, Relaxed);
    many.vault.renewed.store(false, Relaxed);
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!((many.ask(RENEWED).await.0, many.ask(TOKEN).await.0), (401, 200), "after a pause");

    // And otherwise it is over within 10 s of the first request.
    many.vault.hangs.store(true, Relaxed);
    many.vault.renewed.store(true, Relaxed);
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(many.ask(TOKEN).await.0, 200);
    tokio::time::sleep(8 * SECOND).await;
    assert_eq!((many.ask(TOKEN).await.0, many.ask(RENEWED).await.0), (401, 200), "10 s after the first request");
}

#[tokio::test(start_paused = true)]
async fn added_caller_delays_no_known_caller() {
    let many = Many::start().await;
    assert_eq!(many.ask(TOKEN).await.0, 200);
    many.vault.hangs.store(true, Relaxed);
    let text = std::fs::read_to_string(&many.file).unwrap();
    std::fs::write(&many.file, text + &caller("late")).unwrap();
    many.client.config().reload().await.unwrap();
    let (status, took) = many.ask(TOKEN).await;
    assert!(status == 200 && took < SECOND, "{status} in {took:?}");
    // This header may hold the new caller's token, which must not reach the vendor.
    let (status, took) = many.ask_with(TOKEN, ("x-api-key", LATE)).await;
    assert!(status == 200 && took < 10 * SECOND, "{status} in {took:?}");
    let calls = many.transport.calls();
    assert_eq!((calls.len(), calls[2].header("x-api-key")), (3, None));
}
