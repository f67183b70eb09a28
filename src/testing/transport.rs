//! A vendor as a function, for tests under virtual time: without sockets, and with a record of every call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::Sleep;

use crate::BoxFuture;
use crate::ErrorKind;
use crate::clock::{Clock, Time};
use crate::transport::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError};

/// A request that reached a [`FakeTransport`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FakeCall {
    /// The number of the call in order of arrival, from 0.
    pub number: usize,
    /// When the call arrived, by the runtime's clock, since the transport was created.
    pub at: Time,
    /// The request's method.
    pub method: Method,
    /// Scheme, host, path and query.
    pub url: String,
    /// The headers as they would be sent, credentials included.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl FakeCall {
    /// A call as [`FakeTransport::answer`] takes it, which fills in number and time.
    pub fn new(method: Method, url: impl Into<String>) -> FakeCall {
        FakeCall { number: 0, at: Time::ZERO, method, url: url.into(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// The path, without the query string.
    pub fn path(&self) -> &str {
        let after_scheme = self.url.split_once("://").map_or(&*self.url, |(_, rest)| rest);
        let path = after_scheme.find('/').map_or("/", |slash| &after_scheme[slash..]);
        path.split(['?', '#']).next().unwrap_or(path)
    }

    /// The value of the header, if it exists and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// How an exchange ends.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FakeOutcome {
    /// The vendor answers.
    Response {
        /// The status.
        status: StatusCode,
        /// The headers.
        headers: HeaderMap,
        /// The whole body.
        body: Bytes,
    },
    /// No connection could be made: nothing was sent.
    NotConnected,
    /// The vendor refuses the HTTP/2 stream: the request arrived and was not processed.
    RefusedStream,
    /// The connection breaks after the request was sent.
    Reset,
    /// No answer ever comes: only a timeout or dropping the call ends it.
    Stall,
}

/// What a [`FakeTransport`] does with a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FakeAnswer {
    /// Time from the call to its outcome.
    pub delay: Duration,
    /// Time from a response's headers to its body.
    pub body_delay: Duration,
    /// How the exchange ends.
    pub outcome: FakeOutcome,
}

impl FakeAnswer {
    /// A response with this status, without delay. An invalid status becomes 500.
    pub fn status(status: u16) -> FakeAnswer {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        FakeAnswer::ending(FakeOutcome::Response { status, headers: HeaderMap::new(), body: Bytes::new() })
    }

    /// No connection could be made: the request was not sent.
    pub fn not_connected() -> FakeAnswer {
        FakeAnswer::ending(FakeOutcome::NotConnected)
    }

    /// The vendor refuses the HTTP/2 stream: the request arrived and was not processed.
    pub fn refused_stream() -> FakeAnswer {
        FakeAnswer::ending(FakeOutcome::RefusedStream)
    }

    /// The connection breaks after the request was sent.
    pub fn reset() -> FakeAnswer {
        FakeAnswer::ending(FakeOutcome::Reset)
    }

    /// No answer ever comes.
    pub fn stall() -> FakeAnswer {
        FakeAnswer::ending(FakeOutcome::Stall)
    }

    fn ending(outcome: FakeOutcome) -> FakeAnswer {
        FakeAnswer { delay: Duration::ZERO, body_delay: Duration::ZERO, outcome }
    }

    /// Delays the outcome after the call.
    pub fn delay(mut self, delay: Duration) -> FakeAnswer {
        self.delay = delay;
        self
    }

    /// Delays the body after the headers.
    pub fn body_delay(mut self, delay: Duration) -> FakeAnswer {
        self.body_delay = delay;
        self
    }

    /// Sets the response's body.
    pub fn body(mut self, content: impl Into<Bytes>) -> FakeAnswer {
        if let FakeOutcome::Response { body, .. } = &mut self.outcome {
            *body = content.into();
        }
        self
    }

    /// Adds a header to the response. An invalid header is ignored.
    pub fn header(mut self, name: &str, value: &str) -> FakeAnswer {
        if let FakeOutcome::Response { headers, .. } = &mut self.outcome
            && let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            headers.append(name, value);
        }
        self
    }
}

type Script = dyn Fn(&FakeCall) -> FakeAnswer + Send + Sync;

/// A script in place of a network. Cheap to clone; clones share the script and the record.
///
/// ```
/// use integration_client::testing::{FakeAnswer, FakeTransport};
/// use std::time::Duration;
///
/// let transport = FakeTransport::new(|call| match call.number {
///     0 => FakeAnswer::status(429).header("retry-after", "2"),
///     _ => FakeAnswer::status(200).delay(Duration::from_millis(30)).body("done"),
/// });
/// assert!(transport.calls().is_empty());
/// ```
#[derive(Clone)]
pub struct FakeTransport {
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    calls: Mutex<Vec<FakeCall>>,
    clock: Clock,
    made: Time,
}

impl FakeTransport {
    /// A transport that answers each call as `script` says. The script runs once for each call, in order of arrival.
    pub fn new(script: impl Fn(&FakeCall) -> FakeAnswer + Send + Sync + 'static) -> FakeTransport {
        let clock = Clock::system();
        let shared = Shared { script: Box::new(script), calls: Mutex::default(), clock, made: clock.now() };
        FakeTransport { shared: Arc::new(shared) }
    }

    /// Every call so far, in order of arrival.
    pub fn calls(&self) -> Vec<FakeCall> {
        self.shared.calls.lock().clone()
    }

    /// Forgets the calls so far; numbers start at 0 again.
    pub fn reset_calls(&self) {
        self.shared.calls.lock().clear();
    }

    /// Records the call and runs the script, without waiting: the first step of an exchange.
    pub fn answer(&self, mut call: FakeCall) -> FakeAnswer {
        {
            let mut calls = self.shared.calls.lock();
            call.number = calls.len();
            call.at = Time::ZERO + self.shared.clock.now().since(self.shared.made);
            calls.push(call.clone());
        }
        // Outside the lock, because a script may look at the calls so far.
        (self.shared.script)(&call)
    }
}

impl Transport for FakeTransport {
    /// Records the call when the future is first polled, and then does what the script says, by the runtime's timers.
    /// Under paused time this takes no real time.
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let transport = self.clone();
        Box::pin(async move {
            let deadline = exchange.deadline;
            let late = || TransportError::new(Sent::MaybeSent, ErrorKind::Timeout, "no answer before the deadline");
            tokio::time::timeout_at(deadline, transport.exchange(exchange)).await.unwrap_or_else(|_| Err(late()))
        })
    }
}

impl FakeTransport {
    async fn exchange(&self, exchange: Exchange) -> Result<Answer, TransportError> {
        let Exchange { method, url, headers, body, vendor, deadline, .. } = exchange;
        let body = match BodyExt::collect(body).await {
            Ok(body) => body.to_bytes(),
            Err(why) => {
                let broken = TransportError::new(Sent::MaybeSent, ErrorKind::Protocol, "the request's body broke off");
                return Err(broken.with_source(why));
            }
        };
        let call = FakeCall { headers, body, ..FakeCall::new(method, url) };
        let FakeAnswer { delay, body_delay, outcome } = self.answer(call);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match outcome {
            FakeOutcome::Response { status, headers, body } => {
                let most = vendor.max_response_bytes;
                let body = if body_delay.is_zero() {
                    AnswerBody::from_bytes(body, most, deadline)
                } else {
                    AnswerBody::new(LateBody { sleep: Box::pin(tokio::time::sleep(body_delay)), body }, most, deadline)
                };
                Ok(Answer::new(status, headers, body))
            }
            FakeOutcome::NotConnected => {
                Err(TransportError::new(Sent::NotSent, ErrorKind::Connect, "no connection could be made"))
            }
            FakeOutcome::RefusedStream => {
                Err(TransportError::new(Sent::Unprocessed, ErrorKind::Protocol, "the vendor refused the stream"))
            }
            FakeOutcome::Reset => {
                Err(TransportError::new(Sent::MaybeSent, ErrorKind::Protocol, "the connection was reset"))
            }
            FakeOutcome::Stall => std::future::pending().await,
        }
    }
}

/// A body that comes as a whole after a delay.
struct LateBody {
    sleep: Pin<Box<Sleep>>,
    body: Bytes,
}

impl HttpBody for LateBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        // A sleep that has ended must not be polled again.
        if !self.sleep.is_elapsed() {
            ready!(self.sleep.as_mut().poll(context));
        }
        let body = std::mem::take(&mut self.body);
        Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))))
    }
}

impl fmt::Debug for FakeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeTransport").field("calls", &self.shared.calls.lock().len()).finish_non_exhaustive()
    }
}
