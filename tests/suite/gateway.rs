//! The gateway over real sockets, against a vendor that enforces its limits.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says why")]

use std::time::Duration;

use integration_client::config::TenantEntry;
use integration_client::gateway::{Gateway, Listen, Serving};
use integration_client::testing::{FakeVendor, Fault, Reply, VendorLimit, When};
use integration_client::transport::SecretString;
use integration_client::{Error, IntegrationClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::fault::{FaultServer, Step};

mod addressing;
mod answers;
mod async_requests;
mod bounds;
mod ending;
mod json;
mod keys;
mod nested;
mod redirects;
mod secret_headers;
mod thousand;
mod tokens;

const TOKEN: &str = "billing-token-of-32-characters-00";
const SECOND: Duration = Duration::from_secs(1);

fn callers(name: &str) -> String {
    format!(
        "\n[[callers]]\nname = \"{name}\"\ntoken = \"kept:billing\"\ntenants = [\"acme\", \"eu-*\"]\nvendors = [\"shop\", \"raw\"]\n\
         priority = \"normal\"\n"
    )
}

async fn client(toml: String) -> IntegrationClient {
    let resolver = |key: String| async move {
        let secret = if key == "billing" { TOKEN } else { "the-vendors-secret" };
        Ok(SecretString::from(secret))
    };
    let builder = IntegrationClient::builder().without_catalogue().credential_resolver("kept", resolver);
    let tenant = |id: &str| TenantEntry::new(id, "shop").credential("kept:vendor");
    let builder = builder.vendors_toml(toml).tenant(tenant("acme")).tenant(tenant("us-1"));
    builder.build().await.unwrap()
}

async fn serve_gateway(toml: String) -> Serving {
    Gateway::builder(client(toml).await).build().serve(Listen::loopback()).await.unwrap()
}

/// A response, read to its end.
struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

/// Sends raw bytes on a new connection.
async fn send_raw(serving: &Serving, request: &str) -> RawResponse {
    let mut stream = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(20 * SECOND, stream.read_to_end(&mut bytes)).await.unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    RawResponse { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn get(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n")
}

fn post(path: &str, more: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n{more}\
         content-length: {length}\r\n\r\n{body}"
    )
}

async fn start_shop_vendor() -> FakeVendor {
    FakeVendor::builder().reply(Reply::json(200, &b"{\"ok\":true}"[..])).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_token_reaches_no_vendor() {
    let vendor = start_shop_vendor().await;
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    assert_eq!(serving.token(), None);
    let cases = [
        (get("/acme/shop/v1/x", TOKEN), 200),
        (get("/acme/shop/v1/x", "wrong-token-of-32-characters-0000"), 401),
        ("GET /acme/shop/x HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n".to_owned(), 401),
        (get("/us-1/shop/x", TOKEN), 403),
        (get("/eu-9/shop/x", TOKEN), 403),
        (get("/acme/other/x", TOKEN), 403),
        (get("/@/shop/x", TOKEN), 400),
        (get("/~/livez", TOKEN), 200),
        (get("/~/readyz", TOKEN), 200),
        (get("/~/nothing", TOKEN), 404),
        (
            format!(
                "CONNECT api.example:443 HTTP/1.1\r\nhost: api.example:443\r\nproxy-authorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
            ),
            405,
        ),
    ];
    for (request, status) in cases {
        let got = send_raw(&serving, &request).await;
        assert_eq!(got.status, status, "{request}\n{}\n{}", got.head, got.body);
        // A body of known length comes with a `content-length`, and not in chunks.
        let length = format!("content-length: {}", got.body.len());
        assert!(got.head.lines().any(|line| line == length), "{request}\n{}\n{}", got.head, got.body);
    }
    let arrivals = vendor.arrivals();
    assert_eq!(arrivals.len(), 1, "{arrivals:?}");
    assert_eq!((&*arrivals[0].key, &*arrivals[0].path), ("the-vendors-secret", "/v1/x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn smuggled_hosts_paths_and_tokens_are_refused() {
    let vendor = FaultServer::answering(vec![Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec(),
    )])
    .await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}/base\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
        vendor.url()
    );
    let serving = serve_gateway(entry + &callers("billing")).await;
    for path in [
        "//evil.example/acme/shop/x",
        "/acme/shop//evil.example",
        "/acme/shop/..%2fadmin",
        "/acme/shop/../x",
        "/acme/shop/..;/x",
        "/acme/shop/a%0d%0ab",
        "/%61cme/shop/x",
        "/acme/shop/\\evil",
    ] {
        let got = send_raw(&serving, &get(path, TOKEN)).await;
        assert_eq!(got.status, 400, "{path} {}", got.body);
    }
    let proxied = |url: &str| {
        format!(
            "GET {url} HTTP/1.1\r\nhost: x\r\nproxy-authorization: Basic {}\r\nconnection: close\r\n\r\n",
            basic_credentials("acme", TOKEN)
        )
    };
    for url in ["http://evil.example/base/x", "http://127.0.0.1:1/base/x"] {
        assert_eq!(send_raw(&serving, &proxied(url)).await.status, 403, "{url}");
    }
    assert_eq!(vendor.requests().len(), 0, "nothing has left");

    let two_lengths = "content-length: 3\r\n";
    assert_eq!(send_raw(&serving, &post("/acme/shop/x", two_lengths, "hello")).await.status, 400);
    let both = format!(
        "POST /acme/shop/x HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {TOKEN}\r\nx-copy: {TOKEN}\r\nx-api-key: {TOKEN}\r\n\
         connection: close, x-hop\r\nx-hop: 1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
         GET /acme/shop/smuggled HTTP/1.1\r\nhost: g\r\n\r\n"
    );
    assert_eq!(send_raw(&serving, &both).await.status, 200);
    assert_eq!(send_raw(&serving, &proxied(&format!("{}/base/proxied?a=b", vendor.url()))).await.status, 200);
    assert_eq!(send_raw(&serving, &get("/acme/shop/base/once", TOKEN)).await.status, 200);
    let requests = vendor.requests();
    let lines: Vec<&str> = requests.iter().filter_map(|seen| seen.head.lines().next()).collect();
    assert_eq!(lines, ["POST /base/x HTTP/1.1", "GET /base/proxied?a=b HTTP/1.1", "GET /base/once HTTP/1.1"]);
    for seen in &requests {
        let head = seen.head.to_lowercase();
        assert!(!head.contains(TOKEN) && !head.contains("x-hop") && !head.contains("proxy-"), "{head}");
        assert!(head.contains("authorization: bearer the-vendors-secret"), "{head}");
        assert!(!(head.contains("content-length") && head.contains("transfer-encoding")), "{head}");
    }
}

fn basic_credentials(user: &str, password: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_post_is_not_repeated() {
    let vendor =
        FakeVendor::builder().fault(When::path("/break"), Fault::Reset).fault(When::path("/fails"), Fault::Status(500));
    let vendor = vendor.start().await.unwrap();
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    let first = send_raw(&serving, &post("/acme/shop/break", "", "{\"n\":1}")).await;
    assert_eq!(first.status, 422, "{}", first.body);
    assert!(
        first.head.contains("x-should-retry: false") && first.head.contains("integration-delivery: ambiguous"),
        "{}",
        first.head
    );
    assert!(
        first.body.contains("\"error\":{") && first.head.contains("proxy-status: integration-client"),
        "{}",
        first.body
    );
    let again = send_raw(&serving, &post("/acme/shop/break", "", "{\"n\":1}")).await;
    assert_eq!(again.status, 422);
    assert!(again.head.contains("integration-repeated: true"), "{}", again.head);
    assert_eq!(vendor.arrivals().len(), 1, "the repetition was not sent");
    // Another body makes another request. A caller who has checked at the vendor may send the same request again.
    send_raw(&serving, &post("/acme/shop/break", "", "{\"n\":2}")).await;
    send_raw(&serving, &post("/acme/shop/break", "integration-send-again: true\r\n", "{\"n\":1}")).await;
    assert_eq!(vendor.arrivals().len(), 3);
    // The vendor's own error response is passed on, once.
    let failed = send_raw(&serving, &post("/acme/shop/fails", "", "{}")).await;
    assert_eq!(failed.status, 500);
    assert!(failed.head.contains("x-should-retry: false"), "{}", failed.head);
    assert_eq!(send_raw(&serving, &post("/acme/shop/fails", "", "{}")).await.status, 422);
    assert_eq!(vendor.arrivals().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_post_of_departed_caller_may_be_repeated() {
    let vendor = FakeVendor::builder().fault(When::path("/busy").first(1), Fault::Status(429)).start().await.unwrap();
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    let mut stream = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    stream.write_all(post("/acme/shop/busy", "", "{}").as_bytes()).await.unwrap();
    // The lane is paused when the refusal has been read.
    let at_once = |path: &str| post(path, "integration-max-wait: 0\r\n", "{}");
    let mut number = 0;
    while send_raw(&serving, &at_once(&format!("/acme/shop/{number}"))).await.status != 429 {
        number += 1;
        assert!(number < 1_000, "the refusal pauses nothing");
    }
    drop(stream);
    for _ in 0..20 {
        let again = send_raw(&serving, &at_once("/acme/shop/busy")).await;
        assert_ne!(again.status, 422, "the vendor refused the first, and cannot have acted: {}", again.body);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn departed_caller_frees_its_slot() {
    let vendor = FakeVendor::builder().limit(VendorLimit::concurrency(1)).fault(When::path("/stall"), Fault::Stall);
    let vendor = vendor.start().await.unwrap();
    let client = client(vendor.vendors_toml("shop") + &callers("billing")).await;
    let serving = Gateway::builder(client.clone()).build().serve(Listen::loopback()).await.unwrap();
    let mut stream = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    stream.write_all(post("/acme/shop/stall", "", "{}").as_bytes()).await.unwrap();
    while vendor.arrivals().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(stream);
    let got = loop {
        let got = send_raw(&serving, &post("/acme/shop/stall", "integration-max-wait: 0\r\n", "{}")).await;
        if got.status != 429 {
            break got;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(got.status, 422, "{}", got.body);
    assert!(got.body.contains("its caller went away"), "{}", got.body);
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_answers_only_pending_requests() {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(50, SECOND)).start().await.unwrap();
    let client = client(vendor.vendors_toml("shop") + &callers("billing")).await;
    let serving = Gateway::builder(client.clone()).build().serve(Listen::loopback()).await.unwrap();
    let (address, url) = (serving.address().unwrap(), serving.base_url("acme", "shop"));
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut all = tokio::task::JoinSet::new();
    for n in 0..100 {
        let sent = sdk.get(format!("{url}/{n}")).bearer_auth(TOKEN).send();
        all.spawn(async move { sent.await.unwrap().status().as_u16() });
    }
    // The gateway has all requests: they wait for a permit or have arrived.
    while vendor.arrivals().len() as u64 + client.waiting() < 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(client.waiting() > 0, "the drain has something to wait for");
    assert!(serving.shutdown(30 * SECOND).await);
    let statuses = all.join_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!((vendor.refused(), vendor.arrivals().len()), (0, 100));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_are_refused_after_the_grace() {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(1, 600 * SECOND)).start().await.unwrap();
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    assert_eq!(send_raw(&serving, &get("/acme/shop/1", TOKEN)).await.status, 200);
    let mut stream = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let waits = get("/acme/shop/2", TOKEN).replace("connection: close", "integration-deadline: 20m");
    stream.write_all(waits.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!serving.shutdown(Duration::from_millis(50)).await);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.to_lowercase().contains("retry-after"), "{answer}");
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_without_tokens_refuses_browsers() {
    let vendor = start_shop_vendor().await;
    let own = serve_gateway(vendor.vendors_toml("shop")).await;
    let token = own.token().unwrap().to_owned();
    assert_eq!(send_raw(&own, &get("/acme/shop/x", &token)).await.status, 200);
    assert_eq!(send_raw(&own, &get("/acme/shop/x", TOKEN)).await.status, 401);

    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).without_tokens().build();
    let open = gateway.serve(Listen::loopback().lane("127.0.0.1:0".parse().unwrap(), "acme", "shop")).await.unwrap();
    let host = open.address().unwrap();
    let with = |host: &str, more: &str| {
        format!("GET /acme/shop/x HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{more}\r\n")
    };
    assert_eq!(send_raw(&open, &with(&host.to_string(), "")).await.status, 200);
    assert_eq!(send_raw(&open, &with("evil.example", "")).await.status, 403);
    assert_eq!(send_raw(&open, &with(&host.to_string(), "origin: https://evil.example\r\n")).await.status, 403);
    assert_eq!(send_raw(&open, &with(&host.to_string(), "sec-fetch-site: cross-site\r\n")).await.status, 403);
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let by_lane = sdk.get(format!("http://{}/v1/charges", open.lanes()[0])).send().await.unwrap();
    assert_eq!(by_lane.status(), 200);
    assert_eq!(&*vendor.arrivals().last().unwrap().path, "/v1/charges");

    let everywhere: Listen = "0.0.0.0:0".parse().unwrap();
    let refused: Error = gateway.serve(everywhere.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("listen on 127.0.0.1"), "{refused}");
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).build();
    let refused = gateway.serve(everywhere).await.unwrap_err();
    assert!(refused.to_string().contains("[[callers]]"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_connections_and_heads_are_refused() {
    let vendor = start_shop_vendor().await;
    let client = client(vendor.vendors_toml("shop") + &callers("billing")).await;
    let serving = Gateway::builder(client).max_connections(1).build().serve(Listen::loopback()).await.unwrap();
    let held = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let got = loop {
        // The gateway accepts the first connection a moment after it is made.
        let got = send_raw(&serving, &get("/acme/shop/x", TOKEN)).await;
        if got.status == 503 {
            break got;
        }
    };
    assert!(got.body.contains("as many connections as it takes"), "{}", got.body);
    drop(held);
    let large = format!("GET /acme/shop/x HTTP/1.1\r\nhost: g\r\nx: {}\r\n\r\n", "a".repeat(70_000));
    let got = loop {
        let got = send_raw(&serving, &large).await;
        if got.status != 503 {
            break got;
        }
    };
    assert_eq!(got.status, 431, "{}", got.head);
    assert_eq!(vendor.arrivals().len(), 0);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn unix_socket_is_served_and_removed() {
    let vendor = start_shop_vendor().await;
    let path = std::env::temp_dir().join(format!("ic-gateway-{}.sock", std::process::id()));
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).without_tokens().build();
    let serving = gateway.serve(Listen::unix(&path)).await.unwrap();
    let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    stream.write_all(b"GET /acme/shop/x HTTP/1.1\r\nhost: any\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(serving.shutdown(SECOND).await);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_answer_is_an_error() {
    let vendor = FakeVendor::builder().reply(Reply::json(200, &b"{\"ok\":\"and more\"}"[..])).start().await.unwrap();
    let toml =
        vendor.vendors_toml("shop").replacen("\nauth", "\nmax_response_bytes = 8\nauth", 1) + &callers("billing");
    let lane = Listen::loopback().lane("127.0.0.1:0".parse().unwrap(), "acme", "shop");
    let serving = Gateway::builder(client(toml).await).build().serve(lane).await.unwrap();
    let long = send_raw(&serving, &get("/acme/shop/orders", TOKEN)).await;
    assert!(long.status == 502 && long.body.contains("max_response_bytes"), "{} {}", long.head, long.body);
    let order = post("/acme/shop/orders", "", "one");
    for repeated in [false, true] {
        let got = send_raw(&serving, &order).await;
        assert_eq!((got.status, got.head.contains("integration-repeated: true")), (422, repeated), "{}", got.body);
    }
    assert_eq!(vendor.arrivals().len(), 2, "one of each");
    let mut stream = TcpStream::connect(serving.lanes()[0]).await.unwrap();
    let proxied = get(&format!("{}/orders", vendor.url()), TOKEN);
    stream.write_all(proxied.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("no forward proxy"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_in_the_query_is_replaced() {
    let vendor = start_shop_vendor().await;
    let auth = "\nauth = { scheme = \"query\", name = \"key\" }\n# auth";
    let serving = serve_gateway(vendor.vendors_toml("shop").replacen("\nauth", auth, 1) + &callers("billing")).await;
    let ask =
        |more: &str| format!("GET /acme/shop/orders{more} HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\n\r\n");
    let twice = send_raw(&serving, &ask(&format!("?key={TOKEN}&api_key={TOKEN}"))).await;
    assert!(twice.status == 400 && twice.body.contains("must not reach the vendor"), "{}", twice.body);
    assert_eq!(send_raw(&serving, &ask(&format!("/{TOKEN}?key={TOKEN}"))).await.status, 400);
    assert!(vendor.arrivals().is_empty());
    assert_eq!(send_raw(&serving, &ask(&format!("?key={TOKEN}&page=2"))).await.status, 200);
    assert!(vendor.arrivals().iter().all(|arrival| !arrival.path.contains(TOKEN)));
}

#[tokio::test(flavor = "multi_thread")]
async fn sdk_credential_passes_and_token_stays() {
    let vendor = FaultServer::answering(vec![Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec(),
    )])
    .await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"none\" }}\nunpublished = true\n",
        vendor.url()
    );
    // The second caller's token is the secret that the resolver returns for every other key.
    let second = callers("second").replace("kept:billing", "kept:other");
    let serving = serve_gateway(entry + &callers("billing") + &second).await;
    let two = format!(
        "GET /acme/shop/x HTTP/1.1\r\nhost: g\r\nintegration-token: {TOKEN}\r\nauthorization: Bearer the-vendors-secret\r\n\
         x-api-key: the-vendors-secret\r\nx-signature: AWS4-HMAC-SHA256\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(send_raw(&serving, &two).await.status, 200);
    let own = two.replace("the-vendors-secret", "the-sdks-own-key");
    assert_eq!(send_raw(&serving, &own).await.status, 200);
    let requests = vendor.requests();
    let (first, second) = (requests[0].head.to_lowercase(), requests[1].head.to_lowercase());
    assert!(!first.contains("the-vendors-secret") && first.contains("x-signature"), "{first}");
    assert!(second.contains("authorization: bearer the-sdks-own-key"), "{second}");
    for hidden in [TOKEN.replacen('-', "%2D", 1), format!("?q={}", TOKEN.replacen('b', "%62", 1))] {
        let got = send_raw(&serving, &get(&format!("/acme/shop/{hidden}"), TOKEN)).await;
        assert!(got.status == 400 && got.body.contains("must not reach the vendor"), "{} {}", got.head, got.body);
    }
    assert_eq!(vendor.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn own_paths_precede_vendor_paths() {
    let vendor = start_shop_vendor().await;
    let watches = "\n[[callers]]\nname = \"watches\"\ntoken = \"kept:other\"\ntenants = [\"*\"]\nmay = [\"view\"]\n";
    let client = client(vendor.vendors_toml("shop") + &callers("billing") + watches).await;
    let gateway = Gateway::builder(client).metrics(|| "calls_total 1\n".to_owned()).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let metrics = send_raw(&serving, &get("/~/metrics", "the-vendors-secret")).await;
    assert_eq!((metrics.status, metrics.body.contains("calls_total 1")), (200, true));
    assert!(metrics.head.contains("content-type: text/plain"), "{}", metrics.head);
    assert_eq!(send_raw(&serving, &get("/~/metrics", TOKEN)).await.status, 403);
    assert_eq!(send_raw(&serving, "GET /~/metrics HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n").await.status, 401);
    let proxied = format!(
        "GET {}/~/livez HTTP/1.1\r\nhost: x\r\nproxy-authorization: Basic {}\r\nconnection: close\r\n\r\n",
        vendor.url(),
        basic_credentials("acme", TOKEN)
    );
    assert_eq!(send_raw(&serving, &proxied).await.status, 200);
    assert_eq!(vendor.arrivals().iter().map(|arrival| arrival.path.to_string()).collect::<Vec<_>>(), ["/~/livez"]);
    // What is wrong is for those who may view it; whether anything is, for everybody.
    let ready = send_raw(&serving, &get("/~/readyz", "the-vendors-secret")).await;
    assert!(ready.body.contains("\"store_problem\":null"), "{}", ready.body);
    let without = "GET /~/readyz HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n".to_owned();
    for request in [without, get("/~/readyz", TOKEN), get("/~/readyz", "wrong-token-of-32-characters-0000")] {
        let ready = send_raw(&serving, &request).await;
        assert_eq!((ready.status, ready.body.trim()), (200, "{\"status\":\"ok\"}"), "{request}");
    }
}
