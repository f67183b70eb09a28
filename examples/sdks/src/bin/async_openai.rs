//! async-openai through the client: `cargo run -p sdks --bin async_openai`.
//!
//! The SDK accepts a service that takes [`HttpRequestFactory`] instead of a request; [`ThroughLane`] makes such a
//! service from a lane. The lane's retries replace the SDK's own, which belong to the transport that the lane replaces.
//! Streamed responses arrive as the vendor sends them.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use async_openai::types::chat::{
    ChatCompletionRequestUserMessage, CreateChatCompletionRequest, CreateChatCompletionRequestArgs,
};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use integration_client::tower::LaneService;
use sdks::{AT_ONCE, Answer, BREAK, Behaviour, BoxError, CALLERS_TOKEN, KEY, Vendor, answer, forgotten, has_key};
use tokio::task::JoinSet;
use tower::Service;

const CHUNKS: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(200);

/// A lane as the service that async-openai accepts.
#[derive(Clone)]
struct ThroughLane(LaneService);

impl Service<HttpRequestFactory> for ThroughLane {
    type Response = reqwest::Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<reqwest::Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let mut lane = self.0.clone();
        Box::pin(async move {
            let request: http::Request<reqwest::Body> = factory.build().await?.try_into()?;
            // The SDK passes the error on unchanged: `OpenAIError::Boxed` can be opened with `downcast_ref`.
            let response = lane.call(request).await.map_err(|error| OpenAIError::Boxed(Box::new(error)))?;
            Ok(response.map(reqwest::Body::wrap).into())
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let vendor = Vendor::start(Behaviour { is_right: has_key, answer: openai }).await?;
    let config = |key: &str| OpenAIConfig::new().with_api_base(vendor.url()).with_api_key(key);

    let direct = Client::with_config(config(KEY));
    let expected = direct.chat().create(ask("ping")?).await?;
    let (expected_words, _) = words(&direct).await?;
    forgotten().await;
    vendor.reset();

    let client = vendor.client("bearer").await?;
    let lane = ThroughLane(client.lane("acme", "vendor")?.service());
    let paced = Client::with_config(config(CALLERS_TOKEN)).with_http_service(lane);
    let found = paced.chat().create(ask("ping")?).await?;
    if found != expected {
        return Err(format!("through the lane: {found:?}; by a direct call: {expected:?}").into());
    }
    let (found, times) = words(&paced).await?;
    if found != expected_words || times.windows(2).any(|pair| pair[1] - pair[0] < BETWEEN / 2) {
        return Err(format!("the stream {found:?} came at {times:?}; by a direct call it is {expected_words:?}").into());
    }

    let mut at_once = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (paced, ask) = (paced.clone(), ask("ping")?);
        at_once.spawn(async move { paced.chat().create(ask).await });
    }
    for answer in at_once.join_all().await {
        if answer? != expected {
            return Err("an answer is not the vendor's".into());
        }
    }
    // A POST that may have arrived is not repeated.
    vendor.check_broken(paced.chat().create(ask(BREAK)?).await)?;
    println!("{}", vendor.report("async-openai", 3 + AT_ONCE)?);
    Ok(())
}

fn ask(text: &str) -> Result<CreateChatCompletionRequest, OpenAIError> {
    let message = ChatCompletionRequestUserMessage::from(text);
    CreateChatCompletionRequestArgs::default().model("m").messages([message.into()]).build()
}

/// The words of a streamed response, and when each of them arrived.
async fn words(client: &Client<OpenAIConfig>) -> Result<(Vec<String>, Vec<Duration>), BoxError> {
    let began = Instant::now();
    let mut stream = client.chat().create_stream(ask("ping")?).await?;
    let (mut words, mut times) = (Vec::new(), Vec::new());
    while let Some(chunk) = stream.next().await {
        words.extend(chunk?.choices.into_iter().filter_map(|choice| choice.delta.content));
        times.push(began.elapsed());
    }
    if words.len() == CHUNKS as usize { Ok((words, times)) } else { Err(format!("{words:?}").into()) }
}

fn openai(_: &Parts, body: &[u8], _: &str) -> Answer {
    let asked: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    if asked["stream"] == true {
        return streamed();
    }
    let whole = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,
        "message":{"role":"assistant","content":"pong"},"finish_reason":"stop"}]}"#;
    answer(StatusCode::OK, "application/json", whole)
}

/// A stream of server-sent events, one every [`BETWEEN`].
fn streamed() -> Answer {
    let frames = unfold(0, async |n| {
        let event = match n {
            ..CHUNKS => format!(
                r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"{n}"}}}}]}}"#
            ),
            CHUNKS => "[DONE]".to_owned(),
            _ => return None,
        };
        if n > 0 {
            tokio::time::sleep(BETWEEN).await;
        }
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(format!("data: {event}\n\n")))), n + 1))
    });
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    let events = http::HeaderValue::from_static("text/event-stream");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, events);
    answer
}
