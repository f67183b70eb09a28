//! A gateway with a console, a vendor and a store: the scene of the console's tests.

use std::path::PathBuf;
use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::console::Console;
use integration_client::gateway::{Gateway, Listen, Serving};
use integration_client::store::Store;
use integration_client::testing::{Arrival, FakeVendor, Reply};
use integration_client::transport::SecretString;
use integration_client::{IntegrationClient, Priority, Request};
use serde_json::{Value, json};

pub(crate) const VIEWER: &str = "viewer-token-of-32-characters-000";
pub(crate) const OPERATOR: &str = "operator-token-of-32-characters-0";
pub(crate) const SENDER: &str = "sender-token-of-32-characters-000";
const CREDENTIAL: &str = "canary-credential-3f9a1c77";
const BODY: &str = "canary-body-81c0de55";
const QUERY: &str = "canary-query-0b7e44aa";
const HEADER: &str = "canary-header-5d21f00d";
const ANSWER: &str = "canary-answer-c4fe77b1";
/// Must appear in no response of the console.
pub(crate) const SECRETS: [&str; 8] = [CREDENTIAL, BODY, QUERY, HEADER, ANSWER, VIEWER, OPERATOR, SENDER];
/// A text that a page must show as text, and not execute.
pub(crate) const HOSTILE: &str =
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";

const CALLERS: &str = "\n[[callers]]\nname = \"viewer\"\ntoken = \"keys:viewer\"\ntenants = [\"*\"]\nmay = [\"view\"]\n\
    [[callers]]\nname = \"operator\"\ntoken = \"keys:operator\"\ntenants = [\"*\"]\nmay = [\"view\", \"operate\"]\n\
    [[callers]]\nname = \"sender\"\ntoken = \"keys:sender\"\ntenants = [\"*\"]\nmay = [\"send\"]\n";
/// Additions to the vendor's entry: idempotency keys, and no retries, so that the first refusal makes a dead letter.
const WHOLE: &str = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\n[vendors.v.retry]\nmax_retries = 0\n";

pub(crate) struct Scene {
    pub(crate) vendor: FakeVendor,
    pub(crate) client: IntegrationClient,
    pub(crate) serving: Option<Serving>,
    pub(crate) http: reqwest::Client,
    base: String,
    folder: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A request with a secret in each of its parts.
pub(crate) fn letter_request() -> Request {
    Request::post("v", format!("/orders?q={QUERY}")).header("x-own", HEADER).json(&[BODY]).metadata("customer", HOSTILE)
}

impl Scene {
    pub(crate) async fn new(name: &str, read_only: bool) -> Scene {
        Scene::with_tenants(name, read_only, 100).await
    }

    pub(crate) async fn with_tenants(name: &str, read_only: bool, tenants: usize) -> Scene {
        let folder = std::env::temp_dir().join(format!("ic-console-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let vendor = FakeVendor::builder()
            .reply(Reply::json(200, &b"{\"ok\":true}"[..]))
            .reply_at("/refused", Reply::text(422, ANSWER))
            .reply_at("/broken", Reply::text(500, ANSWER))
            .start()
            .await
            .unwrap();
        let text = vendor.vendors_toml("v").replacen(
            "\nauth",
            "\ndead_letters = \"whole\"\nmax_transit = \"1s\"\nconnect_timeout = \"1s\"\nauth",
            1,
        );
        let limit = match text.contains("[[vendors.v.limits]]") {
            true => "",
            false => {
                "\n[[vendors.v.limits]]\nname = \"rest\"\nlimit = 5000\nwindow = \"1h\"\nalgorithm = \"fixed_window\"\n"
            }
        };
        let resolver = |key: String| async move {
            Ok(SecretString::from(match &*key {
                "viewer" => VIEWER,
                "operator" => OPERATOR,
                "sender" => SENDER,
                _ => CREDENTIAL,
            }))
        };
        let bulk = (0..tenants).map(|number| format!("bulk-{number:03}"));
        let mut builder = IntegrationClient::builder()
            .without_catalogue()
            .vendors_toml(text + limit + WHOLE + CALLERS)
            .credential_resolver("keys", resolver)
            .store(Store::sqlite(folder.join("store.db")))
            .work()
            .publish_status(Duration::from_millis(200));
        for id in ["acme".to_owned()].into_iter().chain(bulk) {
            builder = builder.tenant(TenantEntry::new(id, "v").credential("keys:vendor"));
        }
        let client = builder.build().await.unwrap();
        let console = Console::builder(client.clone());
        let console = if read_only { console.read_only() } else { console }.build();
        let serving =
            Gateway::builder(client.clone()).console(&console).build().serve(Listen::loopback()).await.unwrap();
        let base = format!("http://{}/~/console/", serving.address().unwrap());
        Scene { vendor, client, serving: Some(serving), http: reqwest::Client::new(), base, folder }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn address(&self) -> String {
        self.serving.as_ref().unwrap().address().unwrap().to_string()
    }

    pub(crate) fn login(&self, token: &str) -> reqwest::RequestBuilder {
        self.http.post(self.url("api/login")).json(&json!({ "token": token })).header("sec-fetch-site", "same-origin")
    }

    /// Logs in, and returns the cookie of the new session.
    pub(crate) async fn session(&self, token: &str) -> String {
        let answer = self.login(token).send().await.unwrap();
        answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.http.get(self.url(path)).bearer_auth(VIEWER).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (reqwest::StatusCode, Value) {
        let answer = self.http.post(self.url(path)).bearer_auth(OPERATOR).json(&body).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// Brings the store to `total` dead letters: enqueues the missing ones as requests that the vendor rejects, and
    /// waits.
    pub(crate) async fn letters(&self, total: usize) {
        let letters = self.client.outbox().dead_letters().unwrap();
        let there = letters.count().await.unwrap() as usize;
        for number in there..total {
            let request = Request::post("v", format!("/refused/{number}?q={QUERY}"))
                .header("x-own", HEADER)
                .json(&[BODY])
                .metadata("customer", HOSTILE);
            self.client.outbox().enqueue("acme", Priority::High, request).await.unwrap();
        }
        self.until_letters(total).await;
    }

    pub(crate) async fn until_letters(&self, total: usize) {
        let letters = self.client.outbox().dead_letters().unwrap();
        for _ in 0..1_000 {
            if letters.count().await.unwrap() as usize >= total {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{} letters", letters.count().await.unwrap());
    }

    /// Waits for the request that reaches the vendor after the first `before` ones, and returns it.
    pub(crate) async fn arrival_after(&self, before: usize) -> Arrival {
        for _ in 0..1_000 {
            if let Some(next) = self.vendor.arrivals().get(before) {
                return next.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("nothing came");
    }
}
