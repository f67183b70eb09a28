//! Units that requests took of a lane's limits, for a record that outlives the process.

use std::sync::Arc;

use super::OutboxHooks;
use crate::clock::Time;
use crate::engine::Correction;
use crate::engine::cost::{Cost, KINDS, PointKind};
use crate::engine::plan::EndpointId;
use crate::route::Route;

/// Units that were taken; negative if a response states that fewer were used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Used {
    pub(crate) requests: i64,
    points: [i64; KINDS],
    pub(crate) sent: i64,
    pub(crate) received: i64,
}

impl Used {
    /// The units of a request of which the store has no other record.
    pub(crate) fn by_request(cost: Cost) -> Used {
        Used { requests: 1, ..Used::difference(None, cost) }
    }

    /// What the record of a job's exchange states: the request, and its points of the undeclared kind.
    pub(crate) fn in_the_record(points: u32) -> Used {
        let mut used = Used { requests: 1, ..Used::default() };
        used.points[0] = i64::from(points);
        used
    }

    /// The units of a job's request that the record of its exchange does not state.
    pub(crate) fn beside_the_record(cost: Cost) -> Used {
        let mut used = Used::difference(None, cost);
        used.points[0] = 0;
        used
    }

    /// The units with the opposite sign: they are returned, because no request left.
    pub(crate) fn given_back(mut self) -> Used {
        self.requests = -self.requests;
        self.points.iter_mut().for_each(|points| *points = -*points);
        (self.sent, self.received) = (-self.sent, -self.received);
        self
    }

    /// The correction from the `believed` cost to the `actual` one.
    pub(crate) fn difference(believed: Option<Cost>, actual: Cost) -> Used {
        let less = |of: fn(Cost) -> u32| i64::from(of(actual)) - believed.map_or(0, |cost| i64::from(of(cost)));
        let points = |place: usize| {
            let of = |cost: Cost| PointKind::at(place).map_or(0, |kind| i64::from(cost.points(kind)));
            of(actual) - believed.map_or(0, of)
        };
        Used {
            requests: 0,
            points: std::array::from_fn(points),
            sent: less(|cost| cost.sent),
            received: less(|cost| cost.received),
        }
    }

    pub(crate) fn add(&mut self, other: &Used) {
        self.requests += other.requests;
        self.points.iter_mut().zip(other.points).for_each(|(sum, more)| *sum += more);
        self.sent += other.sent;
        self.received += other.received;
    }

    /// Points of the undeclared kind.
    pub(crate) fn points(&self) -> i64 {
        self.points[0]
    }

    /// Points of the kinds that the vendor's entry declares, in their order.
    pub(crate) fn other_points(&self) -> impl Iterator<Item = i64> {
        self.points.into_iter().skip(1)
    }
}

/// Records the units that one request takes, and their corrections. Made if the client has a store and the vendor has
/// long windows.
pub(crate) struct Remembers {
    outbox: Arc<dyn OutboxHooks>,
    endpoint: EndpointId,
    high: bool,
}

impl Remembers {
    pub(super) fn new(outbox: &Arc<dyn OutboxHooks>, endpoint: EndpointId, high: bool) -> Remembers {
        Remembers { outbox: outbox.clone(), endpoint, high }
    }

    pub(crate) fn corrected(&self, route: &Arc<Route>, Correction { believed, actual }: Correction) {
        self.used(route, &Used::difference(Some(believed), actual));
    }

    pub(crate) fn used(&self, route: &Arc<Route>, used: &Used) {
        if *used != Used::default() {
            self.outbox.used(route, self.endpoint, self.high, used);
        }
    }

    /// Takes what the store has recorded of an exchange at `at` out again, because the exchange did not leave.
    pub(crate) fn not_sent(&self, route: &Arc<Route>, recorded: &Used, at: Time) {
        self.outbox.not_sent(route, self.endpoint, self.high, recorded, at);
    }
}
