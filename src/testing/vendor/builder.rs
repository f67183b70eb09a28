//! What a vendor is to be, before it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::StatusCode;

use super::reply::{Delay, Reply};
use super::{Fault, HeaderStyle, When};
use crate::testing::{Outage, VendorLimit};

/// What a [`FakeVendor`](crate::testing::FakeVendor) is to be.
#[derive(Clone, Debug)]
#[must_use]
pub struct FakeVendorBuilder {
    pub(super) limits: Vec<VendorLimit>,
    /// Name and path prefix.
    pub(super) endpoints: Vec<(String, String)>,
    /// Key and account.
    pub(super) accounts: Vec<(String, String)>,
    pub(super) faults: Vec<(When, Fault)>,
    /// Path prefix and answer.
    pub(super) replies: Vec<(String, Reply)>,
    pub(super) reply: Reply,
    pub(super) arrival: Delay,
    pub(super) service: Delay,
    pub(super) departure: Delay,
    pub(super) headers: HeaderStyle,
    pub(super) seed: u64,
    pub(super) penalty: Duration,
    /// Key, calls per second, from, and until.
    pub(super) others: Vec<(String, u32, Duration, Duration)>,
    /// From, until, and how.
    pub(super) outages: Vec<(Duration, Duration, Outage)>,
    /// Path prefix and status.
    pub(super) poisoned: Vec<(String, u16)>,
    pub(super) log_cap: usize,
    pub(super) bind: SocketAddr,
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
            penalty: Duration::ZERO,
            others: Vec::new(),
            outages: Vec::new(),
            poisoned: Vec::new(),
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

    /// A key that a limit refuses is refused everything for this long. Every request during the block is refused as well,
    /// counts in no limit, and makes the block longer by as much again. `retry-after` tells its end, unless the vendor
    /// is silent.
    pub fn penalty(mut self, block: Duration) -> Self {
        self.penalty = block;
        self
    }

    /// Somebody else calls with this key, `per_second` times a second and evenly spaced, first `from` after the start
    /// and never at `until` or later. No socket is used. These calls cost one unit, have no endpoint and are over at
    /// once. Limits judge them as they judge others, with the same penalty; the log marks them as
    /// [foreign](super::Arrival::foreign).
    ///
    /// ```
    /// # use integration_client::testing::{FakeVendor, VendorLimit};
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let vendor = FakeVendor::builder()
    ///     .limit(VendorLimit::fixed_window(100, second))
    ///     .other_traffic("acme", 80, 10 * second, 20 * second);
    /// # let _ = vendor;
    /// ```
    pub fn other_traffic(mut self, key: &str, per_second: u32, from: Duration, until: Duration) -> Self {
        self.others.push((key.to_owned(), per_second, from, until));
        self
    }

    /// From `from` until before `until`, both since the start, every request meets the outage, and nothing else: no limit
    /// counts it. Where outages overlap, the one declared first happens.
    pub fn outage(mut self, from: Duration, until: Duration, outage: Outage) -> Self {
        self.outages.push((from, until, outage));
        self
    }

    /// Requests to this path or below it are always answered with `status`, and count in no limit; the longest path
    /// wins. Whether there is room in the limits is told as ever, and no time to come back. A number that is no status
    /// becomes 500.
    pub fn poisoned(mut self, path: &str, status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.poisoned.push((path.to_owned(), status.as_u16()));
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
}
