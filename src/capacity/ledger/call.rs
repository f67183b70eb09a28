//! What a process says to the ledger, and what the ledger answers. All times are microseconds.

use serde::{Deserialize, Serialize};

/// The figures of a limit as one process has them in its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    /// The units of the limit.
    #[serde(rename = "u")]
    pub(crate) units: u32,
    /// How long after its arrival a request occupies its unit: the window of the process's guard.
    #[serde(rename = "a")]
    pub(crate) again_us: u64,
    /// The longest time between the start of a request and its arrival at the vendor.
    #[serde(rename = "d")]
    pub(crate) transit_us: u64,
    /// The holder accepts units that others used and that are not free yet.
    #[serde(rename = "o")]
    pub(crate) takes_used: bool,
}

impl Figures {
    /// How long after its start a request may still occupy its unit.
    pub(crate) fn tail_us(&self) -> u64 {
        self.transit_us.saturating_add(self.again_us)
    }
}

/// For how long a process keeps its floor beyond its last call, by its own clock.
pub(crate) const FLOOR_LEASE_US: u64 = 600_000_000;

/// Units that processes go on with when the store does not answer: they hold them under a longer lease than the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// Units that one process keeps at most.
    pub(crate) each: u32,
    /// Units that all processes together keep at most.
    pub(crate) all: u32,
}

/// What the store has lost: until when, by its clock, processes may use what they held before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    pub(crate) leases_until: u64,
    pub(crate) floors_until: u64,
}

/// Who calls, and what it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The process. It must differ from every other process, also from an earlier run.
    pub(crate) process: u64,
    /// The number of this call. It rises with every call; a repetition of a call keeps it.
    pub(crate) seq: u64,
    /// The last call that a reply acknowledged; 0 if there was none.
    pub(crate) known_seq: u64,
    /// How long the process may use what it holds, counted from before it read the ledger.
    pub(crate) lease_us: u64,
    /// What the store's clock should say now: the clock of the last reply *of this ledger* plus
    /// the time that passed since by the process's own clock. The reply of another ledger does
    /// not count, because a step of the clock may lie between the two.
    pub(crate) expected_us: Option<u64>,
}

/// What a process says about one limit.
///
/// A process takes units out of its guard *before* it returns them, and it claims units only
/// while its lease lasts by its own clock. After that it returns everything and claims 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The limit as this process has it in its configuration.
    pub(crate) figures: Figures,
    /// The units that the process holds after it has returned what `returned` says.
    pub(crate) claim: u32,
    /// Time until free and number of the units given back. It repeats, with the time that is
    /// left, everything that was given back since the last acknowledged call: a call that got
    /// lost would otherwise make used units look free.
    pub(crate) returned: Vec<(u64, u32)>,
    /// The units wanted in each tier: high, normal, low.
    pub(crate) want: [u32; 3],
    /// The most units that one waiting request needs at once; 0 if none waits.
    pub(crate) need: u32,
    /// For how long the vendor wants the limit to be left alone; 0 if it does not.
    pub(crate) paused_us: u64,
    /// What is kept when the store does not answer.
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
            floor: Floor::default(),
        }
    }

    pub(crate) fn returned_units(&self) -> u32 {
        self.returned.iter().fold(0, |sum, (_, units)| sum.saturating_add(*units))
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
    /// Time until free and number of the units granted.
    pub(crate) units: Vec<(u64, u32)>,
    /// How many units the process may keep. It returns the rest with its next call, at once.
    pub(crate) keep: u32,
    /// The weights of high, normal and low for the scheduler of this process.
    pub(crate) weights: [u32; 3],
    /// There are fewer than four units per claimant: return used units at once.
    pub(crate) travels: bool,
    /// Of the units held after this call: those that the process may use for [`FLOOR_LEASE_US`].
    pub(crate) floor: u32,
    /// The units that are free in the pool after this call.
    pub(crate) free: u32,
    /// What became of the claim.
    pub(crate) state: State,
    /// For how long another process was told to leave the limit alone.
    pub(crate) paused_us: u64,
    /// What all processes together have of the limit.
    pub(crate) all: All,
    /// The ledger is older than what the process was told, as after a restored backup. The call
    /// has changed nothing. The driver must put a learning ledger in its place and repeat it.
    pub(crate) is_stale: bool,
}

/// What all processes that share a limit have of it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct All {
    /// The processes with a lease.
    pub(crate) processes: u32,
    /// The units of the limit, as the strictest of them has it in its configuration.
    pub(crate) units: u32,
    pub(crate) held: u32,
    pub(crate) wanted: u32,
    /// The figures of some process are not those in force.
    pub(crate) differs: bool,
}

/// Who holds and wants what.
#[cfg(test)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The units of the limit, as the strictest process has it.
    pub(crate) units: u32,
    /// The units in the pool that are free.
    pub(crate) free: u32,
    /// The units in the pool that are not free yet.
    pub(crate) occupied: u32,
    /// The ledger waits until every old lease has ended.
    pub(crate) learning: bool,
    /// Process, units held, units wanted.
    pub(crate) holders: Vec<(u64, u32, u32)>,
    /// The processes whose figures are not the ones in force.
    pub(crate) differing: Vec<(u64, Figures)>,
}
