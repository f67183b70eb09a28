//! One HTTP exchange per call: its request, its target, its authentication and its response.
//!
//! A [`Transport`] makes exactly one exchange. It does not retry, follow redirects or wait for limits: a permit pays
//! for one request, so a hidden second request could exceed the vendor's limits.
//!
//! After a failure the caller must know whether the vendor may have acted. HTTP clients do not report when the first
//! byte left, so [`Sent::NotSent`] is claimed only if it is certain: no connection was made, or the request never
//! reached one. A stream that an HTTP/2 vendor says it did not process is [`Sent::Unprocessed`]: the vendor did not
//! act, but it has seen the request and may have counted it. Every other request [may have been
//! sent](Sent::MaybeSent).

mod addresses;
mod answer_body;
pub(crate) mod auth;
mod body;
mod cause;
mod certificates;
mod client_settings;
mod clients;
mod conceal;
pub(crate) mod credentials;
mod head_error;
#[cfg(feature = "oauth")]
pub(crate) mod oauth;
#[cfg(not(feature = "oauth"))]
#[path = "oauth/off.rs"]
pub(crate) mod oauth;
mod reqwest;
mod resolutions;
mod secret_sources;
mod sync_body;
pub(crate) mod target;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
#[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "what is off asks for no token"))]
pub(crate) mod tokens;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode, Version};
use tokio::time::Instant;

use crate::BoxFuture;
use crate::config::{Tenant, Vendor};
use crate::error::{Delivery, Error, ErrorKind};
use crate::route::Connections;

pub use self::answer_body::AnswerBody;
pub use self::auth::{Signer, SigningParts};
pub use self::body::Body;
pub(crate) use self::cause::Cause;
pub use self::credentials::Credentials;
pub use self::reqwest::ReqwestTransport;
pub use self::secret_sources::{CredentialResolver, Secret, Token, TokenSource};
pub use self::tokens::{KeptToken, TokenKeeper, TokenOwner};
/// A string that is zeroed when dropped and does not print; a [`CredentialResolver`] returns it.
pub use secrecy::{ExposeSecret, SecretString};

/// Makes exactly one HTTP exchange.
///
/// The rules: nothing leaves before the future is first polled; one call is at most one request at the vendor;
/// redirects are returned, not followed; the future ends at [`Exchange::deadline`] and so does the body.
pub trait Transport: Send + Sync + 'static {
    /// Sends `exchange` and returns once the response's headers are in.
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        (**self).execute(exchange)
    }
}

/// One request exactly as it will be sent, credential included. Its `Debug` shows no header value, query or body.
#[non_exhaustive]
pub struct Exchange {
    /// The method.
    pub method: Method,
    /// The whole URL; with [query authentication](crate::config::AuthScheme::Query) it holds the secret.
    pub url: url::Url,
    /// The headers; those that hold a secret are marked sensitive.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
    /// The vendor's entry, with its connection settings and size limits.
    pub vendor: Arc<Vendor>,
    /// PEM file with the tenant's own client certificate and key; `None` uses the vendor's, if it has one.
    pub client_certificate: Option<String>,
    /// When the exchange, response body included, is cut off.
    pub deadline: Instant,
    /// The HTTP clients that the vendor's exchanges use, so that most exchanges need no look-up.
    pub(crate) connections: Arc<Connections>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("method", &self.method)
            .field("vendor", &self.vendor.name)
            .field("host", &self.url.host_str().unwrap_or_default())
            .field("headers", &self.headers.len())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// A response whose headers have arrived and whose body is still to be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The protocol's version.
    pub version: Version,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: AnswerBody,
}

impl Answer {
    /// An HTTP/1.1 response, for a transport of your own.
    pub fn new(status: StatusCode, headers: HeaderMap, body: AnswerBody) -> Answer {
        Answer { status, version: Version::HTTP_11, headers, body }
    }
}

/// How far a failed exchange had got.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sent {
    /// The request certainly never left: no vendor has seen or counted it.
    NotSent,
    /// The request reached the vendor, which said that it did not process it. The vendor may have counted it.
    Unprocessed,
    /// The request may have reached the vendor.
    MaybeSent,
    /// The status and headers arrived; the body failed.
    Answered,
}

impl Sent {
    /// The [`Delivery`] that [`Error::delivery`](crate::Error::delivery) reports for it.
    pub fn delivery(self) -> Delivery {
        match self {
            Sent::NotSent => Delivery::NotSent,
            Sent::Unprocessed => Delivery::Rejected,
            Sent::MaybeSent => Delivery::Ambiguous,
            Sent::Answered => Delivery::Delivered,
        }
    }
}

/// The error of a failed exchange. It holds no URL, header or body.
#[derive(Debug)]
pub struct TransportError {
    sent: Sent,
    kind: ErrorKind,
    message: String,
    /// Whether the vendor was closing the connection, which says nothing about its load.
    closing: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl TransportError {
    /// An error of a transport of your own. `message` must hold no URL, credential or body.
    pub fn new(sent: Sent, kind: ErrorKind, message: impl Into<String>) -> TransportError {
        TransportError { sent, kind, message: message.into(), closing: false, source: None }
    }

    /// Adds the error's cause.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransportError {
        self.source = Some(source.into());
        self
    }

    fn body_timeout() -> TransportError {
        TransportError::new(Sent::Answered, ErrorKind::Timeout, "the response body did not end before the deadline")
    }

    /// Whether no connection could be made.
    pub(crate) fn is_connect(&self) -> bool {
        self.sent == Sent::NotSent && self.kind == ErrorKind::Connect
    }

    /// Records whether the request was on a connection that the vendor was closing.
    fn on_closing_connection(mut self, closing: bool) -> TransportError {
        self.closing = closing;
        self
    }

    /// Whether the request was on a connection that the vendor was closing.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Turns [`Sent::Unprocessed`] into [`Sent::MaybeSent`], for a vendor whose claim that it did not process a
    /// request is not trusted.
    pub(crate) fn doubted(mut self) -> TransportError {
        if self.sent == Sent::Unprocessed {
            self.sent = Sent::MaybeSent;
        }
        self
    }

    /// How far the exchange had got.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Converts it into the public error, which names tenant and vendor.
    pub(crate) fn into_error(self, tenant: &Tenant) -> Error {
        let error = tenant.error(self.kind, self.sent.delivery(), &self.message);
        match self.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
