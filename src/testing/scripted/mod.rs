//! A vendor without a socket: its limits and failures as a pure function of the requests that arrive.

mod call;
mod limit;
mod notice;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

pub use self::call::{Call, Outage, Refusal, Verdict};
pub use self::limit::VendorLimit;
pub use self::notice::{Notice, Stated};
pub use self::trouble::ForeignCall;
use self::trouble::{Blocks, Others, Outages};
use super::limit::{Limiter, Rule};
use crate::clock::nanos;
use crate::config::Scope;

impl Verdict {
    /// The status of the answer; 0 if the request gets no answer.
    pub fn status(&self) -> u16 {
        match self.refusal {
            None => 200,
            Some(Refusal::Limit | Refusal::Blocked) => 429,
            Some(Refusal::Poisoned(status)) => status,
            Some(Refusal::Outage(outage)) => outage.status(),
        }
    }
}

/// A vendor's limits, without a socket and without a clock: the rules that [`FakeVendor`](super::FakeVendor) enforces,
/// for simulated time.
///
/// A request counts in all limits that apply to it, or in none.
///
/// ```
/// use integration_client::testing::{Call, ScriptedVendor, VendorLimit};
/// use std::time::Duration;
///
/// let mut vendor = ScriptedVendor::new([
///     VendorLimit::sliding_window(2, Duration::from_nanos(1_000)),
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
    blocks: Blocks,
    others: Others,
    outages: Outages,
    /// The number and the status of each poisoned endpoint.
    poisoned: Vec<(u32, u16)>,
}

#[derive(Clone, Debug)]
struct Enforced {
    limit: VendorLimit,
    endpoint: Option<u32>,
    states: HashMap<u64, Limiter>,
}

impl Enforced {
    fn is_concurrency(&self) -> bool {
        matches!(self.limit.rule, Rule::Concurrency { .. })
    }

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
    /// A vendor with these limits, which have counted nothing yet.
    pub fn new(limits: impl IntoIterator<Item = VendorLimit>) -> ScriptedVendor {
        let mut vendor = ScriptedVendor {
            limits: Vec::new(),
            endpoints: Vec::new(),
            has_concurrency: false,
            under_way: HashMap::new(),
            next_call: 0,
            blocks: Blocks::default(),
            others: Others::default(),
            outages: Outages::default(),
            poisoned: Vec::new(),
        };
        limits.into_iter().for_each(|limit| vendor.add(limit));
        vendor
    }

    /// Adds a limit, which has counted nothing yet.
    pub fn add(&mut self, limit: VendorLimit) {
        let endpoint = limit.endpoint.clone().map(|name| self.endpoint(&name));
        self.has_concurrency |= matches!(limit.rule, Rule::Concurrency { .. });
        self.limits.push(Enforced { limit, endpoint, states: HashMap::new() });
    }

    /// The number of the endpoint with this name, for [`Call::endpoint`]. A new name gets a new number.
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

    /// Blocks a tenant for this long after a limit has refused it. Every request during the block is refused as well,
    /// counts in no limit, and prolongs the block by as much.
    ///
    /// ```
    /// # use integration_client::testing::{Call, Refusal, ScriptedVendor, VendorLimit};
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let mut vendor = ScriptedVendor::new([VendorLimit::sliding_window(1, second)]).penalty(10 * second);
    /// let call = Call { tenant: 1, account: 1, endpoint: 0, cost: 1 };
    /// let mut at = |s: u64| vendor.arrive(s * 1_000_000_000, &call);
    /// assert!(at(0).admitted);
    /// assert_eq!(at(0).refusal, Some(Refusal::Limit));
    /// assert_eq!(at(9).refusal, Some(Refusal::Blocked), "until 10, and so until 20");
    /// assert_eq!(at(19).retry_at_ns, Some(30_000_000_000));
    /// assert!(at(30).admitted);
    /// ```
    pub fn penalty(mut self, block: Duration) -> ScriptedVendor {
        self.blocks.penalty_ns = nanos(block);
        self
    }

    /// Adds another client that makes `call` `per_second` times a second, evenly spaced, first at `from` and never at
    /// `until` or later. These calls are judged like all others, come before others of the same nanosecond, and end at
    /// once. [`foreign`](Self::foreign) lists them. Times have the same origin as the times that are passed to the
    /// vendor.
    pub fn other_traffic(mut self, call: Call, per_second: u32, from: Duration, until: Duration) -> ScriptedVendor {
        self.others.add(call, per_second, nanos(from), nanos(until));
        self
    }

    /// Applies the outage to every request from `from` until before `until`; no limit counts them. Where outages
    /// overlap, the one declared first applies.
    pub fn outage(mut self, from: Duration, until: Duration, outage: Outage) -> ScriptedVendor {
        self.outages.add(nanos(from), nanos(until), outage);
        self
    }

    /// Answers requests to this endpoint always with `status`; no limit counts them.
    pub fn poisoned(mut self, endpoint: &str, status: u16) -> ScriptedVendor {
        let endpoint = self.endpoint(endpoint);
        self.poisoned.push((endpoint, status));
        self
    }

    /// Starts an outage now, regardless of the declared ones, or ends the one that was started by this method.
    pub fn set_outage(&mut self, outage: Option<Outage>) {
        self.outages.switch(outage);
    }

    /// The outage at this time.
    pub fn outage_at(&self, at_ns: u64) -> Option<Outage> {
        self.outages.at(at_ns)
    }

    /// When a declared outage next begins or ends.
    pub(in crate::testing) fn next_outage_change(&self, after_ns: u64) -> Option<u64> {
        self.outages.next_change(after_ns)
    }

    /// Decides about a request that arrives at `at_ns`, and counts it in the limits if they all admit it.
    pub fn arrive(&mut self, at_ns: u64, call: &Call) -> Verdict {
        self.arrive_at(at_ns, call, self.poison_of(call))
    }

    fn poison_of(&self, call: &Call) -> Option<u16> {
        self.poisoned.iter().find(|&&(endpoint, _)| endpoint == call.endpoint).map(|&(_, status)| status)
    }

    /// As [`arrive`](Self::arrive), for a caller that itself determines the status of poisoned endpoints.
    pub(in crate::testing) fn arrive_at(&mut self, at_ns: u64, call: &Call, poisoned: Option<u16>) -> Verdict {
        self.advance(at_ns);
        self.judge(at_ns, call, poisoned)
    }

    /// Generates the calls of other clients up to this time. [`arrive`](Self::arrive) and [`finish`](Self::finish) do
    /// so themselves.
    pub fn advance(&mut self, at_ns: u64) {
        while let Some((at, call)) = self.others.next(at_ns) {
            let verdict = self.judge(at, &call, self.poison_of(&call));
            self.free(at, verdict.call);
            self.others.seen.push(ForeignCall { at_ns: at, call, verdict });
        }
    }

    /// The calls of other clients so far, in order.
    pub fn foreign(&self) -> &[ForeignCall] {
        &self.others.seen
    }

    /// Takes the calls of other clients out of the list.
    pub(in crate::testing) fn drain_foreign(&mut self) -> std::vec::Drain<'_, ForeignCall> {
        self.others.seen.drain(..)
    }

    /// Ends an admitted request, which frees its slots in concurrency limits. A second call has no effect.
    pub fn finish(&mut self, at_ns: u64, call: u64) {
        self.advance(at_ns);
        self.free(at_ns, call);
    }

    fn free(&mut self, at_ns: u64, call: u64) {
        let Some(call) = self.under_way.remove(&call) else { return };
        for enforced in &mut self.limits {
            if enforced.is_concurrency()
                && let Some(state) = enforced.state(&call)
            {
                state.finish(at_ns);
            }
        }
    }

    fn judge(&mut self, at_ns: u64, call: &Call, poisoned: Option<u16>) -> Verdict {
        let id = self.next_call;
        self.next_call += 1;
        // Checked before the limits, from the outside in: a request of a blocked key prolongs the block whatever its
        // path.
        let in_front = if let Some(outage) = self.outages.at(at_ns) {
            Some(Refusal::Outage(outage))
        } else if self.blocks.hit(at_ns, call.tenant) {
            Some(Refusal::Blocked)
        } else {
            poisoned.map(Refusal::Poisoned)
        };
        let mut verdict = Verdict {
            admitted: in_front.is_none(),
            call: id,
            refusal: in_front,
            refused_by: None,
            retry_at_ns: None,
            reading: None,
        };
        if in_front.is_none() {
            self.ask_limits(at_ns, call, &mut verdict);
        }
        if verdict.admitted {
            verdict.reading = self.reading(at_ns, call, None);
            if self.has_concurrency {
                self.under_way.insert(id, *call);
            }
        } else if !matches!(in_front, Some(Refusal::Outage(_))) {
            verdict.reading = self.reading(at_ns, call, verdict.refused_by);
            verdict.retry_at_ns = self.retry_at(at_ns, call, &verdict);
        }
        verdict
    }

    fn ask_limits(&mut self, at_ns: u64, call: &Call, verdict: &mut Verdict) {
        verdict.refused_by = self.limits.iter_mut().position(|enforced| {
            let units = enforced.limit.units(call.cost);
            enforced.state(call).is_some_and(|state| !state.fits(at_ns, units))
        });
        verdict.admitted = verdict.refused_by.is_none();
        for enforced in &mut self.limits {
            let units = enforced.limit.units(call.cost);
            if (verdict.admitted || enforced.limit.counts_refused)
                && let Some(state) = enforced.state(call)
            {
                state.count(at_ns, units);
            }
        }
        if !verdict.admitted {
            verdict.refusal = Some(Refusal::Limit);
            self.blocks.begin(at_ns, call.tenant);
        }
    }
}
