//! What a vendor can announce about its limits in an answer.

use std::sync::Arc;

use super::{Call, Outage, Refusal, ScriptedVendor, Verdict};
use crate::clock::nanos;
use crate::testing::limit::{Reading, Rule};

/// The true state of a vendor's limits when an answer leaves;
/// [`HeaderStyle::headers`](crate::testing::HeaderStyle::headers) puts it into headers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Notice {
    /// The time of this state.
    pub at_ns: u64,
    /// When a refused request would be admitted, or what an outage announces about that.
    pub retry_at_ns: Option<u64>,
    /// The limit that refused the request, or else the rate limit with the smallest share left.
    pub foremost: Option<Reading>,
    /// Every rate limit that applies to the request.
    pub limits: Vec<Stated>,
    /// Whether the vendor is down, so that no limit decided.
    pub outage: bool,
}

/// The state of a rate limit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stated {
    /// The limit's name, or `limit-` and its index.
    pub name: Arc<str>,
    /// Length of the window, or the time in which the empty bucket becomes full.
    pub window_ns: u64,
    /// The remaining units.
    pub reading: Reading,
    /// When one unit more will be left if no other request comes first.
    pub regains_at_ns: u64,
}

impl ScriptedVendor {
    /// What the answer to `call` can announce if it leaves now. The verdict was reached at the request's arrival,
    /// earlier by the service time; other requests may have come since.
    pub fn notice(&mut self, at_ns: u64, call: &Call, verdict: &Verdict) -> Notice {
        self.advance(at_ns);
        if let Some(Refusal::Outage(outage)) = verdict.refusal {
            let retry_at_ns = match outage {
                Outage::RetryAfter(wait) => Some(at_ns.saturating_add(nanos(wait))),
                _ => None,
            };
            return Notice { at_ns, retry_at_ns, outage: true, ..Notice::default() };
        }
        let foremost = self.reading(at_ns, call, verdict.refused_by);
        let retry_at_ns = self.retry_at(at_ns, call, verdict);
        let limits = self.stated(at_ns, call);
        Notice { at_ns, retry_at_ns, foremost, limits, outage: false }
    }

    /// The state of every rate limit that applies to `call`.
    pub(in crate::testing) fn stated(&mut self, at_ns: u64, call: &Call) -> Vec<Stated> {
        let mut limits = Vec::new();
        for (place, enforced) in self.limits.iter_mut().enumerate() {
            let Some(window_ns) = window(&enforced.limit.rule) else { continue };
            let name = enforced.limit.name.clone();
            let Some(state) = enforced.state(call) else { continue };
            let name = name.unwrap_or_else(|| format!("limit-{place}").into());
            let reading = state.reading(at_ns);
            let regains_at_ns = state.fits_at(at_ns, reading.remaining.saturating_add(1)).unwrap_or(at_ns);
            limits.push(Stated { name, window_ns, reading, regains_at_ns });
        }
        limits
    }

    /// The state of the limit that refused, or else of the rate limit with the smallest share left.
    pub(super) fn reading(&mut self, at_ns: u64, call: &Call, refused_by: Option<usize>) -> Option<Reading> {
        let mut foremost: Option<Reading> = None;
        for (place, enforced) in self.limits.iter_mut().enumerate() {
            if refused_by.map_or(enforced.is_concurrency(), |by| by != place) {
                continue;
            }
            let Some(state) = enforced.state(call) else { continue };
            let reading = state.reading(at_ns);
            if foremost.is_none_or(|other| left(&reading) < left(&other)) {
                foremost = Some(reading);
            }
        }
        foremost
    }

    /// When a refused request would be admitted if only time passes: no block is in force, and every limit has room.
    pub(super) fn retry_at(&mut self, at_ns: u64, call: &Call, verdict: &Verdict) -> Option<u64> {
        if !matches!(verdict.refusal, Some(Refusal::Limit | Refusal::Blocked)) {
            return None;
        }
        let mut retry_at = self.blocks.ends(at_ns, call.tenant);
        for enforced in &mut self.limits {
            let units = enforced.limit.units(call.cost);
            if let Some(state) = enforced.state(call)
                && !state.fits(at_ns, units)
            {
                retry_at = retry_at.max(state.fits_at(at_ns, units));
            }
        }
        // The room has become free while the answer was on its way.
        retry_at.or(verdict.retry_at_ns.map(|_| at_ns))
    }
}

/// The remaining share, in millionths.
fn left(reading: &Reading) -> u64 {
    u64::from(reading.remaining) * 1_000_000 / u64::from(reading.limit.max(1))
}

/// The length of the limit's window; `None` for concurrency, which has none.
fn window(rule: &Rule) -> Option<u64> {
    Some(match *rule {
        Rule::FixedWindow { window_ns, .. }
        | Rule::SlidingWindow { window_ns, .. }
        | Rule::SlidingCounter { window_ns, .. } => window_ns,
        Rule::TokenBucket { capacity, rate, per_ns, .. } | Rule::LeakyBucket { capacity, rate, per_ns } => {
            let nanos = (u128::from(capacity) * u128::from(per_ns)).div_ceil(u128::from(rate.max(1)));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        }
        Rule::Concurrency { .. } => return None,
    })
}
