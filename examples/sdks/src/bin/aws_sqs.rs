//! An SDK of AWS behind the client's layer: `cargo run -p sdks --bin aws_sqs`.
//!
//! These SDKs sign each request, host and headers included, so they keep their own transport. The layer waits for a
//! permit before each exchange and changes nothing in the request. The SDK still retries, and each retry takes a permit
//! of its own.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

use aws_lc_rs::{digest, hmac};
use aws_sdk_sqs::Client as Sqs;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use http::StatusCode;
use http::request::Parts;
use hyper_util::client::legacy::{Client, connect};
use hyper_util::rt::TokioExecutor;
use integration_client::tower::Paced;
use sdks::{AT_ONCE, Answer, Behaviour, BoxError, Vendor, answer, forgotten};
use tokio::task::JoinSet;
use tower::{Layer, Service};

const SECRET: &str = "secret-of-acme";

/// The HTTP transport of an AWS SDK, with a permit taken before each exchange.
#[derive(Clone, Debug)]
struct Connector(Paced<Client<connect::HttpConnector, SdkBody>>);

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Connector(mut paced) = self.clone();
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let response = paced.call(request).await.map_err(ConnectorError::io)?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let vendor = Vendor::start(Behaviour { is_right: is_signed, answer: sqs }).await?;
    let own: Client<_, SdkBody> = Client::builder(TokioExecutor::new()).build_http();

    let client = vendor.client("none").await?;
    // Direct calls use the same transport without the layer.
    let unpaced = own.clone();
    let direct = sqs_client(&vendor.url(), http_client_fn(move |_, _| SharedHttpConnector::new(Bare(unpaced.clone()))));
    let expected = direct.list_queues().send().await?;
    forgotten().await;
    vendor.reset();

    let connector = Connector(client.layer("acme", "vendor")?.layer(own));
    let paced = sqs_client(&vendor.url(), http_client_fn(move |_, _| SharedHttpConnector::new(connector.clone())));
    let mut at_once = JoinSet::new();
    for _ in 0..AT_ONCE {
        let paced = paced.clone();
        at_once.spawn(async move { paced.list_queues().send().await });
    }
    for found in at_once.join_all().await {
        let found = found?;
        if found.queue_urls() != expected.queue_urls() || found.queue_urls().is_empty() {
            return Err(format!("through the layer: {found:?}; by a direct call: {expected:?}").into());
        }
    }
    println!("{}", vendor.report("aws-sdk-sqs", AT_ONCE)?);
    Ok(())
}

/// The transport without the layer.
#[derive(Clone, Debug)]
struct Bare(Client<connect::HttpConnector, SdkBody>);

impl HttpConnector for Bare {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Bare(own) = self.clone();
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let response = own.request(request).await.map_err(|error| ConnectorError::io(error.into()))?;
            HttpResponse::try_from(response.map(SdkBody::from_body_1_x))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}

fn sqs_client(url: &str, transport: SharedHttpClient) -> Sqs {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("AKIDEXAMPLE", SECRET, None, None, "example"))
        .endpoint_url(url)
        .http_client(transport)
        .build();
    Sqs::from_conf(config)
}

fn sqs(parts: &Parts, _: &[u8], _: &str) -> Answer {
    let asked = parts.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    match asked {
        Some("AmazonSQS.ListQueues") => {
            answer(StatusCode::OK, "application/x-amz-json-1.0", r#"{"QueueUrls":["http://q/1"]}"#)
        }
        _ => answer(StatusCode::BAD_REQUEST, "application/x-amz-json-1.0", r#"{"__type":"InvalidAction"}"#),
    }
}

/// Whether the signature (version 4) matches the request as it arrived: method, path, query, signed headers and body.
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html>
fn is_signed(parts: &Parts, body: &[u8]) -> bool {
    signature(parts, body).is_some_and(|(stated, right)| stated == right)
}

/// The signature that a request states, and the signature that it should have.
fn signature(parts: &Parts, body: &[u8]) -> Option<(String, String)> {
    let stated = parts.headers.get("authorization")?.to_str().ok()?.strip_prefix("AWS4-HMAC-SHA256 ")?;
    let part = |name: &str| stated.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
    let (credential, signed, signature) = (part("Credential")?, part("SignedHeaders")?, part("Signature")?);
    let (_, scope) = credential.split_once('/')?;
    let mut canonical = format!("{}\n{}\n{}\n", parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    for name in signed.split(';') {
        canonical.push_str(&format!("{name}:{}\n", parts.headers.get(name)?.to_str().ok()?.trim()));
    }
    canonical.push_str(&format!("\n{signed}\n{}", hex(digest::digest(&digest::SHA256, body).as_ref())));
    let date = parts.headers.get("x-amz-date")?.to_str().ok()?;
    let hash = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
    let key = scope.split('/').fold(format!("AWS4{SECRET}").into_bytes(), |key, part| mac(&key, part));
    Some((signature.to_owned(), hex(&mac(&key, &to_sign))))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
