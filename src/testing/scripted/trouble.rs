//! What can stop a request before the limits: outages, blocks, and other clients.

use hashbrown::HashMap;

use super::call::{Call, Outage, Verdict};

impl Outage {
    /// The status of answers during the outage; 0 if requests get no answer.
    pub(super) fn status(self) -> u16 {
        match self {
            Outage::Unavailable | Outage::RetryAfter(_) => 503,
            Outage::Reset | Outage::Refuse => 0,
        }
    }
}

/// A call of [other traffic](super::ScriptedVendor::other_traffic).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignCall {
    /// When the call arrived.
    pub at_ns: u64,
    /// The caller and the cost.
    pub call: Call,
    /// The vendor's verdict.
    pub verdict: Verdict,
}

/// Blocked keys after refusals.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// The length of a block; 0 for no penalty.
    pub(super) penalty_ns: u64,
    /// The end of each tenant's block.
    until: HashMap<u32, u64>,
}

impl Blocks {
    /// Returns whether a request falls into a block, and prolongs the block if so.
    pub(super) fn hit(&mut self, at_ns: u64, tenant: u32) -> bool {
        let Some(until) = self.until.get_mut(&tenant) else { return false };
        if *until <= at_ns {
            self.until.remove(&tenant);
            return false;
        }
        *until = until.saturating_add(self.penalty_ns);
        true
    }

    pub(super) fn begin(&mut self, at_ns: u64, tenant: u32) {
        if self.penalty_ns > 0 {
            self.until.insert(tenant, at_ns.saturating_add(self.penalty_ns));
        }
    }

    /// The end of the block at this time.
    pub(super) fn ends(&self, at_ns: u64, tenant: u32) -> Option<u64> {
        self.until.get(&tenant).copied().filter(|&until| until > at_ns)
    }
}

/// Other clients, whose calls the vendor generates itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    streams: Vec<Stream>,
    pub(super) seen: Vec<ForeignCall>,
}

#[derive(Clone, Debug)]
struct Stream {
    call: Call,
    per_second: u32,
    from: u64,
    until: u64,
    made: u64,
}

impl Stream {
    /// The time of the next call, computed from the first so that rounding errors do not add up.
    fn next_at(&self) -> Option<u64> {
        let after = u128::from(self.made) * 1_000_000_000 / u128::from(self.per_second);
        let at = self.from.saturating_add(u64::try_from(after).unwrap_or(u64::MAX));
        (at < self.until).then_some(at)
    }
}

impl Others {
    pub(super) fn add(&mut self, call: Call, per_second: u32, from: u64, until: u64) {
        if per_second > 0 {
            self.streams.push(Stream { call, per_second, from, until, made: 0 });
        }
    }

    /// Makes the next call up to `at_ns`.
    pub(super) fn next(&mut self, at_ns: u64) -> Option<(u64, Call)> {
        let due = |stream: &Stream| stream.next_at().filter(|&at| at <= at_ns);
        let next = self.streams.iter_mut().filter_map(|stream| Some((due(stream)?, stream)));
        let (at, stream) = next.min_by_key(|&(at, _)| at)?;
        stream.made += 1;
        Some((at, stream.call))
    }
}

/// The declared outages, and the one that is switched on.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages {
    /// From, until, and the kind of the outage.
    declared: Vec<(u64, u64, Outage)>,
    switched: Option<Outage>,
}

impl Outages {
    pub(super) fn add(&mut self, from: u64, until: u64, outage: Outage) {
        self.declared.push((from, until, outage));
    }

    pub(super) fn switch(&mut self, outage: Option<Outage>) {
        self.switched = outage;
    }

    pub(super) fn at(&self, at_ns: u64) -> Option<Outage> {
        let declared = self.declared.iter().find(|&&(from, until, _)| (from..until).contains(&at_ns));
        self.switched.or(declared.map(|&(_, _, outage)| outage))
    }

    pub(super) fn next_change(&self, after_ns: u64) -> Option<u64> {
        self.declared.iter().flat_map(|&(from, until, _)| [from, until]).filter(|&change| change > after_ns).min()
    }
}
