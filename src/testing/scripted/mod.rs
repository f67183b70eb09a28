//! A vendor without a socket: its limits as a pure function of the requests that arrive.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::algorithm::{Limiter, Phase, Reading, Refill, Rule};
use crate::clock::nanos;
use crate::config::Scope;

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
    pub(super) rule: Rule,
    pub(super) scope: Scope,
    pub(super) name: Option<Arc<str>>,
    pub(super) endpoint: Option<Arc<str>>,
    pub(super) counts_requests: bool,
    pub(super) counts_refused: bool,
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

    fn units(&self, cost: u32) -> u32 {
        if self.counts_requests { 1 } else { cost }
    }
}

/// A request as a [`ScriptedVendor`] sees it. Tenants and accounts are numbers of the caller's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// The credential's owner.
    pub tenant: u32,
    /// The account that the credential belongs to.
    pub account: u32,
    /// A number from [`ScriptedVendor::endpoint`]; 0 is a path without an endpoint of its own.
    pub endpoint: u32,
    /// Units that the request takes from limits that do not merely count requests.
    pub cost: u32,
}

/// What the vendor makes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Whether the request was admitted by all limits. If not, it counted in none (but see
    /// [`VendorLimit::count_refused`]).
    pub admitted: bool,
    /// Names an admitted request in [`ScriptedVendor::finish`].
    pub call: u64,
    /// The place, in order of declaration, of the first limit that refused.
    pub refused_by: Option<usize>,
    /// When a refused request would be admitted if no other came before, as far as that is a matter of time.
    pub retry_at_ns: Option<u64>,
    /// What is left of the limit that refused, or else of the rate limit with the smallest share left.
    pub reading: Option<Reading>,
}

/// A vendor's limits, without a socket and without a clock: what [`FakeVendor`](super::FakeVendor) enforces, to be
/// driven through made-up time.
///
/// A request takes all limits that hold for it, or none.
///
/// ```
/// use integration_client::testing::{Call, ScriptedVendor, VendorLimit};
/// use std::time::Duration;
///
/// let mut vendor = ScriptedVendor::new([
///     VendorLimit::sliding_log(2, Duration::from_nanos(1_000)),
///     VendorLimit::concurrency(1),
/// ]);
/// let call = Call { tenant: 1, account: 1, endpoint: 0, cost: 1 };
/// let first = vendor.arrive(0, &call);
/// assert!(first.admitted);
/// assert_eq!(vendor.arrive(10, &call).refused_by, Some(1), "one at a time");
/// vendor.finish(20, first.call);
/// assert!(vendor.arrive(30, &call).admitted, "the refused request did not count");
/// ```
#[derive(Clone, Debug)]
pub struct ScriptedVendor {
    limits: Vec<Enforced>,
    endpoints: Vec<Arc<str>>,
    has_concurrency: bool,
    under_way: HashMap<u64, Call>,
    next_call: u64,
}

#[derive(Clone, Debug)]
struct Enforced {
    limit: VendorLimit,
    endpoint: Option<u32>,
    states: HashMap<u64, Limiter>,
}

impl Enforced {
    fn state(&mut self, call: &Call) -> Option<&mut Limiter> {
        if self.endpoint.is_some_and(|endpoint| endpoint != call.endpoint) {
            return None;
        }
        let key = match self.limit.scope {
            Scope::Vendor => 0,
            Scope::Account => u64::from(call.account),
            Scope::Tenant => u64::from(call.tenant),
            Scope::Endpoint => u64::from(call.tenant) << 32 | u64::from(call.endpoint),
        };
        let rule = self.limit.rule;
        Some(self.states.entry(key).or_insert_with(|| Limiter::new(rule)))
    }
}

impl ScriptedVendor {
    /// A vendor with these limits, which has seen nothing yet.
    pub fn new(limits: impl IntoIterator<Item = VendorLimit>) -> ScriptedVendor {
        let mut vendor = ScriptedVendor {
            limits: Vec::new(),
            endpoints: Vec::new(),
            has_concurrency: false,
            under_way: HashMap::new(),
            next_call: 0,
        };
        limits.into_iter().for_each(|limit| vendor.add(limit));
        vendor
    }

    /// One more limit, which has seen nothing yet.
    pub fn add(&mut self, limit: VendorLimit) {
        let endpoint = limit.endpoint.clone().map(|name| self.endpoint(&name));
        self.has_concurrency |= matches!(limit.rule, Rule::Concurrency { .. });
        self.limits.push(Enforced { limit, endpoint, states: HashMap::new() });
    }

    /// The number of the endpoint of this name, for [`Call::endpoint`]. A new name gets a new number.
    pub fn endpoint(&mut self, name: &str) -> u32 {
        let place = self.endpoints.iter().position(|known| &**known == name).unwrap_or_else(|| {
            self.endpoints.push(name.into());
            self.endpoints.len() - 1
        });
        place as u32 + 1
    }

    /// The limits, in order of declaration.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &VendorLimit> {
        self.limits.iter().map(|enforced| &enforced.limit)
    }

    /// A request arrives.
    pub fn arrive(&mut self, at_ns: u64, call: &Call) -> Verdict {
        let id = self.next_call;
        self.next_call += 1;
        let mut refused_by = None;
        let mut retry_at_ns = None;
        for (place, enforced) in self.limits.iter_mut().enumerate() {
            let units = enforced.limit.units(call.cost);
            let Some(state) = enforced.state(call) else { continue };
            if !state.fits(at_ns, units) {
                refused_by = refused_by.or(Some(place));
                retry_at_ns = retry_at_ns.max(state.fits_at(at_ns, units));
            }
        }
        let admitted = refused_by.is_none();
        let mut tightest: Option<Reading> = None;
        for (place, enforced) in self.limits.iter_mut().enumerate() {
            let units = enforced.limit.units(call.cost);
            let counts = admitted || enforced.limit.counts_refused;
            let is_rate = !matches!(enforced.limit.rule, Rule::Concurrency { .. });
            let Some(state) = enforced.state(call) else { continue };
            if counts {
                state.count(at_ns, units);
            }
            if !admitted && counts {
                retry_at_ns = retry_at_ns.max(state.fits_at(at_ns, units));
            }
            if refused_by == Some(place) || (admitted && is_rate) {
                let reading = state.reading(at_ns);
                if tightest.is_none_or(|other| left(&reading) < left(&other)) {
                    tightest = Some(reading);
                }
            }
        }
        if admitted && self.has_concurrency {
            self.under_way.insert(id, *call);
        }
        Verdict { admitted, call: id, refused_by, retry_at_ns, reading: tightest }
    }

    /// An admitted request has ended, which frees its places in concurrency limits. Says nothing twice.
    pub fn finish(&mut self, at_ns: u64, call: u64) {
        let Some(call) = self.under_way.remove(&call) else { return };
        for enforced in &mut self.limits {
            if matches!(enforced.limit.rule, Rule::Concurrency { .. })
                && let Some(state) = enforced.state(&call)
            {
                state.finish(at_ns);
            }
        }
    }
}

/// The share that is left, in millionths.
fn left(reading: &Reading) -> u64 {
    u64::from(reading.remaining) * 1_000_000 / u64::from(reading.limit.max(1))
}
