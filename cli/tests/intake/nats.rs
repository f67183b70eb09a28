//! NATS JetStream as the source.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context, stream};
use integration_client::BoxError;
use integration_client::testing::FakeVendor;

use super::{IntakeFolder, Source, requests_are_sent_once, until};

struct Nats {
    server: String,
    stream: String,
}

impl Nats {
    /// A stream of the server that `IC_TEST_NATS` names.
    fn new(stream: &str) -> Nats {
        let server = std::env::var("IC_TEST_NATS").expect(
            "IC_TEST_NATS names no server: run `scripts/test.sh test`, or `eval \"$(scripts/nats.sh start)\"` before",
        );
        Nats { server, stream: format!("{stream}-{}", std::process::id()) }
    }

    async fn connect(&self) -> Result<Context, BoxError> {
        Ok(jetstream::new(async_nats::connect(self.server.as_str()).await?))
    }

    /// When the stream was created, in seconds since 1970.
    async fn made(&self) -> Result<i64, BoxError> {
        let stream = self.connect().await?.get_stream(&self.stream).await?;
        Ok(stream.cached_info().created.unix_timestamp())
    }

    /// Deletes the stream, and creates it again.
    async fn make_anew(&self) -> Result<i64, BoxError> {
        // It may be deleted already, by a try before this one.
        let _ = self.connect().await?.delete_stream(&self.stream).await;
        self.publish(&[]).await?;
        self.made().await
    }
}

impl Source for Nats {
    fn url(&self) -> String {
        format!("{}?stream={}", self.server, self.stream)
    }

    async fn publish(&self, messages: &[(String, String)]) -> Result<(), BoxError> {
        let context = self.connect().await?;
        let (name, subjects) = (self.stream.clone(), vec![self.stream.clone()]);
        context.get_or_create_stream(stream::Config { name, subjects, ..stream::Config::default() }).await?;
        for (id, content) in messages {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id.as_str());
            context.publish_with_headers(self.stream.clone(), headers, content.clone().into()).await?.await?;
        }
        Ok(())
    }

    async fn refused(&self) -> Result<Vec<(String, String)>, BoxError> {
        let stream = self.connect().await?.get_stream(format!("{}_REFUSED", self.stream)).await?;
        let mut refused = Vec::new();
        for number in 1..=stream.cached_info().state.messages {
            let message = stream.get_raw_message(number).await?;
            let why = message.headers.get("X-Refused-Because").map(ToString::to_string).unwrap_or_default();
            refused.push((String::from_utf8(message.payload.to_vec())?, why));
        }
        Ok(refused)
    }

    async fn left(&self) -> Result<u64, BoxError> {
        let stream = self.connect().await?.get_stream(&self.stream).await?;
        let consumer = stream.consumer_info("integration-client").await?;
        Ok(consumer.num_pending + consumer.num_ack_pending as u64)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_from_nats_are_sent_once() {
    requests_are_sent_once(&Nats::new("CLI"), "nats").await;
}

/// The source fails for good while a request without a key is under way.
#[tokio::test(flavor = "multi_thread")]
async fn failing_source_cuts_off_no_exchange() {
    let place = IntakeFolder::slow_without_keys("failing").await;
    let source = Nats::new("CLI-FAILING");
    let line = r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/slow","body":{"a":1}}"#;
    let message = [("m".to_owned(), line.to_owned())];
    until("the message is published", async || source.publish(&message).await.ok()).await;
    let first = until("the stream is found", async || source.made().await.ok()).await;
    let mut program = place.start(&source.url()).await;
    place.wait_until_under_way().await;
    // The source compares the times at which the streams were created, in whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    until("the stream is made anew", async || source.make_anew().await.ok().filter(|made| *made != first)).await;
    let ended = program.wait();
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.contains("was deleted and created again"), "{}", ended.err);
    place.assert_none_cut_off();
}

#[tokio::test(flavor = "multi_thread")]
async fn beginning_is_set_once_and_takes_no_message() {
    let place = IntakeFolder::new("beginning", FakeVendor::builder()).await;
    let source = Nats::new("CLI-BEGINNING");
    let line = r#"{"tenant":"acme","vendor":"v","method":"POST","path":"/old","body":{"a":1}}"#;
    let message = [("m".to_owned(), line.to_owned())];
    until("the message is published", async || source.publish(&message).await.ok()).await;
    // The command ends with 2 also if the server is away at that moment.
    let begin = |needle: &str| {
        let out = place.command(&source.url()).args(["--begin-at", "first"]).output().unwrap();
        let shown = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        shown.contains(needle).then_some(out.status.code())
    };
    let first = until("the beginning is set", async || begin("begins in the stream")).await;
    let again = until("it is refused", async || begin("has the consumer integration-client already")).await;
    assert_eq!((first, again), (Some(0), Some(2)));
    assert!(place.sent().is_empty());
    let program = place.start(&source.url()).await;
    place.wait_until_sent(1).await;
    assert_eq!(program.end().code, Some(0));
}
