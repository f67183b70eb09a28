//! The transport that uses reqwest.
//!
//! Everything that reqwest would do on its own is off: retries, redirects (which would send `x-api-key` and bodies to
//! another host), the Referer header, cookies, and proxies from the environment. hyper-util's re-send cannot be
//! switched off: it repeats a request that never reached a connection because a pooled one closed first. hyper returns
//! such a request unread, so the vendor still sees exactly one; the tests of this folder count requests.
//!
//! hyper bounds HTTP/1 headers (100 fields, 408 KiB), and a setting below those of HTTP/2; [`MAX_HEADER_BYTES`] bounds
//! both again.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::addresses::PublicOnly;
use super::cause::{Cause, unusable};
use super::certificates::{Files, Looks};
use super::head_error::head_error;
use super::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError, target, tls};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::config::base_url::host_varies;
use crate::config::{Connection, Vendor};
use crate::error::ErrorKind;
use crate::route::Connections;

/// The most response header bytes (names and values) that are accepted.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// An HTTP/2 connection with open streams is asked by a PING whether it is alive if nothing was read from it for
/// `PING_AFTER`, and is closed without an answer within `PING_PATIENCE`.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

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
    /// When certificate files are looked at for changes, once a client has some.
    looks: OnceLock<Arc<Looks>>,
    clock: Clock,
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
    files: Files,
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
            looks: OnceLock::new(),
            clock: Clock::system(),
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
    /// read again when next needed. Exchanges in flight go on; unused connections close after 90 s. A changed certificate
    /// file needs no reset: it is noticed within a minute, and within a second after an exchange failed.
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
        if self.looks.get().is_some_and(|looks| looks.are_due(self.clock.now())) {
            self.look_at_files();
        }
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
        let files = Files::of(vendor.connection.extra_ca.as_deref().into_iter().chain(certificate));
        if !files.is_empty() {
            self.looks.get_or_init(Arc::default);
        }
        let client = build(self.custom(), &vendor.connection, vendor.connect_timeout, certificate, is_public_only)?;
        let mut next = HashMap::clone(&current);
        if next.values().map(Vec::len).sum::<usize>() >= MAX_CLIENTS {
            next.clear();
        }
        next.entry(vendor.name.clone()).or_default().push(Pooled {
            connection: vendor.connection.clone(),
            certificate: certificate.map(str::to_owned),
            connect_timeout: vendor.connect_timeout,
            public_only: is_public_only,
            files,
            client: client.clone(),
        });
        self.clients.store(Arc::new(next));
        Ok(client)
    }

    fn custom(&self) -> reqwest::ClientBuilder {
        // All tenants of a vendor share one HTTP/2 connection, and a request that ends at its deadline leaves it open. A
        // peer that takes bytes and answers nothing would make every later request end so.
        let pings = reqwest::Client::builder().http2_keep_alive_interval(PING_AFTER);
        let builder = pings.http2_keep_alive_timeout(PING_PATIENCE);
        match &self.customize {
            Some(customize) => customize(builder),
            None => builder,
        }
    }

    /// Replaces the clients whose certificate files have changed. If the new files cannot be used, the earlier client stays
    /// in use until they change again. This blocks its thread as building a client does, and never a second thread.
    fn look_at_files(&self) {
        let Some(_building) = self.building.try_lock() else { return };
        let current = self.clients.load();
        if !current.values().flatten().any(|pooled| pooled.files.have_changed()) {
            return;
        }
        let mut next = HashMap::clone(&current);
        for pooled in next.values_mut().flatten().filter(|pooled| pooled.files.have_changed()) {
            let Pooled { connection, certificate, .. } = &*pooled;
            let files = Files::of(connection.extra_ca.iter().chain(certificate).map(|path| &**path));
            let (timeout, is_public_only) = (pooled.connect_timeout, pooled.public_only);
            match build(self.custom(), connection, timeout, certificate.as_deref(), is_public_only) {
                Ok(client) => {
                    tracing::info!(
                        certificate,
                        extra_ca = connection.extra_ca,
                        "new connections use the changed files"
                    );
                    (pooled.client, pooled.files) = (client, files);
                }
                Err(error) => {
                    pooled.files = files;
                    tracing::warn!(%error, "changed certificate files cannot be used; the earlier ones stay in use");
                }
            }
        }
        self.clients.store(Arc::new(next));
        // As in `reset`.
        self.pool.store(next_pool(), Ordering::Release);
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
        let looks = self.looks.get().cloned();
        Box::pin(async move {
            let mut pending = pin!(tokio::time::timeout_at(deadline, pending?));
            // After the headers nothing awaits, so `poll_fn` keeps these values out of the future.
            std::future::poll_fn(|cx| {
                let response = match ready!(pending.as_mut().poll(cx)) {
                    Ok(Ok(response)) => response,
                    Ok(Err(error)) => {
                        looks.iter().for_each(|looks| looks.failed());
                        return Poll::Ready(Err(head_error(error)));
                    }
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
    connection: &Connection,
    connect_timeout: Duration,
    certificate: Option<&str>,
    is_public_only: bool,
) -> Result<reqwest::Client, TransportError> {
    let mut builder = custom
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .no_proxy()
        .gzip(true)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .connect_timeout(connect_timeout)
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
