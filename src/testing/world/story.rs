//! What a world is told, and what it tells.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::World;
use crate::Priority;
use crate::testing::ScriptedVendor;
use crate::testing::checker::Event as Arrived;

/// How requests and answers travel, and what goes wrong. Chances are in one thousand.
#[derive(Clone, Debug)]
pub struct Network {
    /// From the start of an exchange to its arrival. Must not exceed the vendor's `max_transit`.
    pub to_vendor: RangeInclusive<Duration>,
    /// From the arrival to the answer's departure.
    pub service: RangeInclusive<Duration>,
    /// From there to the caller.
    pub from_vendor: RangeInclusive<Duration>,
    /// From a grant to the moment its caller picks it up. Above 100 ms it is taken back meanwhile.
    pub pick_up: RangeInclusive<Duration>,
    /// The answer never comes; the caller gives up at the attempt's deadline.
    pub lost_answers: u32,
    /// No connection: nothing left.
    pub not_sent: u32,
    /// The caller goes away in the middle of the exchange.
    pub abandoned: u32,
    /// The caller goes away while it waits.
    pub cancelled: u32,
}

impl Default for Network {
    /// Perfect: no delay, nothing lost.
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

/// A request that somebody wants to send.
#[derive(Clone, Debug)]
pub struct Job {
    /// Place of the tenant in [`World::tenants`](super::World::tenants).
    pub tenant: usize,
    /// Its tier.
    pub priority: Priority,
    /// Its endpoint's name.
    pub endpoint: Option<String>,
    /// Units that it costs.
    pub cost: u32,
    /// The caller waits this long for a permit.
    pub patience: Duration,
}

impl Job {
    /// A request of one unit to no endpoint, by a caller who waits for ever.
    pub fn new(tenant: usize, priority: Priority) -> Job {
        Job { tenant, priority, endpoint: None, cost: 1, patience: Duration::MAX }
    }
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The vendor admitted it, and its answer came back, or was lost on the way.
    Admitted,
    /// The vendor refused it.
    Refused,
    /// The engine refused it: a bound, a deadline, a cost, a tenant that was removed.
    NotAdmitted,
    /// Nothing left: no connection.
    NotSent,
    /// Its caller went away.
    Cancelled,
}

/// A grant, in order of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Granted {
    /// When its exchange started, since the world began.
    pub at: Duration,
    /// The job's number, in order of submission.
    pub job: usize,
    /// Its tenant.
    pub tenant: usize,
    /// Its tier.
    pub priority: Priority,
}

/// A request that reached the vendor.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// When, at what cost, and until when it was in service.
    pub event: Arrived,
    /// Its tenant.
    pub tenant: usize,
    /// The number of its account.
    pub account: u32,
    /// The number of its endpoint at the vendor; 0 for none.
    pub endpoint: u32,
    /// Whether the vendor admitted it.
    pub admitted: bool,
}

impl World {
    /// The vendor as it is now, with what [other traffic](ScriptedVendor::other_traffic) has done. Its time is that of
    /// [`arrivals`](World::arrivals).
    pub fn vendor(&self) -> &ScriptedVendor {
        &self.vendor
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.now).field("grants", &self.grants.len()).finish_non_exhaustive()
    }
}
