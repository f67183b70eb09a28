//! Figures that a client learns about a vendor while it runs. They are no configuration and may be lost.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use url::Url;

use crate::clock::{Time, nanos};
use crate::config::Vendor;
use crate::error::Error;

/// The shortest time between two log lines about a vendor that states another limit than its entry.
const LIMITS_DIFFER_EVERY_NS: u64 = 60_000_000_000;

/// Shared by the routes of all tenants at one vendor in one environment.
#[derive(Debug)]
pub(crate) struct VendorMemory {
    /// The vendor's entry for which the figures were collected.
    vendor: Arc<Vendor>,
    /// The base URL if it has no variables, parsed by the first request.
    base: OnceLock<Url>,
    /// Nanoseconds from sending a request to its response.
    service_ns: Smoothed,
    /// Bytes of a response body, if a limit counts bytes.
    answer_bytes: Smoothed,
    connections: Arc<Connections>,
    /// When a differing limit was last logged, in nanoseconds; 0 for never.
    limits_differed: AtomicU64,
    /// Whether it has been logged that a request was sent without the idempotency key that its caller stated.
    key_unsent: AtomicBool,
    /// Whether it has been logged that a request's cost is ignored.
    cost_ignored: AtomicBool,
    /// Whether it has been logged that a body was wanted and came in a coding that is not decoded.
    coding_unread: AtomicBool,
}

impl VendorMemory {
    pub(super) fn new(vendor: Arc<Vendor>) -> VendorMemory {
        VendorMemory {
            vendor,
            base: OnceLock::new(),
            service_ns: Smoothed::default(),
            answer_bytes: Smoothed::default(),
            connections: Arc::default(),
            limits_differed: AtomicU64::new(0),
            key_unsent: AtomicBool::new(false),
            cost_ignored: AtomicBool::new(false),
            coding_unread: AtomicBool::new(false),
        }
    }

    /// Whether the figures still apply to `vendor` in another version of the configuration: its base URL and connection
    /// settings are the same.
    pub(super) fn fits(&self, vendor: &Vendor) -> bool {
        let known = &self.vendor;
        known.base_url == vendor.base_url
            && known.connection == vendor.connection
            && known.connect_timeout == vendor.connect_timeout
    }

    /// The base URL of all tenants, made by `parse` on first use.
    pub(super) fn base(&self, parse: impl FnOnce() -> Result<Url, Error>) -> Result<&Url, Error> {
        if let Some(known) = self.base.get() {
            return Ok(known);
        }
        let parsed = parse()?;
        Ok(self.base.get_or_init(|| parsed))
    }

    pub(super) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(super) fn answered_in(&self, took: Duration) {
        self.service_ns.learn(nanos(took));
    }

    pub(super) fn service_ns(&self) -> u64 {
        self.service_ns.figure()
    }

    pub(super) fn answer_had(&self, bytes: u64) {
        self.answer_bytes.learn(bytes);
    }

    pub(super) fn answer_bytes(&self) -> u64 {
        self.answer_bytes.figure()
    }

    /// Whether this is the first request sent without the idempotency key that its caller stated: true once.
    pub(super) fn is_first_unsent_key(&self) -> bool {
        !self.key_unsent.swap(true, Ordering::Relaxed)
    }

    /// Whether an ignored cost may be logged: true once.
    pub(super) fn may_log_cost(&self) -> bool {
        !self.cost_ignored.swap(true, Ordering::Relaxed)
    }

    /// Whether a body in a coding that is not decoded may be logged: true once.
    pub(super) fn may_log_coding(&self) -> bool {
        !self.coding_unread.swap(true, Ordering::Relaxed)
    }

    /// Whether a differing limit may be logged at `now`: true once a minute, for one thread.
    pub(super) fn may_log_limits(&self, now: Time) -> bool {
        let last = self.limits_differed.load(Ordering::Relaxed);
        let now = now.as_nanos().max(1);
        (last == 0 || now.saturating_sub(last) >= LIMITS_DIFFER_EVERY_NS)
            && self.limits_differed.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// An average over about the last eight responses.
///
/// It has a cache line of its own, because every response writes it and every request reads the fields beside it.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Smoothed(AtomicU64);

impl Smoothed {
    /// Two concurrent updates may count as one, which hardly changes the average.
    fn learn(&self, figure: u64) {
        let figure = figure.clamp(1, u64::MAX / 8);
        let known = self.figure();
        let known = if known == 0 { figure } else { known - known / 8 + figure / 8 };
        self.0.store(known, Ordering::Relaxed);
    }

    /// The average; 0 before the first response.
    fn figure(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a transport keeps for a vendor (its HTTP clients), so that exchanges need no look-up. Only the transport knows
/// the type.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    kept: OnceLock<(u64, Arc<dyn Any + Send + Sync>)>,
    /// Whether a tenant's variables choose the host, even if they do not choose that of the vendor's base URL.
    is_of_chosen_host: bool,
}

impl Connections {
    /// Connections to a host of another URL than the vendor's base URL.
    #[cfg_attr(not(any(test, feature = "oauth")), allow(dead_code, reason = "token URLs are the only others"))]
    pub(crate) fn of_host(is_chosen: bool) -> Connections {
        Connections { kept: OnceLock::new(), is_of_chosen_host: is_chosen }
    }

    pub(crate) fn is_of_chosen_host(&self) -> bool {
        self.is_of_chosen_host
    }

    /// What the transport with the number `pool` keeps.
    #[inline]
    pub(crate) fn of<T: Send + Sync + 'static>(&self, pool: u64) -> Option<&T> {
        let (_, kept) = self.kept.get().filter(|(known, _)| *known == pool)?;
        kept.downcast_ref()
    }

    /// Keeps `value` unless something is kept already: a second transport looks up its own each time.
    pub(crate) fn keep<T: Send + Sync + 'static>(&self, pool: u64, value: &Arc<T>) {
        self.kept.get_or_init(|| {
            let kept: Arc<dyn Any + Send + Sync> = value.clone();
            (pool, kept)
        });
    }
}
