//! Remembers requests of which nobody knows whether the vendor acted.
//!
//! Many SDKs repeat a POST after every error, whatever the response says. A request without an idempotency key that
//! the vendor reads is remembered for ten minutes if it ends with an unknown outcome, or if its caller does not get all
//! of the response (`answer.rs`); a repetition of it is answered with 422 (`problem.rs`) and not sent, unless it has the
//! header `Integration-Send-Again: true` or such a key (`service.rs`).
//!
//! The memory is that of one process and bounded. A vendor's outage may fill it with the requests of a few lanes, so the
//! lane with the most gives way: the single request of another caller is remembered for its whole time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::Method;

use crate::clock::Time;

/// How long a request is remembered.
const KEPT: Duration = Duration::from_secs(600);
/// The most requests that are remembered. Above it the oldest of the lane with the most is forgotten.
pub(super) const MOST: usize = 10_000;

/// Identifies equal requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fingerprint {
    /// A hash of caller, tenant and vendor: the lane whose requests give way to each other. Lanes with equal hashes
    /// share their part of the memory.
    lane: u64,
    /// A digest of all parts of the request.
    request: [u8; 32],
}

/// The digest of the parts of a request (caller, tenant, vendor, method, path and body): equal only if all parts are
/// equal.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        // Each part is preceded by its length, so that "ab", "c" differs from "a", "bc".
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(digest.finish().as_ref());
    out
}

/// The parts of a request that its fingerprint covers. The fingerprint is computed only when needed: hashing a large
/// body costs more than all other work here, and few requests end with an unknown outcome.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) caller: Box<str>,
    pub(super) lane: (Arc<str>, Arc<str>),
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) body: Bytes,
}

impl Mark {
    pub(super) fn fingerprint(&self) -> Fingerprint {
        let (tenant, vendor) = &self.lane;
        let names = [&*self.caller, tenant, vendor, self.method.as_str(), &self.path].map(str::as_bytes);
        let [caller, tenant, vendor, method, path] = names;
        let mut lane = DefaultHasher::new();
        (caller, tenant, vendor).hash(&mut lane);
        let request = digest(&[caller, tenant, vendor, method, path, &self.body]);
        Fingerprint { lane: lane.finish(), request }
    }
}

/// When a remembered request expires, and a number that no other one has.
type Due = (Time, u64);

/// The remembered requests. `T` is what is kept of each, to answer its repetitions.
#[derive(Debug)]
pub(super) struct Repeats<T> {
    kept: HashMap<Fingerprint, (Due, T)>,
    /// All remembered requests, next to expire first.
    order: BTreeMap<Due, Fingerprint>,
    /// The remembered requests of each lane.
    lanes: HashMap<u64, BTreeSet<Due>>,
    /// How many requests of each lane are remembered, and which of them expires next. The last entry is that of the lane
    /// with the most requests.
    ranks: BTreeSet<(usize, Reverse<Due>)>,
    /// The number of the request that was remembered last.
    last: u64,
    /// Whether a request has been forgotten before its time.
    has_been_full: bool,
}

impl<T> Default for Repeats<T> {
    fn default() -> Self {
        Repeats {
            kept: HashMap::new(),
            order: BTreeMap::new(),
            lanes: HashMap::new(),
            ranks: BTreeSet::new(),
            last: 0,
            has_been_full: false,
        }
    }
}

impl<T: Clone> Repeats<T> {
    /// Whether no request is remembered. Expired requests count until `find` or `remember` removes them.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns what was kept of an equal request, if one is remembered at `now`.
    pub(super) fn find(&mut self, now: Time, request: &Fingerprint) -> Option<T> {
        self.forget_old(now);
        self.kept.get(request).map(|(_, answer)| answer.clone())
    }

    /// Remembers a request for ten minutes from `now`. Returns whether, for the first time, another one had to be
    /// forgotten before its time.
    pub(super) fn remember(&mut self, now: Time, request: Fingerprint, answer: T) -> bool {
        self.forget_old(now);
        self.forget(&request);
        let is_full = self.kept.len() >= MOST;
        if is_full {
            let oldest = self.ranks.last().and_then(|(_, Reverse(due))| self.order.get(due)).copied();
            if let Some(oldest) = oldest {
                self.forget(&oldest);
            }
        }
        self.last += 1;
        let due = (now + KEPT, self.last);
        self.kept.insert(request, (due, answer));
        self.order.insert(due, request);
        self.change_lane(request.lane, |dues| dues.insert(due));
        is_full && !std::mem::replace(&mut self.has_been_full, true)
    }

    /// Forgets a request if `is_same` holds for what is kept of it: it may have been remembered anew meanwhile.
    pub(super) fn forget_if(&mut self, request: &Fingerprint, is_same: impl FnOnce(&T) -> bool) {
        if self.kept.get(request).is_some_and(|(_, kept)| is_same(kept)) {
            self.forget(request);
        }
    }

    fn forget_old(&mut self, now: Time) {
        while let Some((&(until, _), &request)) = self.order.first_key_value()
            && until <= now
        {
            self.forget(&request);
        }
    }

    fn forget(&mut self, request: &Fingerprint) {
        if let Some((due, _)) = self.kept.remove(request) {
            self.order.remove(&due);
            self.change_lane(request.lane, |dues| dues.remove(&due));
        }
    }

    /// Adds a request to those of a lane, or removes one, and ranks the lane anew.
    fn change_lane(&mut self, lane: u64, change: impl FnOnce(&mut BTreeSet<Due>) -> bool) {
        let rank = |dues: &BTreeSet<Due>| dues.first().map(|first| (dues.len(), Reverse(*first)));
        let dues = self.lanes.entry(lane).or_default();
        if let Some(before) = rank(dues) {
            self.ranks.remove(&before);
        }
        change(dues);
        match rank(dues) {
            Some(after) => _ = self.ranks.insert(after),
            None => _ = self.lanes.remove(&lane),
        }
    }
}

#[cfg(test)]
mod tests;
