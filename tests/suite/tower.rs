//! The client as a service, and as a layer around another service, in virtual time.
#![allow(clippy::unwrap_used, reason = "a request that cannot be made fails the test")]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use ::tower::{Layer, Service};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use integration_client::config::TenantEntry;
use integration_client::testing::{FakeAnswer, FakeTransport, literal};
use integration_client::tower::LaneService;
use integration_client::{
    BoxError, BoxFuture, Error, ErrorKind, IntegrationClient, OnRemove, Priority, ResponseInfo, SendOptions,
};
use tokio::time::Instant;

const VENDOR: &str = r#"
    [vendors.v]
    extends = "none"
    base_url = "https://v.example/v1"
    auth = { scheme = "bearer" }
    retry = { max_retries = 2 }

    [[vendors.v.limits]]
    name = "requests"
    algorithm = "sliding_window"
    limit = 5
    window = "1s"
    safety = 1.0

    [[vendors.v.limits]]
    name = "slots"
    concurrency = 2
"#;

async fn client(transport: &FakeTransport) -> IntegrationClient {
    client_of(VENDOR, transport).await
}

async fn client_of(vendor: &str, transport: &FakeTransport) -> IntegrationClient {
    IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(vendor)
        .credential_resolver("literal", literal)
        .transport(transport.clone())
        .tenant(TenantEntry::new("acme", "v").credential("literal:s3cr3t"))
        .build()
        .await
        .unwrap()
}

#[expect(clippy::disallowed_methods, reason = "tests measure")]
fn now() -> Instant {
    Instant::now()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn get(uri: &str) -> http::Request<Empty<Bytes>> {
    let request = http::Request::get(uri).header("authorization", "Bearer the SDK's").header("host", "v.example");
    request.body(Empty::new()).unwrap()
}

async fn call<B>(service: &mut LaneService, request: http::Request<B>) -> Result<http::Response<Bytes>, Error>
where
    LaneService: Service<http::Request<B>, Response = http::Response<integration_client::ResponseBody>, Error = Error>,
{
    let (parts, body) = service.call(request).await?.into_parts();
    Ok(http::Response::from_parts(parts, body.collect().await.unwrap().to_bytes()))
}

#[tokio::test(start_paused = true)]
async fn service_paces_and_adds_the_credential() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).header("x-id", "7").body("done"));
    let client = client(&transport).await;
    let mut service = client.lane("acme", "v").unwrap().service();
    let began = now();
    for (n, uri) in ["/a", "https://v.example/v1/b?c=d", "/e", "/f", "/g", "/h", "/i"].into_iter().enumerate() {
        let response = call(&mut service, get(uri)).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.body()[..], response.headers()["x-id"].to_str().unwrap()),
            (200, &b"done"[..], "7")
        );
        let info = response.extensions().get::<ResponseInfo>().unwrap();
        assert_eq!(info.attempts, 1, "{n}");
        assert!(info.request_id > 0 && info.headroom.is_some());
    }
    // Five of the seven requests are sent in the first second.
    assert!((ms(400)..ms(1_500)).contains(&began.elapsed()), "{:?}", began.elapsed());
    let calls = transport.calls();
    assert_eq!(
        calls.iter().map(|call| &*call.url).take(2).collect::<Vec<_>>(),
        ["https://v.example/v1/a", "https://v.example/v1/b?c=d"]
    );
    for call in calls {
        assert_eq!((call.header("authorization"), call.header("host")), (Some("Bearer s3cr3t"), None));
    }
}

#[tokio::test(start_paused = true)]
async fn service_tries_again_what_it_kept() {
    let transport = FakeTransport::new(|call| match call.number {
        0 => FakeAnswer::status(429).header("retry-after", "2"),
        _ => FakeAnswer::status(201),
    });
    let client = client(&transport).await;
    let mut service = client.lane("acme", "v").unwrap().service();
    let request = http::Request::post("/pay").body(Full::<Bytes>::from("order")).unwrap();
    let response = call(&mut service, request).await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(response.extensions().get::<ResponseInfo>().unwrap().attempts, 2);
    let bodies: Vec<Bytes> = transport.calls().into_iter().map(|call| call.body).collect();
    assert_eq!(bodies, ["order", "order"]);

    // A body that is too long to be kept is sent once, so the vendor's refusal is the response.
    transport.reset_calls();
    let request = http::Request::post("/pay").body(Full::<Bytes>::from("order")).unwrap();
    let mut service = service.buffer_up_to(4);
    assert_eq!(call(&mut service, request).await.unwrap().status(), 429);
    assert_eq!(transport.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn service_reads_options_and_describes_errors() {
    let transport = FakeTransport::new(|_| FakeAnswer::status(200).delay(ms(300)));
    let client = client(&transport).await;
    let service = client.lane("acme", "v").unwrap().service();
    let mut service = service.options(SendOptions::new().priority(Priority::High).deadline(ms(100)));
    // The service sets the default deadline, and an extension overrides it.
    let error = call(&mut service, get("/a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let mut request = get("/a");
    request.extensions_mut().insert(SendOptions::new().deadline(ms(500)));
    assert_eq!(call(&mut service, request).await.unwrap().status(), 200);

    for (uri, header) in [("https://evil.example/v1/a", "low"), ("/a", "urgent")] {
        let mut request = get(uri);
        request.headers_mut().insert("integration-priority", header.parse().unwrap());
        let error = call(&mut service, request).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    }
    assert!(transport.calls().iter().all(|call| call.header("integration-priority").is_none()));
    client.tenants().remove("acme", "v", OnRemove::Refuse).unwrap();
    assert_eq!(call(&mut service, get("/a")).await.unwrap_err().kind(), ErrorKind::UnknownTenant);
}

/// An SDK's own transport, which refuses the second request.
#[derive(Clone, Default)]
struct Own {
    calls: Arc<AtomicUsize>,
}

impl<B: Send + 'static> Service<http::Request<B>> for Own {
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let number = self.calls.fetch_add(1, SeqCst);
        assert_eq!(request.headers()["authorization"], "AWS4-HMAC-SHA256 …");
        assert!(!request.headers().contains_key("integration-priority"));
        Box::pin(async move {
            let mut response = http::Response::new(Full::from("x"));
            if number == 1 {
                *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                response.headers_mut().insert("retry-after", "3".parse().unwrap());
            }
            Ok(response)
        })
    }
}

fn signed() -> http::Request<()> {
    let request = http::Request::get("https://bucket.v.example/key").header("integration-priority", "high");
    let value = http::HeaderValue::from_bytes("AWS4-HMAC-SHA256 …".as_bytes()).unwrap();
    request.header("authorization", value).body(()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn layer_paces_what_another_transport_sends() {
    let client = client(&FakeTransport::new(|_| FakeAnswer::status(500))).await;
    let own = Own::default();
    let mut paced = client.layer("acme", "v").unwrap().layer(own.clone());
    let began = now();
    let response = paced.call(signed()).await.unwrap();
    assert_eq!((began.elapsed(), client.in_flight()), (Duration::ZERO, 1));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "x");
    assert_eq!(client.in_flight(), 0);
    // The refused request is not retried, and the lane waits as long as the vendor says.
    let refused = paced.call(signed()).await.unwrap();
    assert_eq!(refused.status(), 429);
    drop(refused);
    assert!(client.tenants().paused_for("acme", "v").unwrap().is_some_and(|wait| wait >= ms(2_900)));
    assert_eq!(paced.call(signed()).await.unwrap().status(), 200);
    assert!(began.elapsed() >= ms(3_000));
    assert_eq!((own.calls.load(SeqCst), client.in_flight()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn layer_keeps_slot_until_body_ends() {
    let client = client(&FakeTransport::new(|_| FakeAnswer::status(500))).await;
    let layer = client.layer("acme", "v").unwrap().options(SendOptions::new().max_wait(Duration::ZERO));
    let own = Own { calls: Arc::new(AtomicUsize::new(10)) };
    let mut paced = layer.layer(own.clone());
    let first = paced.call(signed()).await.unwrap();
    let _second = paced.call(signed()).await.unwrap();
    let full: BoxError = paced.call(signed()).await.unwrap_err();
    assert_eq!(full.downcast_ref::<Error>().unwrap().kind(), ErrorKind::NotNow);
    drop(first);
    assert_eq!(paced.call(signed()).await.unwrap().status(), 200);
    assert_eq!(own.calls.load(SeqCst), 13);
    let mut bad = signed();
    bad.headers_mut().insert("integration-priority", "urgent".parse().unwrap());
    let error = paced.call(bad).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::InvalidRequest);
}

/// A service that takes longer for its headers than the vendor's `attempt_timeout`.
#[derive(Clone)]
struct Slow;

impl Service<http::Request<()>> for Slow {
    type Response = http::Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        Box::pin(async {
            tokio::time::sleep(ms(60_000)).await;
            Ok(http::Response::new(Full::from("x")))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn layer_keeps_slot_of_a_slow_exchange() {
    let client = client(&FakeTransport::new(|_| FakeAnswer::status(500))).await;
    let layer = client.layer("acme", "v").unwrap().options(SendOptions::new().max_wait(Duration::ZERO));
    let (mut first, mut second, mut third) = (layer.layer(Slow), layer.layer(Slow), layer.layer(Slow));
    let late = async {
        tokio::time::sleep(ms(50_000)).await;
        third.call(signed()).await
    };
    let (first, second, third) = tokio::join!(first.call(signed()), second.call(signed()), late);
    let full: BoxError = third.unwrap_err();
    assert_eq!(full.downcast_ref::<Error>().unwrap().kind(), ErrorKind::NotNow, "there are two slots");
    let first = first.unwrap();
    assert_eq!((first.status().as_u16(), client.in_flight()), (200, 2));
    drop((first, second));
    assert_eq!(client.in_flight(), 0);
}

/// A service that states its status in trailers, as gRPC does.
#[derive(Clone)]
struct WithTrailers;

impl Service<http::Request<()>> for WithTrailers {
    type Response = http::Response<UnsyncBoxBody<Bytes, Infallible>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<()>) -> Self::Future {
        let trailers = async {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            Some(Ok(trailers))
        };
        std::future::ready(Ok(http::Response::new(Full::from("x").with_trailers(trailers).boxed_unsync())))
    }
}

#[tokio::test(start_paused = true)]
async fn trailers_pass_through_the_layer() {
    let client = client(&FakeTransport::new(|_| FakeAnswer::status(500))).await;
    let mut paced = client.layer("acme", "v").unwrap().layer(WithTrailers);
    let body = paced.call(signed()).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!((body.to_bytes(), client.in_flight()), (Bytes::from("x"), 0));
}

/// An SDK that cannot handle the client's error gets a response with the same content.
#[tokio::test(start_paused = true)]
async fn errors_become_answers_on_request() {
    let transport = FakeTransport::new(|call| match call.path() {
        "/v1/gone" => FakeAnswer::reset(),
        "/v1/bad" => FakeAnswer::status(500).header("x-vendor", "v").body("oh"),
        _ => FakeAnswer::status(200).body("fine"),
    });
    let client = client(&transport).await;
    let mut service = client.lane("acme", "v").unwrap().service().errors_as_responses();
    let mut call = async |request: http::Request<Full<Bytes>>| {
        let Ok(answer) = service.call(request).await;
        let (parts, body) = answer.into_parts();
        (parts, body.collect().await.unwrap().to_bytes())
    };
    let request =
        |method: &str, uri: &str| http::Request::builder().method(method).uri(uri).body(Full::from("")).unwrap();
    let (fine, body) = call(request("GET", "/x")).await;
    assert_eq!((fine.status.as_u16(), &body[..]), (200, &b"fine"[..]));
    assert!(fine.extensions.get::<ResponseInfo>().is_some());
    // After the last retry the vendor's own response is returned.
    let (bad, body) = call(request("GET", "/bad")).await;
    assert_eq!((bad.status.as_u16(), &body[..], bad.headers["x-vendor"].as_bytes()), (500, &b"oh"[..], &b"v"[..]));
    // It is unknown whether the vendor has acted.
    let (open, body) = call(request("POST", "/gone")).await;
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((open.status.as_u16(), &open.headers["integration-delivery"]), (422, &"ambiguous".parse().unwrap()));
    assert_eq!(problem["error"]["type"], "invalid_request_error");
    assert_eq!(open.headers["x-should-retry"], "false");
    // A request for another host is not sent.
    let (wrong, body) = call(request("GET", "https://evil.example/v1/x")).await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.headers["content-type"].as_bytes()),
        (400, &b"application/problem+json"[..])
    );
    assert!(String::from_utf8_lossy(&body).contains("not_sent"));
}

#[tokio::test(start_paused = true)]
async fn unknown_methods_are_not_repeatable() {
    let transport = FakeTransport::new(|_| FakeAnswer::reset());
    let client = client(&transport).await;
    let mut service = client.lane("acme", "v").unwrap().service().errors_as_responses();
    let methods = ["MERGE", "COPY", "patch"];
    for method in methods {
        let request = http::Request::builder().method(method).uri("/x").body(Full::<Bytes>::from("{}")).unwrap();
        let Ok(answer) = service.call(request).await;
        assert_eq!(answer.status(), 422, "{method}");
        assert_eq!(answer.headers()["x-should-retry"], "false", "{method}");
    }
    assert_eq!(transport.calls().len(), methods.len());
}

#[tokio::test(start_paused = true)]
async fn unread_key_makes_no_request_repeatable() {
    let transport = FakeTransport::new(|_| FakeAnswer::reset());
    let keys = "\n[vendors.v.idempotency]\nheader = \"idempotency-key\"\npaths = [\"/keyed\"]\n";
    let client = client_of(&format!("{VENDOR}{keys}"), &transport).await;
    let mut service = client.lane("acme", "v").unwrap().service().errors_as_responses();
    for (path, is_read) in [("/elsewhere", false), ("/keyed", true)] {
        transport.reset_calls();
        let request = http::Request::post(path).header("idempotency-key", "order-7");
        let Ok(answer) = service.call(request.body(Full::<Bytes>::from("{}")).unwrap()).await;
        assert_eq!(answer.status() != 422, is_read, "{path}");
        assert_eq!(answer.headers().contains_key("x-should-retry"), !is_read, "{path}");
        assert_eq!(transport.calls().len() > 1, is_read, "{path}: {:?}", transport.calls());
    }
}
