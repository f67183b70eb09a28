//! What a client has learned of a vendor while it runs. None of it is configuration, and all of it may be lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Url;

use crate::clock::{Time, nanos};
use crate::config::Vendor;
use crate::error::Error;

/// It is logged once in this time that a vendor states another limit than its entry.
const LIMITS_DIFFER_EVERY_NS: u64 = 60_000_000_000;

/// Shared by the routes of all tenants at one vendor in one environment.
#[derive(Debug)]
pub(crate) struct VendorMemory {
    /// The entry that it was made for.
    vendor: Arc<Vendor>,
    /// The base URL, where it has no variables: parsed for the first request.
    base: OnceLock<Url>,
    /// Nanoseconds from the send of a request to its answer.
    service_ns: Smoothed,
    /// Bytes of an answer's body, where a limit counts bytes.
    answer_bytes: Smoothed,
    connections: Arc<Connections>,
    /// When a limit was last logged that differs from the entry, in nanoseconds; 0 for never.
    limits_differed: AtomicU64,
    /// It was logged that a request went without the idempotency key that its caller stated.
    key_unsent: AtomicBool,
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
        }
    }

    /// Whether it holds for `vendor` too, in another version of the configuration: it is where it was and connected to as
    /// it was.
    pub(super) fn fits(&self, vendor: &Vendor) -> bool {
        let known = &self.vendor;
        known.base_url == vendor.base_url
            && known.connection == vendor.connection
            && known.connect_timeout == vendor.connect_timeout
    }

    /// The base URL that all tenants have, made by `parse` when it is first asked for.
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

    /// Whether no request has gone yet without the idempotency key that its caller stated: true once.
    pub(super) fn is_first_unsent_key(&self) -> bool {
        !self.key_unsent.swap(true, Ordering::Relaxed)
    }

    /// Whether it may be logged at `now` that the vendor states another limit than its entry: once a minute, by one of all
    /// threads that find it.
    pub(super) fn may_log_limits(&self, now: Time) -> bool {
        let last = self.limits_differed.load(Ordering::Relaxed);
        let now = now.as_nanos().max(1);
        (last == 0 || now.saturating_sub(last) >= LIMITS_DIFFER_EVERY_NS)
            && self.limits_differed.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A figure of answers, averaged over the last eight or so.
///
/// In a line of the cache of its own: every answer writes it, and the fields beside it are read by every request.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Smoothed(AtomicU64);

impl Smoothed {
    /// Two at once may count as one, which changes next to nothing.
    fn learn(&self, figure: u64) {
        let figure = figure.clamp(1, u64::MAX / 8);
        let known = self.figure();
        let known = if known == 0 { figure } else { known - known / 8 + figure / 8 };
        self.0.store(known, Ordering::Relaxed);
    }

    /// 0 while nothing is known.
    fn figure(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The HTTP client that a transport made for a vendor, so that no exchange has to look for it.
#[derive(Debug, Default)]
pub(crate) struct Connections(OnceLock<(u64, reqwest::Client)>);

impl Connections {
    /// The client that the transport with the number `pool` made.
    #[inline]
    pub(crate) fn of(&self, pool: u64) -> Option<&reqwest::Client> {
        self.0.get().filter(|(known, _)| *known == pool).map(|(_, client)| client)
    }

    /// Keeps `client`, unless one is known already: a second transport has to look for its own each time.
    pub(crate) fn keep(&self, pool: u64, client: &reqwest::Client) {
        self.0.get_or_init(|| (pool, client.clone()));
    }
}
