//! The transport over reqwest.
//!
//! Everything that reqwest does on its own is off: retries, redirects (they hand `x-api-key` and bodies to another
//! host), the Referer header, cookies, and proxies from the environment. What it cannot switch off is hyper-util's
//! re-send of a request that never reached a connection (a pooled one that closed first): there hyper returns the
//! request unread, so the vendor still sees exactly one. The tests of this folder count.
//!
//! HTTP/1 headers are bounded by hyper (100 fields, 408 KiB), HTTP/2 ones by the setting below; both again by
//! [`MAX_HEADER_BYTES`].

use std::error::Error as _;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::addresses::{PrivateAddress, PublicOnly};
use super::cause::Cause;
use super::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError, target};
use crate::BoxFuture;
use crate::config::base_url::host_varies;
use crate::config::{Connection, Vendor};
use crate::error::ErrorKind;
use crate::route::Connections;

/// The most response header bytes (names and values) that are accepted.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Tenants may bring certificates of their own, each of which needs its own connections. Above this many sets of
/// connections the whole table is dropped and filled again; exchanges in flight and vendors keep theirs.
const MAX_CLIENTS: usize = 1024;

/// The [`Transport`] that the client uses unless it is given another.
///
/// Connections are shared by all tenants and vendors with the same connection settings and client certificate, and
/// opened when first needed.
pub struct ReqwestTransport {
    /// Read where the vendor does not know its client, written when new settings are first seen.
    clients: ArcSwap<HashMap<Arc<str>, Vec<Pooled>>>,
    building: Mutex<()>,
    /// By which vendors know what of it they use; another one after a reset.
    pool: AtomicU64,
    customize: Option<Customize>,
}

type Customize = Box<dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync>;

/// A client and the settings that it was built from. The outer key is the vendor's name, so the list is short: one
/// entry per environment or certificate.
#[derive(Clone)]
struct Pooled {
    connection: Connection,
    certificate: Option<String>,
    connect_timeout: Duration,
    public_only: bool,
    client: reqwest::Client,
}

impl Pooled {
    fn fits(&self, vendor: &Vendor, certificate: Option<&str>) -> bool {
        self.connect_timeout == vendor.connect_timeout
            && self.certificate.as_deref() == certificate
            && self.connection == vendor.connection
            && self.public_only == public_only(vendor)
    }
}

impl Default for ReqwestTransport {
    fn default() -> ReqwestTransport {
        ReqwestTransport::new()
    }
}

impl ReqwestTransport {
    /// A transport without connections.
    pub fn new() -> ReqwestTransport {
        ReqwestTransport {
            clients: ArcSwap::default(),
            building: Mutex::new(()),
            pool: AtomicU64::new(next_pool()),
            customize: None,
        }
    }

    /// A transport whose reqwest clients begin with settings of your own: a DNS resolver, root certificates, the size of the
    /// pool, a local address. `customize` is called for each client that is built. What the limits and the vendors' entries
    /// depend on is set after it: no redirects, no retries, no proxy but the entry's, the connect timeout.
    ///
    /// ```
    /// use integration_client::IntegrationClient;
    /// use integration_client::transport::ReqwestTransport;
    ///
    /// let transport = ReqwestTransport::customized(|builder| builder.pool_max_idle_per_host(8));
    /// let builder = IntegrationClient::builder().transport(transport);
    /// # drop(builder);
    /// ```
    #[cfg(feature = "reqwest-api")]
    #[doc(alias = "with_client")]
    pub fn customized(
        customize: impl Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync + 'static,
    ) -> ReqwestTransport {
        ReqwestTransport { customize: Some(Box::new(customize)), ..ReqwestTransport::new() }
    }

    /// What begins after this uses no connection of before, and certificate files are read again when next needed.
    /// Exchanges in flight go on; unused connections close after 90 s.
    pub fn reset(&self) {
        let _building = self.building.lock();
        self.clients.store(Arc::default());
        // After that: a reader of this number must not find what was there before.
        self.pool.store(next_pool(), Ordering::Release);
    }

    /// The client for these settings. Building one reads PEM files, so the first exchange with new settings blocks its
    /// thread for some milliseconds. Later ones know it by their vendor, or by a hash of its name where the tenant has a
    /// certificate of its own.
    #[inline]
    fn client(
        &self,
        vendor: &Vendor,
        connections: &Connections,
        tenant_certificate: Option<&str>,
    ) -> Result<reqwest::Client, TransportError> {
        let pool = self.pool.load(Ordering::Acquire);
        match connections.of(pool).filter(|_| tenant_certificate.is_none()) {
            Some(client) => Ok(client.clone()),
            None => self.look_for_client(vendor, connections, tenant_certificate, pool),
        }
    }
    fn look_for_client(
        &self,
        vendor: &Vendor,
        connections: &Connections,
        tenant_certificate: Option<&str>,
        pool: u64,
    ) -> Result<reqwest::Client, TransportError> {
        let certificate = tenant_certificate.or(vendor.connection.client_certificate.as_deref());
        let find = |clients: &HashMap<Arc<str>, Vec<Pooled>>| {
            let pooled = clients.get(&vendor.name)?.iter().find(|pooled| pooled.fits(vendor, certificate))?;
            Some(pooled.client.clone())
        };
        let client = match find(&self.clients.load()) {
            Some(client) => client,
            None => self.make_client(vendor, certificate, find)?,
        };
        if tenant_certificate.is_none() {
            connections.keep(pool, &client);
        }
        Ok(client)
    }

    /// Hands the request to reqwest.
    #[inline]
    fn begin(
        &self,
        exchange: Exchange,
    ) -> Result<impl Future<Output = reqwest::Result<reqwest::Response>> + use<>, TransportError> {
        let Exchange { method, url, headers, body, vendor, client_certificate, connections, .. } = exchange;
        if let Err(why) = target::origin_allowed(&url, vendor.connection.allow_http) {
            return Err(TransportError::new(Sent::NotSent, ErrorKind::InvalidRequest, why));
        }
        let client = self.client(&vendor, &connections, client_certificate.as_deref())?;
        let mut request = reqwest::Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into_reqwest());
        Ok(client.execute(request))
    }
    fn make_client(
        &self,
        vendor: &Vendor,
        certificate: Option<&str>,
        find: impl Fn(&HashMap<Arc<str>, Vec<Pooled>>) -> Option<reqwest::Client>,
    ) -> Result<reqwest::Client, TransportError> {
        let _building = self.building.lock();
        let current = self.clients.load();
        if let Some(client) = find(&current) {
            return Ok(client);
        }
        let custom =
            self.customize.as_ref().map_or_else(reqwest::Client::builder, |with| with(reqwest::Client::builder()));
        let client = build(custom, vendor, certificate)?;
        let mut next = HashMap::clone(&current);
        if next.values().map(Vec::len).sum::<usize>() >= MAX_CLIENTS {
            next.clear();
        }
        next.entry(vendor.name.clone()).or_default().push(Pooled {
            connection: vendor.connection.clone(),
            certificate: certificate.map(str::to_owned),
            connect_timeout: vendor.connect_timeout,
            public_only: public_only(vendor),
            client: client.clone(),
        });
        self.clients.store(Arc::new(next));
        Ok(client)
    }
}

/// No two transports have the same, nor one before and after a reset.
fn next_pool() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl fmt::Debug for ReqwestTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.clients.load().values().map(Vec::len).sum::<usize>();
        f.debug_struct("ReqwestTransport").field("clients", &clients).finish_non_exhaustive()
    }
}

impl Transport for ReqwestTransport {
    fn execute(&self, exchange: Exchange) -> BoxFuture<'static, Result<Answer, TransportError>> {
        let (max_response_bytes, deadline) = (exchange.vendor.max_response_bytes, exchange.deadline);
        // Nothing happens before this is polled. Made out here, the future below holds one pointer instead of the whole
        // request: a box of two kilobytes is past what the allocator keeps at hand.
        let pending = self.begin(exchange);
        Box::pin(async move {
            let mut pending = pin!(tokio::time::timeout_at(deadline, pending?));
            // What follows the headers waits for nothing, so it takes no room in the future.
            std::future::poll_fn(|cx| {
                let response = match ready!(pending.as_mut().poll(cx)) {
                    Ok(Ok(response)) => response,
                    Ok(Err(error)) => return Poll::Ready(Err(head_error(error))),
                    Err(_) => return Poll::Ready(Err(no_response())),
                };
                Poll::Ready(answer(response, max_response_bytes, deadline, cx))
            })
            .await
        })
    }
}

fn answer(
    mut response: reqwest::Response,
    max_response_bytes: u64,
    deadline: Instant,
    cx: &mut Context<'_>,
) -> Result<Answer, TransportError> {
    if header_bytes(response.headers()) > MAX_HEADER_BYTES {
        return Err(headers_too_large());
    }
    let (status, version) = (response.status(), response.version());
    let headers = std::mem::take(response.headers_mut());
    let body = AnswerBody::from_reqwest(response, max_response_bytes, deadline, cx);
    Ok(Answer { status, version, headers, body })
}
fn no_response() -> TransportError {
    TransportError::new(Sent::MaybeSent, ErrorKind::Timeout, "no response before the deadline")
}
fn headers_too_large() -> TransportError {
    let why = format!("the response headers are larger than {MAX_HEADER_BYTES} bytes");
    TransportError::new(Sent::MaybeSent, ErrorKind::ResponseTooLarge, why)
}

fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// Connections are made to public addresses alone: tenants choose the hosts. A proxy's own address is the operator's.
fn public_only(vendor: &Vendor) -> bool {
    let connection = &vendor.connection;
    !connection.allow_private && connection.proxy.is_none() && host_varies(&vendor.base_url)
}

fn build(
    custom: reqwest::ClientBuilder,
    vendor: &Vendor,
    certificate: Option<&str>,
) -> Result<reqwest::Client, TransportError> {
    let connection = &vendor.connection;
    let mut builder = custom
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(vendor.connect_timeout)
        .http2_max_header_list_size(MAX_HEADER_BYTES as u32)
        // Some vendors (GitHub) refuse requests without one.
        .user_agent(concat!("integration-client/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = &connection.proxy {
        // The URL may hold a password: neither it nor the parser's error goes into the message.
        let proxy = reqwest::Proxy::all(proxy.as_str()).map_err(|_| unusable("the proxy is not a URL"))?;
        builder = builder.proxy(proxy);
    }
    if public_only(vendor) {
        builder = builder.dns_resolver(PublicOnly);
    }
    if let Some(path) = &connection.extra_ca {
        let authorities = reqwest::Certificate::from_pem_bundle(&read(path)?)
            .map_err(|_| unusable(format!("{path} holds no PEM certificates")))?;
        builder = builder.tls_certs_merge(authorities);
    }
    if let Some(path) = certificate {
        let identity = reqwest::Identity::from_pem(&read(path)?)
            .map_err(|_| unusable(format!("{path} does not hold a PEM certificate and its key")))?;
        builder = builder.identity(identity);
    }
    builder
        .build()
        .map_err(|error| unusable("the HTTP client cannot be built").with_source(Cause::of(&error.without_url())))
}

fn unusable(why: impl Into<String>) -> TransportError {
    TransportError::new(Sent::NotSent, ErrorKind::Config, why)
}

fn read(path: &str) -> Result<Vec<u8>, TransportError> {
    std::fs::read(path).map_err(|error| unusable(format!("{path} cannot be read: {error}")))
}

/// The one place where reqwest's errors before the response's headers become ours.
fn head_error(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let (sent, kind, message) = classify(&error);
    let closing = message == CLOSING;
    TransportError::new(sent, kind, message).on_closing_connection(closing).with_source(Cause::of(&error))
}

fn classify(error: &reqwest::Error) -> (Sent, ErrorKind, &'static str) {
    if error.is_builder() {
        return (Sent::NotSent, ErrorKind::InvalidRequest, "the request is not valid HTTP");
    }
    if error.is_connect() {
        return match bad_tls(error) {
            _ if is_private(error) => (Sent::NotSent, ErrorKind::Config, PrivateAddress::MESSAGE),
            Some(message) => (Sent::NotSent, ErrorKind::Tls, message),
            None => (Sent::NotSent, ErrorKind::Connect, connect_message(error)),
        };
    }
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            if let Some(message) = not_processed(cause) {
                return (Sent::Unprocessed, ErrorKind::Protocol, message);
            }
        } else if let Some(cause) = cause.downcast_ref::<hyper::Error>() {
            if cause.is_canceled() {
                // hyper makes this error only where it hands the request back, before it wrote any of it.
                return (Sent::NotSent, ErrorKind::Protocol, "the connection closed before the request was written");
            }
            if cause.is_parse_too_large() {
                return (Sent::MaybeSent, ErrorKind::ResponseTooLarge, "the response headers are too large");
            }
            if cause.is_parse() {
                return (Sent::MaybeSent, ErrorKind::Protocol, "the answer is not HTTP");
            }
            if cause.is_user() {
                return (Sent::MaybeSent, ErrorKind::InvalidRequest, "the request body's stream failed");
            }
        }
        source = cause.source();
    }
    (Sent::MaybeSent, ErrorKind::Protocol, "the connection broke before the response")
}

fn connect_message(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no connection within the connect timeout"
    } else if error.is_dns() {
        "the host name cannot be resolved"
    } else {
        "no connection could be made"
    }
}

fn is_private(error: &reqwest::Error) -> bool {
    std::iter::successors(error.source(), |cause| (*cause).source()).any(|cause| cause.is::<PrivateAddress>())
}

/// What is wrong with a vendor's TLS that will be wrong the next time, too. A handshake that broke off is not that.
fn bad_tls(error: &reqwest::Error) -> Option<&'static str> {
    use rustls::{AlertDescription, Error::*};
    let mut source = error.source();
    while let Some(cause) = source {
        match cause.downcast_ref() {
            Some(InvalidCertificate(_) | NoCertificatesPresented) => {
                return Some("the vendor's certificate is not good");
            }
            Some(
                PeerIncompatible(_)
                | AlertReceived(AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure),
            ) => return Some("the vendor speaks no TLS that is safe"),
            _ => {}
        }
        // An I/O error does not name what it holds as its source, but that one's source.
        let held = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        source = held.map_or_else(|| cause.source(), |held| Some(held));
    }
    None
}

const REFUSED: &str = "the vendor refused the HTTP/2 stream unprocessed";
const DISOWNED: &str = "the vendor ended the HTTP/2 connection with an error, before it processed the stream";
const CLOSING: &str = "the vendor closed the HTTP/2 connection before it processed the stream";

/// How the vendor said that it did not process a stream, if it did.
///
/// RFC 9113 has two ways: RST_STREAM with REFUSED_STREAM, and GOAWAY for the streams above the last one that it names. The
/// second promise holds for every error code (section 6.8). h2 gives a GOAWAY of the vendor's as the error of exactly those
/// streams; the others go on, and fail by the connection's end if it comes too early.
fn not_processed(error: &h2::Error) -> Option<&'static str> {
    match error.reason() {
        Some(h2::Reason::REFUSED_STREAM) => Some(REFUSED),
        Some(h2::Reason::NO_ERROR) if error.is_go_away() && error.is_remote() => Some(CLOSING),
        Some(_) if error.is_go_away() && error.is_remote() => Some(DISOWNED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_stream_counts_as_unprocessed() {
        assert_eq!(not_processed(&h2::Reason::REFUSED_STREAM.into()), Some(REFUSED));
        for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL, h2::Reason::INTERNAL_ERROR] {
            assert_eq!(not_processed(&reason.into()), None, "{reason:?}");
        }
    }
}
