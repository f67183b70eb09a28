//! Publishes replies to a subject of NATS JetStream.

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, HeaderMap};
use futures_util::future::join_all;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::{BoxError, BoxFuture};

use super::names::Names;
use crate::address::Address;
use crate::error::Error;
use crate::waits::PATIENCE;

/// Bytes of the longest reply: by default the server accepts messages of up to 1 MiB, headers included.
const LONGEST: usize = 1_000_000;

/// A subject of NATS JetStream as a target of replies.
///
/// A stream must store the subject: until the stream acknowledges a reply, the reply is published again. The header
/// `Nats-Msg-Id` is [`Reply::message_id`], so that the stream drops a duplicate within its duplicate window. A request
/// may name another subject by `reply` in its content, if the name begins with one of the prefixes that `allow` in the
/// URL lists. If no stream stores that subject, the reply is published to the URL's subject.
pub struct NatsReplies {
    context: Context,
    names: Names,
    name: String,
}

impl NatsReplies {
    /// Connects to `nats://USER:PASSWORD@HOST:PORT?subject=NAME&allow=START,START`, or with TLS to `tls://…`.
    ///
    /// # Errors
    /// The URL names no subject, the server refuses the connection, or no stream stores the subject.
    pub async fn connect(url: &str) -> Result<NatsReplies, Error> {
        let address = Address::read("NATS", url, &["subject", "allow"])?;
        let no_subject = || Error::new("NATS: the URL must name a subject: nats://HOST?subject=NAME");
        let names = Names::new(address.get("subject").ok_or_else(no_subject)?, &address);
        let name = format!("nats:{}:{}", address.place(4222), names.own);
        let connecting = async {
            let options = ConnectOptions::new().name("integration-client replies").connection_timeout(PATIENCE);
            let context = jetstream::new(options.connect(address.url.as_str()).await?);
            context.stream_by_subject(&names.own).await?;
            Ok::<_, BoxError>(context)
        };
        let connected = tokio::time::timeout(2 * PATIENCE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err("no answer within 20 s".into()));
        let context = connected.map_err(|error| Error::new(name.clone()).with_source(error))?;
        Ok(NatsReplies { context, names, name })
    }

    async fn publish(&self, reply: &Reply) -> Result<(), BoxError> {
        let content = reply.json_within(LONGEST);
        if let Some(named) = self.names.named(reply).filter(|name| is_subject(name)) {
            match self.put(named, reply, &content).await {
                // No stream stores the named subject: fall back to the target's own below.
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {}
                told => return Ok(told?),
            }
        }
        Ok(self.put(self.names.own.clone(), reply, &content).await?)
    }

    async fn put(&self, subject: String, reply: &Reply, content: &str) -> Result<(), PublishError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", reply.message_id().as_str());
        let published = self.context.publish_with_headers(subject, headers, content.to_owned().into()).await?;
        published.await?;
        Ok(())
    }
}

/// Whether a message can be published to a subject of this name: no wildcard, no whitespace, no empty part.
fn is_subject(name: &str) -> bool {
    name.split('.').all(|part| !part.is_empty() && !part.contains(['*', '>']) && !part.contains(char::is_whitespace))
}

impl ReplyTarget for NatsReplies {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        Box::pin(join_all(replies.iter().map(|reply| self.publish(reply))))
    }
}

impl std::fmt::Debug for NatsReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsReplies").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::is_subject;

    #[test]
    fn subjects_without_wildcards_are_taken() {
        assert!(is_subject("orders.replies") && is_subject("a"));
        for name in ["", "a..b", "a.*", ">", "a b", "a.\r\nPUB x"] {
            assert!(!is_subject(name), "{name:?}");
        }
    }
}
