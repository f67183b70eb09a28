//! Amazon SQS, and servers that speak its protocol.
//!
//! The source receives messages ten at a time, by long polls. A received message is invisible to other consumers for
//! the queue's visibility timeout. A task extends that timeout for as long as the source holds the message; if the
//! process is killed, the timeout runs out and SQS delivers the message again. SQS counts how often it delivered a
//! message, and a queue with a redrive policy moves a message away after `maxReceiveCount` deliveries. That is why
//! messages for a full lane are given back only if the queue has no redrive policy, and held otherwise.

mod aside;
mod delivery;
mod place;
pub(crate) mod problem;
mod refused;
#[cfg(test)]
mod tests;
mod visibility;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry as Delete, Message, MessageSystemAttributeName as Of, QueueAttributeName,
};
use futures_util::future::join_all;
use integration_client::outbox::{Intake, IntakeSource, MessageRef};
use integration_client::{BoxError, BoxFuture, Error as Refusal};

use self::aside::RefusedQueue;
use self::delivery::{Delivery, without_held};
pub(crate) use self::place::Place;
use self::place::WAIT_S;
use self::problem::Problem;
use crate::error::Error;
use crate::unsettled::Unsettled;
use crate::waits::Waits;

/// Messages in one request, the most that SQS allows.
const BATCH: usize = 10;
/// The most receive requests under way at once. The source sends more than one only while each returns a full batch.
const AT_ONCE: usize = 8;
/// The most messages of one fetch. They are extended after the fetch, which must end in a part of their visibility timeout.
const MOST: usize = 256;
/// The visibility timeout of a queue that states none.
const INVISIBLE_S: i32 = 30;
/// The shortest visibility timeout used: within a shorter one there is no time to extend it.
const LEAST_INVISIBLE_S: i32 = 2;
/// The longest visibility timeout that SQS allows.
const MAX_INVISIBLE_S: i32 = 43_200;
/// The timeout of a request for which other work must not wait long.
const SOON: Duration = Duration::from_secs(2);

/// A queue of Amazon SQS, or of a server that speaks its protocol, as a source of requests.
///
/// The queue must exist. The source uses the queue's visibility timeout, and extends it for as long as it holds a
/// message. A message that is not a valid request is sent to the queue that the URL names by `dead`, with the reason in
/// the attribute `refused-because`. If it is larger than that queue takes, its content is cut, and the attribute
/// `refused-cut` holds the number of bytes that it had. If the URL names none, the message is left to the queue's
/// redrive policy, which moves it after `maxReceiveCount` deliveries. If there is no redrive policy either,
/// [`connect`](Self::connect) fails.
///
/// A redelivered message is recognised by the message id that SQS gave it. If a producer sends a message twice, because
/// it did not get the first response, these are two messages with two ids. An `idempotency_key` in the content lets the
/// outbox recognise the second; a FIFO queue recognises it within five minutes by its deduplication id.
///
/// A message that comes again after more than 25 deliveries and a last try without an end is refused; `max_deliveries` in
/// the URL states another number, or 0 for no bound.
///
/// A message that SQS delivers again while the source holds it is handed over once. SQS does so 12 hours after it delivered
/// the message, because it keeps no message back for longer.
///
/// When `feed_from` ends, the messages that the source holds become visible again. If its future is dropped, drop the source
/// too: until then they stay invisible.
pub struct Sqs {
    shared: Arc<Shared>,
    name: String,
    dead: Option<RefusedQueue>,
    max_deliveries: Option<u64>,
    /// Whether the queue has a redrive policy, which moves messages that were received too often.
    has_redrive: bool,
    /// Whether the keys are a role's, which are renewed. Keys of the environment never change.
    are_keys_renewed: bool,
    extending: tokio::task::JoinHandle<()>,
}

/// The state that the source shares with the task that extends visibility timeouts.
struct Shared {
    client: Client,
    queue_url: String,
    invisible_s: i32,
    unsettled: Unsettled<Delivery>,
    /// Held while visibility timeouts are changed, so that an extension under way cannot undo a message's return to the
    /// queue.
    changing: tokio::sync::Mutex<()>,
}

impl Sqs {
    /// Connects to `sqs://HOST/ACCOUNT/QUEUE?dead=QUEUE&region=NAME&max_deliveries=NUMBER`, or to `sqs+http://…` for a
    /// test server without TLS. The access keys come from the environment: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, and
    /// `AWS_SESSION_TOKEN` with temporary ones; without them they are those of a role of the container or the machine
    /// (ECS, EKS, EC2) or of a profile, and are renewed. The region is the one that the URL names; otherwise the one in the name
    /// of an AWS host; otherwise `AWS_REGION` or `AWS_DEFAULT_REGION`; otherwise `us-east-1`. `dead` is the name of a
    /// queue of the same account, or the URL of a queue.
    ///
    /// # Errors
    /// The URL names no queue, no keys are set, the server refuses them or does not answer, a queue does not exist, or
    /// there is neither a `dead` queue nor a redrive policy.
    pub async fn connect(url: &str) -> Result<Sqs, Error> {
        let env = |name: &str| std::env::var(name).ok();
        let place = Place::read(url, env)?;
        let (client, are_keys_renewed) = place.client(env).await?;
        let Place { queue_url, dead_url, name, max_deliveries, .. } = place;
        let of_queue = attributes(&client, &queue_url).await;
        let of_queue = of_queue.map_err(|problem| Error::new(format!("{name}: {problem}")))?;
        let dead = match dead_url {
            Some(url) => {
                let place = format!("{name}: the queue of refused messages {url}");
                let found = RefusedQueue::find(&client, url).await;
                Some(found.map_err(|problem| Error::new(format!("{place}: {problem}")))?)
            }
            None => None,
        };
        let has_redrive = of_queue.get(&QueueAttributeName::RedrivePolicy).is_some_and(|policy| !policy.is_empty());
        if !has_redrive && dead.is_none() {
            return Err(Error::new(format!("{name}: {NO_WAY}")));
        }
        let stated = of_queue.get(&QueueAttributeName::VisibilityTimeout).and_then(|stated| stated.parse().ok());
        let invisible_s = stated.unwrap_or(INVISIBLE_S).clamp(LEAST_INVISIBLE_S, MAX_INVISIBLE_S);
        let shared = Arc::new(Shared {
            client,
            queue_url,
            invisible_s,
            unsettled: Unsettled::new(),
            changing: tokio::sync::Mutex::default(),
        });
        #[expect(clippy::disallowed_methods, reason = "what is held must stay invisible while nothing is fetched")]
        let extending = tokio::spawn(visibility::extend(shared.clone(), name.clone()));
        Ok(Sqs { shared, name, dead, max_deliveries, has_redrive, are_keys_renewed, extending })
    }

    /// Sets the name under which the outbox remembers message ids. The default is host, port, account and queue. Set a
    /// name if the queue is reached at different addresses: a message that is redelivered to a source with another name
    /// becomes a second request.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Sqs {
        self.name = name.into();
        self
    }

    /// Sends one receive request. The server waits up to `wait_s` seconds for a first message.
    async fn receive(&self, most: usize, wait_s: i32) -> Result<Vec<Message>, Problem> {
        let shared = &self.shared;
        let request = shared.client.receive_message().queue_url(&shared.queue_url);
        let request = request.max_number_of_messages(most.clamp(1, BATCH) as i32).wait_time_seconds(wait_s);
        let request = request.visibility_timeout(shared.invisible_s).message_attribute_names("All");
        let request = request.message_system_attribute_names(Of::ApproximateReceiveCount);
        let request = request.message_system_attribute_names(Of::SentTimestamp);
        let request = request.message_system_attribute_names(Of::MessageGroupId);
        let received = request.send().await.map_err(|error| Problem::of(&error, self.are_keys_renewed))?;
        Ok(received.messages.unwrap_or_default())
    }

    fn hand_over(&self, message: Message) -> Intake {
        let delivery = Delivery { message, is_old: false };
        let intake = match delivery.message.message_id() {
            Some(id) => Intake::json(id, delivery.message.body().unwrap_or_default()),
            None => Intake::invalid("", "the message has no message id"),
        };
        let count = delivery.attribute(&Of::ApproximateReceiveCount).and_then(|count| count.parse().ok());
        let intake = intake.deliveries(count.unwrap_or_default());
        let sent = delivery.attribute(&Of::SentTimestamp).and_then(|sent| sent.parse().ok());
        let at = sent.and_then(|ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
        self.shared.unsettled.keep(at.into_iter().fold(intake, Intake::sent_at), delivery)
    }

    /// Receives messages, `most` at most. Waits until there is one.
    ///
    /// # Errors
    /// A retry fails in the same way until an operator corrects the queue, its policy or the credentials.
    async fn receive_some(&self, most: usize) -> Result<Vec<Message>, BoxError> {
        let mut waits = Waits::default();
        let mut fetched = loop {
            match self.receive(most, WAIT_S).await {
                Ok(none) if none.is_empty() => waits = Waits::default(),
                Ok(fetched) => break fetched,
                Err(Problem { text, is_final: true }) => return Err(text.into()),
                Err(Problem { text: problem, .. }) => {
                    let wait = waits.next();
                    let wait_ms = wait.as_millis() as u64;
                    tracing::warn!(source = self.name, problem, wait_ms, "the broker is away");
                    tokio::time::sleep(wait).await;
                }
            }
        };
        // While each request returns a full batch, the queue holds more messages: double the number of requests, up
        // to `AT_ONCE` and the room left.
        let mut requests = 1;
        let mut is_full = fetched.len() == BATCH;
        while is_full && most - fetched.len() >= BATCH {
            requests = (2 * requests).min(AT_ONCE).min((most - fetched.len()) / BATCH);
            // The messages received so far are not extended yet, so they must not wait for a slow response. SQS
            // redelivers the messages of a response that comes too late.
            let receives = (0..requests).map(|_| tokio::time::timeout(SOON, self.receive(BATCH, 0)));
            for received in join_all(receives).await {
                // Errors are ignored here: the next call of `fetch` meets a lasting problem again and logs it.
                let received = received.ok().and_then(Result::ok).unwrap_or_default();
                is_full &= received.len() == BATCH;
                fetched.extend(received);
            }
        }
        Ok(fetched)
    }

    /// Sends refused messages to the queue of refused messages, and then deletes them from the source's queue.
    async fn put_aside(&self, dead: &RefusedQueue, refused: Vec<(Delivery, &Refusal)>) {
        for batch in dead.batches(&self.name, refused) {
            let sent = dead.send(&self.shared.client, &self.name, batch).await;
            self.delete(&sent).await;
        }
    }

    /// Makes messages visible again after the time `after`. A failure is only logged: their visibility timeout ends.
    async fn give_back(&self, deliveries: Vec<Delivery>, after: Duration) {
        let receipts: Vec<String> = deliveries.iter().map(|delivery| delivery.receipt().to_owned()).collect();
        // A server that does not answer must delay neither the end of the hand-over nor the next extension.
        let patience = SOON.min(self.shared.extends_every() / 2);
        let given_back = visibility::give_back(&self.shared, &receipts, after);
        let answer = tokio::time::timeout(patience, given_back).await;
        if let Err(problem) = answer.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            let consequence = "they come again when their visibility timeout is over";
            tracing::warn!(source = self.name, problem, consequence, "messages could not be given back");
        }
    }

    /// Deletes messages from the queue, which acknowledges them. A failure is only logged: SQS redelivers the message,
    /// and the outbox recognises it.
    async fn delete(&self, deliveries: &[Delivery]) {
        let shared = &self.shared;
        let requests = deliveries.chunks(BATCH).map(|batch| async move {
            let entries = batch.iter().enumerate().map(|(number, delivery)| {
                Delete::builder().id(number.to_string()).receipt_handle(delivery.receipt()).build()
            });
            let entries = entries.collect::<Result<Vec<Delete>, _>>().map_err(|error| error.to_string())?;
            let request = shared.client.delete_message_batch().queue_url(&shared.queue_url);
            let told = request.set_entries(Some(entries)).send().await.map_err(|error| problem::text(&error))?;
            match told.failed().first() {
                Some(failed) => Err(format!("{} of {}: {}", told.failed().len(), batch.len(), failed.code())),
                None => Ok(()),
            }
        });
        for problem in join_all(requests).await.into_iter().filter_map(Result::err) {
            tracing::warn!(source = self.name, problem, "messages could not be deleted; they are delivered again");
        }
    }
}

const NO_WAY: &str = "the queue has no redrive policy, and the URL names no queue for messages that are no valid request: make \
                      a queue and name it (?dead=QUEUE), or set a redrive policy";

pub(crate) async fn attributes(
    client: &Client,
    queue_url: &str,
) -> Result<HashMap<QueueAttributeName, String>, String> {
    let request = client.get_queue_attributes().queue_url(queue_url).attribute_names(QueueAttributeName::All);
    let found = request.send().await.map_err(|error| problem::text(&error))?;
    Ok(found.attributes.unwrap_or_default())
}

impl IntakeSource for Sqs {
    fn name(&self) -> &str {
        &self.name
    }

    fn fetch(&self, most: usize) -> BoxFuture<'_, Result<Vec<Intake>, BoxError>> {
        Box::pin(async move {
            loop {
                let received = self.receive_some(most.min(MOST)).await?;
                // Messages are registered for extension only now: if this future is dropped earlier, SQS redelivers them.
                let new = without_held(&self.shared.unsettled, received);
                if !new.is_empty() {
                    return Ok(new.into_iter().map(|message| self.hand_over(message)).collect());
                }
            }
        })
    }

    fn taken<'a>(&'a self, messages: &'a [MessageRef]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let taken = messages.iter().filter_map(|message| self.shared.unsettled.take(message));
            self.delete(&taken.collect::<Vec<Delivery>>()).await;
            Ok(())
        })
    }

    fn refused<'a>(&'a self, messages: &'a [(MessageRef, Refusal)]) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            // The others stay invisible meanwhile.
            for some in messages.chunks(BATCH) {
                let taken = some.iter().filter_map(|(message, why)| Some((self.shared.unsettled.take(message)?, why)));
                let taken: Vec<(Delivery, &Refusal)> = taken.collect();
                // Without a `dead` queue, SQS delivers the messages again whenever their visibility timeout ends, until
                // the redrive policy moves them.
                if let Some(dead) = &self.dead {
                    self.put_aside(dead, taken).await;
                }
            }
            Ok(())
        })
    }

    /// With a redrive policy, messages must not be postponed: each delivery would count towards `maxReceiveCount`.
    fn can_postpone(&self) -> bool {
        !self.has_redrive
    }

    fn later<'a>(&'a self, messages: &'a [MessageRef], after: Duration) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            let given_back = messages.iter().filter_map(|message| self.shared.unsettled.take(message));
            let given_back: Vec<Delivery> = given_back.collect();
            self.give_back(given_back, after).await;
            Ok(())
        })
    }

    /// With a redrive policy the source holds the messages without room until here. Left invisible, they would delay other
    /// processes, and in a FIFO queue all messages of their groups.
    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.give_back(self.shared.unsettled.take_all(), Duration::ZERO).await })
    }

    fn max_deliveries(&self) -> Option<u64> {
        self.max_deliveries
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        self.extending.abort();
    }
}

impl std::fmt::Debug for Sqs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sqs").field("name", &self.name).finish_non_exhaustive()
    }
}
