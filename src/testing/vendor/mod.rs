//! A vendor with a socket.

mod body;
mod catalogue;
mod fault;
mod headers;
mod log;
mod server;
mod state;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub use self::fault::{Fault, When};
pub use self::headers::HeaderStyle;
pub use self::log::Arrival;
use self::state::Shared;
pub use self::state::Summary;
use super::VendorLimit;
use crate::config::Scope;

/// A time that varies: `fixed`, and up to `jitter` more, evenly spread. Waits are rounded up to whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// The least.
    pub fixed: Duration,
    /// What may come on top.
    pub jitter: Duration,
}

impl Delay {
    /// Always `fixed`.
    pub const fn fixed(fixed: Duration) -> Delay {
        Delay { fixed, jitter: Duration::ZERO }
    }

    /// The same with up to `jitter` on top.
    pub const fn jitter(mut self, jitter: Duration) -> Delay {
        self.jitter = jitter;
        self
    }
}

/// An answer to an admitted request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub(self) status: StatusCode,
    pub(self) content_type: &'static str,
    pub(self) body: Bytes,
}

impl Reply {
    /// A text. A number that is no status becomes 500.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Reply {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Reply { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// JSON, as written.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply { content_type: "application/json", ..Reply::text(status, body) }
    }
}

/// An HTTP/1.1 server on loopback that enforces limits as a vendor does, and keeps a log of what arrived.
///
/// It knows a caller by `authorization: bearer KEY`, or else `x-tenant: KEY`; requests without either share the empty
/// key. `x-cost: N` makes a request cost `N` units. A request over a limit is answered 429 and counts in none.
///
/// The server runs on the runtime that started it, and ends when it is dropped. Never use it under paused time: see
/// [`VirtualClock`](super::VirtualClock).
///
/// ```
/// use integration_client::testing::checker::{Definition, refused};
/// use integration_client::testing::{FakeVendor, VendorLimit};
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let hour = Duration::from_secs(3600);
/// let vendor = FakeVendor::builder()
///     .limit(VendorLimit::sliding_log(2, hour))
///     .limit(VendorLimit::concurrency(10))
///     .start()
///     .await?;
///
/// let client = reqwest::Client::builder().no_proxy().build().unwrap();
/// let mut statuses = Vec::new();
/// for _ in 0..3 {
///     let response = client.get(vendor.url()).bearer_auth("acme").send().await.unwrap();
///     statuses.push(response.status().as_u16());
/// }
///
/// assert_eq!(statuses, [200, 200, 429]);
/// assert_eq!(vendor.refused(), 1);
/// let limit = Definition::SlidingLog { limit: 2, window_ns: 3_600_000_000_000, both_ends: false };
/// assert_eq!(refused(&vendor.arrivals(), &limit), 1, "the checker agrees");
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
pub struct FakeVendor {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Accepts connections. Dropping it ends the server with all its connections.
    server: JoinSet<()>,
}

impl FakeVendor {
    /// A vendor without limits, latency or faults, to be given some.
    pub fn builder() -> FakeVendorBuilder {
        FakeVendorBuilder::default()
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// An entry for `vendors.toml` that says the truth: this address, bearer keys, and every limit with its algorithm,
    /// window and scope.
    pub fn vendors_toml(&self, name: &str) -> String {
        catalogue::entry(name, &self.url(), &self.shared.limits, &self.shared.endpoints)
    }

    /// The requests so far in order of arrival, up to the log's cap.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals()
    }

    /// How many requests have been refused since the start or the last [`reset_log`](Self::reset_log).
    pub fn refused(&self) -> u64 {
        self.summary().refused
    }

    /// How many requests have arrived, been admitted, and so on.
    pub fn summary(&self) -> Summary {
        self.shared.summary()
    }

    /// Forgets the log and the counts. The limits remember.
    pub fn reset_log(&self) {
        self.shared.reset_log();
    }

    /// One more fault, from now on. Where several fit a request, the one added first happens.
    pub fn add_fault(&self, when: When, fault: Fault) {
        self.shared.add_fault(when, fault);
    }

    /// No more faults from now on.
    pub fn clear_faults(&self) {
        self.shared.clear_faults();
    }

    /// Serves until the future is dropped: for a process that is nothing but a vendor.
    pub async fn serve_forever(mut self) {
        while self.server.join_next().await.is_some() {}
    }
}

impl fmt::Debug for FakeVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeVendor").field("address", &self.address).field("limits", &self.shared.limits).finish()
    }
}

/// What a [`FakeVendor`] is to be.
#[derive(Clone, Debug)]
#[must_use]
pub struct FakeVendorBuilder {
    limits: Vec<VendorLimit>,
    /// Name and path prefix.
    endpoints: Vec<(String, String)>,
    /// Key and account.
    accounts: Vec<(String, String)>,
    faults: Vec<(When, Fault)>,
    /// Path prefix and answer.
    replies: Vec<(String, Reply)>,
    reply: Reply,
    arrival: Delay,
    service: Delay,
    departure: Delay,
    headers: HeaderStyle,
    seed: u64,
    log_cap: usize,
    bind: SocketAddr,
}

impl Default for FakeVendorBuilder {
    fn default() -> FakeVendorBuilder {
        FakeVendorBuilder {
            limits: Vec::new(),
            endpoints: Vec::new(),
            accounts: Vec::new(),
            faults: Vec::new(),
            replies: Vec::new(),
            reply: Reply::json(200, &b"{}"[..]),
            arrival: Delay::default(),
            service: Delay::default(),
            departure: Delay::default(),
            headers: HeaderStyle::XRateLimit,
            seed: 0,
            log_cap: 1_000_000,
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        }
    }
}

impl FakeVendorBuilder {
    /// One more limit. A request takes all limits that hold for it, or none.
    pub fn limit(mut self, limit: VendorLimit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Paths at and below `prefix` are the endpoint `name`; the longest prefix wins.
    pub fn endpoint(mut self, name: &str, prefix: &str) -> Self {
        self.endpoints.push((name.to_owned(), prefix.to_owned()));
        self
    }

    /// These keys belong to one account. A key that no account claims is an account of its own.
    pub fn account<'a>(mut self, account: &str, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.accounts.extend(keys.into_iter().map(|key| (key.to_owned(), account.to_owned())));
        self
    }

    /// Fixed latency, each way.
    pub fn latency(mut self, one_way: Duration) -> Self {
        self.arrival.fixed = one_way;
        self.departure.fixed = one_way;
        self
    }

    /// Up to this much more latency, each way on its own.
    pub fn jitter(mut self, one_way: Duration) -> Self {
        self.arrival.jitter = one_way;
        self.departure.jitter = one_way;
        self
    }

    /// Time before the limits decide, as on the way to the vendor.
    pub fn arrival_delay(mut self, delay: Delay) -> Self {
        self.arrival = delay;
        self
    }

    /// Time that an admitted request takes at the vendor, holding its places in concurrency limits.
    pub fn service_time(mut self, delay: Delay) -> Self {
        self.service = delay;
        self
    }

    /// Time after the vendor is done, as on the way back.
    pub fn return_delay(mut self, delay: Delay) -> Self {
        self.departure = delay;
        self
    }

    /// Seed of all jitter; 0 unless set. Which request gets which delay depends on their order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What headers tell about limits; [`HeaderStyle::XRateLimit`] unless set.
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.headers = style;
        self
    }

    /// A fault. Where several fit a request, the first happens.
    pub fn fault(mut self, when: When, fault: Fault) -> Self {
        self.faults.push((when, fault));
        self
    }

    /// The answer to every admitted request that has no [`reply_at`](Self::reply_at); `{}` unless set.
    pub fn reply(mut self, reply: Reply) -> Self {
        self.reply = reply;
        self
    }

    /// The answer to admitted requests at and below this path; the longest path wins.
    pub fn reply_at(mut self, path: &str, reply: Reply) -> Self {
        self.replies.push((path.to_owned(), reply));
        self
    }

    /// Answers of this many bytes.
    pub fn body_size(self, bytes: usize) -> Self {
        self.reply(Reply::text(200, vec![b'x'; bytes]))
    }

    /// How many arrivals the log keeps, at 40 bytes each; a million unless set. Later ones are counted only.
    pub fn log_cap(mut self, arrivals: usize) -> Self {
        self.log_cap = arrivals;
        self
    }

    /// Listens here, rather than on a free port of 127.0.0.1.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = address;
        self
    }

    /// Starts the server on the current runtime. Time 0 of limits and log is now.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound, when an endpoint is declared twice, or when a limit names an endpoint that was
    /// not declared or has [`Scope::Endpoint`] without naming one.
    pub async fn start(self) -> io::Result<FakeVendor> {
        for (place, (name, _)) in self.endpoints.iter().enumerate() {
            if self.endpoints.iter().take(place).any(|(earlier, _)| earlier == name) {
                let problem = format!("the endpoint {name:?} is declared twice");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
        }
        for limit in &self.limits {
            let problem = match &limit.endpoint {
                Some(name) if !self.endpoints.iter().any(|(declared, _)| **declared == **name) => {
                    format!("a limit names the endpoint {name:?}: declare it with `endpoint(name, prefix)`")
                }
                None if limit.scope == Scope::Endpoint => {
                    "a limit per endpoint needs an endpoint: name it with `VendorLimit::endpoint`".to_owned()
                }
                _ => continue,
            };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let listener = TcpListener::bind(self.bind).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(self));
        let mut server = JoinSet::new();
        server.spawn(server::accept(listener, shared.clone()));
        Ok(FakeVendor { address, shared, server })
    }
}
