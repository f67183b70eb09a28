//! Usage of long windows that the records of jobs' exchanges do not cover: plain sends, permits, units other than
//! requests and points, corrections of a request's cost by its response, and what records state of exchanges that did
//! not leave. It is written within about a second (`keep_usage.rs`), so that the next process knows how much of a day's
//! quota is used.
//!
//! A process that is killed loses the last second of this usage. Records of jobs' exchanges are written before the
//! exchange leaves (`outbox/job.rs`), and lose nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::usage_retention::kept_for;
use crate::clock::{Time, millis};
use crate::config::Unit;
use crate::core::Used;
use crate::engine::plan::EndpointId;
use crate::route::Route;
use crate::store::usage::Taken;

/// The most lanes and endpoints whose usage is held while the store is unreachable. Usage of others is lost.
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
}

impl NewUsage {
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
        self.take_back(&[Unwritten { route, endpoint, high, used, slot_ms, counts_ms, taken_at: at }]);
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

    /// Takes back usage that was certainly not written, so that it is written later.
    pub(super) fn take_back(&self, unwritten: &[Unwritten]) {
        let mut late = self.late.lock();
        let room = MOST.saturating_sub(late.len());
        late.extend(unwritten.iter().take(room).cloned());
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
        i64::try_from(millis(now.since(self.taken_at))).unwrap_or(i64::MAX)
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
