//! A permit: what it took, how far its exchange is.

use super::cost::Cost;
use super::limit::Take;
use super::need::Need;
use super::origin::Origin;
use super::slab::Key;
use crate::clock::Time;

/// The right to one attempt, and what it took.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    pub(super) origin: Origin,
    pub(super) tier: u8,
    pub(super) state: State,
    pub(super) cost: Cost,
    /// When it took its units, or started, whichever was later.
    pub(super) granted: Time,
    /// The exchange ends by then. Not counted before the start.
    pub(super) deadline: Time,
    pub(super) attempt_ns: u64,
    /// Who has not picked it up yet.
    pub(super) waiter: Key,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Granted,
    Started,
    Answered,
    /// The caller went away in the middle; the slot stays taken until the deadline.
    Abandoned,
}

impl Permit {
    /// A permit that was granted just now, to a waiter that has not picked it up, or to a caller that has started.
    #[inline(always)]
    pub(super) fn new(origin: Origin, need: &Need, now: Time, attempt_ns: u64, waiter: Option<Key>) -> Permit {
        Permit {
            origin,
            tier: need.tier,
            state: if waiter.is_some() { State::Granted } else { State::Started },
            cost: need.cost,
            granted: now,
            deadline: now.plus_nanos(attempt_ns),
            attempt_ns,
            waiter: waiter.unwrap_or(Key::NONE),
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.state == State::Started
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.state == State::Abandoned
    }

    pub(super) fn need(&self) -> Need {
        Need { lane: self.origin.lane, endpoint: self.origin.endpoint, tier: self.tier, cost: self.cost }
    }

    pub(super) fn take(&self) -> Take {
        Take { cost: self.cost, high: self.tier == 0, granted: self.granted }
    }

    /// It stands for so many units from now on.
    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    pub(super) fn lane(&self) -> Key {
        self.origin.lane
    }

    #[cfg(test)]
    pub(super) fn set_deadline(&mut self, deadline: Time) {
        self.deadline = deadline;
    }

    /// The same in an engine that looks ahead; picked up, if it was not yet. `holders` translates those of shared limits.
    pub(super) fn ahead(&self, lane: Key, holders: impl Fn(Key) -> Key) -> Permit {
        let state = if self.state == State::Answered { State::Answered } else { State::Started };
        let origin = Origin { lane, holders: self.origin.holders.map(holders), ..self.origin };
        Permit { origin, state, waiter: Key::NONE, deadline: Time::MAX, ..self.clone() }
    }
}
