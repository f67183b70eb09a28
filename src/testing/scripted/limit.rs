//! The limits of a scripted vendor.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::nanos;
use crate::config::Scope;
use crate::testing::limit::{Phase, Refill, Rule};

/// A limit of a simulated vendor: a [`Rule`], its scope, and its endpoint.
///
/// ```
/// use integration_client::config::Scope;
/// use integration_client::testing::VendorLimit;
/// use std::time::Duration;
///
/// let per_key = VendorLimit::fixed_window(100, Duration::from_secs(1)).phase(Duration::from_millis(300));
/// let reports = VendorLimit::concurrency(2).scope(Scope::Account).endpoint("reports");
/// # let _ = (per_key, reports);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VendorLimit {
    pub(in crate::testing) rule: Rule,
    pub(in crate::testing) scope: Scope,
    pub(in crate::testing) name: Option<Arc<str>>,
    pub(in crate::testing) endpoint: Option<Arc<str>>,
    /// The units that every request takes; `None` for its cost.
    pub(in crate::testing) units_each: Option<u32>,
    pub(in crate::testing) counts_refused: bool,
}

impl VendorLimit {
    /// A limit by `rule`, for each tenant's key and on all paths.
    pub fn new(rule: Rule) -> VendorLimit {
        VendorLimit { rule, scope: Scope::Tenant, name: None, endpoint: None, units_each: None, counts_refused: false }
    }

    /// `limit` units per window. Windows begin at the server's start unless [`phase`](Self::phase) or
    /// [`from_first_request`](Self::from_first_request) is called.
    pub fn fixed_window(limit: u32, window: Duration) -> VendorLimit {
        VendorLimit::new(Rule::FixedWindow { limit, window_ns: nanos(window), phase: Phase::At(0) })
    }

    /// `limit` units in any period as long as the window.
    pub fn sliding_window(limit: u32, window: Duration) -> VendorLimit {
        VendorLimit::new(Rule::SlidingWindow { limit, window_ns: nanos(window), both_ends: false })
    }

    /// `limit` units in two weighted fixed windows.
    pub fn sliding_counter(limit: u32, window: Duration) -> VendorLimit {
        VendorLimit::new(Rule::SlidingCounter { limit, window_ns: nanos(window), phase_ns: 0 })
    }

    /// A bucket that holds `capacity` and regains `rate` units per `per`.
    pub fn token_bucket(capacity: u32, rate: u32, per: Duration) -> VendorLimit {
        VendorLimit::new(Rule::TokenBucket { capacity, rate, per_ns: nanos(per), refill: Refill::Steady })
    }

    /// A bucket that overflows above `capacity` and drains `rate` units per `per`.
    pub fn leaky_bucket(capacity: u32, rate: u32, per: Duration) -> VendorLimit {
        VendorLimit::new(Rule::LeakyBucket { capacity, rate, per_ns: nanos(per) })
    }

    /// `limit` requests in flight.
    pub fn concurrency(limit: u32) -> VendorLimit {
        VendorLimit::new(Rule::Concurrency { limit })
    }

    /// Sets the scope of the limit; by default each tenant's key has a limit of its own.
    pub fn scope(mut self, scope: Scope) -> VendorLimit {
        self.scope = scope;
        self
    }

    /// Applies the limit to this endpoint only, rather than to all paths.
    pub fn endpoint(mut self, name: &str) -> VendorLimit {
        self.endpoint = Some(name.into());
        self
    }

    /// Sets the limit's name in `vendors.toml`.
    pub fn named(mut self, name: &str) -> VendorLimit {
        self.name = Some(name.into());
        self
    }

    /// Sets when windows begin, or refills come, after the server's start and again every window later. Affects fixed
    /// windows, sliding counters and refills in lumps only.
    pub fn phase(mut self, after_start: Duration) -> VendorLimit {
        let at = nanos(after_start);
        match &mut self.rule {
            Rule::FixedWindow { phase, .. } => *phase = Phase::At(at),
            Rule::SlidingCounter { phase_ns, .. } => *phase_ns = at,
            Rule::TokenBucket { refill: Refill::Lumps { phase_ns, .. }, .. } => *phase_ns = at,
            _ => {}
        }
        self
    }

    /// Starts a fixed window at the first request after the end of the last one.
    pub fn from_first_request(mut self) -> VendorLimit {
        if let Rule::FixedWindow { phase, .. } = &mut self.rule {
            *phase = Phase::FirstRequest;
        }
        self
    }

    /// Makes a sliding log also count a request that is exactly one window old.
    pub fn count_both_ends(mut self) -> VendorLimit {
        if let Rule::SlidingWindow { both_ends, .. } = &mut self.rule {
            *both_ends = true;
        }
        self
    }

    /// Makes a token bucket refill in lumps, once each interval, the first one an interval after the start.
    pub fn refill_interval(mut self, interval: Duration) -> VendorLimit {
        if let Rule::TokenBucket { refill, .. } = &mut self.rule {
            *refill = Refill::Lumps { interval_ns: nanos(interval), phase_ns: nanos(interval) };
        }
        self
    }

    /// Counts every request as one unit, whatever its cost.
    pub fn count_requests(self) -> VendorLimit {
        self.count_each_as(1)
    }

    /// Counts every request as `units`, whatever its cost.
    pub fn count_each_as(mut self, units: u32) -> VendorLimit {
        self.units_each = Some(units);
        self
    }

    /// Counts refused requests too, so that a client that keeps sending stays refused. No effect on concurrency limits.
    pub fn count_refused(mut self) -> VendorLimit {
        self.counts_refused = !matches!(self.rule, Rule::Concurrency { .. });
        self
    }

    pub(super) fn units(&self, cost: u32) -> u32 {
        self.units_each.unwrap_or(cost)
    }
}
