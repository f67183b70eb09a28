//! The one public error: what failed ([`ErrorKind`]), and whether the vendor may have acted ([`Delivery`]).

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A request that did not end in a response, or a configuration that cannot be used.
///
/// The message names tenant, vendor and numbers and says what to do next. It never holds a body, a credential or a
/// query string.
///
/// ```
/// use integration_client::{Delivery, ErrorKind, IntegrationClient, Priority, Request};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = IntegrationClient::builder().build().await?;
/// let error = client.send("nobody", Priority::High, Request::get("github", "/user")).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::UnknownTenant);
/// assert_eq!(error.delivery(), Delivery::NotSent);
/// # Ok::<(), integration_client::Error>(()) }).unwrap();
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    delivery: Delivery,
    message: String,
    retry_after: Option<Duration>,
    response: Option<LastResponse>,
    letter: Option<String>,
    job: Option<String>,
    /// 0 where it is of no send.
    request: u64,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A vendor or tenant table cannot be used; the message names line and column.
    Config,
    /// The tenant is not configured for this vendor.
    UnknownTenant,
    /// The vendor is not configured.
    UnknownVendor,
    /// The vendor has no endpoint of this name.
    UnknownEndpoint,
    /// The request cannot be sent as it is: a forbidden header, a malformed path, a body that is too large.
    InvalidRequest,
    /// Too many requests wait already.
    QueueFull,
    /// The deadline or the longest wait the caller allows has passed, or will have before the limits allow the request.
    Deadline,
    /// The request costs more than its limit can ever hold.
    CostAboveCapacity,
    /// `try_send` or `try_acquire`: not now. [`Error::retry_after`] says when at the earliest.
    NotNow,
    /// The vendor wants no request before a moment that lies after this one's deadline, or very far off.
    /// [`Error::retry_after`] says when. The request is still the caller's, unless it has become a dead letter
    /// ([`Error::letter_id`]): the vendor has refused it, and nobody had stated a deadline.
    RetryLater,
    /// The credential could not be read or refreshed, or the request could not be signed.
    Credential,
    /// No connection could be made: name resolution, connect, a TLS handshake that broke off.
    Connect,
    /// The vendor's certificate is not good (it ended, is for another host, or by nobody who is trusted), or the two
    /// speak no version of TLS in common. It will be the same the next time, so it is not tried again.
    Tls,
    /// The exchange did not end in time.
    Timeout,
    /// The connection broke, or the vendor spoke something that is not HTTP.
    Protocol,
    /// The response is larger than the cap.
    ResponseTooLarge,
    /// All retries are used, or no more are allowed. [`Error::response`] is the vendor's last answer, if it answered;
    /// [`Error::letter_id`] the dead letter that the request has become.
    Exhausted,
    /// The vendor answered with a status of 400 or above, and the caller asked for an error then.
    Status,
    /// The response body is not what the caller asked for, for example not JSON.
    Decode,
    /// The tenant was removed while the request waited.
    Retired,
    /// The client is shutting down.
    Shutdown,
    /// The store cannot be reached, read or written, or the client has none.
    Store,
    /// Another request was accepted with this idempotency key before.
    KeyReused,
}

impl ErrorKind {
    /// Its name in snake case, as spans and metrics state it.
    ///
    /// ```
    /// assert_eq!(integration_client::ErrorKind::QueueFull.as_str(), "queue_full");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::UnknownTenant => "unknown_tenant",
            ErrorKind::UnknownVendor => "unknown_vendor",
            ErrorKind::UnknownEndpoint => "unknown_endpoint",
            ErrorKind::InvalidRequest => "invalid_request",
            ErrorKind::QueueFull => "queue_full",
            ErrorKind::Deadline => "deadline",
            ErrorKind::CostAboveCapacity => "cost_above_capacity",
            ErrorKind::NotNow => "not_now",
            ErrorKind::RetryLater => "retry_later",
            ErrorKind::Credential => "credential",
            ErrorKind::Connect => "connect",
            ErrorKind::Tls => "tls",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Protocol => "protocol",
            ErrorKind::ResponseTooLarge => "response_too_large",
            ErrorKind::Exhausted => "exhausted",
            ErrorKind::Status => "status",
            ErrorKind::Decode => "decode",
            ErrorKind::Retired => "retired",
            ErrorKind::Shutdown => "shutdown",
            ErrorKind::Store => "store",
            ErrorKind::KeyReused => "key_reused",
        }
    }
}

/// Every kind of error, at the place of its number.
pub(crate) const KINDS: [ErrorKind; 23] = [
    ErrorKind::Config,
    ErrorKind::UnknownTenant,
    ErrorKind::UnknownVendor,
    ErrorKind::UnknownEndpoint,
    ErrorKind::InvalidRequest,
    ErrorKind::QueueFull,
    ErrorKind::Deadline,
    ErrorKind::CostAboveCapacity,
    ErrorKind::NotNow,
    ErrorKind::RetryLater,
    ErrorKind::Credential,
    ErrorKind::Connect,
    ErrorKind::Tls,
    ErrorKind::Timeout,
    ErrorKind::Protocol,
    ErrorKind::ResponseTooLarge,
    ErrorKind::Exhausted,
    ErrorKind::Status,
    ErrorKind::Decode,
    ErrorKind::Retired,
    ErrorKind::Shutdown,
    ErrorKind::Store,
    ErrorKind::KeyReused,
];

/// A kind that is added without a place here does not compile.
const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number);
        number += 1;
    }
    assert!(ErrorKind::KeyReused as usize + 1 == KINDS.len());
};

/// Whether the vendor may have acted on the request. Of an error of the store: whether what was to be written may have been
/// written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Delivery {
    /// No byte of the request left, or nothing was written: doing it again is safe.
    NotSent,
    /// The vendor said that it did not act, by its answer or by refusing the HTTP/2 stream.
    Rejected,
    /// The request may have reached the vendor, or the store, and nobody knows what came of it.
    Ambiguous,
    /// The vendor answered; only reading the response failed.
    Delivered,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, delivery: Delivery, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            kind,
            delivery,
            message: message.into(),
            retry_after: None,
            response: None,
            letter: None,
            job: None,
            request: 0,
            source: None,
        }))
    }

    /// An error before the first byte left.
    pub(crate) fn not_sent(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, Delivery::NotSent, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Error {
        Error::not_sent(ErrorKind::Config, message)
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn with_delivery(mut self, delivery: Delivery) -> Error {
        self.0.delivery = delivery;
        self
    }

    pub(crate) fn with_retry_after(mut self, wait: Duration) -> Error {
        self.0.retry_after = Some(wait);
        self
    }

    pub(crate) fn with_response(mut self, response: LastResponse) -> Error {
        self.0.response = Some(response);
        self
    }

    pub(crate) fn with_letter(mut self, id: &str) -> Error {
        self.0.message.push_str("; see dead letter ");
        self.0.message.push_str(id);
        self.0.letter = Some(id.to_owned());
        self
    }

    /// The job that may have been accepted.
    pub(crate) fn with_job(mut self, id: String) -> Error {
        self.0.message.push_str("; ask for the receipt ");
        self.0.message.push_str(&id);
        self.0.job = Some(id);
        self
    }

    /// The same, where it is certain that the exchange did not begin.
    pub(crate) fn before_the_exchange(mut self) -> Error {
        self.0.delivery = Delivery::NotSent;
        self
    }

    /// Which send it ended.
    pub(crate) fn of_request(mut self, id: u64) -> Error {
        self.0.request = id;
        self
    }

    /// The number of the send that ended with this error, as its [events](crate::events::Event::request_id) state it;
    /// none where no send did.
    pub fn request_id(&self) -> Option<u64> {
        (self.0.request > 0).then_some(self.0.request)
    }

    /// What the vendor answered last, where that is why there is no response.
    pub fn response(&self) -> Option<&LastResponse> {
        self.0.response.as_ref()
    }

    /// The id of the dead letter that the request has become, if it has.
    pub fn letter_id(&self) -> Option<&str> {
        self.0.letter.as_deref()
    }

    /// The id of the job that [`enqueue`](crate::IntegrationClient::enqueue) may have accepted all the same, where its
    /// [`delivery`](Self::delivery) is [`Delivery::Ambiguous`]: the word about the commit was lost.
    /// [`receipt`](crate::IntegrationClient::receipt) of this id says what became of it:
    /// [`Status::Unknown`](crate::outbox::Status::Unknown) once the store answers again means that it was not accepted, unless
    /// an earlier request with the same idempotency key was.
    pub fn job_id(&self) -> Option<&str> {
        self.0.job.as_deref()
    }

    /// What failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the vendor may have acted on the request.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// How long after the error was made the request could go at the earliest, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

/// An answer that was not handed on as a response.
#[derive(Clone)]
pub struct LastResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl LastResponse {
    pub(crate) fn new(status: StatusCode, headers: HeaderMap, body: Bytes) -> LastResponse {
        LastResponse { status, headers, body }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The first 16 KiB of the body, or what had come within a second.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for LastResponse {
    /// The status, and how much there is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastResponse")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body", &self.body.len())
            .finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("delivery", &self.0.delivery).field("message", &self.0.message);
        if let Some(wait) = self.0.retry_after {
            out.field("retry_after", &wait);
        }
        if let Some(response) = &self.0.response {
            out.field("response", response);
        }
        if let Some(letter) = &self.0.letter {
            out.field("letter", letter);
        }
        if let Some(job) = &self.0.job {
            out.field("job", job);
        }
        if self.0.request > 0 {
            out.field("request_id", &self.0.request);
        }
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
