//! Exchanges that last longer than the vendor's `attempt_timeout`, or longer than this side's part in them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::{Body, Frame};
use integration_client::BoxFuture;
use integration_client::transport::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError};
use tokio::time::Sleep;

use super::*;

/// A vendor that takes one request at a time, and states the tokens of a stream at its end.
const VENDOR: &str = r#"
[vendors.v]
base_url = "https://v.example"
auth = { scheme = "none" }
attempt_timeout = "30s"
retry = { max_retries = 0 }
costs = { output_tokens = 50 }

[[vendors.v.limits]]
name = "slots"
concurrency = 1

[[vendors.v.limits]]
name = "output_tokens"
limit = 2_000
window = "1h"
safety = 1.0
algorithm = "fixed_window"
unit = "output_tokens"

[vendors.v.dialect.costs]
output_tokens = ["body#/usage/output_tokens"]
"#;

/// The time between two events of a stream.
const PAUSE: Duration = Duration::from_secs(10);

/// Answers each request with a stream of six events, one every ten seconds.
struct StreamingVendor;

impl Transport for StreamingVendor {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        Box::pin(async move {
            let events = Events { sleep: Box::pin(tokio::time::sleep(PAUSE)), left: 6 };
            let body = AnswerBody::new(events, exchange.vendor.max_response_bytes, exchange.deadline);
            let media = HeaderValue::from_static("text/event-stream");
            Ok(Answer::new(StatusCode::OK, HeaderMap::from_iter([(http::header::CONTENT_TYPE, media)]), body))
        })
    }
}

struct Events {
    sleep: Pin<Box<Sleep>>,
    left: u32,
}

impl Body for Events {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        ready!(self.sleep.as_mut().poll(context));
        let next = self.sleep.deadline() + PAUSE;
        self.sleep.as_mut().reset(next);
        self.left -= 1;
        let event = match self.left {
            0 => "data: {\"usage\":{\"output_tokens\":900}}\n\n",
            _ => "data: {\"delta\":\"Hello\"}\n\n",
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(event)))))
    }
}

async fn client_of_streams() -> IntegrationClient {
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(VENDOR).transport(StreamingVendor);
    builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap()
}

/// A response of which four events have been read: it is 40 seconds old.
async fn begun_stream(client: &IntegrationClient) -> Response {
    let mut stream = client.send("a", Priority::High, get("/")).await.unwrap().idle_timeout(ms(15_000));
    for _ in 0..4 {
        assert!(stream.chunk().await.unwrap().is_some());
    }
    stream
}

fn used_tokens(client: &IntegrationClient) -> u32 {
    let status = client.status("a", "v").unwrap();
    let tokens = status.limits.iter().find(|limit| *limit.name == *"output_tokens").unwrap();
    tokens.limit - tokens.remaining
}

#[tokio::test(start_paused = true)]
async fn stream_keeps_slot_and_settles_at_its_end() {
    let client = client_of_streams().await;
    let mut stream = begun_stream(&client).await;
    let error = client.try_send("a", Priority::High, get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotNow, "the vendor still sends: {error}");
    assert_eq!((client.in_flight(), used_tokens(&client)), (1, 50));
    while stream.chunk().await.unwrap().is_some() {}
    assert_eq!((client.in_flight(), used_tokens(&client)), (0, 900));
    drop(client.try_send("a", Priority::High, get("/")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn dropped_stream_frees_its_slot() {
    let client = client_of_streams().await;
    drop(begun_stream(&client).await);
    assert_idle(&client);
    drop(client.try_send("a", Priority::High, get("/")).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_streams() {
    let client = client_of_streams().await;
    let mut stream = begun_stream(&client).await;
    let began = now();
    let reading = async { while stream.chunk().await.unwrap().is_some() {} };
    let (drained, ()) = tokio::join!(client.shutdown(ms(60_000)), reading);
    assert!(drained && began.elapsed() > PAUSE, "{drained} after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn permit_outlasts_the_attempt_timeout() {
    let client = client(&[("slots", "concurrency = 1")], &transport_with_delay(Duration::ZERO)).await;
    let lane = client.lane("a", "v").unwrap();
    for way in ["waits", "by a lane", "by name"] {
        let permit = match way {
            "waits" => lane.acquire(Priority::High, 1).await,
            "by a lane" => lane.try_acquire(Priority::High, 1),
            _ => client.try_acquire("a", "v", Priority::High, 1),
        };
        let permit = permit.unwrap();
        for answered in [false, true] {
            tokio::time::sleep(ms(300_000)).await;
            let error = lane.try_acquire(Priority::High, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotNow, "{way}, answered: {answered}");
            permit.answered_with(StatusCode::OK, &HeaderMap::new());
        }
        permit.finish();
        assert_idle(&client);
    }
}

/// Fails in the way that the path names, as the transport for HTTP does, or else answers.
struct FailingVendor;

impl Transport for FailingVendor {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        Box::pin(async move {
            let (kind, message) = match exchange.url.path() {
                "/body" => (ErrorKind::InvalidRequest, "the request body's stream failed"),
                "/headers" => (ErrorKind::ResponseTooLarge, "the response headers are too large"),
                "/reset" => (ErrorKind::Protocol, "the connection broke before the response"),
                _ => {
                    let body = AnswerBody::from_bytes("done", exchange.vendor.max_response_bytes, exchange.deadline);
                    return Ok(Answer::new(StatusCode::OK, HeaderMap::new(), body));
                }
            };
            Err(TransportError::new(Sent::MaybeSent, kind, message))
        })
    }
}

/// A vendor notices a closed connection within three seconds, and may be busy with the request until then. Where the
/// vendor itself has broken off, the slot is free at once.
#[tokio::test(start_paused = true)]
async fn slot_outlasts_an_exchange_broken_off_here() {
    let times = "connect_timeout = \"2s\"\nmax_transit = \"5s\"\nbase_url";
    let text = vendor(&[("slots", "concurrency = 1")]).replace("base_url", times);
    for (path, is_kept) in [("/body", true), ("/headers", true), ("/reset", false)] {
        let builder = IntegrationClient::builder().without_catalogue().vendors_toml(&*text).transport(FailingVendor);
        let client = builder.tenant(TenantEntry::new("a", "v")).build().await.unwrap();
        let began = now();
        let post = Request::post("v", path).body("content");
        let error = client.send("a", Priority::High, post).await.unwrap_err();
        assert_eq!(error.delivery(), Delivery::Ambiguous, "{path}: {error}");
        assert_eq!(client.in_flight(), u64::from(is_kept), "{path}");
        assert_eq!(client.send("a", Priority::High, get("/")).await.unwrap().status(), 200);
        assert_eq!(began.elapsed() >= ms(3000), is_kept, "{path}: {:?}", began.elapsed());
        assert_idle(&client);
    }
}
