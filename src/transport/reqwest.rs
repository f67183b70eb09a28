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

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::certificates::{Files, Looks};
use super::client_settings::{ClientSettings, MAX_HEADER_BYTES, replaceable_settings};
use super::clients::{Clients, UnderWay};
use super::head_error::head_error;
use super::{Answer, AnswerBody, Exchange, Sent, Transport, TransportError, target, tls};
use crate::BoxFuture;
use crate::clock::Clock;
use crate::config::Vendor;
use crate::config::base_url::host_varies;
use crate::error::ErrorKind;
use crate::route::Connections;

/// The most entries in memory, each with the HTTP clients of the same settings. Tenants may have certificates of their
/// own, each of which needs its own connections. At this number the whole table is dropped and filled again; exchanges
/// in flight keep their clients, and so do vendors.
const MAX_ENTRIES: usize = 1024;

/// The [`Transport`] that the client uses unless it is given another.
///
/// All tenants and vendors with the same connection settings and client certificate share connections, which are
/// opened when first needed.
pub struct ReqwestTransport {
    /// Looked up if the vendor has no clients cached; replaced when a client with new settings is built. The key is the
    /// vendor's name, so each list is short: one entry per environment or certificate.
    entries: ArcSwap<HashMap<Arc<str>, Vec<Entry>>>,
    building: Mutex<()>,
    /// Generation number that tags the clients that vendors cache. A reset changes it, and so invalidates them.
    pool: AtomicU64,
    /// When certificate files are looked at for changes, once a client has some.
    looks: OnceLock<Arc<Looks>>,
    clock: Clock,
    customize: Option<Customize>,
}

type Customize = Box<dyn Fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder + Send + Sync>;

/// The clients with the same settings, and the files from which the first of them was built.
#[derive(Clone)]
struct Entry {
    files: Files,
    clients: Arc<Clients>,
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
            entries: ArcSwap::default(),
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
        self.entries.store(Arc::default());
        // After the entries are cleared: a reader that sees the new number must not find the old ones.
        self.pool.store(next_pool(), Ordering::Release);
    }

    /// Counts the exchange at a client with these settings. Building one reads PEM files, so the first exchange with new
    /// settings blocks its thread for some milliseconds, as does one for which a further client is built. Other
    /// exchanges find the clients in the vendor's cache or, if the tenant has its own certificate, by a hash look-up of
    /// the vendor's name.
    #[inline]
    fn take_client(
        &self,
        vendor: &Vendor,
        connections: &Connections,
        tenant_certificate: Option<&str>,
        is_https: bool,
    ) -> Result<UnderWay, TransportError> {
        if self.looks.get().is_some_and(|looks| looks.are_due(self.clock.now())) {
            self.look_at_files();
        }
        let pool = self.pool.load(Ordering::Acquire);
        match connections.of::<Clients>(pool).filter(|_| tenant_certificate.is_none()) {
            Some(clients) => Ok(self.take_of(clients, is_https)),
            None => {
                let clients = self.look_for_clients(vendor, connections, tenant_certificate, pool)?;
                Ok(self.take_of(&clients, is_https))
            }
        }
    }

    #[inline]
    fn take_of(&self, clients: &Clients, is_https: bool) -> UnderWay {
        match clients.take(is_https) {
            Some(under_way) => under_way,
            None => self.take_further(clients, is_https),
        }
    }

    /// Builds a further client. If it cannot be built (its files have been removed, say), the present ones are enough.
    fn take_further(&self, clients: &Clients, is_https: bool) -> UnderWay {
        let _building = self.building.lock();
        // Another thread may have built one since.
        if let Some(under_way) = clients.take(is_https) {
            return under_way;
        }
        let now = self.clock.now();
        if !clients.may_grow(now) {
            return clients.take_fewest();
        }
        match clients.settings.build(self.custom()) {
            Ok(client) => clients.add(client),
            Err(error) => {
                clients.failed(now);
                tracing::warn!(%error, "a further HTTP client cannot be built; requests may wait for those in use");
                clients.take_fewest()
            }
        }
    }

    fn look_for_clients(
        &self,
        vendor: &Vendor,
        connections: &Connections,
        tenant_certificate: Option<&str>,
        pool: u64,
    ) -> Result<Arc<Clients>, TransportError> {
        let certificate = tenant_certificate.or(vendor.connection.client_certificate.as_deref());
        let hosts_vary = connections.is_of_chosen_host() || host_varies(&vendor.base_url);
        let find = |entries: &HashMap<Arc<str>, Vec<Entry>>| {
            let mut of_vendor = entries.get(&vendor.name)?.iter();
            let entry = of_vendor.find(|entry| entry.clients.settings.fit(vendor, certificate, hosts_vary))?;
            Some(entry.clients.clone())
        };
        let clients = match find(&self.entries.load()) {
            Some(clients) => clients,
            None => self.make_clients(vendor, certificate, hosts_vary, find)?,
        };
        if tenant_certificate.is_none() {
            connections.keep(pool, &clients);
        }
        Ok(clients)
    }

    /// Hands the request to reqwest. The exchange is under way from now on.
    #[inline]
    fn begin(
        &self,
        exchange: Exchange,
    ) -> Result<(impl Future<Output = reqwest::Result<reqwest::Response>> + use<>, UnderWay), TransportError> {
        let Exchange { method, url, headers, body, vendor, client_certificate, connections, .. } = exchange;
        if let Err(why) = target::origin_allowed(&url, vendor.connection.allow_http) {
            return Err(TransportError::new(Sent::NotSent, ErrorKind::InvalidRequest, why));
        }
        tls::check(&url)?;
        let is_https = url.scheme() == "https";
        let under_way = self.take_client(&vendor, &connections, client_certificate.as_deref(), is_https)?;
        let mut request = reqwest::Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into_reqwest());
        Ok((under_way.client().execute(request), under_way))
    }

    fn make_clients(
        &self,
        vendor: &Vendor,
        certificate: Option<&str>,
        hosts_vary: bool,
        find: impl Fn(&HashMap<Arc<str>, Vec<Entry>>) -> Option<Arc<Clients>>,
    ) -> Result<Arc<Clients>, TransportError> {
        let _building = self.building.lock();
        let current = self.entries.load();
        if let Some(clients) = find(&current) {
            return Ok(clients);
        }
        let settings = ClientSettings::of(vendor, certificate, hosts_vary);
        let files = settings.files();
        if !files.is_empty() {
            self.looks.get_or_init(Arc::default);
        }
        let client = settings.build(self.custom())?;
        let clients = Arc::new(Clients::new(settings, client));
        let mut next = HashMap::clone(&current);
        if next.values().map(Vec::len).sum::<usize>() >= MAX_ENTRIES {
            next.clear();
        }
        next.entry(vendor.name.clone()).or_default().push(Entry { files, clients: clients.clone() });
        self.entries.store(Arc::new(next));
        Ok(clients)
    }

    fn custom(&self) -> reqwest::ClientBuilder {
        match &self.customize {
            Some(customize) => customize(replaceable_settings()),
            None => replaceable_settings(),
        }
    }

    /// Replaces the clients whose certificate files have changed. If the new files cannot be used, the earlier clients stay
    /// in use until they change again. This blocks its thread as building a client does, and never a second thread.
    fn look_at_files(&self) {
        let Some(_building) = self.building.try_lock() else { return };
        let current = self.entries.load();
        if !current.values().flatten().any(|entry| entry.files.have_changed()) {
            return;
        }
        let mut next = HashMap::clone(&current);
        for entry in next.values_mut().flatten().filter(|entry| entry.files.have_changed()) {
            let settings = entry.clients.settings.clone();
            let files = settings.files();
            match settings.build(self.custom()) {
                Ok(client) => {
                    tracing::info!(
                        certificate = settings.certificate,
                        extra_ca = settings.connection.extra_ca,
                        "new connections use the changed files"
                    );
                    *entry = Entry { files, clients: Arc::new(Clients::new(settings, client)) };
                }
                Err(error) => {
                    entry.files = files;
                    tracing::warn!(%error, "changed certificate files cannot be used; the earlier ones stay in use");
                }
            }
        }
        self.entries.store(Arc::new(next));
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
        let clients = self.entries.load().values().flatten().map(|entry| entry.clients.len()).sum::<usize>();
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
            let (sending, under_way) = pending?;
            let mut under_way = Some(under_way);
            let mut pending = pin!(tokio::time::timeout_at(deadline, sending));
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
                Poll::Ready(answer(response, under_way.take(), max_response_bytes, deadline, cx))
            })
            .await
        })
    }
}

fn answer(
    mut response: reqwest::Response,
    under_way: Option<UnderWay>,
    max_response_bytes: u64,
    deadline: Instant,
    cx: &mut Context<'_>,
) -> Result<Answer, TransportError> {
    let (status, version) = (response.status(), response.version());
    under_way.iter().for_each(|exchange| exchange.answered_by(version));
    if header_bytes(response.headers()) > MAX_HEADER_BYTES {
        return Err(headers_too_large());
    }
    let headers = std::mem::take(response.headers_mut());
    let body = AnswerBody::from_reqwest(response, under_way, max_response_bytes, deadline, cx);
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
