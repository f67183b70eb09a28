//! [`FakeVendor`]: a simulated vendor with a socket. Its faults are listed in `fault.rs`, and carried out by `server.rs` and
//! `body.rs`.

mod body;
mod builder;
mod catalogue;
mod fault;
mod headers;
mod log;
mod reply;
mod server;
mod state;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;

pub use self::builder::FakeVendorBuilder;
pub use self::fault::{Fault, When};
pub use self::headers::HeaderStyle;
pub use self::log::Arrival;
pub use self::reply::{Delay, Reply};
use self::state::Shared;
pub use self::state::Summary;
use super::Outage;
use crate::config::Scope;

/// An HTTP/1.1 server on loopback that enforces limits like a vendor, and keeps a log of the requests that arrived.
///
/// The server identifies a client by `authorization: bearer KEY`, or else by `x-tenant: KEY`; requests with neither
/// share the empty key. `x-cost: N` sets the cost of a request to `N` units. A request over a limit is answered with
/// 429 and counts in no limit.
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
///     .limit(VendorLimit::sliding_window(2, hour))
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
/// let limit = Definition::SlidingWindow { limit: 2, window_ns: 3_600_000_000_000, both_ends: false };
/// assert_eq!(refused(&vendor.arrivals(), &limit), 1, "the checker agrees");
/// # Ok::<(), std::io::Error>(()) }).unwrap();
/// ```
pub struct FakeVendor {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// The task that accepts connections. Dropping it ends the server with all its connections.
    server: JoinSet<()>,
}

impl FakeVendor {
    /// A builder of a vendor that has no limits, latency or faults yet.
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

    /// A correct entry for `vendors.toml`: this address, bearer keys, and every limit with its algorithm, window and
    /// scope.
    pub fn vendors_toml(&self, name: &str) -> String {
        catalogue::entry(name, &self.url(), &self.shared.limits, &self.shared.endpoints)
    }

    /// The requests so far in order of arrival, up to the capacity of the log.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.arrivals()
    }

    /// The number of requests refused since the start or the last [`reset_log`](Self::reset_log).
    pub fn refused(&self) -> u64 {
        self.summary().refused
    }

    /// The numbers of requests that arrived, were admitted, and so on.
    pub fn summary(&self) -> Summary {
        self.shared.summary()
    }

    /// Clears the log and the counts. The limits keep their state.
    pub fn reset_log(&self) {
        self.shared.reset_log();
    }

    /// Adds a fault from now on. If several match a request, the one added first applies.
    pub fn add_fault(&self, when: When, fault: Fault) {
        self.shared.add_fault(when, fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.clear_faults();
    }

    /// Starts an outage now, regardless of those that the builder declared, and replaces one that this method started
    /// earlier; with `None`, ends the outage that this method started.
    pub fn set_outage(&self, outage: impl Into<Option<Outage>>) {
        self.shared.set_outage(outage.into());
    }

    /// Serves until the future is dropped, for a process that runs nothing but a vendor.
    pub async fn serve_forever(mut self) {
        while self.server.join_next().await.is_some() {}
    }
}

impl fmt::Debug for FakeVendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeVendor").field("address", &self.address).field("limits", &self.shared.limits).finish()
    }
}

impl FakeVendorBuilder {
    /// Starts the server on the current runtime. The times of limits and log start at 0 now.
    ///
    /// # Errors
    ///
    /// The address cannot be bound, an endpoint is declared twice, or a limit names an undeclared endpoint or has
    /// [`Scope::Endpoint`] without an endpoint.
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
        let listener = server::bound(self.bind)?.listen(server::BACKLOG)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(self));
        let mut server = JoinSet::new();
        server.spawn(server::accept(listener, address, shared.clone()));
        Ok(FakeVendor { address, shared, server })
    }
}
