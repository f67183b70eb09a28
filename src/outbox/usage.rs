//! Usage of long windows that the records of jobs' exchanges do not cover: plain sends, permits, units other than
//! requests and points, corrections of a request's cost by its response, and what records state of exchanges that did
//! not leave. It is written within about a second (`keep_usage.rs`), so that the next process knows how much of a day's
//! quota is used.
//!
//! A process that is killed loses the last second of this usage. Records of jobs' exchanges are written before the
//! exchange leaves (`outbox/job.rs`), and lose nothing.
//!
//! While the store cannot be written, usage is held here: one entry for each lane, endpoint, tier and slot of time, so
//! that a long outage takes no more memory than the rows would in the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::usage_retention::kept_for;
use crate::clock::Time;
use crate::config::Unit;
use crate::core::Used;
use crate::engine::plan::EndpointId;
use crate::route::Route;
use crate::store::millis_of;
use crate::store::usage::Taken;

/// The most entries that are held while the store is unreachable. Usage beyond them is lost.
const MOST: usize = 100_000;

/// The address of a route, an endpoint's number in that route's configuration, and whether the tier is high. A reload
/// makes a new route, so that endpoints and kinds of points keep the names that they had when the units were taken.
type Key = (usize, EndpointId, bool);

/// Usage that is not written yet.
#[derive(Default)]
pub(super) struct NewUsage {
    /// Each entry keeps its route alive, so that no other route gets the address.
    lanes: Mutex<HashMap<Key, (Arc<Route>, Used)>>,
    /// Usage of earlier times: it could not be written then, or belongs to a record of then.
    late: Mutex<Vec<Unwritten>>,
    /// What the wall clock showed at [`Time::ZERO`], in milliseconds since 1970. The store's slots begin by such a
    /// clock.
    epoch_ms: i64,
    /// Whether usage has been dropped since the store was last written.
    has_dropped: AtomicBool,
}

impl NewUsage {
    /// `epoch` is what the wall clock showed at [`Time::ZERO`].
    pub(super) fn new(epoch: SystemTime) -> NewUsage {
        let epoch_ms = millis_of(epoch.duration_since(UNIX_EPOCH).unwrap_or_default());
        NewUsage { epoch_ms, ..NewUsage::default() }
    }

    /// Adds the units that a request took, or the correction from its response.
    pub(super) fn add(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, used: &Used) {
        let key = (Arc::as_ptr(route).addr(), endpoint, high);
        let mut lanes = self.lanes.lock();
        if lanes.len() < MOST || lanes.contains_key(&key) {
            lanes.entry(key).or_insert_with(|| (route.clone(), Used::default())).1.add(used);
        }
    }

    /// Takes what was recorded of an exchange at `at` out of the store again. The units are returned in the slot of that
    /// time: in a later slot their row could become negative and count as nothing, while the record would go on counting.
    /// `late` is how much later than its record an exchange may be sent.
    pub(super) fn take_out(
        &self,
        route: &Arc<Route>,
        (endpoint, high): (EndpointId, bool),
        recorded: &Used,
        at: Time,
        late: Duration,
    ) {
        let (slot_ms, counts_ms) = kept_for(route, late);
        let (route, used) = (route.clone(), recorded.given_back());
        let mut unwritten = self.late.lock();
        // Without room the units count although they were not used, which is the safe side.
        if unwritten.len() < MOST {
            unwritten.push(Unwritten { route, endpoint, high, used, slot_ms, counts_ms, taken_at: at });
        }
    }

    /// Takes all usage, to be written.
    pub(super) fn take(&self, now: Time) -> Vec<Unwritten> {
        let lanes = std::mem::take(&mut *self.lanes.lock());
        let mut unwritten = std::mem::take(&mut *self.late.lock());
        unwritten.retain(|one| one.age_ms(now) < one.counts_ms);
        unwritten.extend(lanes.into_iter().map(|((_, endpoint, high), (route, used))| {
            let (slot_ms, counts_ms) = kept_for(&route, Duration::ZERO);
            Unwritten { route, endpoint, high, used, slot_ms, counts_ms, taken_at: now }
        }));
        unwritten.retain(|one| one.slot_ms > 0);
        unwritten
    }

    /// Takes back usage that was certainly not written, so that it is written later. What belongs to one key and one slot
    /// becomes one entry, because each try during an outage adds an entry for each key. Of too many entries, those that stop
    /// counting first are dropped.
    pub(super) fn take_back(&self, unwritten: &[Unwritten]) {
        let since = std::mem::take(&mut *self.late.lock());
        // The lock is not held while the sums are made: `take_out` needs it, and a send calls that.
        let mut sums = self.sums(unwritten.iter().cloned().chain(since));
        let excess = sums.len().saturating_sub(MOST);
        if excess > 0 {
            let (first, ..) = sums.select_nth_unstable_by_key(excess, Unwritten::counts_until);
            let requests: i64 = first.iter().map(|one| one.used.requests).sum();
            sums.drain(..excess);
            if !self.has_dropped.swap(true, Relaxed) {
                tracing::warn!(
                    held = MOST,
                    dropped = excess,
                    requests,
                    "more usage of limits waits for the store than is held: what stops counting first was dropped, and the \
                     next process may exceed limits by as much"
                );
            }
        }
        self.late.lock().extend(sums);
    }

    /// All usage could be written. What is dropped in the next outage is reported again.
    pub(super) fn all_is_written(&self) {
        self.has_dropped.store(false, Relaxed);
    }

    /// Adds up what belongs to one key and one slot. Requests that did not leave stay apart from those that did: if their
    /// sum were zero, the row would not learn when the others were taken.
    fn sums(&self, unwritten: impl Iterator<Item = Unwritten>) -> Vec<Unwritten> {
        let mut sums: HashMap<(Key, i64, bool), Unwritten> = HashMap::new();
        for one in unwritten {
            let key = (Arc::as_ptr(&one.route).addr(), one.endpoint, one.high);
            let slot = one.slot(self.epoch_ms);
            sums.entry((key, slot, one.used.requests < 0)).and_modify(|sum| sum.add(&one)).or_insert(one);
        }
        sums.into_values().collect()
    }
}

/// What one lane has used at one endpoint and in one tier since the last write.
#[derive(Clone)]
pub(super) struct Unwritten {
    route: Arc<Route>,
    endpoint: EndpointId,
    high: bool,
    used: Used,
    slot_ms: i64,
    counts_ms: i64,
    taken_at: Time,
}

impl Unwritten {
    fn age_ms(&self, now: Time) -> i64 {
        millis_of(now.since(self.taken_at))
    }

    /// The slot that the store adds it to, if its clock agrees with this machine's.
    fn slot(&self, epoch_ms: i64) -> i64 {
        epoch_ms.saturating_add(millis_of(self.taken_at.since(Time::ZERO))) / self.slot_ms.max(1)
    }

    fn counts_until(&self) -> Time {
        self.taken_at + Duration::from_millis(u64::try_from(self.counts_ms).unwrap_or(0))
    }

    /// Adds usage of the same key and slot. The sum counts from the latest of its units on.
    fn add(&mut self, other: &Unwritten) {
        self.used.add(&other.used);
        self.counts_ms = self.counts_ms.max(other.counts_ms);
        self.taken_at = self.taken_at.max(other.taken_at);
    }

    pub(super) fn row(&self, now: Time) -> Taken {
        let Unwritten { route, endpoint, high, used, slot_ms, counts_ms, .. } = self;
        let mut units: Vec<(String, i64)> =
            route.vendor.costs.iter().skip(1).map(|(kind, _)| kind.to_owned()).zip(used.other_points()).collect();
        units.extend([
            (Unit::RequestBytes.name().to_owned(), used.sent),
            (Unit::ResponseBytes.name().to_owned(), used.received),
        ]);
        units.retain(|(unit, more)| *more != 0 && route.vendor.has_unit(unit));
        Taken {
            tenant: (*route.id).to_owned(),
            vendor: (*route.vendor.name).to_owned(),
            endpoint: route.vendor.endpoint_name(endpoint.place()).unwrap_or_default().to_owned(),
            high: *high,
            requests: used.requests,
            points: used.points(),
            units,
            slot_ms: *slot_ms,
            counts_ms: *counts_ms,
            age_ms: self.age_ms(now),
        }
    }
}

#[cfg(test)]
mod tests;
