//! One pull request, and the messages that answer it. The client library's own stream of messages sends the next
//! request before the messages of the last one are read. The source could not stop that stream and then give back what it has
//! received, and the server would deliver those messages again only after `ack_wait`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{Context, Message};
use async_nats::{Statistics, StatusCode, Subject, Subscriber};
use futures_util::StreamExt;
use integration_client::BoxError;

/// The longest time for which the server keeps a request.
const EXPIRES: Duration = Duration::from_secs(30);
/// How often the server says that it keeps a request for which it has no message.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A request is lost if the server says nothing for this long.
const SILENCE: Duration = Duration::from_secs(10);
/// How often the connection is checked: a server forgets the requests of a connection that broke.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time without a message after which the server has sent all that it had.
const QUIET: Duration = Duration::from_millis(300);
/// The longest time without a byte from the server for which [`Batch::rest`] waits.
const LONGEST_REST: Duration = Duration::from_secs(3);

/// Why a request ended before its time.
#[derive(Debug)]
pub(super) enum Problem {
    /// The connection broke, and the client has connected again.
    Broken,
    /// The client has ended, and never connects again.
    ClientEnded,
    /// The server ended the request, or it is lost.
    Other(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Broken => f.write_str("the connection to the server was broken"),
            Problem::ClientEnded => f.write_str("the client of NATS has ended"),
            Problem::Other(what) => f.write_str(what),
        }
    }
}

/// A pull request.
pub(super) struct Batch {
    context: Context,
    consumer: PullConsumer,
    subscriber: Subscriber,
    /// The most messages that may still come.
    left: usize,
    statistics: Arc<Statistics>,
    /// How often the client had connected when the request was sent.
    connects: u64,
}

impl Batch {
    /// Asks for `most` messages at most, `longest` as the consumer limits the time of a request; zero is no limit. If
    /// this future is dropped, no request was sent.
    pub(super) async fn ask(
        context: &Context,
        consumer: &PullConsumer,
        most: usize,
        longest: Duration,
    ) -> Result<Batch, BoxError> {
        let client = context.client();
        let statistics = client.statistics();
        let connects = statistics.connects.load(Relaxed);
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(inbox.clone()).await?;
        consumer.request_batch(request(most, longest), Subject::from(inbox)).await?;
        let (context, consumer) = (context.clone(), consumer.clone());
        Ok(Batch { context, consumer, subscriber, left: most, statistics, connects })
    }

    /// Waits for the next message. `None` if no more will come: all have come, or the time of the request is over. If
    /// this future is dropped, no message is lost.
    ///
    /// # Errors
    /// The server has ended the request, or it is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Problem> {
        let mut silent = Duration::ZERO;
        while self.left > 0 {
            let mut received = tokio::time::timeout(LOOK_EVERY, self.subscriber.next()).await;
            if received.is_err() {
                silent += LOOK_EVERY;
                if self.is_forgotten() {
                    return Err(Problem::Broken);
                }
                if silent < SILENCE {
                    continue;
                }
                // Nobody would read a message that comes after the end of this request.
                is_answered(&self.consumer).await;
                received = tokio::time::timeout(QUIET, self.subscriber.next()).await;
            }
            let Ok(received) = received else {
                return Err(Problem::Other("the server sent no heartbeat".to_owned()));
            };
            silent = Duration::ZERO;
            let message = received.ok_or(Problem::ClientEnded)?;
            match message.status {
                None | Some(StatusCode::OK) => {
                    self.left -= 1;
                    return Ok(Some(Message { context: self.context.clone(), message }));
                }
                Some(StatusCode::IDLE_HEARTBEAT) => {}
                Some(StatusCode::TIMEOUT) => self.left = 0,
                Some(status) => {
                    self.left = 0;
                    let why = message.description.unwrap_or_default();
                    return Err(Problem::Other(format!("the server ended the delivery: {status} {why}")));
                }
            }
        }
        Ok(None)
    }

    /// The messages that have come, or are under way, and were not read. Ends the request.
    pub(super) async fn rest(mut self) -> Vec<Message> {
        let mut rest = Vec::new();
        while self.left > 0 {
            let bytes = self.statistics.in_bytes.load(Relaxed);
            let is_answered = is_answered(&self.consumer).await;
            while let Ok(Ok(Some(message))) = tokio::time::timeout(QUIET, self.next()).await {
                rest.push(message);
            }
            // On a slow link the answer may still be behind messages.
            let is_silent = self.statistics.in_bytes.load(Relaxed) == bytes;
            if is_answered || is_silent || self.is_forgotten() {
                break;
            }
        }
        rest
    }

    /// Whether the connection broke since the request was sent.
    fn is_forgotten(&self) -> bool {
        self.statistics.connects.load(Relaxed) != self.connects
    }
}

/// Waits for the answer to another request on the same connection. The server sends it behind the messages that it has
/// sent before. Returns false if none came in time.
async fn is_answered(consumer: &PullConsumer) -> bool {
    tokio::time::timeout(LONGEST_REST, consumer.get_info()).await.is_ok()
}

fn request(most: usize, longest: Duration) -> pull::BatchConfig {
    let expires = if longest.is_zero() { EXPIRES } else { longest.min(EXPIRES) };
    // The server refuses a request with fewer than two heartbeats.
    let idle_heartbeat = HEARTBEAT.min(expires / 2);
    pull::BatchConfig { batch: most, expires: Some(expires), idle_heartbeat, ..pull::BatchConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_within_the_consumers_time() {
        for (longest, expires, heartbeat) in [(0, 30, 5), (60, 30, 5), (4, 4, 2)] {
            let request = request(7, Duration::from_secs(longest));
            let expected = (7, Some(Duration::from_secs(expires)), Duration::from_secs(heartbeat));
            assert_eq!((request.batch, request.expires, request.idle_heartbeat), expected, "{longest}");
        }
    }
}
