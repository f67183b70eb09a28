//! A simulated case: how the vendor counts, the latency of requests, and the failures.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::Error;
use crate::Priority;
use crate::clock::nanos;
use crate::config::{Config, Sources, Tenant, TenantEntry};
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::engine::tier::Tier;
use crate::testing::limit::{Limiter, Phase, Refill, Rule};

/// How the vendor counts, and what it announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Counting {
    /// Windows with an unknown phase.
    FixedWindow,
    /// Windows whose end every answer announces.
    FixedWindowPhaseKnown,
    /// Every request counts for one window.
    SlidingWindow,
    /// Two windows, the older one weighted.
    SlidingCounter,
    /// As `SlidingCounter`, and every answer announces when the window ends.
    SlidingCounterPhaseKnown,
    /// A bucket that refills steadily.
    TokenBucket,
    /// A bucket that drains steadily.
    LeakyBucket,
    /// A bucket that refills in steps, ten times in a window.
    LumpedRefill,
    /// A fixed window that is configured as a quota.
    Quota,
    /// A sliding counter whose algorithm the client does not know.
    UnknownCounter,
    /// A fixed window whose algorithm the client does not know.
    UnknownWindow,
    /// A sliding log whose algorithm the client does not know.
    UnknownLog,
    /// A token bucket whose algorithm the client does not know.
    UnknownBucket,
}

impl Counting {
    /// All of them.
    pub const ALL: [Counting; 13] = [
        Counting::FixedWindow,
        Counting::FixedWindowPhaseKnown,
        Counting::SlidingWindow,
        Counting::SlidingCounter,
        Counting::SlidingCounterPhaseKnown,
        Counting::TokenBucket,
        Counting::LeakyBucket,
        Counting::LumpedRefill,
        Counting::Quota,
        Counting::UnknownCounter,
        Counting::UnknownWindow,
        Counting::UnknownLog,
        Counting::UnknownBucket,
    ];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Counting::FixedWindow => "fixed_window",
            Counting::FixedWindowPhaseKnown => "fixed_window_phase_known",
            Counting::SlidingWindow => "sliding_window",
            Counting::SlidingCounter => "sliding_counter",
            Counting::SlidingCounterPhaseKnown => "sliding_counter_phase_known",
            Counting::TokenBucket => "token_bucket",
            Counting::LeakyBucket => "leaky_bucket",
            Counting::LumpedRefill => "lumped_refill",
            Counting::Quota => "quota",
            Counting::UnknownCounter => "unknown_counter",
            Counting::UnknownWindow => "unknown_window",
            Counting::UnknownLog => "unknown_log",
            Counting::UnknownBucket => "unknown_bucket",
        }
    }

    /// The name of the algorithm in the client's configuration.
    fn configured(self) -> &'static str {
        match self {
            Counting::FixedWindow | Counting::FixedWindowPhaseKnown => "fixed_window",
            Counting::SlidingWindow => "sliding_window",
            Counting::SlidingCounter | Counting::SlidingCounterPhaseKnown => "sliding_counter",
            Counting::TokenBucket | Counting::LumpedRefill => "token_bucket",
            Counting::LeakyBucket => "leaky_bucket",
            Counting::Quota => "quota",
            Counting::UnknownCounter | Counting::UnknownWindow | Counting::UnknownLog | Counting::UnknownBucket => {
                "unknown"
            }
        }
    }

    pub(super) fn tells_phase(self) -> bool {
        matches!(self, Counting::FixedWindowPhaseKnown | Counting::SlidingCounterPhaseKnown)
    }
}

/// Whose limit the vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum LimitScope {
    /// One tenant's.
    #[default]
    Tenant,
    /// An account's, which four tenants use.
    Account,
    /// The vendor's, for all of four tenants.
    Vendor,
    /// An endpoint's, for one tenant.
    Endpoint,
}

impl LimitScope {
    /// All of them.
    pub const ALL: [LimitScope; 4] =
        [LimitScope::Tenant, LimitScope::Account, LimitScope::Vendor, LimitScope::Endpoint];

    /// The name in a line of output.
    pub fn name(self) -> &'static str {
        match self {
            LimitScope::Tenant => "tenant",
            LimitScope::Account => "account",
            LimitScope::Vendor => "vendor",
            LimitScope::Endpoint => "endpoint",
        }
    }

    fn tenants(self) -> usize {
        match self {
            LimitScope::Tenant | LimitScope::Endpoint => 1,
            LimitScope::Account | LimitScope::Vendor => 4,
        }
    }
}

/// The latency of requests and answers: 0 to 50 ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Travel {
    /// No latency.
    Instant,
    /// Uniformly distributed, on the way to the vendor only.
    OneWay,
    /// Uniformly distributed, in each direction.
    EachWay,
    /// Nine of ten take 5 ms in each direction, the tenth 50 ms.
    Bimodal,
    /// Requests that leave within 50 ms arrive together; answers take 50 ms.
    Bunched,
    /// Alternately 50 ms and none, for a second each: a request that leaves at the end of one second arrives together
    /// with those that leave at the start of the next.
    Jumping,
}

impl Travel {
    const MOST: u64 = 50_000_000;

    /// All of them.
    pub const ALL: [Travel; 6] =
        [Travel::Instant, Travel::OneWay, Travel::EachWay, Travel::Bimodal, Travel::Bunched, Travel::Jumping];

    /// The name in a line of output.
    pub fn name(self) -> &'static str {
        match self {
            Travel::Instant => "none",
            Travel::OneWay => "one_way",
            Travel::EachWay => "each_way",
            Travel::Bimodal => "bimodal",
            Travel::Bunched => "bunched",
            Travel::Jumping => "jumping",
        }
    }

    /// The mean round trip, in nanoseconds.
    pub fn mean_round_trip_ns(self) -> u64 {
        match self {
            Travel::Instant => 0,
            Travel::OneWay => Travel::MOST / 2,
            Travel::EachWay | Travel::Jumping => Travel::MOST,
            Travel::Bimodal => 19_000_000,
            // Answers come back when a bunch arrives, so that the next request has just missed that bunch.
            Travel::Bunched => Travel::MOST * 2,
        }
    }

    pub(super) fn there(self, random: &mut Rng, now: u64) -> u64 {
        match self {
            Travel::Instant => 0,
            Travel::OneWay | Travel::EachWay => random.u64(0..=Travel::MOST),
            Travel::Bimodal => Travel::either(random),
            Travel::Bunched => Travel::MOST - now % Travel::MOST,
            Travel::Jumping if (now / 1_000_000_000).is_multiple_of(2) => Travel::MOST,
            Travel::Jumping => 0,
        }
    }

    pub(super) fn back(self, random: &mut Rng) -> u64 {
        match self {
            Travel::Instant | Travel::OneWay => 0,
            Travel::EachWay => random.u64(0..=Travel::MOST),
            Travel::Bimodal => Travel::either(random),
            Travel::Bunched => Travel::MOST,
            Travel::Jumping => Travel::MOST / 2,
        }
    }

    fn either(random: &mut Rng) -> u64 {
        if random.u32(0..10) == 0 { Travel::MOST } else { 5_000_000 }
    }
}

/// A simulated case.
#[derive(Clone, Debug)]
pub struct Case {
    pub(super) counting: Counting,
    pub(super) limit: u32,
    pub(super) window: Duration,
    pub(super) safety: f64,
    pub(super) travel: Travel,
    pub(super) troubled: bool,
    pub(super) guarded: bool,
    pub(super) throttle: Option<&'static str>,
    pub(super) scope: LimitScope,
    /// The tier of all requests; `None` for all tiers in turn.
    pub(super) tier: Option<Tier>,
}

impl Case {
    /// `limit` units per `window`, of which the client uses the share `safety`.
    pub fn new(counting: Counting, limit: u32, window: Duration, safety: f64, travel: Travel) -> Case {
        let scope = LimitScope::Tenant;
        Case {
            counting,
            limit,
            window,
            safety,
            travel,
            troubled: false,
            guarded: true,
            throttle: None,
            scope,
            tier: None,
        }
    }

    /// Adds failures: answers are lost, callers go away, requests never leave, the client's clock is set back, its
    /// configuration is reloaded and its lane evicted.
    #[must_use]
    pub fn troubled(mut self) -> Case {
        self.troubled = true;
        self
    }

    /// Switches the guard off, to check that the vendor then refuses requests.
    #[must_use]
    pub fn without_guard(mut self) -> Case {
        self.guarded = false;
        self
    }

    /// Sets how the client slows down, as its configuration names it.
    #[must_use]
    pub fn throttle(mut self, throttle: &'static str) -> Case {
        self.throttle = Some(throttle);
        self
    }

    /// Sets whose limit the vendor counts.
    #[must_use]
    pub fn scope(mut self, scope: LimitScope) -> Case {
        self.scope = scope;
        self
    }

    /// Sends requests of one priority only, instead of all three in turn.
    #[must_use]
    pub fn of(mut self, priority: Priority) -> Case {
        self.tier = Some(priority.into());
        self
    }

    pub(super) fn window_ns(&self) -> u64 {
        nanos(self.window).max(1)
    }

    /// The client's configuration of the vendor.
    pub(super) fn toml(&self, limit: u32) -> String {
        let Case { counting, window, safety, .. } = self;
        let lumps = match counting {
            Counting::LumpedRefill => format!("refill_interval = \"{}ms\"\n", window.as_millis() / 10),
            _ => String::new(),
        };
        let throttle = self.throttle.map(|name| format!("throttle = \"{name}\"\n")).unwrap_or_default();
        let (section, scope) = match self.scope {
            LimitScope::Endpoint => {
                ("[vendors.v.endpoints.e]\npaths = [\"/e\"]\n[[vendors.v.endpoints.e.limits]]", "tenant")
            }
            LimitScope::Tenant | LimitScope::Account | LimitScope::Vendor => {
                ("[[vendors.v.limits]]", self.scope.name())
            }
        };
        format!(
            "[vendors.v]\nbase_url = \"https://v.example\"\nmax_transit = \"100ms\"\n{throttle}\
             {section}\nname = \"rate\"\nlimit = {limit}\nwindow = \"{}ms\"\nalgorithm = \"{}\"\n\
             safety = {safety:?}\nscope = \"{scope}\"\n{lumps}",
            window.as_millis(),
            counting.configured(),
        )
    }

    /// The client's tenants: one, or as many as share the limit.
    pub(super) fn tenants(&self, limit: u32, version: u64) -> Result<Vec<Arc<Tenant>>, Error> {
        let sources = Sources::new().without_catalogue().file("case", self.toml(limit));
        let tenant = |number: usize| {
            let id = format!("t{number}");
            // Tenants of a limit of the vendor have accounts of their own.
            let account = if self.scope == LimitScope::Account { "shared".to_owned() } else { id.clone() };
            TenantEntry::new(id, "v").account(account)
        };
        let config = Config::load(&sources.tenants((0..self.scope.tenants()).map(tenant)), version)?;
        Ok(config.tenants().cloned().collect())
    }

    /// The endpoint that the client's requests are for.
    pub(super) fn endpoint(&self) -> EndpointId {
        match self.scope {
            LimitScope::Endpoint => EndpointId::at(0),
            LimitScope::Tenant | LimitScope::Account | LimitScope::Vendor => NO_ENDPOINT,
        }
    }

    /// The vendor's limiter. The seed decides its phase.
    pub(super) fn limiter(&self, seed: u64) -> Limiter {
        let (limit, window_ns) = (self.limit, self.window_ns());
        let phase = Rng::with_seed(seed ^ 0x7068_6173).u64(0..window_ns);
        let bucket = |refill| Rule::TokenBucket { capacity: limit, rate: limit, per_ns: window_ns, refill };
        Limiter::new(match self.counting {
            Counting::FixedWindow | Counting::FixedWindowPhaseKnown | Counting::Quota | Counting::UnknownWindow => {
                Rule::FixedWindow { limit, window_ns, phase: Phase::At(phase) }
            }
            Counting::SlidingWindow | Counting::UnknownLog => Rule::SlidingWindow { limit, window_ns, both_ends: true },
            Counting::SlidingCounter | Counting::SlidingCounterPhaseKnown | Counting::UnknownCounter => {
                Rule::SlidingCounter { limit, window_ns, phase_ns: phase }
            }
            Counting::TokenBucket | Counting::UnknownBucket => bucket(Refill::Steady),
            Counting::LeakyBucket => Rule::LeakyBucket { capacity: limit, rate: limit, per_ns: window_ns },
            Counting::LumpedRefill => {
                let interval_ns = window_ns / 10;
                bucket(Refill::Lumps { interval_ns, phase_ns: phase % interval_ns.max(1) })
            }
        })
    }

    /// The vendor's clock: it drifts by up to 50 ppm, and with half of the seeds it ticks only once a millisecond.
    pub(super) fn vendor_time(&self, at: u64, seed: u64) -> u64 {
        let mut random = Rng::with_seed(seed ^ 0x636c_6f63);
        let (ppm, ticks) = (random.u64(0..=100), random.bool());
        // 0 to 100 ppm forwards and 50 ppm backwards: -50 to 50 ppm in sum, without signed numbers.
        let drift = (u128::from(at) * u128::from(ppm) / 1_000_000) as u64;
        let slow = (u128::from(at) * 50 / 1_000_000) as u64;
        let time = at + drift - slow;
        if ticks { time - time % 1_000_000 } else { time }
    }
}
