//! NATS JetStream as the source.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context, stream};
use integration_client::BoxError;

use super::{Source, requests_are_sent_once};

struct Nats {
    server: String,
    stream: String,
}

impl Nats {
    async fn connect(&self) -> Result<Context, BoxError> {
        Ok(jetstream::new(async_nats::connect(self.server.as_str()).await?))
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
    let server = std::env::var("IC_TEST_NATS").expect(
        "IC_TEST_NATS names no server: run `scripts/test.sh test`, or `eval \"$(scripts/nats.sh start)\"` before",
    );
    let source = Nats { server, stream: format!("CLI-{}", std::process::id()) };
    requests_are_sent_once(&source, "nats").await;
}
