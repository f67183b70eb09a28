//! The one public error: what failed ([`ErrorKind`]), and whether the vendor may have acted ([`Delivery`]).

#[cfg(any(feature = "etcd", feature = "remote-config"))]
pub(crate) mod http_client;
mod kind;
pub(crate) mod panic;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;

pub use self::kind::ErrorKind;
pub(crate) use self::kind::KINDS;

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

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of code outside this crate: a resolver, a sink, a handler.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

struct Inner {
    kind: ErrorKind,
    delivery: Delivery,
    message: String,
    retry_after: Option<Duration>,
    response: Option<LastResponse>,
    letter: Option<String>,
    job: Option<String>,
    /// The number of the send; 0 if no send ended with this error.
    request: u64,
    tenant: Option<Box<str>>,
    vendor: Option<Box<str>>,
    attempts: u32,
    /// Another process works on the store's file.
    is_store_in_use: bool,
    source: Option<BoxError>,
}

/// Whether the vendor may have acted on the request. In an error of the store: whether the store may have written the
/// data. The JSON of a value is its [name](Delivery::as_str).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// No byte of the request was sent, or nothing was written: a repetition is safe.
    NotSent,
    /// The vendor said that it did not act, by its response or by refusing the HTTP/2 stream.
    Rejected,
    /// The request may have reached the vendor, or the store; the outcome is unknown.
    Ambiguous,
    /// The vendor responded; only reading the response failed.
    Delivered,
}

impl Delivery {
    /// The name in snake case: `not_sent`, `rejected`, `ambiguous`, `delivered`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Delivery::NotSent => "not_sent",
            Delivery::Rejected => "rejected",
            Delivery::Ambiguous => "ambiguous",
            Delivery::Delivered => "delivered",
        }
    }
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
            tenant: None,
            vendor: None,
            attempts: 0,
            is_store_in_use: false,
            source: None,
        }))
    }

    /// An error that occurred before the first byte was sent.
    pub(crate) fn not_sent(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, Delivery::NotSent, message)
    }

    /// An error of a request of `tenant` to `vendor`. The message begins with both names.
    pub(crate) fn of_tenant(
        tenant: &str,
        vendor: &str,
        kind: ErrorKind,
        delivery: Delivery,
        why: impl fmt::Display,
    ) -> Error {
        Error::new(kind, delivery, format!("tenant {tenant}, vendor {vendor}: {why}")).named(tenant, Some(vendor))
    }

    pub(crate) fn config(message: impl Into<String>) -> Error {
        Error::not_sent(ErrorKind::Config, message)
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Error {
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

    /// Adds the id of the job that may have been accepted.
    pub(crate) fn with_job(mut self, id: String) -> Error {
        self.0.message.push_str("; ask for the receipt ");
        self.0.message.push_str(&id);
        self.0.job = Some(id);
        self
    }

    /// Sets the delivery to `NotSent`, because the exchange certainly did not begin.
    pub(crate) fn before_the_exchange(mut self) -> Error {
        self.0.delivery = Delivery::NotSent;
        self
    }

    /// Sets the number of the send that ended with this error.
    pub(crate) fn of_request(mut self, id: u64) -> Error {
        self.0.request = id;
        self
    }

    /// Adds the tenant and the vendor that the caller named, unless they are set.
    pub(crate) fn named(mut self, tenant: &str, vendor: Option<&str>) -> Error {
        self.0.tenant.get_or_insert_with(|| tenant.into());
        if self.0.vendor.is_none() {
            self.0.vendor = vendor.map(Into::into);
        }
        self
    }

    /// Sets the number of exchanges that were begun.
    pub(crate) fn after_attempts(mut self, attempts: u32) -> Error {
        self.0.attempts = attempts;
        self
    }

    /// The error of a process that wants to work on a store's file on which another process works.
    #[cfg(feature = "sqlite")]
    pub(crate) fn store_in_use(message: impl Into<String>) -> Error {
        let mut error = Error::config(message);
        error.0.is_store_in_use = true;
        error
    }

    /// The tenant of the failed request; `None` for an error without a request.
    pub fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// The vendor that the request was for, if known.
    pub fn vendor(&self) -> Option<&str> {
        self.0.vendor.as_deref()
    }

    /// The number of exchanges with the vendor that were begun before the request failed.
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The status of the vendor's last response, if that response is the reason for the error.
    pub fn status(&self) -> Option<StatusCode> {
        self.0.response.as_ref().map(LastResponse::status)
    }

    /// Whether the time ran out for one exchange ([`ErrorKind::Timeout`]) or for the whole request
    /// ([`ErrorKind::Deadline`]).
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout | ErrorKind::Deadline)
    }

    /// Whether no connection to the vendor could be made ([`ErrorKind::Connect`], [`ErrorKind::Tls`]).
    pub fn is_connect(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Connect | ErrorKind::Tls)
    }

    /// Whether [`build`](crate::IntegrationClientBuilder::build) failed because another process works on the file of the
    /// SQLite store ([`work`](crate::IntegrationClientBuilder::work)). Only one process may work on a file at a time. A
    /// client without `work` can be built meanwhile: the other process sends the requests that it accepts. The error is
    /// of the kind [`ErrorKind::Config`].
    ///
    /// ```no_run
    /// use integration_client::store::Store;
    /// use integration_client::{Error, IntegrationClient};
    ///
    /// # async fn run() -> Result<IntegrationClient, Error> {
    /// let builder = || IntegrationClient::builder().store(Store::sqlite("jobs.db"));
    /// match builder().work().build().await {
    ///     Err(error) if error.is_store_in_use() => builder().build().await,
    ///     built => built,
    /// }
    /// # }
    /// ```
    pub fn is_store_in_use(&self) -> bool {
        self.0.is_store_in_use
    }

    /// Whether the same request can be sent again without the risk that the vendor acts twice: no byte was sent, or the
    /// vendor said that it did not act. An idempotent request may be sent again in any case.
    ///
    /// ```
    /// # use integration_client::{IntegrationClient, Priority, Request};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let client = IntegrationClient::builder().build().await?;
    /// let error = client.send("nobody", Priority::High, Request::post("stripe", "/v1/charges")).await.unwrap_err();
    /// assert!(error.is_safe_to_resend());
    /// assert_eq!((error.tenant(), error.vendor(), error.attempts()), (Some("nobody"), Some("stripe"), 0));
    /// # Ok::<(), integration_client::Error>(()) }).unwrap();
    /// ```
    pub fn is_safe_to_resend(&self) -> bool {
        matches!(self.0.delivery, Delivery::NotSent | Delivery::Rejected)
    }

    /// The number of the send that ended with this error, as its [events](crate::events::Event::request_id) state it;
    /// `None` if no send ended with this error.
    pub fn request_id(&self) -> Option<u64> {
        (self.0.request > 0).then_some(self.0.request)
    }

    /// The vendor's last response, if it is the reason for the error.
    pub fn response(&self) -> Option<&LastResponse> {
        self.0.response.as_ref()
    }

    /// The id of the dead letter that the request has become, if it has.
    pub fn letter_id(&self) -> Option<&str> {
        self.0.letter.as_deref()
    }

    /// The id of the job that [`enqueue`](crate::outbox::Outbox::enqueue) may have accepted in spite of this error: if
    /// the [`delivery`](Self::delivery) is [`Delivery::Ambiguous`], the store's confirmation of the commit was lost.
    /// [`receipt`](crate::outbox::Outbox::receipt) of this id shows the state of the job. If the store is reachable
    /// again and shows [`Status::Unknown`](crate::outbox::Status::Unknown), the request was not accepted, unless an
    /// earlier request with the same idempotency key was.
    pub fn job_id(&self) -> Option<&str> {
        self.0.job.as_deref()
    }

    /// The kind of the error: what failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the vendor may have acted on the request.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// The shortest wait, counted from this error, after which the request can be sent again, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }
}

/// A response of the vendor that the caller got as a part of an error.
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

    /// The first 16 KiB of the body, or the part of it that arrived within a second. Empty after
    /// [`error_for_status`](crate::Response::error_for_status), which reads no body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for LastResponse {
    /// Shows the status, the number of headers and the size of the body.
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
        if self.0.attempts > 0 {
            out.field("attempts", &self.0.attempts);
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
