//! A permit: what it took, and the state of its exchange.

use super::ask::Attempt;
use super::cost::{Cost, Kinds};
use super::keys::{HolderKey, LaneKey, WaiterKey};
use super::limit::Take;
use super::need::Need;
use super::origin::{Origin, Witness};
use super::slab::Key;
use super::tier::Tier;
use crate::time::Time;

/// The right to one exchange, and what was taken for it.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    pub(super) origin: Origin,
    tier: Tier,
    state: State,
    cost: Cost,
    /// The kinds of points whose cost a response has stated.
    settled: Kinds,
    /// When it took its units or started, whichever was later.
    granted: Time,
    /// When the exchange ends at the latest. Without meaning before the start.
    deadline: Time,
    attempt: Attempt,
    /// The waiter that has not picked it up yet, or [`Key::NONE`].
    waiter: WaiterKey,
    /// Whose word the response is, if the lane has moved to another engine. Boxed, because hardly any permit has it.
    departed: Option<Box<Witness>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Granted,
    Started,
    Answered,
    /// The caller went away during the exchange; the slot stays taken until the deadline.
    Abandoned,
}

impl Permit {
    /// A permit that was granted just now: to a waiter that has to pick it up, or to a caller that starts at once.
    #[inline(always)]
    pub(super) fn new(origin: Origin, need: &Need, now: Time, attempt: Attempt, waiter: Option<WaiterKey>) -> Permit {
        Permit {
            origin,
            tier: need.tier,
            state: if waiter.is_some() { State::Granted } else { State::Started },
            cost: need.cost,
            settled: Kinds::default(),
            granted: now,
            deadline: now.plus_nanos(attempt.most_ns),
            attempt,
            waiter: waiter.unwrap_or(Key::NONE),
            departed: None,
        }
    }

    #[inline]
    pub(super) fn is_granted(&self) -> bool {
        self.state == State::Granted
    }

    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.state == State::Started
    }

    #[inline]
    pub(super) fn is_answered(&self) -> bool {
        self.state == State::Answered
    }

    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.state == State::Abandoned
    }

    /// Starts the exchange. Returns what the permit took at its grant, and from where; `None` if it has started
    /// already.
    pub(super) fn start(&mut self, now: Time) -> Option<(Take, Origin)> {
        if !self.is_granted() {
            return None;
        }
        let took = (self.take(), self.origin);
        self.state = State::Started;
        self.waiter = Key::NONE;
        self.deadline = now.plus_nanos(self.attempt.most_ns);
        self.granted = now;
        Some(took)
    }

    /// Notes the response. Returns what the permit took, and from where; `None` if no response was expected.
    #[inline]
    pub(super) fn answer(&mut self) -> Option<(Take, Origin)> {
        if !self.is_started() {
            return None;
        }
        self.state = State::Answered;
        if self.attempt.outlasts {
            self.deadline = Time::MAX;
        }
        Some((self.take(), self.origin))
    }

    /// Notes that its holder ends it, however late that is. Until the response is reported the deadline stays: a probe
    /// that hangs must not keep a lane shut.
    pub(super) fn outlast(&mut self) {
        self.attempt.outlasts = true;
        if self.is_answered() {
            self.deadline = Time::MAX;
        }
    }

    /// Whether its holder ends it, however late that is.
    pub(super) fn is_open_ended(&self) -> bool {
        self.attempt.outlasts
    }

    /// Removes the deadline of an exchange that has not been answered by then, and whose holder ends it.
    pub(super) fn go_on(&mut self) {
        self.deadline = Time::MAX;
    }

    /// Notes that the caller does not wait any more: the permit ends at `deadline`.
    pub(super) fn abandon(&mut self, deadline: Time) {
        self.state = State::Abandoned;
        self.deadline = deadline;
    }

    /// Notes that the lane has moved to another engine, to which the caller reports the end of the exchange as well.
    /// The response is still the word of the lane's tenant.
    pub(super) fn depart(&mut self, closing_ns: u64, witness: Witness) {
        self.origin.lane = Key::NONE;
        self.departed = Some(Box::new(witness));
        if !self.is_abandoned() {
            self.deadline = self.deadline.plus_nanos(closing_ns);
        }
    }

    /// Whose word the response is, if the lane has moved to another engine.
    pub(super) fn departed(&self) -> Option<Witness> {
        self.departed.as_deref().copied()
    }

    #[inline]
    pub(super) fn granted(&self) -> Time {
        self.granted
    }

    #[inline]
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// The waiter that has not picked it up yet.
    pub(super) fn waiter(&self) -> WaiterKey {
        self.waiter
    }

    pub(super) fn need(&self) -> Need {
        Need { lane: self.origin.lane, endpoint: self.origin.endpoint, tier: self.tier, cost: self.cost }
    }

    #[inline]
    pub(super) fn take(&self) -> Take {
        Take { cost: self.cost, tier: self.tier, granted: self.granted }
    }

    pub(super) fn settled(&self) -> Kinds {
        self.settled
    }

    pub(super) fn set_settled(&mut self, settled: Kinds) {
        self.settled = settled;
    }

    /// Replaces the cost.
    pub(super) fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    #[inline]
    pub(super) fn lane(&self) -> LaneKey {
        self.origin.lane
    }

    #[cfg(test)]
    pub(super) fn set_deadline(&mut self, deadline: Time) {
        self.deadline = deadline;
    }

    /// The same permit with another origin, in another engine.
    pub(super) fn at(self, origin: Origin) -> Permit {
        Permit { origin, ..self }
    }

    /// The same permit in an engine for a forecast, as picked up. `holders` maps the keys of shared limits' holders.
    pub(super) fn ahead(&self, lane: LaneKey, holders: impl Fn(HolderKey) -> HolderKey) -> Permit {
        let state = if self.is_answered() { State::Answered } else { State::Started };
        let origin = Origin { lane, holders: self.origin.holders.map(holders), ..self.origin };
        Permit { origin, state, waiter: Key::NONE, deadline: Time::MAX, ..self.clone() }
    }
}
