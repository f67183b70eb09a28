//! Calls of the user's [`ResponseHandler`]. The handler may block its thread, panic or never return, so it runs on a
//! bounded number of the runtime's threads for blocking work, and no outcome waits for it for longer than [`PROMPT`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::{Delivered, OutboxState, ResponseHandler};
use crate::BoxError;
use crate::dead_letter::DeadLetter;
use crate::error::panic::catch_panic;
use crate::store::Id;
use crate::store::jobs::{End, Finish};

/// Threads that handlers may occupy. tokio has 512 for blocking work by default, which files and host names need too.
const THREADS: usize = 64;
/// Time limit of one call, including the wait for one of the threads.
const CALL: Duration = Duration::from_secs(30);
/// How often a handler that fails or panics is called.
const CALLS: u32 = 3;
/// Time after which the outcome of a job is written, even if its call has not returned.
const PROMPT: Duration = Duration::from_secs(1);

type Call = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// The handler, and the threads that it may occupy.
pub(crate) struct Handler {
    user: Arc<dyn ResponseHandler>,
    threads: Arc<Semaphore>,
}

impl Handler {
    pub(crate) fn new(user: Arc<dyn ResponseHandler>) -> Handler {
        Handler { user, threads: Arc::new(Semaphore::new(THREADS)) }
    }

    /// Passes the answer to a job to the handler. Returns whether the handler succeeded.
    pub(super) async fn delivered(&self, answer: Delivered) -> bool {
        let answer = Arc::new(answer);
        let begin = || -> Call {
            let (user, answer) = (self.user.clone(), answer.clone());
            Box::pin(async move { user.delivered(&answer).await })
        };
        self.call(&answer.id, begin).await
    }

    /// Passes the letter of a job that is given up to the handler. Returns whether the handler succeeded.
    pub(super) async fn given_up(&self, letter: Arc<DeadLetter>) -> bool {
        let begin = || -> Call {
            let (user, letter) = (self.user.clone(), letter.clone());
            Box::pin(async move { user.given_up(&letter).await })
        };
        self.call(&letter.id, begin).await
    }

    /// Calls the handler until it succeeds. A call that exceeds its time limit is not repeated: it may still be
    /// running.
    async fn call(&self, id: &str, begin: impl Fn() -> Call) -> bool {
        for number in 1..=CALLS {
            let mut began = false;
            let why = match timeout(CALL, self.drive(begin(), &mut began)).await {
                Ok(Ok(())) => return true,
                Ok(Err(why)) => why,
                Err(_) => {
                    let limit = CALL.as_secs();
                    let why = match began {
                        true => format!("it took longer than {limit} s"),
                        false => format!(
                            "all {THREADS} threads for handlers were occupied for {limit} s by calls that do not return"
                        ),
                    };
                    tracing::error!(id, number, why, "the handler of responses failed");
                    return false;
                }
            };
            tracing::error!(id, number, why, "the handler of responses failed");
        }
        false
    }

    /// Polls `call` to its end, each time on a thread for blocking work.
    async fn drive(&self, call: Call, began: &mut bool) -> Result<(), String> {
        let woken = Arc::new(Woken(Notify::new()));
        let mut call = Contained(Some(call));
        loop {
            let Ok(thread) = self.threads.clone().acquire_owned().await else {
                return Err("it was stopped".to_owned());
            };
            *began = true;
            let waker = Waker::from(woken.clone());
            let polled = tokio::task::spawn_blocking(move || {
                let _thread = thread;
                let polled = call.poll(&mut Context::from_waker(&waker));
                polled.is_pending().then_some(call).ok_or(polled)
            });
            call = match polled.await {
                Ok(Ok(pending)) => pending,
                Ok(Err(Poll::Ready(result))) => return result,
                // The runtime is shutting down, and drops this task too.
                Ok(Err(Poll::Pending)) | Err(_) => std::future::pending().await,
            };
            woken.0.notified().await;
        }
    }
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A call whose panics are caught, also while it is dropped.
struct Contained(Option<Call>);

impl Contained {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Some(call) = &mut self.0 else { return Poll::Ready(Err("it panicked".to_owned())) };
        let polled = catch_panic(|| call.as_mut().poll(context));
        if let Some(Poll::Pending) = polled {
            return Poll::Pending;
        }
        // This thread may be blocked anyway, so the call and its error are formatted and dropped here.
        let result = match polled {
            Some(Poll::Ready(Err(error))) => Err(catch_panic(|| error.to_string()).unwrap_or_default()),
            Some(_) => Ok(()),
            None => Err("it panicked".to_owned()),
        };
        let call = self.0.take();
        catch_panic(|| drop(call));
        Poll::Ready(result)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let Some(call) = self.0.take() else { return };
        let discard = || {
            catch_panic(|| drop(call));
        };
        match Handle::try_current() {
            // The destructor may block as well.
            Ok(runtime) => drop(runtime.spawn_blocking(discard)),
            Err(_) => discard(),
        }
    }
}

/// Ends a job with a known outcome when `call` is over, or after [`PROMPT`] if that is earlier. `end` makes the outcome
/// from whether the handler has succeeded by then. Returns `None` where the outcome was handed to the worker before the
/// call ended.
///
/// The job counts as held by this process until the call ends, so that a slow handler slows down the claims.
pub(super) async fn end_after(
    outbox: &OutboxState,
    (id, fence, known): (Id, i64, Option<i64>),
    call: impl Future<Output = bool>,
    end: impl FnOnce(bool) -> End,
) -> Option<Finish> {
    let mut call = std::pin::pin!(call);
    if let Ok(taken) = timeout(PROMPT, &mut call).await {
        return Some(Finish { id, fence, known, end: end(taken) });
    }
    outbox.end_early(Finish { id, fence, known, end: end(false) });
    call.await;
    None
}
