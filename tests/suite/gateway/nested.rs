//! A gateway inside another server, and several listeners of one gateway.

use std::convert::Infallible;

use ::tower::Service as _;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};

use super::*;

/// Calls the gateway as the server around it does, with the path that it leaves after its own prefix.
async fn call(gateway: &Gateway, request: Request<Full<Bytes>>) -> (http::response::Parts, String) {
    let answered: Result<_, Infallible> = gateway.clone().call(request).await;
    let (parts, body) = answered.unwrap().into_parts();
    (parts, String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes()).into_owned())
}

fn request(path: &str) -> http::request::Builder {
    Request::get(path).header("host", "internal.example").header("authorization", format!("Bearer {TOKEN}"))
}

async fn gateway_before_links(public_url: Option<&'static str>) -> (FaultServer, Gateway) {
    let vendor = FaultServer::answering(vec![Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nlink: </r?page=2>; rel=\"next\"\r\nconnection: close\r\n\r\nok"
            .to_vec(),
    )])
    .await;
    let entry = format!(
        "[vendors.shop]\nbase_url = \"{}\"\nauth = {{ scheme = \"bearer\" }}\nunpublished = true\n",
        vendor.url()
    );
    let builder = Gateway::builder(client(entry + &callers("billing")).await);
    let gateway = match public_url {
        Some(url) => builder.public_url(Uri::from_static(url)).build(),
        None => builder.build(),
    };
    (vendor, gateway)
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_gateway_answers_with_its_public_url() {
    for (public_url, expected) in [
        (None, "http://internal.example/acme/shop/r?page=2"),
        (Some("https://api.example/vendors/"), "https://api.example/vendors/acme/shop/r?page=2"),
        (Some("/vendors"), "http://internal.example/vendors/acme/shop/r?page=2"),
    ] {
        let (vendor, gateway) = gateway_before_links(public_url).await;
        let (parts, body) = call(&gateway, request("/acme/shop/r").body(Full::default()).unwrap()).await;
        assert_eq!((parts.status, &*body), (StatusCode::OK, "ok"));
        assert_eq!(parts.headers["link"], format!("<{expected}>; rel=\"next\""), "{public_url:?}");
        let (parts, _) = call(&gateway, Request::get("/acme/shop/r").body(Full::default()).unwrap()).await;
        assert_eq!(parts.status, StatusCode::UNAUTHORIZED);
        assert_eq!(vendor.requests().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_gateway_takes_http2_requests() {
    let (vendor, gateway) = gateway_before_links(None).await;
    let asked = Request::get("https://internal.example/acme/shop/r")
        .version(Version::HTTP_2)
        .header("authorization", format!("Bearer {TOKEN}"));
    let (parts, body) = call(&gateway, asked.body(Full::default()).unwrap()).await;
    assert_eq!((parts.status, &*body), (StatusCode::OK, "ok"));
    assert!(parts.headers["link"].to_str().unwrap().starts_with("<http://internal.example/acme/shop/r"), "{parts:?}");
    assert!(vendor.requests()[0].head.starts_with("GET /r HTTP/1.1"), "{}", vendor.requests()[0].head);
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_gateway_without_tokens_takes_loopback_alone() {
    let vendor = start_shop_vendor().await;
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop")).await).without_tokens().build();
    for (host, expected) in [("localhost:3000", StatusCode::OK), ("evil.example", StatusCode::FORBIDDEN)] {
        let asked = Request::get("/acme/shop/x").header("host", host).body(Full::default()).unwrap();
        assert_eq!(call(&gateway, asked).await.0.status, expected, "{host}");
    }
    assert_eq!(vendor.arrivals().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_of_one_listener_leaves_the_other() {
    let vendor = FakeVendor::builder().limit(VendorLimit::sliding_window(1, 600 * SECOND)).start().await.unwrap();
    let gateway = Gateway::builder(client(vendor.vendors_toml("shop") + &callers("billing")).await).build();
    let [first, second] = [Listen::loopback(), Listen::loopback()];
    let (first, second) = (gateway.serve(first).await.unwrap(), gateway.serve(second).await.unwrap());
    assert_eq!(send_raw(&first, &get("/acme/shop/1", TOKEN)).await.status, 200);
    let mut waiting = TcpStream::connect(first.address().unwrap()).await.unwrap();
    let waits = get("/acme/shop/2", TOKEN).replace("connection: close", "integration-deadline: 20m");
    waiting.write_all(waits.as_bytes()).await.unwrap();
    while vendor.arrivals().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!first.shutdown(Duration::from_millis(50)).await, "a request still waited");
    assert_eq!(send_raw(&second, &get("/~/readyz", TOKEN)).await.status, 200);
    let late = get("/acme/shop/3", TOKEN).replace("connection", "integration-max-wait: 0\r\nconnection");
    assert_eq!(send_raw(&second, &late).await.status, 429, "the limit refuses it, and not a shutdown");
    assert!(second.shutdown(SECOND).await);
    let third = gateway.serve(Listen::loopback()).await.unwrap();
    assert_eq!(send_raw(&third, &get("/~/readyz", TOKEN)).await.status, 200);
}

/// Without memory for it a body is streamed: its request is sent once and not recognised again.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_above_the_memory_are_streamed() {
    let vendor = FakeVendor::builder().fault(When::path("/break"), Fault::Reset).start().await.unwrap();
    let may_store = callers("billing").replace("priority =", "may = [\"send\", \"async\"]\npriority =");
    let client = client(vendor.vendors_toml("shop") + &may_store).await;
    let serving = Gateway::builder(client.clone()).body_memory(4).build().serve(Listen::loopback()).await.unwrap();
    let mut arrived = 0;
    for (body, is_kept) in [("{}", true), ("{\"n\":1}", false)] {
        for _ in 0..2 {
            let got = send_raw(&serving, &post("/acme/shop/break", "", body)).await;
            assert_eq!(got.status, 422, "{}", got.body);
        }
        arrived += if is_kept { 1 } else { 2 };
        assert_eq!(vendor.arrivals().len(), arrived, "{body}");
    }
    assert_eq!(send_raw(&serving, &post("/acme/shop/fine", "", "{\"n\":1}")).await.status, 200);
    let later = send_raw(&serving, &post("/acme/shop/fine", "integration-async: true\r\n", "{\"n\":1}")).await;
    assert!(later.status == 503 && later.head.contains("retry-after: 1"), "{} {}", later.head, later.body);
}
