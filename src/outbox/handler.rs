//! Calls of the user's [`ResponseHandler`]. The handler may block its thread, panic or never return, so it runs on a
//! bounded number of the runtime's threads for blocking work ([`CallQueue`]), and no outcome waits for it for longer than a second.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::call_queue::{CallQueue, PATIENCE, THREADS};
use crate::BoxError;
use crate::BoxFuture;
use crate::Priority;
use crate::dead_letter::{DeadLetter, KeptHeaders};
use crate::error::panic::catch_panic;

/// Receives the vendors' responses to jobs.
///
/// # When it is called
/// The handler is called after the vendor's response, and usually before the job leaves the outbox. So it is called at
/// least once for each job: a process that is killed in between sends the job again, with its key, and calls the
/// handler again. A call that fails or panics is tried three times in all; then the client logs an error and keeps the
/// answer in the store ([`Status::Delivered`](crate::outbox::Status::Delivered)).
///
/// # What it may do
/// - **Wait, and block its thread.** Calls run on tokio's threads for blocking work, at most 64 at once; a call that is
///   waiting in an `await` occupies no thread. Sends, leases and other jobs' outcomes never wait for a call.
/// - **Take its time.** After one second the client writes the outcome of the job together with the response, and the
///   call goes on. A process that is killed later than that does not call again: the response is in
///   [`Status::Delivered`](crate::outbox::Status::Delivered)
///   (unless the vendor's entry says `at_rest = "redacted"`).
/// - **Stay slow.** A job counts against
///   [`IntegrationClientBuilder::max_jobs`](crate::IntegrationClientBuilder::max_jobs) until its call is over, so that
///   fewer jobs are claimed when the handler cannot keep up.
///
/// # What becomes of a call that does not return
/// After 30 s, which include the wait for one of the 64 threads, the client stops waiting for the call and does not
/// repeat it, because it may still be running. The client logs an error, and the response stays in the store. A call
/// that blocks its thread for ever keeps that thread, and tokio's runtime waits for it when the runtime is dropped
/// (`Runtime::shutdown_background` does not).
///
/// A closure that takes a [`Delivered`] is a handler too; it ignores jobs that are given up:
///
/// ```
/// use integration_client::IntegrationClient;
/// use integration_client::outbox::Delivered;
///
/// let builder = IntegrationClient::builder().response_handler(|answer: Delivered| async move {
///     println!("job {} of {}: {}", answer.id, answer.tenant, answer.status);
///     Ok(())
/// });
/// # drop(builder);
/// ```
pub trait ResponseHandler: Send + Sync + 'static {
    /// The vendor accepted a job.
    ///
    /// # Errors
    /// The handler is called again. The error's text goes into an event, so it must hold no secret.
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>>;

    /// A job was given up, and becomes a dead letter right after this call. The default does nothing.
    ///
    /// A letter with the reason `ambiguous` may be withdrawn: the process that lost the job to another may still learn
    /// the outcome of its exchange, and calls [`delivered`](Self::delivered) if that was a delivery.
    ///
    /// # Errors
    /// As for [`delivered`](Self::delivered).
    fn given_up<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = letter;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether the handler has kept the response to a job that it took, so that the store need not keep it too although
    /// the request asked for that ([`keep_response`](crate::Request::keep_response)). Called after
    /// [`delivered`](Self::delivered) has succeeded, on a thread that it must not block. The default is `false`.
    #[doc(hidden)]
    fn keeps(&self, id: &str) -> bool {
        let _ = id;
        false
    }
}

impl<F, R> ResponseHandler for F
where
    F: Fn(Delivered) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self(answer.clone()))
    }
}

/// The response to a job.
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivered {
    /// The job's id, as in its [receipt](crate::outbox::Receipt::id).
    pub id: String,
    /// The tenant on whose behalf the request was sent.
    pub tenant: String,
    /// The vendor that responded.
    pub vendor: String,
    /// The priority of the job.
    pub priority: Priority,
    /// The caller's metadata of the request.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// The status of the response.
    pub status: StatusCode,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The headers as the store keeps them, without credentials: for a handler that writes the response down.
    pub kept_headers: KeptHeaders,
    /// The body of the response. Empty unless [`body_is_whole`](Self::body_is_whole), because a partial body is
    /// discarded.
    pub body: Bytes,
    /// Whether the body was read to its end. `false` if it broke off, arrived too late, or is larger than
    /// [`max_response_bytes`](crate::config::Vendor::max_response_bytes): the vendor accepted the job, and the rest
    /// of its response is lost.
    pub body_is_whole: bool,
    /// The number of exchanges that the job took.
    pub attempts: u32,
}

impl std::fmt::Debug for Delivered {
    /// Shows no header value and no body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivered")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("vendor", &self.vendor)
            .field("status", &self.status)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Time limit of one call, including the wait for one of the threads.
const CALL: Duration = Duration::from_secs(30);
/// How often a handler that fails or panics is called.
const CALLS: u32 = 3;

type Call = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// The handler, and the threads that it may occupy.
pub(crate) struct Handler {
    user: Arc<dyn ResponseHandler>,
    queue: Arc<CallQueue>,
}

impl Handler {
    pub(crate) fn new(user: Arc<dyn ResponseHandler>) -> Handler {
        Handler { user, queue: Arc::default() }
    }

    /// Passes the response to a job to the handler. Returns whether the handler succeeded.
    pub(super) async fn delivered(&self, answer: Delivered) -> bool {
        let answer = Arc::new(answer);
        let begin = || -> Call {
            let (user, answer) = (self.user.clone(), answer.clone());
            Box::pin(async move { user.delivered(&answer).await })
        };
        self.call(&answer.id, begin).await
    }

    /// Whether the handler has kept a response that it took, so that the store need not keep it too.
    pub(super) fn keeps(&self, id: &str) -> bool {
        catch_panic(|| self.user.keeps(id)).unwrap_or(false)
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
            let state = Arc::new(CallState::default());
            let why = match timeout(CALL, self.drive(begin(), &state)).await {
                Ok(Ok(())) => return true,
                Ok(Err(why)) => why,
                Err(_) => {
                    let limit = CALL.as_secs();
                    let why = match state.began.load(Relaxed) {
                        true => format!("it took longer than {limit} s"),
                        false => format!(
                            "all {THREADS} threads for handlers were occupied for {limit} s by calls that do not return"
                        ),
                    };
                    tracing::error!(id, number, why, "the response handler failed");
                    return false;
                }
            };
            tracing::error!(id, number, why, "the response handler failed");
        }
        false
    }

    /// Polls `call` to its end, each time on a thread for blocking work.
    async fn drive(&self, call: Call, state: &Arc<CallState>) -> Result<(), String> {
        let mut call = Contained(Some(call));
        loop {
            state.is_taken.store(false, Relaxed);
            let (reply, mut polled) = oneshot::channel();
            let (waker, taken) = (Waker::from(state.clone()), state.clone());
            self.queue.push(Box::new(move || {
                if reply.is_closed() {
                    // The caller has stopped waiting. The call is dropped here, on a thread that may block.
                    return drop(call);
                }
                taken.began.store(true, Relaxed);
                taken.is_taken.store(true, Relaxed);
                let polled = call.poll(&mut Context::from_waker(&waker));
                let _ = reply.send(polled.is_pending().then_some(call).ok_or(polled));
            }));
            // Let other ready calls be queued first.
            tokio::task::yield_now().await;
            self.queue.begin(1);
            let polled = loop {
                tokio::select! {
                    biased;
                    polled = &mut polled => break polled,
                    () = sleep(PATIENCE), if !state.is_taken.load(Relaxed) => {
                        if state.is_taken.load(Relaxed) || self.queue.begin(THREADS) {
                            break polled.await;
                        }
                    }
                }
            };
            call = match polled {
                Ok(Ok(pending)) => pending,
                Ok(Err(Poll::Ready(result))) => return result,
                // The runtime is shutting down, and drops this task too.
                Ok(Err(Poll::Pending)) | Err(_) => std::future::pending().await,
            };
            state.wake.notified().await;
        }
    }
}

/// The state of a call while it is not polled.
#[derive(Default)]
struct CallState {
    wake: Notify,
    /// Whether a thread has begun the call.
    began: AtomicBool,
    /// Whether a thread has taken the call out of the queue since it was last pushed.
    is_taken: AtomicBool,
}

impl Wake for CallState {
    fn wake(self: Arc<Self>) {
        self.wake.notify_one();
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
