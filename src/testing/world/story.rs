//! The inputs and the results of a world.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::World;
use crate::Priority;
use crate::testing::ScriptedVendor;
use crate::testing::checker::Event as Arrived;

/// How requests and answers travel, and how often something fails. Probabilities are in thousandths.
#[derive(Clone, Debug)]
pub struct Network {
    /// The time from the start of an exchange to its arrival. Must not exceed the vendor's `max_transit`.
    pub to_vendor: RangeInclusive<Duration>,
    /// The time from the arrival until the answer leaves.
    pub service: RangeInclusive<Duration>,
    /// The time until the answer reaches the caller.
    pub from_vendor: RangeInclusive<Duration>,
    /// The time from a grant until its caller claims it. Above 100 ms the engine withdraws the grant.
    pub pick_up: RangeInclusive<Duration>,
    /// The answer never comes; the caller gives up at the attempt's timeout.
    pub lost_answers: u32,
    /// No connection is made: nothing is sent.
    pub not_sent: u32,
    /// The caller goes away during the exchange.
    pub abandoned: u32,
    /// The caller goes away while it waits.
    pub cancelled: u32,
}

impl Default for Network {
    /// A perfect network: no delay, and no failures.
    fn default() -> Network {
        let none = Duration::ZERO..=Duration::ZERO;
        Network {
            to_vendor: none.clone(),
            service: none.clone(),
            from_vendor: none.clone(),
            pick_up: none,
            lost_answers: 0,
            not_sent: 0,
            abandoned: 0,
            cancelled: 0,
        }
    }
}

/// A request that a caller wants to send.
#[derive(Clone, Debug)]
pub struct Job {
    /// The index of the tenant in [`World::tenants`](super::World::tenants).
    pub tenant: usize,
    /// The priority.
    pub priority: Priority,
    /// The name of the endpoint.
    pub endpoint: Option<String>,
    /// The cost in units.
    pub cost: u32,
    /// How long the caller waits for a permit.
    pub patience: Duration,
}

impl Job {
    /// A request of one unit, without an endpoint, whose caller waits for ever.
    pub fn new(tenant: usize, priority: Priority) -> Job {
        Job { tenant, priority, endpoint: None, cost: 1, patience: Duration::MAX }
    }
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The vendor admitted the request; its answer came back, or was lost.
    Admitted,
    /// The vendor refused the request.
    Refused,
    /// The engine refused the request: a bound, a deadline, its cost, or a tenant that was removed.
    NotAdmitted,
    /// No connection was made, so nothing was sent.
    NotSent,
    /// The caller went away.
    Cancelled,
}

/// A grant, in order of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Granted {
    /// When the exchange started, since the start of the simulation.
    pub at: Duration,
    /// The number of the job, in order of submission.
    pub job: usize,
    /// The index of the tenant.
    pub tenant: usize,
    /// The priority.
    pub priority: Priority,
}

/// A request that reached the vendor.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The time, the cost, and until when the request was in service.
    pub event: Arrived,
    /// The index of the tenant.
    pub tenant: usize,
    /// The number of the account.
    pub account: u32,
    /// The number of the endpoint at the vendor; 0 for none.
    pub endpoint: u32,
    /// Whether the vendor admitted it.
    pub admitted: bool,
}

impl World {
    /// The current state of the vendor, including the effect of [other clients](ScriptedVendor::other_traffic). Its
    /// times are those of [`arrivals`](World::arrivals).
    pub fn vendor(&self) -> &ScriptedVendor {
        &self.vendor
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("grants", &self.grants.len()).finish_non_exhaustive()
    }
}
