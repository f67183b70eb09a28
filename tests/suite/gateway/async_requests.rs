//! Requests that callers leave in the store, and their receipts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ::tower::Service as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use integration_client::store::Store;
use integration_client::store::faults::{self, Moment, Watch};
use integration_client::{ErrorKind, Priority, Request};

use super::*;

const OTHER: &str = "reports-token-of-32-characters-00";

/// A gateway with a store and two callers: `billing` may send and leave requests for `acme`, `reports` may only leave
/// requests, for `us-*`.
async fn with_store(vendor: &FakeVendor, folder: &std::path::Path, works: bool) -> Serving {
    let gateway = gateway_with_store(vendor, Store::sqlite(folder.join("s.db")), works).await;
    gateway.serve(Listen::loopback()).await.unwrap()
}

/// The same, not yet listening.
async fn gateway_with_store(vendor: &FakeVendor, store: Store, works: bool) -> Gateway {
    let mut toml = vendor.vendors_toml("shop");
    toml.push_str("\n[vendors.shop.idempotency]\nheader = \"idempotency-key\"\n");
    toml.push_str(&callers("billing"));
    toml.push_str("may = [\"send\", \"async\"]\n");
    toml.push_str(
        "\n[[callers]]\nname = \"reports\"\ntoken = \"kept:reports\"\ntenants = [\"us-*\"]\nmay = [\"async\"]\n",
    );
    let resolver = |key: String| async move {
        let secret = match &*key {
            "billing" => TOKEN,
            "reports" => OTHER,
            _ => "the-vendors-secret",
        };
        Ok(SecretString::from(secret))
    };
    let tenant = |id: &str| TenantEntry::new(id, "shop").credential("kept:vendor");
    let builder = IntegrationClient::builder().without_catalogue().credential_resolver("kept", resolver);
    let builder = builder.vendors_toml(toml).tenant(tenant("acme")).tenant(tenant("us-1"));
    let builder = builder.store(store);
    let client = if works { builder.work() } else { builder }.build().await.unwrap();
    Gateway::builder(client).build()
}

fn post_async(more: &str, body: &str) -> String {
    post("/acme/shop/orders", &format!("integration-async: true\r\n{more}"), body)
}

fn json(got: &RawResponse) -> serde_json::Value {
    serde_json::from_str(got.body.trim()).unwrap_or_else(|error| panic!("{error}: {}\n{}", got.head, got.body))
}

async fn until_ended(serving: &Serving, receipt: &str) -> serde_json::Value {
    loop {
        let said = json(&send_raw(serving, &get(receipt, TOKEN)).await);
        if !matches!(said["state"].as_str(), Some("waiting" | "under_way")) {
            return said;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_request_is_sent_once() {
    let folder = crate::support::folder("gateway");
    let vendor = FakeVendor::builder().reply(Reply::json(201, &b"{\"id\":7}"[..])).start().await.unwrap();
    let serving = with_store(&vendor, &folder, true).await;
    let first = send_raw(&serving, &post_async("integration-idempotency-key: order-7\r\n", "{\"n\":7}")).await;
    assert_eq!(first.status, 202, "{}\n{}", first.head, first.body);
    let receipt = json(&first)["receipt"].as_str().unwrap().to_owned();
    assert!(first.head.contains(&format!("location: {receipt}")), "{}", first.head);
    let again = send_raw(&serving, &post_async("integration-idempotency-key: order-7\r\n", "{\"n\":7}")).await;
    assert_eq!((again.status, &json(&again)["accepted_before"]), (202, &true.into()));
    let reused = send_raw(&serving, &post_async("integration-idempotency-key: order-7\r\n", "{\"n\":8}")).await;
    assert_eq!((reused.status, &json(&reused)["kind"]), (422, &"key_reused".into()));

    let said = until_ended(&serving, &receipt).await;
    assert_eq!((&said["state"], &said["status"]), (&"delivered".into(), &201.into()), "{said}");
    assert_eq!(said["response"]["body"], "{\"id\":7}");
    let content_type = serde_json::json!(["content-type", "application/json"]);
    assert!(said["response"]["headers"].as_array().unwrap().contains(&content_type), "{said}");
    assert_eq!((vendor.arrivals().len(), &*vendor.arrivals()[0].key), (1, "the-vendors-secret"));
    let late = send_raw(&serving, &get(&receipt, TOKEN).replacen("GET", "DELETE", 1)).await;
    assert_eq!(late.status, 409, "{}", late.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn receipts_need_rights_for_their_tenant() {
    let folder = crate::support::folder("gateway");
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(1, 600 * SECOND)).start().await.unwrap();
    let serving = with_store(&vendor, &folder, false).await;
    assert_eq!(send_raw(&serving, &get("/acme/shop/first", TOKEN)).await.status, 200);
    let accepted = send_raw(&serving, &post_async("", "{}")).await;
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    let receipt = json(&accepted)["receipt"].as_str().unwrap().to_owned();

    let waiting = send_raw(&serving, &get(&receipt, TOKEN)).await;
    assert_eq!((waiting.status, &json(&waiting)["state"]), (200, &"waiting".into()), "{}", waiting.body);
    let delete = |token: &str| get(&receipt, token).replacen("GET", "DELETE", 1);
    for (request, status) in [
        (get(&receipt, OTHER), 404),
        (delete(OTHER), 404),
        (get(&receipt, "wrong-token-of-32-characters-0000"), 401),
        (get("/~/receipts/00000000000000000000000000000000", TOKEN), 404),
        (get("/~/receipts/no-id", TOKEN), 400),
        (post(&receipt, "", ""), 405),
        // `reports` may not send, and `billing` may not leave requests for another tenant.
        (get("/us-1/shop/x", OTHER), 403),
        (post_async("", "{}").replace("/acme/", "/us-1/"), 403),
        (post_async("", "{}").replace("async: true", "async: perhaps"), 400),
    ] {
        let got = send_raw(&serving, &request).await;
        assert_eq!(got.status, status, "{request}\n{}\n{}", got.head, got.body);
    }
    // A caller that got no answer repeats its DELETE.
    for _ in 0..2 {
        let cancelled = send_raw(&serving, &delete(TOKEN)).await;
        assert_eq!((cancelled.status, &json(&cancelled)["state"]), (200, &"cancelled".into()), "{}", cancelled.body);
    }
    assert_eq!(json(&send_raw(&serving, &get(&receipt, TOKEN)).await)["state"], "cancelled");
    assert_eq!(vendor.arrivals().len(), 1, "what was taken back is not sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_requests_need_a_store() {
    let vendor = start_shop_vendor().await;
    let toml = vendor.vendors_toml("shop") + &callers("billing") + "may = [\"async\"]\n";
    let serving = serve_gateway(toml).await;
    let got = send_raw(&serving, &post_async("", "{}")).await;
    assert_eq!(got.status, 503, "{} {}", got.head, got.body);
    assert!(got.body.contains("store"), "{}", got.body);
}

/// A store that accepts no requests while it is away. If it is to lose the reply to a commit, it is away afterwards.
#[derive(Default)]
struct Away {
    is_away: AtomicBool,
    loses_reply: AtomicBool,
    /// Whether it was asked to accept a request while it was away.
    was_asked: AtomicBool,
}

impl Watch for Away {
    fn at(&self, what: &'static str, moment: Moment) -> faults::Fault {
        match (what, moment) {
            ("accept", Moment::Before) if self.is_away.load(Relaxed) => self.was_asked.store(true, Relaxed),
            ("accept", Moment::Committed) if self.loses_reply.swap(false, Relaxed) => self.is_away.store(true, Relaxed),
            ("connect", _) if self.is_away.load(Relaxed) => {}
            _ => return faults::Fault::None,
        }
        faults::Fault::Broken
    }
}

/// A request that another server around the gateway passes on.
fn passed_on(key: Option<&str>) -> http::Request<Full<Bytes>> {
    let request = http::Request::post("/acme/shop/orders").header("host", "gateway");
    let request = request.header("authorization", format!("Bearer {TOKEN}")).header("integration-async", "true");
    let request = key.into_iter().fold(request, |request, key| request.header("integration-idempotency-key", key));
    request.body(Full::from("{\"n\":7}")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn departed_callers_request_is_not_stored_again() {
    let folder = crate::support::folder("gateway");
    let (vendor, away) = (start_shop_vendor().await, Arc::new(Away::default()));
    let store = Store::sqlite(folder.join("s.db")).watched_by(away.clone());
    let mut gateway = gateway_with_store(&vendor, store, true).await;
    // With a key the store recognises the repetition, and without one the gateway does.
    for (key, status, arrived) in [(None, 422, 1), (Some("order-7"), 202, 2)] {
        away.is_away.store(true, Relaxed);
        let is_asked = async {
            while !away.was_asked.swap(false, Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answered = gateway.call(passed_on(key)) => panic!("answered while the store is away: {answered:?}"),
            () = is_asked => {}
        }
        away.is_away.store(false, Relaxed);
        while vendor.arrivals().len() < arrived {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let Ok(again) = gateway.call(passed_on(key)).await;
        let (parts, body) = again.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert_eq!(parts.status, status, "{key:?} {body:?}");
        assert_eq!(parts.headers.contains_key("integration-repeated"), key.is_none(), "{parts:?}");
        assert_eq!(vendor.arrivals().len(), arrived, "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doubtful_request_names_its_receipt() {
    let folder = crate::support::folder("gateway");
    let (vendor, away) = (start_shop_vendor().await, Arc::new(Away::default()));
    let store = Store::sqlite(folder.join("s.db")).watched_by(away.clone());
    let serving = gateway_with_store(&vendor, store, false).await.serve(Listen::loopback()).await.unwrap();
    away.loses_reply.store(true, Relaxed);
    let doubtful = send_raw(&serving, &post_async("", "{}")).await;
    assert_eq!(doubtful.status, 422, "{} {}", doubtful.head, doubtful.body);
    assert!(doubtful.head.contains("x-should-retry: false"), "{}", doubtful.head);
    away.is_away.store(false, Relaxed);
    let problem = json(&doubtful);
    let receipt = problem["receipt"].as_str().unwrap_or_else(|| panic!("{problem}"));
    let said = json(&send_raw(&serving, &get(receipt, TOKEN)).await);
    assert_eq!(said["state"], "waiting", "{said}");
    let again = send_raw(&serving, &post_async("", "{}")).await;
    assert!(again.status == 422 && again.head.contains("integration-repeated: true"), "{} {}", again.head, again.body);
    assert!(again.body.contains(receipt.rsplit('/').next().unwrap()), "{}", again.body);
}

/// A disk that takes no new requests while it is full.
#[derive(Default)]
struct Disk {
    is_full: AtomicBool,
}

impl Watch for Disk {
    fn at(&self, what: &'static str, _: Moment) -> faults::Fault {
        match what == "accept" && self.is_full.load(Relaxed) {
            true => faults::Fault::Full,
            false => faults::Fault::None,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_follows_the_store() {
    let folder = crate::support::folder("gateway");
    let vendor = start_shop_vendor().await;
    // Without a caller that may leave requests the gateway needs no store.
    for (may, status, said) in [("[\"send\", \"async\"]", 503, "store"), ("[\"send\"]", 200, "ok")] {
        let disk = Arc::new(Disk::default());
        let resolver = |key: String| async move {
            let secret = if key == "billing" { TOKEN } else { "the-vendors-secret" };
            Ok(SecretString::from(secret))
        };
        let watches = "[[callers]]\nname = \"watches\"\ntoken = \"kept:other\"\ntenants = [\"*\"]\nmay = [\"view\"]\n";
        let toml = vendor.vendors_toml("shop") + &callers("billing") + &format!("may = {may}\n{watches}");
        let builder = IntegrationClient::builder().without_catalogue().credential_resolver("kept", resolver);
        let builder = builder.vendors_toml(toml).tenant(TenantEntry::new("acme", "shop").credential("kept:vendor"));
        let store = Store::sqlite(folder.join(format!("{said}.db"))).watched_by(disk.clone());
        let client = builder.store(store).build().await.unwrap();
        let serving = Gateway::builder(client.clone()).build().serve(Listen::loopback()).await.unwrap();
        let readiness = async || {
            let got = send_raw(&serving, &get("/~/readyz", "the-vendors-secret")).await;
            (got.status, json(&got))
        };
        let enqueue = async || {
            let request = Request::post("shop", "/later").json(&[1]);
            client.outbox().enqueue("acme", Priority::Normal, request).await
        };
        assert_eq!(readiness().await.0, 200);

        disk.is_full.store(true, Relaxed);
        assert_eq!(enqueue().await.unwrap_err().kind(), ErrorKind::Store);
        let (found, document) = readiness().await;
        assert_eq!((found, &document["status"]), (status, &said.into()), "{document}");
        assert!(document["store_problem"].as_str().unwrap().contains("the disk is full"), "{document}");
        assert_eq!(send_raw(&serving, &get("/acme/shop/x", TOKEN)).await.status, 200, "it is sent without a store");

        disk.is_full.store(false, Relaxed);
        enqueue().await.unwrap();
        let (found, document) = readiness().await;
        assert!(found == 200 && document["store_problem"].is_null(), "{document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_methods_come_with_the_allowed() {
    const PASSED_ON: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
    let vendor = start_shop_vendor().await;
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    let tunnel = "CONNECT api.example:443 HTTP/1.1\r\nhost: api.example:443\r\nconnection: close\r\n\r\n".to_owned();
    for (request, allowed) in [
        (post("/~/livez", "", ""), "GET, HEAD"),
        (post("/~/receipts/00000000000000000000000000000000", "", ""), "GET, HEAD, DELETE"),
        (tunnel, PASSED_ON),
    ] {
        let got = send_raw(&serving, &request).await;
        assert_eq!(got.status, 405, "{request}\n{}", got.head);
        let line = format!("allow: {}", allowed.to_lowercase());
        assert!(got.head.lines().any(|found| found == line), "{request}\n{}", got.head);
    }
    for method in PASSED_ON.split(", ") {
        let request = get("/acme/shop/x", TOKEN).replacen("GET", method, 1);
        assert_eq!(send_raw(&serving, &request).await.status, 200, "{method}");
    }
    assert_eq!(vendor.arrivals().len(), 7);
}
