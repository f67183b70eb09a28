//! Sends refused messages to the queue of refused messages.

use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::BuildError;
use aws_sdk_sqs::types::{MessageSystemAttributeName as Of, SendMessageBatchRequestEntry as Entry};
use integration_client::Error as Refusal;

use super::delivery::Delivery;
use super::{BATCH, attributes, problem, refused};

/// The queue of refused messages.
pub(super) struct RefusedQueue {
    url: String,
    /// Bytes of its largest message, as it said last.
    most: AtomicUsize,
}

/// A refused message and its copy.
pub(super) struct Outgoing {
    delivery: Delivery,
    copy: Entry,
    /// Bytes of the copy.
    size: usize,
}

impl RefusedQueue {
    /// # Errors
    /// The queue does not exist, or the server does not tell its attributes.
    pub(super) async fn find(client: &Client, url: String) -> Result<RefusedQueue, String> {
        let found = attributes(client, &url).await?;
        Ok(RefusedQueue { url, most: refused::most(&found).into() })
    }

    /// The copies of refused messages, each part as many as one request may send.
    pub(super) fn batches(&self, source: &str, messages: Vec<(Delivery, &Refusal)>) -> Vec<Vec<Outgoing>> {
        let (mut batches, mut bytes) = (Vec::<Vec<Outgoing>>::new(), 0usize);
        for (number, (delivery, why)) in messages.into_iter().enumerate() {
            let outgoing = match self.outgoing(source, number, delivery, why) {
                Ok(outgoing) => outgoing,
                Err(error) => {
                    tracing::warn!(source, %error, "a refused message could not be put aside; it is delivered again");
                    continue;
                }
            };
            let with_it = bytes.saturating_add(outgoing.size);
            match batches.last_mut() {
                Some(batch) if batch.len() < BATCH && with_it <= refused::LONGEST => {
                    bytes = with_it;
                    batch.push(outgoing);
                }
                _ => {
                    bytes = outgoing.size;
                    batches.push(vec![outgoing]);
                }
            }
        }
        batches
    }

    /// The copy with this number of a refused message.
    fn outgoing(&self, source: &str, number: usize, delivery: Delivery, why: &Refusal) -> Result<Outgoing, BuildError> {
        let message = &delivery.message;
        let (content, own) = refused::copy(message, &why.to_string(), self.most.load(Ordering::Relaxed))?;
        let (length, kept) = (message.body().map_or(0, str::len), content.len());
        if kept < length {
            tracing::warn!(source, length, kept, "a refused message is too large to be put aside whole");
        }
        let size = kept.saturating_add(refused::size(&own));
        let copy = Entry::builder().id(number.to_string()).message_body(content).set_message_attributes(Some(own));
        let copy = if self.url.ends_with(".fifo") {
            let group = delivery.attribute(&Of::MessageGroupId).unwrap_or("refused");
            copy.message_group_id(group).message_deduplication_id(message.message_id().unwrap_or_default())
        } else {
            copy
        };
        let copy = copy.build()?;
        Ok(Outgoing { delivery, copy, size })
    }

    /// Sends a batch of copies. Returns the messages of those that the queue has taken. A failure is only logged: SQS
    /// delivers the message again.
    pub(super) async fn send(&self, client: &Client, source: &str, batch: Vec<Outgoing>) -> Vec<Delivery> {
        let parts = batch.into_iter().map(|Outgoing { delivery, copy, .. }| ((copy.id.clone(), delivery), copy));
        let (deliveries, copies): (Vec<(String, Delivery)>, Vec<Entry>) = parts.unzip();
        let told = client.send_message_batch().queue_url(&self.url).set_entries(Some(copies)).send().await;
        let told = told.map_err(|error| (problem::text(&error), error.as_service_error().is_some()));
        let (sent, problem, is_answer) = match told {
            Ok(told) => {
                let failed = told.failed();
                let is_sent = |id: &str| failed.iter().all(|failed| failed.id() != id);
                let sent = deliveries.into_iter().filter(|(id, _)| is_sent(id)).map(|(_, delivery)| delivery);
                (sent.collect(), failed.first().map(|failed| failed.code().to_owned()), true)
            }
            Err((problem, is_answer)) => (Vec::new(), Some(problem), is_answer),
        };
        if let Some(problem) = problem {
            tracing::warn!(source, problem, "refused messages could not be put aside; they are delivered again");
            // The limit of that queue may be lower than it was. The messages come again, and their copies then fit.
            if is_answer && let Ok(found) = attributes(client, &self.url).await {
                self.most.store(refused::most(&found), Ordering::Relaxed);
            }
        }
        sent
    }
}
