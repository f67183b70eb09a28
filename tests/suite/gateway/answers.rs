//! Which parts of a vendor's response reach the caller, and how long a program stays a caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use integration_client::BoxError;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

async fn gateway_before_answer(answer: &str) -> (FaultServer, Serving) {
    let answer = vec![Step::Loop(vec![Step::Read, Step::Write(answer.as_bytes().to_vec())])];
    gateway_before_vendor(FaultServer::start(vec![answer]).await, Duration::from_secs(55)).await
}

async fn gateway_before_vendor(vendor: FaultServer, deadline: Duration) -> (FaultServer, Serving) {
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
        vendor.url()
    );
    let gateway = Gateway::builder(client(entry + &callers("billing")).await).deadline(deadline).build();
    (vendor, gateway.serve(Listen::loopback()).await.unwrap())
}

/// Reads a request, and answers with `head` and three pieces of a body, with a pause after each.
async fn answer_in_pieces(mut stream: TcpStream, head: String) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(head.as_bytes()).await?;
    for _ in 0..3 {
        stream.write_all(b"5\r\nhello\r\n").await?;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    stream.write_all(b"0\r\n\r\n").await
}

/// A vendor whose answers have this head, in which `BASE` stands for its base URL. Returns the base URL. `FaultServer`
/// cannot be this vendor: its answers are stated before it has an address.
async fn vendor_that_names_itself(head: &str) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/base", listener.local_addr().unwrap());
    let head = head.replace("BASE", &base);
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(answer_in_pieces(stream, head.clone()));
        }
    });
    (base, accepting)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_stream_with_rewritten_links() {
    let head = "HTTP/1.1 200 OK\r\nlink: <BASE/r?page=2>; rel=\"next\", <https://other.example/x>; rel=\"x\"\r\n\
                location: BASE/r/7\r\ncontent-location: BASE/r?page=1\r\noperation-location: BASE/operations/9\r\n\
                x-location: BASE/r/8\r\nintegration-attempts: 99\r\ntransfer-encoding: chunked\r\n\r\n";
    let (base, _vendor) = vendor_that_names_itself(head).await;
    let entry =
        format!("[vendors.shop]\nbase_url = \"{base}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n");
    let serving = serve_gateway(entry + &callers("billing")).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let own = serving.base_url("acme", "shop");
    let sent = sdk.get(format!("{own}/r")).bearer_auth(TOKEN).send();
    let mut answer = sent.await.unwrap();
    assert_eq!(answer.status(), 200);
    for (name, expected) in [
        ("link", format!("<{own}/r?page=2>; rel=\"next\", <https://other.example/x>; rel=\"x\"")),
        ("location", format!("{own}/r/7")),
        ("content-location", format!("{own}/r?page=1")),
        ("operation-location", format!("{own}/operations/9")),
        // No client follows this header, so its URL stays.
        ("x-location", format!("{base}/r/8")),
    ] {
        assert_eq!(answer.headers()[name].to_str().unwrap(), expected, "{name}");
    }
    assert_eq!(answer.headers()["integration-attempts"], "1", "a vendor cannot say it in our place");
    assert!(answer.headers().contains_key("server-timing"));
    let clock = integration_client::clock::Clock::system();
    let began = clock.now();
    let mut at = Vec::new();
    while let Some(piece) = answer.chunk().await.unwrap() {
        assert_eq!(&piece[..], b"hello");
        at.push(clock.now().since(began));
    }
    assert_eq!(at.len(), 3);
    assert!(at[2] >= Duration::from_millis(200) && at[0] < Duration::from_millis(150), "{at:?}");
}

/// A response of three pieces, with a pause after each.
fn script_of_three_pieces(pause: Duration) -> Vec<Step> {
    let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mut script = vec![Step::Read, Step::Write(head)];
    for _ in 0..3 {
        script.extend([Step::Write(b"5\r\nhello\r\n".to_vec()), Step::Idle(pause)]);
    }
    script.push(Step::Write(b"0\r\n\r\n".to_vec()));
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_outlives_the_default_deadline() {
    let vendor = FaultServer::start(vec![script_of_three_pieces(Duration::from_millis(250))]).await;
    let (_vendor, serving) = gateway_before_vendor(vendor, Duration::from_millis(500)).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = serving.base_url("acme", "shop") + "/events";
    let ask = || sdk.get(&url).bearer_auth(TOKEN);
    assert_eq!(ask().send().await.unwrap().text().await.unwrap(), "hellohellohello");
    let cut = ask().header("integration-deadline", "400ms").send().await.unwrap().text().await;
    assert!(cut.is_err(), "{cut:?}");
}

/// The time for an attempt ends with the head of the response.
#[tokio::test(flavor = "multi_thread")]
async fn stated_deadline_is_for_the_whole_stream() {
    let vendor = FaultServer::start(vec![script_of_three_pieces(Duration::from_millis(250))]).await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n\
         attempt_timeout = \"300ms\"\n",
        vendor.url()
    );
    let serving = serve_gateway(entry + &callers("billing")).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = serving.base_url("acme", "shop") + "/events";
    let ask = |deadline: &str| sdk.get(&url).bearer_auth(TOKEN).header("integration-deadline", deadline).send();
    assert_eq!(ask("5s").await.unwrap().text().await.unwrap(), "hellohellohello");
    let cut = ask("400ms").await.unwrap().text().await;
    assert!(cut.is_err(), "{cut:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_that_stalls_ends_after_the_deadline() {
    let vendor = FaultServer::start(vec![script_of_three_pieces(30 * SECOND)]).await;
    let (_vendor, serving) = gateway_before_vendor(vendor, Duration::from_millis(300)).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = sdk.get(serving.base_url("acme", "shop") + "/events").bearer_auth(TOKEN).send();
    let cut = tokio::time::timeout(10 * SECOND, sent.await.unwrap().text()).await.unwrap();
    assert!(cut.is_err(), "{cut:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn post_with_broken_answer_is_not_resent() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    let vendor = FaultServer::start(vec![vec![
        Step::Read,
        Step::Write(answer),
        Step::Idle(Duration::from_millis(200)),
        Step::Reset,
    ]])
    .await;
    let (vendor, serving) = gateway_before_vendor(vendor, Duration::from_secs(55)).await;
    let order = post("/acme/shop/orders", "", "{\"n\":1}");
    let first = send_raw(&serving, &order).await;
    assert_eq!((first.status, &*first.body), (200, "half"));
    let again = send_raw(&serving, &order).await;
    assert!(again.status == 422 && again.body.contains("its answer broke off"), "{} {}", again.head, again.body);
    assert_eq!(vendor.requests().len(), 1);
}

/// The dialect has the body read before the caller gets the head, so that the gateway knows of the break by then.
#[tokio::test(flavor = "multi_thread")]
async fn answer_broken_while_read_ahead_stays_broken() {
    let dialect = "[vendors.shop.dialect]\nanswers = [{ status = [200], from = \"body#/error\", is = [\"busy\"], \
                   throttled = true }]\n";
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    for (framing, part) in [
        ("content-length: 100", "\"htt"),
        ("content-length: 100", ""),
        ("transfer-encoding: chunked", "4\r\n\"htt\r\n"),
        ("transfer-encoding: chunked", ""),
    ] {
        for rewrite in ["", "rewrite = \"json\"\n"] {
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n{part}");
            let vendor = FaultServer::answering(vec![
                Step::Write(answer.into_bytes()),
                Step::Idle(Duration::from_millis(100)),
                Step::Reset,
            ])
            .await;
            let entry = format!(
                "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n{dialect}",
                vendor.url()
            );
            let serving = serve_gateway(entry + &callers("billing") + rewrite).await;
            let url = serving.base_url("acme", "shop") + "/orders";
            let ask = || sdk.post(&url).bearer_auth(TOKEN).body("{}").send();
            let first = async { ask().await?.text().await };
            let first = tokio::time::timeout(10 * SECOND, first).await.unwrap();
            assert!(first.is_err(), "{framing} {part:?} {rewrite}: {first:?}");
            let again = ask().await.unwrap();
            let is_repeated = again.headers().contains_key("integration-repeated");
            let (status, body) = (again.status().as_u16(), again.text().await.unwrap());
            assert_eq!((status, is_repeated), (422, true), "{framing} {part:?} {rewrite}: {body}");
            assert!(body.contains("its answer broke off"), "{framing} {part:?} {rewrite}: {body}");
            assert_eq!(vendor.requests().len(), 1, "{framing} {part:?} {rewrite}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_have_none() {
    for (answer, method, status, length) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n", "HEAD", 200, Some("1234")),
        ("HTTP/1.1 204 No Content\r\n\r\n", "DELETE", 204, None),
        ("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n", "GET", 304, None),
        // The length is that of a body which does not come, so it may be above `max_response_bytes`.
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 9000000\r\n\r\n", "GET", 304, None),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "GET", 200, Some("0")),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "GET", 200, Some("2")),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            "GET",
            200,
            None,
        ),
    ] {
        let (_vendor, serving) = gateway_before_answer(answer).await;
        let asked = get("/acme/shop/x", TOKEN).replacen("GET", method, 1);
        let got = send_raw(&serving, &asked).await;
        assert_eq!(got.status, status, "{answer} {}", got.head);
        let stated = got.head.lines().find_map(|line| line.strip_prefix("content-length: "));
        assert_eq!(stated, length, "{method} {answer}\n{}", got.head);
        let expected = if answer.contains("ok") { "ok" } else { "" };
        assert!(got.body.contains(expected) && got.body.is_empty() == expected.is_empty(), "{answer} {}", got.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_answer_is_plain_at_the_caller() {
    use std::io::Write as _;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(b"hello hello hello").unwrap();
    let packed = packed.finish().unwrap();
    let mut answer =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len()).into_bytes();
    answer.extend(packed);
    let vendor = FaultServer::answering(vec![Step::Write(answer)]).await;
    let (_vendor, serving) = gateway_before_vendor(vendor, 55 * SECOND).await;
    let got =
        send_raw(&serving, &get("/acme/shop/x", TOKEN).replace("connection", "accept-encoding: gzip\r\nconnection"))
            .await;
    assert!(
        got.body.contains("hello hello hello") && !got.head.contains("content-encoding"),
        "{} {}",
        got.head,
        got.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_of_the_vendor_reaches_the_caller() {
    let (vendor, serving) =
        gateway_before_answer("HTTP/1.1 429 Too Many Requests\r\nretry-after: 7200\r\ncontent-length: 4\r\n\r\nslow")
            .await;
    let ask = get("/acme/shop/x", TOKEN).replace("connection", "integration-deadline: 2s\r\nconnection");
    // The first response pauses the lane. The second one is the gateway's own, and states the rest of the wait.
    for delivery in ["rejected", "not_sent"] {
        let got = send_raw(&serving, &ask).await;
        assert_eq!(got.status, 429, "{} {}", got.head, got.body);
        assert!(got.head.contains(&format!("integration-delivery: {delivery}")), "{}", got.head);
        let wait = got.head.lines().find_map(|line| line.strip_prefix("retry-after: "));
        assert!(wait.is_some_and(|wait| wait.parse().is_ok_and(|wait: u32| (7100..=7300).contains(&wait))), "{wait:?}");
    }
    assert_eq!(vendor.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_tier_is_capped() {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(10, SECOND)).start().await.unwrap();
    let serving =
        serve_gateway(vendor.vendors_toml("shop") + &callers("billing").replace("\"normal\"", "\"low\"")).await;
    let sdk = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = serving.base_url("acme", "shop");
    let mut all = JoinSet::new();
    for n in 0..40_usize {
        let tier = ["high", "low"][n % 2];
        let sent = sdk.get(format!("{url}/{tier}")).bearer_auth(TOKEN).header("integration-priority", tier).send();
        all.spawn(async move { sent.await.unwrap().status().as_u16() });
    }
    assert!(all.join_all().await.iter().all(|status| *status == 200));
    // All requests wait in one tier, in the order of their arrival, so neither kind is ahead of the other.
    let late = vendor.arrivals()[20..].iter().filter(|arrival| &*arrival.path == "/high").count();
    assert!((6..=14).contains(&late), "{late} of the last 20 asked for the high tier");
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_without_end_ends_with_its_deadline() {
    let (vendor, serving) = gateway_before_answer("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let mut stream = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let head = format!(
        "POST /acme/shop/x HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {TOKEN}\r\nintegration-deadline: 500ms\r\n\
         connection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let clock = integration_client::clock::Clock::system();
    let began = clock.now();
    let (mut reader, mut writer) = stream.into_split();
    let endless = async {
        while writer.write_all(b"5\r\nhello\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let mut answer = Vec::new();
    // Ends when the gateway closes the connection. The close may reset it, and the answer is then lost.
    let closed = async {
        tokio::select! {
            () = endless => {}
            _ = reader.read_to_end(&mut answer) => {}
        }
    };
    let is_closed = tokio::time::timeout(10 * SECOND, closed).await.is_ok();
    assert!(is_closed, "the upload goes on long after its deadline of 500 ms");
    let took = clock.now().since(began);
    assert!(took >= Duration::from_millis(300), "it ended after {took:?}, long before its deadline");
    let answer = String::from_utf8_lossy(&answer);
    // The vendor has got a part of the POST, so nobody knows whether it acted.
    assert!(answer.starts_with("HTTP/1.1 422") || answer.is_empty(), "{answer}");
    assert!(vendor.requests().is_empty(), "the vendor never had a whole request");
}

const WORKS: u8 = 0;
const FAILS: u8 = 1;
const HANGS: u8 = 2;

/// A vault that is away locks no caller out whose token was read before. A caller that the configuration no longer
/// states, or states with another reference, loses its access, whether the vault is away or not.
#[tokio::test(flavor = "multi_thread")]
async fn caller_keeps_access_while_its_resolver_fails() {
    const OTHER: &str = "reports-token-of-32-characters-00";
    let vendor = start_shop_vendor().await;
    let state = Arc::new(AtomicU8::new(WORKS));
    let vault = state.clone();
    let resolver = move |key: String| {
        let vault = vault.clone();
        async move {
            match (&*key, vault.load(Relaxed)) {
                ("billing", HANGS) => std::future::pending::<Result<SecretString, BoxError>>().await,
                ("billing", FAILS) | ("renewed", _) => Err(BoxError::from("the vault is away")),
                ("billing", _) => Ok(SecretString::from(TOKEN)),
                ("reports", _) => Ok(SecretString::from(OTHER)),
                _ => Ok(SecretString::from("the-vendors-secret")),
            }
        }
    };
    let file = crate::support::folder("callers").join("vendors.toml");
    let billing = callers("billing");
    let reports = callers("reports").replace("kept:billing", "kept:reports");
    let write = |callers: &[&str]| std::fs::write(&file, vendor.vendors_toml("shop") + &callers.concat()).unwrap();
    write(&[&*billing, &*reports]);
    let builder = IntegrationClient::builder().without_catalogue().without_watching().vendors_file(&file);
    let builder = builder.credential_resolver("kept", resolver);
    let builder = builder.tenant(TenantEntry::new("acme", "shop").credential("kept:vendor"));
    let client = builder.build().await.unwrap();
    let serving = Gateway::builder(client.clone()).build().serve(Listen::loopback()).await.unwrap();
    let ask = async |token: &str| send_raw(&serving, &get("/acme/shop/x", token)).await.status;
    // A token that is not known is answered after all tokens have been read again.
    let read_again = async || assert_eq!(ask("wrong-token-of-32-characters-0000").await, 401);
    assert_eq!((ask(TOKEN).await, ask(OTHER).await), (200, 200));

    let clock = integration_client::clock::Clock::system();
    for troubled in [FAILS, HANGS] {
        state.store(troubled, Relaxed);
        client.config().reload().await.unwrap();
        let began = clock.now();
        assert_eq!((ask(TOKEN).await, ask(OTHER).await), (200, 200), "while tokens are read: {troubled}");
        assert!(clock.now().since(began) < 4 * SECOND, "a caller waited for the resolver");
        read_again().await;
        assert!(clock.now().since(began) < 15 * SECOND, "the resolver has no time limit");
        assert_eq!((ask(TOKEN).await, ask(OTHER).await), (200, 200), "after tokens were read: {troubled}");
    }

    let renewed = billing.replace("kept:billing", "kept:renewed");
    for (stated, expected) in
        [(vec![&*renewed, &*reports], (401, 200)), (vec![&*billing], (401, 401)), (vec![&*reports], (401, 200))]
    {
        // Also while the vault hangs: what was read for a reference that is gone is forgotten with it.
        write(&stated);
        client.config().reload().await.unwrap();
        assert_eq!((ask(TOKEN).await, ask(OTHER).await), expected, "{stated:?}");
    }
    state.store(WORKS, Relaxed);
    write(&[&*billing, &*reports]);
    client.config().reload().await.unwrap();
    assert_eq!((ask(TOKEN).await, ask(OTHER).await), (200, 200));
}
