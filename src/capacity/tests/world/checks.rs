//! The invariants of the protocol, asserted at every step of a simulation.

use std::collections::VecDeque;

use super::{Trouble, World};
use crate::capacity::ledger::Ledger;
use crate::clock::Time;
use crate::engine::limit::{Got, Wish};

/// What a process believes that it holds of the limit, by its calls and their answers.
#[derive(Default)]
pub(super) struct Belief {
    /// The process's id in its calls; 0 before the first.
    pub(super) process: u64,
    units: u32,
    /// The end of the lease, and that of the floor, by the process's clock.
    lease_until: Time,
    floor: u32,
    floor_until: Time,
}

impl Belief {
    /// The process returns units with its next call.
    pub(super) fn count_returned(&mut self, wish: &Wish) {
        let returned: u32 = wish.returned.iter().map(|(_, units)| units).sum();
        assert!(wish.claim + returned <= self.units, "{wish:?} of {} units", self.units);
        self.units = wish.claim;
    }

    /// The store has answered.
    pub(super) fn count_granted(&mut self, got: &Got, until: Time) {
        let granted: u32 = got.units.iter().map(|(_, units)| units).sum();
        self.units = if got.is_lost { granted } else { self.units + granted };
        (self.lease_until, self.floor, self.floor_until) = (until, got.floor, got.floor_until);
    }

    fn has_lease(&self, now: Time) -> bool {
        now < self.lease_until
    }
}

/// The time of a ledger at some of its last calls, each with the true time.
#[derive(Default)]
pub(super) struct Clocks {
    at: VecDeque<(Time, u64)>,
    last_us: u64,
}

impl Clocks {
    /// Asserts that the ledger's time has not run ahead of true time by more than `slack` over any span of up to
    /// `longest_us`.
    fn check(&mut self, now: Time, ledger_us: u64, longest_us: u64) {
        if ledger_us == self.last_us {
            // A call that is repeated does not advance the ledger's time.
            return;
        }
        while self.at.front().is_some_and(|(at, _)| now.as_nanos() - at.as_nanos() > 1_000 * longest_us) {
            self.at.pop_front();
        }
        for (at, then_us) in &self.at {
            let span_us = (now.as_nanos() - at.as_nanos()) / 1_000;
            // The protocol's bound, which a change of the ledger's code does not loosen.
            let slack_us = (span_us / 10).clamp(100_000, u64::max(1_000_000, span_us / 5_000));
            let passed_us = ledger_us - then_us;
            assert!(
                passed_us <= span_us + slack_us + 1,
                "the ledger's time advanced by {passed_us} us in {span_us} us"
            );
        }
        self.last_us = ledger_us;
        let is_due = |(at, _): &(Time, u64)| now.as_nanos() - at.as_nanos() >= 1_000 * longest_us / 16;
        if self.at.back().is_none_or(is_due) {
            self.at.push_back((now, ledger_us));
        }
    }
}

impl World {
    /// Asserts that a process is not polled again and again without time passing, which would take a whole processor.
    pub(super) fn check_rest(&mut self, it: usize) {
        let (last, repeats) = self.members[it].polled;
        let repeats = if self.now.as_nanos() - last.as_nanos() <= 1 { repeats + 1 } else { 0 };
        assert!(repeats < 1_000, "process {it} does not rest: {:?}", self.members[it].engine.poll_timeout());
        self.members[it].polled = (self.now, repeats);
    }

    /// Asserts that each unit is in one place, that no process believes it holds more than the ledger says, and that
    /// the ledger's time does not run ahead.
    pub(super) fn check(&mut self, limit: &str, ledger: &Ledger) {
        if !self.case.is_checked {
            return;
        }
        let standing = ledger.standing();
        let held: u32 = standing.holders.iter().map(|(_, held, _)| held).sum();
        let all = held + standing.free + standing.occupied;
        // More than the units in force are known, and all of them held, while holders have yet to return those of a limit
        // that was reduced.
        let is_reduced = all > standing.units && all == held;
        let is_whole = standing.learning || all == standing.units || is_reduced;
        assert!(is_whole && all <= self.case.figures.limit, "{standing:?}");
        if !self.case.store_kind.is_server() {
            return;
        }
        let is_lost = |trouble: &&(_, Trouble)| matches!(trouble.1, Trouble::Lose | Trouble::Rewind);
        let first_loss = self.case.troubles.iter().filter(is_lost).map(|(after, _)| *after).min();
        let has_lost = first_loss.is_some_and(|after| self.began + after <= self.now);
        if standing.learning {
            assert!(has_lost, "nothing was lost, and the ledger learns");
            self.clocks.remove(limit);
            return;
        }
        for (it, member) in self.members.iter().enumerate().filter(|(_, member)| !member.is_gone) {
            let belief = &member.belief;
            let now = self.local(it);
            let units = match belief.has_lease(now) {
                true => belief.units,
                // The process has no more than its floor, at the latest from its next call on. A ledger that was lost keeps
                // the floors of processes that it does not know out of the pool.
                false if now < belief.floor_until && !has_lost => belief.units.min(belief.floor),
                false => 0,
            };
            if units == 0 {
                continue;
            }
            let known = standing.holders.iter().find(|(process, ..)| *process == belief.process);
            let known = known.map_or(0, |(_, held, _)| *held);
            assert!(units <= known, "process {it} believes it holds {units}: {standing:?}");
        }
        let longest = self.case.lease + self.case.figures.window + std::time::Duration::from_millis(1_600);
        let longest_us = longest.as_micros() as u64;
        self.clocks.entry(limit.to_owned()).or_default().check(self.now, standing.now, longest_us);
    }

    /// Asserts that a process which starts a request has a lease, or its floor.
    pub(super) fn check_lease(&self, it: usize) {
        let (belief, now) = (&self.members[it].belief, self.local(it));
        let has_floor = belief.floor > 0 && now < belief.floor_until;
        let is_exempt = !self.case.shares || !self.case.is_checked;
        assert!(is_exempt || belief.has_lease(now) || has_floor, "process {it} starts a request without a lease");
    }
}
