//! The transport that uses reqwest.
//!
//! Everything that reqwest would do on its own is off: retries, redirects (which would send `x-api-key` and bodies to
//! another host), the Referer header, cookies, and proxies from the environment. hyper-util's re-send cannot be
//! switched off: it repeats a request that never reached a connection because a pooled one closed first. hyper returns
//! such a request unread, so the vendor still sees exactly one; the tests of this folder count requests.
//!
//! hyper bounds HTTP/1 headers (100 fields, 408 KiB), and a setting below those of HTTP/2; [`MAX_HEADER_BYTES`] bounds
//! both again.

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
use super::cause::{Cause, unusable};
use super::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError, target, tls};
use crate::BoxFuture;
use crate::config::base_url::host_varies;
use crate::config::{Connection, Vendor};
use crate::error::ErrorKind;
use crate::route::Connections;

/// The most response header bytes (names and values) that are accepted.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The most HTTP clients in memory. Tenants may have certificates of their own, each of which needs its own
/// connections. At this number the whole table is dropped and filled again; exchanges in flight keep their clients,
/// and so do vendors.
const MAX_CLIENTS: usize = 1024;

/// The [`Transport`] that the client uses unless it is given another.
///
/// All tenants and vendors with the same connection settings and client certificate share connections, which are
/// opened when first needed.
pub struct ReqwestTransport {
    /// Looked up if the vendor has no client cached; replaced when a client with new settings is built.
    clients: ArcSwap<HashMap<Arc<str>, Vec<Pooled>>>,
    building: Mutex<()>,
    /// Generation number that tags the clients that vendors cache. A reset changes it, and so invalidates them.
    pool: AtomicU64,
    customize: Option<Customize>,
}

type Customize = Box<dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync>;

/// A client and the settings from which it was built. The outer key is the vendor's name, so each list is short: one
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
    fn fits(&self, vendor: &Vendor, certificate: Option<&str>, is_public_only: bool) -> bool {
        self.connect_timeout == vendor.connect_timeout
            && self.certificate.as_deref() == certificate
            && self.connection == vendor.connection
            && self.public_only == is_public_only
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

    /// A transport that builds its reqwest clients from settings of your own: a DNS resolver, root certificates, the
    /// size of the pool, a local address. `customize` is called for each client that is built. Settings on which the
    /// limits and the vendors' entries depend are applied after it: no redirects, no retries, no proxy but the
    /// entry's, the connect timeout.
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

    /// Abandons all pooled connections: exchanges that begin after this call open new ones, and certificate files are
    /// read again when next needed. Exchanges in flight go on; unused connections close after 90 s.
    pub fn reset(&self) {
        let _building = self.building.lock();
        self.clients.store(Arc::default());
        // After the clients are cleared: a reader that sees the new number must not find the old clients.
        self.pool.store(next_pool(), Ordering::Release);
    }

    /// Returns the client for these settings. Building one reads PEM files, so the first exchange with new settings
    /// blocks its thread for some milliseconds. Later exchanges find the client in the vendor's cache or, if the
    /// tenant has its own certificate, by a hash look-up of the vendor's name.
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
        let is_public_only = public_only(vendor, connections);
        let find = |clients: &HashMap<Arc<str>, Vec<Pooled>>| {
            let mut pooled = clients.get(&vendor.name)?.iter();
            Some(pooled.find(|pooled| pooled.fits(vendor, certificate, is_public_only))?.client.clone())
        };
        let client = match find(&self.clients.load()) {
            Some(client) => client,
            None => self.make_client(vendor, certificate, is_public_only, find)?,
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
        tls::check(&url)?;
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
        is_public_only: bool,
        find: impl Fn(&HashMap<Arc<str>, Vec<Pooled>>) -> Option<reqwest::Client>,
    ) -> Result<reqwest::Client, TransportError> {
        let _building = self.building.lock();
        let current = self.clients.load();
        if let Some(client) = find(&current) {
            return Ok(client);
        }
        let custom =
            self.customize.as_ref().map_or_else(reqwest::Client::builder, |with| with(reqwest::Client::builder()));
        let client = build(custom, vendor, certificate, is_public_only)?;
        let mut next = HashMap::clone(&current);
        if next.values().map(Vec::len).sum::<usize>() >= MAX_CLIENTS {
            next.clear();
        }
        next.entry(vendor.name.clone()).or_default().push(Pooled {
            connection: vendor.connection.clone(),
            certificate: certificate.map(str::to_owned),
            connect_timeout: vendor.connect_timeout,
            public_only: is_public_only,
            client: client.clone(),
        });
        self.clients.store(Arc::new(next));
        Ok(client)
    }
}

/// Returns a number unique in this process, so that no two transports share one and a reset changes it.
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
        // `begin` sends nothing before its future is polled. It is called outside the async block so that the boxed
        // future holds one pointer instead of the whole request: a box of two kilobytes is larger than what the
        // allocator caches.
        let pending = self.begin(exchange);
        Box::pin(async move {
            let mut pending = pin!(tokio::time::timeout_at(deadline, pending?));
            // After the headers nothing awaits, so `poll_fn` keeps these values out of the future.
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

/// Whether to connect only to public addresses, because tenants choose the host. A proxy's address is the operator's
/// choice.
fn public_only(vendor: &Vendor, connections: &Connections) -> bool {
    let connection = &vendor.connection;
    let is_chosen = connections.is_of_chosen_host() || host_varies(&vendor.base_url);
    !connection.allow_private && connection.proxy.is_none() && is_chosen
}

fn build(
    custom: reqwest::ClientBuilder,
    vendor: &Vendor,
    certificate: Option<&str>,
    is_public_only: bool,
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
        // Some vendors (GitHub) refuse requests without a user agent.
        .user_agent(concat!("integration-client/", env!("CARGO_PKG_VERSION")));
    if let Some(proxy) = &connection.proxy {
        // The URL may hold a password: neither it nor the parser's error goes into the message.
        let proxy = reqwest::Proxy::all(proxy.as_str()).map_err(|_| unusable("the proxy is not a URL"))?;
        builder = builder.proxy(proxy);
    }
    if is_public_only {
        builder = builder.dns_resolver(PublicOnly);
    }
    let builder = tls::with_certificates(builder, connection.extra_ca.as_deref(), certificate)?;
    builder
        .build()
        .map_err(|error| unusable("the HTTP client cannot be built").with_source(Cause::of(&error.without_url())))
}

/// The only place that converts reqwest's errors before the response's headers.
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
        return match tls::lasting_failure(error) {
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
                // hyper returns this error only together with a request of which it has written nothing.
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
    match error.source() {
        Some(cause) if found_no_connection(cause) => {
            (Sent::NotSent, ErrorKind::Protocol, "the connection closed before the request got it")
        }
        _ => (Sent::MaybeSent, ErrorKind::Protocol, "the connection broke before the response"),
    }
}

/// Whether the pool of connections gave up before the request had one: another request was making an HTTP/2 connection
/// to the host, and this one waited for a connection that had closed by then. hyper-util shows in the text of its error
/// alone that it canceled the request, which it does only if nothing of the request was written: in this case, and if a
/// connection returns a request (then hyper's own error is the cause).
fn found_no_connection(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.to_string() == "client error (Canceled)"
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

const REFUSED: &str = "the vendor refused the HTTP/2 stream unprocessed";
const DISOWNED: &str = "the vendor ended the HTTP/2 connection with an error, before it processed the stream";
const CLOSING: &str = "the vendor closed the HTTP/2 connection before it processed the stream";

/// Describes how the vendor said that it did not process a stream, if it did.
///
/// RFC 9113 has two ways: RST_STREAM with REFUSED_STREAM, and GOAWAY for the streams above the last one that it names.
/// The second promise holds for every error code (section 6.8). h2 reports a GOAWAY from the vendor as the error of
/// exactly those streams; the other streams go on, and fail with the connection if it ends before they do.
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
    fn refused_stream_alone_counts_as_unprocessed() {
        assert_eq!(not_processed(&h2::Reason::REFUSED_STREAM.into()), Some(REFUSED));
        for reason in [h2::Reason::NO_ERROR, h2::Reason::CANCEL, h2::Reason::INTERNAL_ERROR] {
            assert_eq!(not_processed(&reason.into()), None, "{reason:?}");
        }
    }

    /// The server closes each connection at once, so that it ends before it takes its request, and returns it. The text
    /// is the same if there was no connection.
    #[tokio::test]
    async fn canceled_by_the_pool_is_known_by_its_text() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let closing = async {
            loop {
                drop(listener.accept().await.unwrap());
            }
        };
        let asking = async {
            let mut builder = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new());
            let client = builder.retry_canceled_requests(false).build_http::<http_body_util::Empty<bytes::Bytes>>();
            let mut errors = Vec::new();
            for _ in 0..50 {
                errors.push(client.get(url.parse().unwrap()).await.unwrap_err());
            }
            errors
        };
        let errors = tokio::select! {
            errors = asking => errors,
            () = closing => unreachable!(),
        };
        assert!(errors.iter().any(|error| found_no_connection(error)), "{errors:?}");
    }
}
