//! Passes letters to the sink without delaying any caller.
//!
//! [`Writer::offer`] puts a letter into the queue, and one task passes the letters to the sink. Every letter ends
//! exactly once, as written or as lost, and a lost letter is logged. The code that takes a letter out of `LetterInHand` or out
//! of the queue counts its end: the task, or [`Writer::close`] when the grace period has ended, or the destructor of the
//! task when its runtime shuts down.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::queue::{self, Entrance, Exit, Refused};
use super::{DeadLetter, DeadLetterSink, log_letter};
use crate::BoxError;
use crate::BoxFuture;
use crate::error::panic::catch_panic;

/// The most letters that wait for the sink, unless the client's settings say otherwise.
pub(crate) const CAPACITY: usize = 10_000;
/// The most bytes that wait for the sink. Letters may hold bodies, so their number alone bounds no memory.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The approximate size of a letter without its request.
const LETTER_BYTES: usize = 1024;
/// How often a letter is passed to the sink.
const TRIES: u32 = 5;
/// The wait after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The time limit of one call of the sink.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The most letters between two flushes.
const BATCH: u32 = 64;

/// Accepts letters for a sink. Dropping it closes the queue; what is in the queue is still written.
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    entrance: Entrance,
    exit: Exit,
    hand: Mutex<LetterInHand>,
    /// Letters that were accepted and have not ended.
    depth: AtomicUsize,
    /// The bytes of those letters.
    bytes: AtomicUsize,
    written: AtomicU64,
    lost: AtomicU64,
    stop: Notify,
    /// Whether the task has ended.
    ended: watch::Sender<bool>,
}

/// The letter that is being passed to the sink.
#[derive(Default)]
struct LetterInHand {
    letter: Option<Arc<DeadLetter>>,
    /// Whether the grace period has ended, so that the task must not start another letter.
    given_up: bool,
}

impl Writer {
    /// A writer, and the task that must be spawned for it. The task ends when the writer is closed or dropped, and all
    /// letters are written.
    pub(crate) fn new(
        sink: Arc<dyn DeadLetterSink>,
        capacity: usize,
    ) -> (Writer, impl Future<Output = ()> + Send + 'static) {
        let (entrance, exit) = queue::bounded(capacity);
        let shared = Arc::new(Shared {
            entrance,
            exit,
            hand: Mutex::default(),
            depth: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            stop: Notify::new(),
            ended: watch::Sender::new(false),
        });
        // Created here and not in the task, so that it also runs for a task that is dropped before its first poll.
        let end = End(shared.clone());
        let task = async move {
            tokio::select! {
                biased;
                () = end.0.stop.notified() => {}
                () = end.0.drain(&*sink) => {}
            }
        };
        (Writer { shared }, task)
    }

    /// Logs that a request was dead-lettered, and queues the letter. Reports the letter as lost if the queue is full or
    /// closed. Never waits. Returns whether the letter is in the queue.
    pub(crate) fn offer(&self, letter: DeadLetter) -> bool {
        log_letter(&letter);
        let shared = &self.shared;
        let weight = weight(&letter);
        // Counted before the letter is visible to the task, which subtracts it when the letter ends.
        shared.depth.fetch_add(1, Relaxed);
        let pushed = if shared.bytes.fetch_add(weight, Relaxed).saturating_add(weight) > MAX_BYTES {
            Err((Box::new(letter), Refused::Full))
        } else {
            shared.entrance.push(Box::new(letter))
        };
        if let Err((letter, why)) = pushed {
            let why = match why {
                Refused::Full => "the queue is full",
                Refused::Closed => "the client has shut down",
            };
            shared.lose(&letter, why, None);
            return false;
        }
        true
    }

    /// Accepts no more letters, and returns when all are written. Letters that are not written within `grace` are
    /// reported as lost.
    pub(crate) async fn close(&self, grace: Duration) {
        self.shared.entrance.shut();
        let mut ended = self.shared.ended.subscribe();
        if timeout(grace, ended.wait_for(|ended| *ended)).await.is_err() {
            self.shared.stop.notify_one();
            // Done here, because a sink that blocks its thread would keep the task from doing it.
            self.shared.give_up("the time to shut down was over");
        }
    }

    /// The number of letters that are neither written nor lost yet.
    pub(crate) fn depth(&self) -> usize {
        self.shared.depth.load(Relaxed)
    }

    /// The number of letters that the sink accepted.
    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// The number of letters that the sink did not accept and that were logged instead.
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.entrance.shut();
    }
}

impl Shared {
    /// Passes letters to the sink, until the queue is closed and empty.
    async fn drain(&self, sink: &dyn DeadLetterSink) {
        let mut unflushed = 0;
        while let Some(letter) = self.exit.pop().await {
            let letter: Arc<DeadLetter> = Arc::from(letter);
            if !self.begin(&letter) {
                // The letter left the queue just when the remaining letters were reported.
                return self.lose(&letter, "the time to shut down was over", None);
            }
            let written = give(sink, &letter).await;
            unflushed += u32::from(written.is_ok());
            // A letter that is no longer here was reported as lost already; it may have been written too, but is
            // counted once.
            if self.hand.lock().letter.take().is_some() {
                match written {
                    Ok(()) => self.end(&letter, &self.written),
                    Err(error) => self.lose(&letter, "the sink failed", Some(&error)),
                }
            }

            if unflushed >= BATCH || (unflushed > 0 && self.exit.is_empty()) {
                if let Err(error) = call(|| sink.flush()).await {
                    let error = text(&error);
                    tracing::error!(letters = unflushed, error, "dead letters written, but not flushed");
                }
                unflushed = 0;
                // A sink that never waits would otherwise occupy the thread for the whole queue.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Marks the letter as being written. Returns false where the grace period has ended.
    fn begin(&self, letter: &Arc<DeadLetter>) -> bool {
        let mut hand = self.hand.lock();
        if !hand.given_up {
            hand.letter = Some(letter.clone());
        }
        !hand.given_up
    }

    /// Reports all remaining letters as lost.
    fn give_up(&self, why: &str) {
        let in_hand = {
            let mut hand = self.hand.lock();
            hand.given_up = true;
            hand.letter.take()
        };
        if let Some(letter) = in_hand {
            self.lose(&letter, why, None);
        }
        while let Some(letter) = self.exit.pop_now() {
            self.lose(&letter, why, None);
        }
    }

    /// Counts the letter as lost, and logs its redacted form.
    fn lose(&self, letter: &DeadLetter, why: &str, error: Option<&BoxError>) {
        self.end(letter, &self.lost);
        let redacted = letter.redacted();
        // Serialization cannot fail: all map keys are strings.
        let json = serde_json::to_string(&redacted).unwrap_or_else(|_| format!("{redacted:?}"));
        let error = error.map(text);
        tracing::error!(
            id = letter.id,
            tenant = letter.tenant,
            vendor = letter.vendor,
            why,
            error,
            letter = json,
            "dead letter not written"
        );
    }

    /// Counts the end of the letter in `count`.
    fn end(&self, letter: &DeadLetter, count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
        self.depth.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(weight(letter), Relaxed);
    }
}

/// Held by the task. However the task ends, its drop closes the queue and reports the remaining letters.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.entrance.shut();
        self.0.give_up("its task was stopped");
        self.0.ended.send_replace(true);
    }
}

fn weight(letter: &DeadLetter) -> usize {
    LETTER_BYTES + letter.request.weight()
}

/// Passes `letter` to `sink`, up to [`TRIES`] times.
async fn give(sink: &dyn DeadLetterSink, letter: &DeadLetter) -> Result<(), BoxError> {
    let mut wait = FIRST_WAIT;
    for number in 1.. {
        let Err(error) = call(|| sink.write(letter)).await else { break };
        if number == TRIES {
            return Err(error);
        }
        let text = text(&error);
        tracing::warn!(id = letter.id, number, error = text, "the dead-letter sink failed; the letter is passed again");
        sleep(wait).await;
        wait *= 2;
    }
    Ok(())
}

/// Runs one call of a sink, with a time limit. A panic becomes an error.
async fn call<'a>(begin: impl FnOnce() -> BoxFuture<'a, Result<(), BoxError>>) -> Result<(), BoxError> {
    let Some(future) = catch_panic(begin) else { return Err(PANICKED.into()) };
    let mut future = Contained(Some(future));
    match timeout(CALL_LIMIT, poll_fn(|context| future.poll(context))).await {
        Ok(ended) => ended,
        Err(_) => Err(format!("the sink took longer than {} s", CALL_LIMIT.as_secs()).into()),
    }
}

const PANICKED: &str = "the sink panicked";

/// The future of a sink, which may panic when it is polled and when it is dropped.
struct Contained<'a>(Option<BoxFuture<'a, Result<(), BoxError>>>);

impl Contained<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let Some(future) = &mut self.0 else { return Poll::Ready(Err(PANICKED.into())) };
        catch_panic(|| future.as_mut().poll(context)).unwrap_or_else(|| Poll::Ready(Err(PANICKED.into())))
    }
}

impl Drop for Contained<'_> {
    fn drop(&mut self) {
        let future = self.0.take();
        catch_panic(|| drop(future));
    }
}

/// The text of a sink's error. Its `Display` is the application's code, and may panic too.
fn text(error: &BoxError) -> String {
    catch_panic(|| error.to_string()).unwrap_or_else(|| "an error that cannot be shown".to_owned())
}
