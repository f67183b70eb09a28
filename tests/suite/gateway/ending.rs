//! A gateway that drains or ends, bodies that stream through it, and callers that leave in the middle.

use std::io::ErrorKind::WouldBlock;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::{Body, Frame};
use integration_client::BoxFuture;
use integration_client::transport::{Answer, AnswerBody, Exchange, Transport, TransportError};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;

/// Reads from a connection until what has come contains `wanted`.
pub(super) async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(wanted) {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "closed: {}", String::from_utf8_lossy(&bytes));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The configuration of a vendor at this address and of a caller, with more lines of TOML for the vendor's entry.
fn toml_of(listener: &TcpListener, more: &str) -> String {
    let entry = format!(
        "[vendors.shop]\nbase_url = \"http://{}\"\nauth = {{ scheme = \"bearer\" }}\n{more}",
        listener.local_addr().unwrap()
    );
    entry + &callers("billing")
}

/// A gateway before a vendor at this address, with more lines of TOML for the vendor's entry.
async fn gateway_before(listener: &TcpListener, more: &str) -> Serving {
    serve_gateway(toml_of(listener, more)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_gateway_is_alive_and_not_ready() {
    let vendor = start_shop_vendor().await;
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    assert_eq!(send_raw(&serving, &get("/~/readyz", TOKEN)).await.status, 200);
    serving.drain();
    let ready = send_raw(&serving, &get("/~/readyz", TOKEN)).await;
    assert!(ready.status == 503 && ready.body.contains("\"status\":\"draining\""), "{} {}", ready.head, ready.body);
    assert_eq!(send_raw(&serving, &get("/~/livez", TOKEN)).await.status, 200);
    assert_eq!(send_raw(&serving, &get("/acme/shop/x", TOKEN)).await.status, 200, "requests are still served");
}

#[tokio::test(flavor = "multi_thread")]
async fn post_at_the_vendor_ends_as_ambiguous() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limit = "[[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 4\n";
    let gateway = Gateway::builder(client(toml_of(&listener, limit)).await).build();
    let serving = gateway.serve(Listen::loopback()).await.unwrap();
    let order = post("/acme/shop/orders", "", "{\"n\":1}");
    let put = order.replacen("POST", "PUT", 1);
    let mut open = Vec::new();
    for (request, status) in [(&order, 422), (&put, 503)] {
        let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
        caller.write_all(request.as_bytes()).await.unwrap();
        let (mut at_vendor, _) = listener.accept().await.unwrap();
        read_until(&mut at_vendor, "{\"n\":1}").await;
        open.push((caller, at_vendor, status));
    }
    assert!(!serving.shutdown(Duration::ZERO).await, "the vendor has both requests");
    for (mut caller, _at_vendor, status) in open {
        let mut answer = String::new();
        caller.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains("the gateway ended while the vendor had the request"), "{answer}");
        assert!(answer.contains("integration-delivery: ambiguous"), "{answer}");
        // The PUT may be repeated, and the POST may not.
        assert_eq!(answer.contains("x-should-retry: false"), status == 422, "{answer}");
    }
    let later = gateway.serve(Listen::loopback()).await.unwrap();
    let again = send_raw(&later, &order).await;
    assert!(again.status == 422 && again.head.contains("integration-repeated: true"), "{} {}", again.head, again.body);
    let further = listener.into_std().unwrap().accept();
    assert!(further.is_err_and(|error| error.kind() == WouldBlock), "a request was sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_is_sent_after_100_continue() {
    let vendor = FaultServer::answering(vec![Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec(),
    )])
    .await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
        vendor.url()
    );
    let serving = serve_gateway(entry + &callers("billing")).await;
    let head = |token: &str| {
        format!(
            "POST /acme/shop/x HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {token}\r\nexpect: 100-continue\r\n\
             content-length: 5\r\nconnection: close\r\n\r\n"
        )
    };
    let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    caller.write_all(head(TOKEN).as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut caller, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    caller.write_all(b"hello").await.unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    // The gateway asks for no body that it does not pass on.
    let refused = send_raw(&serving, &head("wrong-token-of-32-characters-0000")).await;
    assert_eq!(refused.status, 401, "{}", refused.head);
    let requests = vendor.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body, b"hello");
    assert!(!requests[0].head.to_lowercase().contains("expect"), "{}", requests[0].head);
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_reaches_the_vendor_piece_by_piece() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serving = gateway_before(&listener, "unpublished = true\n").await;
    let (has_come, first_came) = oneshot::channel();
    let mut vendor = JoinSet::new();
    vendor.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = read_until(&mut stream, "first").await;
        has_come.send(()).unwrap();
        seen += &read_until(&mut stream, "0\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await.unwrap();
        seen
    });
    let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    let head = format!(
        "POST /acme/shop/x HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {TOKEN}\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    );
    caller.write_all(head.as_bytes()).await.unwrap();
    // The rest is sent once the vendor has the first piece, so a gateway that kept the body would wait for ever.
    tokio::time::timeout(10 * SECOND, first_came).await.expect("the first piece stays in the gateway").unwrap();
    caller.write_all(b"6\r\nsecond\r\n0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    assert!(vendor.join_next().await.unwrap().unwrap().contains("second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_that_leaves_in_the_body_frees_its_slot() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let serving = gateway_before(&listener, "[[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 1\n").await;
    let closed = Arc::new(AtomicUsize::new(0));
    let seen = closed.clone();
    let mut vendor = JoinSet::new();
    vendor.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = seen.clone();
            // A body without an end.
            connections.spawn(async move {
                read_until(&mut stream, "\r\n\r\n").await;
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                let mut going = stream.write_all(head).await;
                while going.is_ok() {
                    going = stream.write_all(b"5\r\nhello\r\n").await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                seen.fetch_add(1, Relaxed);
            });
        }
    });
    for left in 1..=3 {
        let mut reader = TcpStream::connect(serving.address().unwrap()).await.unwrap();
        reader.write_all(get("/acme/shop/stream", TOKEN).as_bytes()).await.unwrap();
        let seen = tokio::time::timeout(10 * SECOND, read_until(&mut reader, "hello")).await;
        assert!(seen.expect("the slot of the reader before is not free").starts_with("HTTP/1.1 200"));
        drop(reader);
        while closed.load(Relaxed) < left {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An SDK whose time for reading is over closes its connection, and sends the request again.
#[tokio::test(flavor = "multi_thread")]
async fn post_left_in_its_answer_is_not_repeated() {
    for (head, is_refused) in [
        ("200 OK\r\ncontent-length: 10\r\n\r\nhello", true),
        ("201 Created\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", true),
        ("200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\ncontent-length: 10\r\n\r\nhello", false),
        ("200 OK\r\ncontent-type: application/x-ndjson\r\ncontent-length: 10\r\n\r\nhello", false),
        ("400 Bad Request\r\ncontent-length: 10\r\n\r\nhello", false),
    ] {
        let answer = format!("HTTP/1.1 {head}").into_bytes();
        let vendor = FaultServer::answering(vec![Step::Write(answer), Step::Stall]).await;
        let entry = format!(
            "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\n\
             [[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 1\n",
            vendor.url()
        );
        let serving = serve_gateway(entry + &callers("billing")).await;
        let order = post("/acme/shop/orders", "integration-max-wait: 0\r\n", "{}");
        let ask = async |until: &str| {
            let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
            caller.write_all(order.as_bytes()).await.unwrap();
            read_until(&mut caller, until).await
        };
        let first = ask("hello").await;
        assert!(first.starts_with(&format!("HTTP/1.1 {}", &head[..3])), "{first}");
        // The slot is taken until the gateway has seen that the first caller is gone.
        let again = loop {
            let again = ask("\r\n\r\n").await;
            if !again.starts_with("HTTP/1.1 429") {
                break again;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!(again.contains("integration-repeated: true"), is_refused, "{head}: {again}");
        if is_refused {
            let refused = send_raw(&serving, &order).await;
            assert!(refused.body.contains("its caller went away before"), "{} {}", refused.head, refused.body);
        }
        assert_eq!(vendor.requests().len(), if is_refused { 1 } else { 2 }, "{head}");
    }
}

/// The vendor's last data and the end of its answer come in two packets, and the caller leaves between them, as one does
/// that reads a single JSON value.
#[tokio::test(flavor = "multi_thread")]
async fn answer_left_before_bare_end_is_forgotten() {
    for (rest, is_refused) in [("0\r\n\r\n", false), ("5\r\nworld\r\n0\r\n\r\n", true)] {
        let first = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n".to_vec();
        let rest = Step::Write(rest.as_bytes().to_vec());
        let answer = vec![Step::Read, Step::Write(first), Step::Idle(Duration::from_millis(500)), rest];
        let vendor = FaultServer::start(vec![vec![Step::Loop(answer)]]).await;
        let entry = format!(
            "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\n\
             [[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 1\n",
            vendor.url()
        );
        let serving = serve_gateway(entry + &callers("billing")).await;
        let order = post("/acme/shop/orders", "integration-max-wait: 0\r\n", "{}");
        let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
        caller.write_all(order.as_bytes()).await.unwrap();
        assert!(read_until(&mut caller, "hello").await.starts_with("HTTP/1.1 200"));
        drop(caller);
        // The slot is taken until the gateway has seen that the caller is gone. Two seconds of refusals are more than the
        // gateway waits for the end.
        let mut refused = 0;
        let last = loop {
            let again = send_raw(&serving, &order).await;
            match again.status {
                429 => {}
                422 if refused < 100 => refused += 1,
                status => break status,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(refused > 0, "the request is not remembered before its answer has ended");
        let (expected, sent) = if is_refused { (422, 1) } else { (200, 2) };
        assert_eq!((last, vendor.requests().len()), (expected, sent));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn post_read_to_its_end_may_be_repeated() {
    let json = "content-type: application/json\r\n";
    for (head, pieces, rewrite) in [
        ("content-length: 10\r\n", ["\"hell", "orld\""], ""),
        ("transfer-encoding: chunked\r\n", ["5\r\nhello\r\n", "5\r\nworld\r\n0\r\n\r\n"], ""),
        (&*format!("content-length: 10\r\n{json}"), ["\"hell", "orld\""], "rewrite = \"json\"\n"),
    ] {
        let first = format!("HTTP/1.1 200 OK\r\n{head}\r\n{}", pieces[0]).into_bytes();
        let rest = Step::Write(pieces[1].as_bytes().to_vec());
        let answer = vec![Step::Read, Step::Write(first), Step::Idle(Duration::from_millis(100)), rest];
        let vendor = FaultServer::start(vec![vec![Step::Loop(answer)]]).await;
        let entry = format!(
            "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
            vendor.url()
        );
        let serving = serve_gateway(entry + &callers("billing") + rewrite).await;
        for _ in 0..2 {
            let got = send_raw(&serving, &post("/acme/shop/orders", "", "{}")).await;
            assert!(got.status == 200 && got.body.contains("orld"), "{head}: {} {}", got.head, got.body);
        }
        assert_eq!(vendor.requests().len(), 2, "{head}");
    }
}

/// A transport whose responses state the length of their bodies. The bodies themselves state none, and their ends never
/// come.
struct MeasuredTransport;

impl Transport for MeasuredTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        Box::pin(async move {
            let pieces = Pieces(vec!["lo", "hel"]);
            let body = AnswerBody::new(pieces, exchange.vendor.max_response_bytes, exchange.deadline);
            let length = HeaderValue::from_static("5");
            Ok(Answer::new(StatusCode::OK, HeaderMap::from_iter([(CONTENT_LENGTH, length)]), body))
        })
    }
}

/// Pieces of a body, the last one first.
struct Pieces(Vec<&'static str>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match self.0.pop() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))),
            None => Poll::Pending,
        }
    }
}

/// The caller's connection stays open, and hyper asks for no more than the stated length.
#[tokio::test(flavor = "multi_thread")]
async fn measured_answer_is_taken_at_its_length() {
    let toml = "[vendors.shop]\nbase_url = \"https://shop.example\"\nauth = { scheme = \"none\" }\n\
                [[vendors.shop.limits]]\nname = \"at_once\"\nconcurrency = 1\n";
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(toml.to_owned() + &callers("billing"));
    let builder = builder.credential_resolver("kept", |_: String| async { Ok(SecretString::from(TOKEN)) });
    let client = builder.transport(MeasuredTransport).tenant(TenantEntry::new("acme", "shop")).build().await.unwrap();
    let serving = Gateway::builder(client).build().serve(Listen::loopback()).await.unwrap();
    let order = post("/acme/shop/orders", "", "{}").replace("connection: close\r\n", "");
    let mut caller = TcpStream::connect(serving.address().unwrap()).await.unwrap();
    for _ in 0..2 {
        caller.write_all(order.as_bytes()).await.unwrap();
        let answered = tokio::time::timeout(10 * SECOND, read_until(&mut caller, "hello")).await;
        let answered = answered.expect("the answer before counts as left, or keeps its slot");
        assert!(answered.starts_with("HTTP/1.1 200") && answered.contains("content-length: 5"), "{answered}");
        let other = send_raw(&serving, &post("/acme/shop/orders", "", "{}")).await;
        assert_eq!((other.status, &*other.body), (200, "hello"), "{}", other.head);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forward_proxy_asks_for_credentials() {
    let vendor = start_shop_vendor().await;
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    let proxied =
        |more: &str| format!("GET {}/orders HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n", vendor.url());
    let wrong =
        format!("proxy-authorization: Basic {}\r\n", basic_credentials("acme", "wrong-token-of-32-characters-0000"));
    for more in ["", &*wrong] {
        let got = send_raw(&serving, &proxied(more)).await;
        assert_eq!(got.status, 407, "{} {}", got.head, got.body);
        assert!(got.head.contains("proxy-authenticate: basic realm="), "{}", got.head);
    }
    let right = format!("proxy-authorization: Basic {}\r\n", basic_credentials("acme", TOKEN));
    assert_eq!(send_raw(&serving, &proxied(&right)).await.status, 200);
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_patch_is_not_repeated_and_put_is() {
    let vendor = FakeVendor::builder().fault(When::path("/break"), Fault::Reset);
    let vendor = vendor.fault(When::path("/breaks-once").first(1), Fault::Reset).start().await.unwrap();
    let serving = serve_gateway(vendor.vendors_toml("shop") + &callers("billing")).await;
    // Nor is any other method that is not known to be harmless; `patch` is none that HTTP names.
    for (sent, method) in (1..).zip(["PATCH", "patch", "MERGE", "COPY"]) {
        let request = post("/acme/shop/break", "", "{}").replacen("POST", method, 1);
        for repeated in [false, true] {
            let got = send_raw(&serving, &request).await;
            let is_repeated = got.head.contains("integration-repeated: true");
            assert_eq!((got.status, is_repeated), (422, repeated), "{method}: {} {}", got.head, got.body);
            assert!(got.head.contains("x-should-retry: false"), "{method}: {}", got.head);
        }
        assert_eq!(vendor.arrivals().len(), sent, "{method}");
    }
    // A PUT may be repeated, so the client does.
    let put = post("/acme/shop/breaks-once", "", "{}").replacen("POST", "PUT", 1);
    let got = send_raw(&serving, &put).await;
    assert_eq!(got.status, 200, "{} {}", got.head, got.body);
    assert_eq!(vendor.arrivals().len(), 6);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn ending_gateway_leaves_its_successors_socket() {
    let vendor = FakeVendor::builder().fault(When::path("/stall"), Fault::Stall).start().await.unwrap();
    let path = std::env::temp_dir().join(format!("ic-gateway-next-{}.sock", std::process::id()));
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).without_tokens().build();
    let ask = |path: &str| format!("GET /acme/shop{path} HTTP/1.1\r\nhost: any\r\nconnection: close\r\n\r\n");
    let first = gateway.serve(Listen::unix(&path)).await.unwrap();
    let mut waiting = tokio::net::UnixStream::connect(&path).await.unwrap();
    waiting.write_all(ask("/stall").as_bytes()).await.unwrap();
    while vendor.arrivals().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut ending = JoinSet::new();
    ending.spawn(first.shutdown(60 * SECOND));
    // The file goes with the listener, although a request goes on.
    while path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = gateway.serve(Listen::unix(&path)).await.unwrap();
    drop(waiting);
    let ended = tokio::time::timeout(20 * SECOND, ending.join_next()).await.unwrap();
    assert!(ended.unwrap().unwrap(), "its last request has ended");
    let mut caller = tokio::net::UnixStream::connect(&path).await.unwrap();
    caller.write_all(ask("/x").as_bytes()).await.unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(next.shutdown(SECOND).await);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn second_listener_leaves_the_first_token_valid() {
    let vendor = start_shop_vendor().await;
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).build();
    let first = gateway.serve(Listen::loopback()).await.unwrap();
    let second = gateway.serve(Listen::loopback()).await.unwrap();
    for serving in [&first, &second] {
        let token = serving.token().unwrap().to_owned();
        assert_eq!(send_raw(serving, &get("/acme/shop/x", &token)).await.status, 200);
        assert_eq!(send_raw(serving, &get("/acme/shop/x", TOKEN)).await.status, 401);
    }
}
