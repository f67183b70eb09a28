//! What a process tells the ledger, and what the ledger answers. All times are in microseconds.

use serde::{Deserialize, Serialize};

use super::clock::slack_after_lease;

/// A limit as one process has it in its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// The units of the limit.
    #[serde(rename = "u")]
    pub(crate) units: u32,
    /// How long a request occupies its unit after its arrival at the vendor: the window of the process's guard.
    #[serde(rename = "a")]
    pub(crate) again_us: u64,
    /// The longest time between the start of a request and its arrival at the vendor.
    #[serde(rename = "d")]
    pub(crate) transit_us: u64,
    /// Whether the holder accepts units that another process has used and that are not free yet.
    #[serde(rename = "o")]
    pub(crate) takes_used: bool,
}

impl Figures {
    /// How long after its start a request may still occupy its unit.
    pub(crate) fn tail_us(&self) -> u64 {
        self.transit_us.saturating_add(self.again_us)
    }

    /// How long after the end of a lease, with the lease's own slack, a request that it allowed may occupy its unit.
    pub(super) fn lapse_us(&self) -> u64 {
        let tail = self.tail_us();
        tail.saturating_add(slack_after_lease(tail.saturating_add(FLOOR_LEASE_US)))
    }
}

/// How long a process keeps its floor after its last call, by its own clock.
pub(crate) const FLOOR_LEASE_US: u64 = 600_000_000;

/// The units with which processes go on when the store does not answer. Their lease is longer than that of other units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// The most units that one process keeps.
    pub(crate) each: u32,
    /// The most units that all processes together keep.
    pub(crate) all: u32,
}

/// A loss of ledgers: until when, by the store's clock, processes may use what they held before the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) leases_until: u64,
    pub(crate) floors_until: u64,
}

/// The calling process, and what it knows of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The process. It must differ from every other process, also from an earlier run.
    pub(crate) process: u64,
    /// The number of this call. It rises with every call; a repeated call keeps its number.
    pub(crate) seq: u64,
    /// The last call of which the process received the answer; 0 if there was none.
    pub(crate) known_seq: u64,
    /// How long the process may use the units that it holds, counted from before it read the ledger.
    pub(crate) lease_us: u64,
    /// What the store's clock should have shown when the call was made: its value in the last answer *about this
    /// ledger*, plus the time that had passed since it was read, by the process's own clock. An answer about another
    /// ledger does not count, because the store's clock may have stepped between the two.
    pub(crate) expected_us: Option<u64>,
    /// The time from then to just before the store's clock was read for this call, by the process's own clock; 0 if it is
    /// not known.
    pub(crate) waited_us: u64,
}

impl Caller {
    /// What the store's clock should have shown, at least, when it was read for this call.
    pub(super) fn expected_when_read_us(&self) -> Option<u64> {
        self.expected_us.map(|expected| expected.saturating_add(self.waited_us))
    }

    /// How long the call was under way when the store's clock showed `clock_us`; `None` if the caller does not know that
    /// clock.
    pub(super) fn age_us(&self, clock_us: u64) -> Option<u64> {
        self.expected_us.map(|expected| clock_us.saturating_sub(expected))
    }
}

/// What a process says about one limit.
///
/// A process takes units out of its guard *before* it returns them, and it claims units only
/// while its lease lasts by its own clock. After that it returns everything and claims 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The limit as this process has it in its configuration.
    pub(crate) figures: Figures,
    /// The units that the process still holds after it has given back those in `returned`.
    pub(crate) claim: u32,
    /// The units given back, as (time until free, units). Every call repeats, with the time that is then left, all
    /// units given back since the last answered call: if a call got lost, the ledger would otherwise take used units
    /// for free ones.
    pub(crate) returned: Vec<(u64, u32)>,
    /// The units wanted in each tier: high, normal, low.
    pub(crate) want: [u32; 3],
    /// The most units that one waiting request needs at once; 0 if none waits.
    pub(crate) need: u32,
    /// How long the vendor wants no requests under this limit; 0 if it has not asked for a pause.
    pub(crate) paused_us: u64,
    /// Whether an operator ends the pause that any process has reported, which may be gone. Every call says so until
    /// one is answered.
    pub(crate) ends_pause: bool,
    /// The bounds of the floor: the units kept when the store does not answer.
    pub(crate) floor: Floor,
}

impl Line {
    /// A line of a process that holds `claim` units and wants `want` for its normal tier.
    #[cfg(test)]
    pub(crate) fn of(figures: Figures, claim: u32, want: u32) -> Line {
        Line {
            figures,
            claim,
            returned: Vec::new(),
            want: [0, want, 0],
            need: u32::from(want > 0),
            paused_us: 0,
            ends_pause: false,
            floor: Floor::default(),
        }
    }
}

/// What became of the units that a process claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The process holds what it claimed.
    Kept,
    /// The process holds nothing: the pool has its units. It must forget them and call again.
    Lost,
    /// The process holds what it claimed, but nothing is granted until every old lease has ended.
    Learning,
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    /// The units granted, as (time until free, units).
    pub(crate) units: Vec<(u64, u32)>,
    /// How many units the process may keep. It returns the others at once, with its next call.
    pub(crate) keep: u32,
    /// The weights of the high, normal and low tier for the scheduler of this process.
    pub(crate) weights: [u32; 3],
    /// There are fewer than four units per claimant: the process is to return used units at once.
    pub(crate) travels: bool,
    /// How many of the units held after this call the process may use for [`FLOOR_LEASE_US`].
    pub(crate) floor: u32,
    /// The most units that the process can hold by the figures in force and beside the floors of the others.
    pub(crate) reach: u32,
    /// The units that are free in the pool after this call.
    pub(crate) free: u32,
    /// What became of the claim.
    pub(crate) state: State,
    /// How long the vendor wants no requests under this limit, as another process has reported it.
    pub(crate) paused_us: u64,
    /// Totals over all processes that share the limit.
    pub(crate) all: All,
    /// Whether the ledger is older than an answer that the process has received, as after a restored backup. Such a
    /// call has changed nothing: the code that stores the ledger must replace it with a learning one and repeat the
    /// call.
    pub(crate) is_stale: bool,
}

/// Totals over all processes that share a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct All {
    /// The number of processes with a lease.
    pub(crate) processes: u32,
    /// The fewest units that one of their configurations states for the limit.
    pub(crate) units: u32,
    /// The longest window and the longest way to the vendor in their configurations ([`Figures`]).
    pub(crate) again_us: u64,
    pub(crate) transit_us: u64,
    pub(crate) held: u32,
    pub(crate) wanted: u32,
    /// Units that the ledger grants to no process yet: a process that has not declared them since the store lost its data
    /// may have used them before.
    pub(crate) withheld: u32,
    /// Whether the figures of some process differ from those in force.
    pub(crate) differs: bool,
}

/// A summary of the ledger for tests.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The ledger's time, in microseconds.
    pub(crate) now: u64,
    /// The units of the limit in the strictest configuration.
    pub(crate) units: u32,
    /// The units in the pool that are free.
    pub(crate) free: u32,
    /// The units in the pool that are not free yet.
    pub(crate) occupied: u32,
    /// The ledger waits until every old lease has ended.
    pub(crate) learning: bool,
    /// Per process: its id, the units it holds, the units it wants.
    pub(crate) holders: Vec<(u64, u32, u32)>,
    /// The processes whose figures are not the ones in force.
    pub(crate) differing: Vec<(u64, Figures)>,
}
