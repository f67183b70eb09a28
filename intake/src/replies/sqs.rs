//! Sends replies to a queue of SQS.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::future::join_all;
use integration_client::outbox::{Reply, ReplyTarget};
use integration_client::{BoxError, BoxFuture};

use super::names::Names;
use crate::address::Address;
use crate::error::Error;
use crate::sqs::{Place, attributes, problem};
use crate::waits::PATIENCE;

/// Bytes of the longest reply: SQS accepts messages of up to 256 KiB, attributes included.
const LONGEST: usize = 250 * 1024;
/// The message attribute that holds the reply's id.
const MESSAGE_ID: &str = "message-id";

/// A queue of Amazon SQS, or of a server that speaks its protocol, as a target of replies.
///
/// The queue must exist. A message's attribute `message-id` is [`Reply::message_id`]. In a FIFO queue this is the
/// deduplication id too, and the id of the job is the message group. A request may name another queue of the same
/// account by `reply` in its content, if the name begins with one of the prefixes that `allow` in the URL lists. If
/// that queue does not exist, the reply goes to the URL's queue.
pub struct SqsReplies {
    client: Client,
    names: Names,
    /// The URL of the account. A slash and the name of a queue make it the URL of that queue.
    account: String,
    name: String,
}

impl SqsReplies {
    /// Connects to `sqs://HOST/ACCOUNT/QUEUE?region=NAME&allow=START,START`, or without TLS to `sqs+http://…`. The
    /// access keys come from the environment or from a role, as for [`Sqs`](crate::Sqs).
    ///
    /// # Errors
    /// The URL names no queue, no keys are set, the server refuses them or does not answer, or the queue does not
    /// exist.
    pub async fn connect(url: &str) -> Result<SqsReplies, Error> {
        let address = Address::read("SQS", url, &["allow"])?;
        let env = |name: &str| std::env::var(name).ok();
        let place = Place::read(address.url.as_str(), env)?;
        let (client, _) = place.client(env).await?;
        let (account, queue) = place.queue_url.rsplit_once('/').unwrap_or_default();
        let names = Names::new(queue, &address);
        attributes(&client, &place.queue_url).await.map_err(|why| Error::new(format!("{}: {why}", place.name)))?;
        Ok(SqsReplies { client, names, account: account.to_owned(), name: place.name })
    }

    async fn publish(&self, reply: &Reply) -> Result<(), BoxError> {
        let named = self.names.named(reply).filter(|name| is_queue(name));
        if let Some(named) = named {
            match self.put(&named, reply).await {
                Err(why) if why.contains("NonExistentQueue") || why.contains("QueueDoesNotExist") => {}
                told => return told.map_err(Into::into),
            }
        }
        Ok(self.put(&self.names.own, reply).await?)
    }

    async fn put(&self, queue: &str, reply: &Reply) -> Result<(), String> {
        let id = reply.message_id();
        let attribute = MessageAttributeValue::builder().data_type("String").string_value(&id).build();
        let attribute = attribute.map_err(|error| error.to_string())?;
        let mut request = self.client.send_message().queue_url(format!("{}/{queue}", self.account));
        request = request.message_body(body_of(reply)).message_attributes(MESSAGE_ID, attribute);
        if queue.ends_with(".fifo") {
            request = request.message_group_id(&reply.id).message_deduplication_id(&id);
        }
        // One request without an answer must not delay the results of the others.
        let sent = tokio::time::timeout(PATIENCE, request.send()).await;
        let sent = sent.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))?;
        sent.map(drop).map_err(|error| problem::text(&error))
    }
}

/// The content of a message: the reply as JSON, cut to what a message holds.
fn body_of(reply: &Reply) -> String {
    let text = storable(&reply.json_within(LONGEST));
    // What is escaped takes twice as many bytes.
    if text.len() <= LONGEST { text } else { storable(&reply.json_within(LONGEST / 2)) }
}

/// Escapes the characters of a JSON text that SQS refuses. They can only be inside its strings.
fn storable(json: &str) -> String {
    json.replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff")
}

/// Whether a name is a valid queue name, so that it cannot lead to another path or account.
fn is_queue(name: &str) -> bool {
    let name = name.strip_suffix(".fifo").unwrap_or(name);
    (1..=80).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl ReplyTarget for SqsReplies {
    fn name(&self) -> &str {
        &self.name
    }

    fn deliver<'a>(&'a self, replies: &'a [Reply]) -> BoxFuture<'a, Vec<Result<(), BoxError>>> {
        Box::pin(join_all(replies.iter().map(|reply| self.publish(reply))))
    }
}

impl std::fmt::Debug for SqsReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqsReplies").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{is_queue, storable};

    #[test]
    fn refused_characters_are_escaped() {
        let json = "{\"body\":\"a\u{fffe}\u{ffff}\u{fffd}\"}";
        assert_eq!(storable(json), "{\"body\":\"a\\ufffe\\uffff\u{fffd}\"}");
    }

    #[test]
    fn names_lead_to_no_other_account() {
        assert!(is_queue("replies-17") && is_queue("replies_17.fifo"));
        for name in ["", ".fifo", "../999/q", "a/b", "a?b", "a.b", &"a".repeat(81)] {
            assert!(!is_queue(name), "{name}");
        }
    }
}
