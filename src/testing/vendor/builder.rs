//! The configuration of a simulated vendor.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::StatusCode;

use super::reply::{Delay, Reply};
use super::{Fault, HeaderStyle, When};
use crate::testing::{Outage, VendorLimit};

/// Builds a [`FakeVendor`](crate::testing::FakeVendor).
#[derive(Clone, Debug)]
#[must_use]
pub struct FakeVendorBuilder {
    pub(super) limits: Vec<VendorLimit>,
    /// The name and the path prefix of each endpoint.
    pub(super) endpoints: Vec<(String, String)>,
    /// Each key and its account.
    pub(super) accounts: Vec<(String, String)>,
    pub(super) faults: Vec<(When, Fault)>,
    /// Each path prefix and the answer below it.
    pub(super) replies: Vec<(String, Reply)>,
    pub(super) reply: Reply,
    pub(super) arrival: Delay,
    pub(super) service: Delay,
    pub(super) departure: Delay,
    pub(super) headers: HeaderStyle,
    pub(super) seed: u64,
    pub(super) penalty: Duration,
    /// The key of each other client, its calls per second, and its start and end.
    pub(super) others: Vec<(String, u32, Duration, Duration)>,
    /// The start, the end and the kind of each outage.
    pub(super) outages: Vec<(Duration, Duration, Outage)>,
    /// Each poisoned path prefix and its status.
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
    /// Adds a limit. A request counts in all limits that apply to it, or in none.
    pub fn limit(mut self, limit: VendorLimit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Makes the paths at and below `prefix` the endpoint `name`; the longest prefix wins.
    pub fn endpoint(mut self, name: &str, prefix: &str) -> Self {
        self.endpoints.push((name.to_owned(), prefix.to_owned()));
        self
    }

    /// Puts these keys into one account. A key in no account is an account of its own.
    pub fn account<'a>(mut self, account: &str, keys: impl IntoIterator<Item = &'a str>) -> Self {
        self.accounts.extend(keys.into_iter().map(|key| (key.to_owned(), account.to_owned())));
        self
    }

    /// Sets a fixed latency in each direction.
    pub fn latency(mut self, one_way: Duration) -> Self {
        self.arrival.fixed = one_way;
        self.departure.fixed = one_way;
        self
    }

    /// Adds up to this much latency, in each direction independently.
    pub fn jitter(mut self, one_way: Duration) -> Self {
        self.arrival.jitter = one_way;
        self.departure.jitter = one_way;
        self
    }

    /// Sets the time before the limits decide, for the way to the vendor.
    pub fn arrival_delay(mut self, delay: Delay) -> Self {
        self.arrival = delay;
        self
    }

    /// Sets the time that an admitted request takes at the vendor and holds its slots in concurrency limits.
    pub fn service_time(mut self, delay: Delay) -> Self {
        self.service = delay;
        self
    }

    /// Sets the time after the request has ended at the vendor, for the way back.
    pub fn return_delay(mut self, delay: Delay) -> Self {
        self.departure = delay;
        self
    }

    /// Sets the seed of all jitter, by default 0. Which request gets which delay depends on their order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the headers that announce limits, by default [`HeaderStyle::XRateLimit`].
    pub fn headers(mut self, style: HeaderStyle) -> Self {
        self.headers = style;
        self
    }

    /// Adds a fault. Where several match a request, the first applies.
    pub fn fault(mut self, when: When, fault: Fault) -> Self {
        self.faults.push((when, fault));
        self
    }

    /// Blocks a key for this long after a limit has refused it. Every request during the block is refused as well,
    /// counts in no limit, and prolongs the block by as much. `retry-after` announces its end, unless the style is
    /// silent.
    pub fn penalty(mut self, block: Duration) -> Self {
        self.penalty = block;
        self
    }

    /// Adds another client with this key, which makes `per_second` calls a second, evenly spaced, first `from` after
    /// the start and never at `until` or later. These calls use no socket, cost one unit, have no endpoint and end at
    /// once. Limits judge them like others, with the same penalty; the log marks them as
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

    /// Applies the outage to every request from `from` until before `until`, both since the start; no limit counts
    /// them. Where outages overlap, the one declared first applies.
    pub fn outage(mut self, from: Duration, until: Duration, outage: Outage) -> Self {
        self.outages.push((from, until, outage));
        self
    }

    /// Answers requests to this path or below it always with `status`; no limit counts them, and the longest path wins.
    /// The answer's headers announce the limits as usual, without a time to retry. An invalid status becomes 500.
    pub fn poisoned(mut self, path: &str, status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.poisoned.push((path.to_owned(), status.as_u16()));
        self
    }

    /// Sets the answer to admitted requests without a [`reply_at`](Self::reply_at), by default `{}`.
    pub fn reply(mut self, reply: Reply) -> Self {
        self.reply = reply;
        self
    }

    /// Sets the answer to admitted requests at and below this path; the longest path wins.
    pub fn reply_at(mut self, path: &str, reply: Reply) -> Self {
        self.replies.push((path.to_owned(), reply));
        self
    }

    /// Sets an answer of this many bytes.
    pub fn body_size(self, bytes: usize) -> Self {
        self.reply(Reply::text(200, vec![b'x'; bytes]))
    }

    /// Sets the number of arrivals in the log, at 40 bytes each; by default a million. Later arrivals are only counted.
    pub fn log_cap(mut self, arrivals: usize) -> Self {
        self.log_cap = arrivals;
        self
    }

    /// Sets the address, by default a free port of 127.0.0.1.
    pub fn bind(mut self, address: SocketAddr) -> Self {
        self.bind = address;
        self
    }
}
