//! From "here is a letter" to the sink, without holding anybody up.
//!
//! [`Writer::offer`] puts a letter into the queue, and one task gives them to the sink. Every letter ends exactly once,
//! as written or as lost, and a lost one is in an error event: whoever takes it out of the hand, or out of the queue,
//! counts it. That may be the task, or [`Writer::close`] when the grace has ended, or the end of the task itself when
//! its runtime goes.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::queue::{self, Entrance, Exit, Refused};
use super::{DeadLetter, DeadLetterSink, told_to_the_log};
use crate::BoxError;
use crate::BoxFuture;
use crate::error::panic::catch_panic;

/// Letters that wait for the sink, unless the client's settings say otherwise.
pub(crate) const CAPACITY: usize = 10_000;
/// Bytes that wait for the sink. Letters may hold bodies, and their number says nothing about those.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// What a letter takes beside its request, about.
const LETTER_BYTES: usize = 1024;
/// How often a letter is given to the sink.
const TRIES: u32 = 5;
/// The wait after the first failure; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest that a sink may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Letters between two flushes when many come.
const BATCH: u32 = 64;

/// Takes letters for a sink. Dropping it closes the queue; what is inside is still written.
pub(crate) struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    entrance: Entrance,
    exit: Exit,
    hand: Mutex<Hand>,
    /// Letters that were taken and have not ended.
    depth: AtomicUsize,
    /// What those take.
    bytes: AtomicUsize,
    written: AtomicU64,
    lost: AtomicU64,
    stop: Notify,
    /// Whether the task has ended.
    ended: watch::Sender<bool>,
}

/// The letter that the sink is being given.
#[derive(Default)]
struct Hand {
    letter: Option<Arc<DeadLetter>>,
    /// The grace has ended: the task must begin no other.
    given_up: bool,
}

impl Writer {
    /// A writer, and the task that must be spawned for it. The task ends when the writer is closed or dropped, and all
    /// is written.
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
        // Made here and not in the task, so that a task that is dropped before its first poll ends in order too.
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

    /// Says that there is a letter, whatever the sink is and does, and takes or reports it. Never waits.
    pub(crate) fn offer(&self, letter: DeadLetter) {
        told_to_the_log(&letter);
        let shared = &self.shared;
        let weight = weight(&letter);
        // Counted before it can be seen, so that nobody takes it off before it was added.
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
        }
    }

    /// Takes no more, and returns when everything is written. When that takes longer than `grace`, the rest is reported.
    pub(crate) async fn close(&self, grace: Duration) {
        self.shared.entrance.shut();
        let mut ended = self.shared.ended.subscribe();
        if timeout(grace, ended.wait_for(|ended| *ended)).await.is_err() {
            self.shared.stop.notify_one();
            // Not left to the task: a sink that blocks its thread would keep it from ever doing so.
            self.shared.give_up("the time to shut down was over");
        }
    }

    /// Letters that are neither written nor lost yet.
    pub(crate) fn depth(&self) -> usize {
        self.shared.depth.load(Relaxed)
    }

    /// Letters that the sink took.
    pub(crate) fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// Letters that no sink took, and that were reported instead.
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
    /// Gives letters to the sink, until the entrance is shut and nothing is left.
    async fn drain(&self, sink: &dyn DeadLetterSink) {
        let mut unflushed = 0;
        while let Some(letter) = self.exit.pop().await {
            let letter: Arc<DeadLetter> = Arc::from(letter);
            if !self.take_in_hand(&letter) {
                // It was on its way here when the rest was reported.
                return self.lose(&letter, "the time to shut down was over", None);
            }
            let written = give(sink, &letter).await;
            unflushed += u32::from(written.is_ok());
            // When it is gone it was reported already; then it may be written and reported, but is counted once.
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
                // A sink that never waits would keep the thread for the whole queue.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether the letter may be given to the sink.
    fn take_in_hand(&self, letter: &Arc<DeadLetter>) -> bool {
        let mut hand = self.hand.lock();
        if !hand.given_up {
            hand.letter = Some(letter.clone());
        }
        !hand.given_up
    }

    /// Reports all that is left.
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

    /// The letter goes to the log, as much of it as may be shown.
    fn lose(&self, letter: &DeadLetter, why: &str, error: Option<&BoxError>) {
        self.end(letter, &self.lost);
        let redacted = letter.redacted();
        // All keys are strings, so it can always be written.
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

    /// The letter has ended, as `count` counts.
    fn end(&self, letter: &DeadLetter, count: &AtomicU64) {
        count.fetch_add(1, Relaxed);
        self.depth.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(weight(letter), Relaxed);
    }
}

/// Held by the task: however it ends, nothing is taken any more and nothing is left unreported.
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

/// Gives `letter` to `sink`, several times if need be.
async fn give(sink: &dyn DeadLetterSink, letter: &DeadLetter) -> Result<(), BoxError> {
    let mut wait = FIRST_WAIT;
    for number in 1.. {
        let Err(error) = call(|| sink.write(letter)).await else { break };
        if number == TRIES {
            return Err(error);
        }
        let text = text(&error);
        tracing::warn!(id = letter.id, number, error = text, "the dead-letter sink failed and is tried again");
        sleep(wait).await;
        wait *= 2;
    }
    Ok(())
}

/// One call of a sink. It ends in time, and a panic in it is an error.
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

/// What a sink's error says. Its `Display` is the application's code too.
fn text(error: &BoxError) -> String {
    catch_panic(|| error.to_string()).unwrap_or_else(|| "an error that cannot be shown".to_owned())
}
