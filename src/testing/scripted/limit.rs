//! What a vendor limits.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::nanos;
use crate::config::Scope;
use crate::testing::algorithm::{Phase, Refill, Rule};

/// One limit of a made-up vendor: a [`Rule`], who shares it, and where it holds.
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
    pub(in crate::testing) counts_requests: bool,
    pub(in crate::testing) counts_refused: bool,
}

impl VendorLimit {
    /// A limit by `rule`, for each tenant's key, on all paths.
    pub fn new(rule: Rule) -> VendorLimit {
        VendorLimit {
            rule,
            scope: Scope::Tenant,
            name: None,
            endpoint: None,
            counts_requests: false,
            counts_refused: false,
        }
    }

    /// `limit` units per window; windows begin at the server's start unless [`phase`](Self::phase) or
    /// [`from_first_request`](Self::from_first_request) says otherwise.
    pub fn fixed_window(limit: u32, window: Duration) -> VendorLimit {
        VendorLimit::new(Rule::FixedWindow { limit, window_ns: nanos(window), phase: Phase::At(0) })
    }

    /// `limit` units in any stretch of time as long as the window.
    pub fn sliding_log(limit: u32, window: Duration) -> VendorLimit {
        VendorLimit::new(Rule::SlidingLog { limit, window_ns: nanos(window), both_ends: false })
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

    /// `limit` requests under way at once.
    pub fn concurrency(limit: u32) -> VendorLimit {
        VendorLimit::new(Rule::Concurrency { limit })
    }

    /// Who shares the limit; each tenant's key has its own unless this is called.
    pub fn scope(mut self, scope: Scope) -> VendorLimit {
        self.scope = scope;
        self
    }

    /// The limit holds for this endpoint alone, rather than for all paths.
    pub fn endpoint(mut self, name: &str) -> VendorLimit {
        self.endpoint = Some(name.into());
        self
    }

    /// The limit's name in `vendors.toml`.
    pub fn named(mut self, name: &str) -> VendorLimit {
        self.name = Some(name.into());
        self
    }

    /// Windows begin (or lumps come) at this time after the server's start, and again every window after it. Changes
    /// fixed windows, sliding counters and lumped refills, and nothing else.
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

    /// A fixed window begins at the first request after the last one's end.
    pub fn from_first_request(mut self) -> VendorLimit {
        if let Rule::FixedWindow { phase, .. } = &mut self.rule {
            *phase = Phase::FirstRequest;
        }
        self
    }

    /// A sliding log also counts what is exactly one window old.
    pub fn count_both_ends(mut self) -> VendorLimit {
        if let Rule::SlidingLog { both_ends, .. } = &mut self.rule {
            *both_ends = true;
        }
        self
    }

    /// A token bucket refills in lumps, one each interval, the first one an interval after the start.
    pub fn refill_interval(mut self, interval: Duration) -> VendorLimit {
        if let Rule::TokenBucket { refill, .. } = &mut self.rule {
            *refill = Refill::Lumps { interval_ns: nanos(interval), phase_ns: nanos(interval) };
        }
        self
    }

    /// Every request is one unit, whatever it costs.
    pub fn count_requests(mut self) -> VendorLimit {
        self.counts_requests = true;
        self
    }

    /// Refused requests count as well, so that a client that hammers stays locked out. Not for concurrency.
    pub fn count_refused(mut self) -> VendorLimit {
        self.counts_refused = !matches!(self.rule, Rule::Concurrency { .. });
        self
    }

    pub(super) fn units(&self, cost: u32) -> u32 {
        if self.counts_requests { 1 } else { cost }
    }
}
