//! How many of its units a process may keep when others lack some.
//!
//! Where used units travel, those that are too few for all processes go round by themselves: each process returns what
//! it has used with its next call. Other units stay with the process that uses them, so processes take turns: while a
//! process holds none, as many holders as are needed each give up the one unit that they hold for a fraction of a unit
//! in their share. Those with the oldest last grant come first, each half a lease after that grant at the earliest.
//! Shorter turns would leave units unused for much of the time, because a unit needs two calls to change hands. A holder
//! whose turn has lasted two leases does not wait for those with older grants, because a long exchange may keep them
//! from giving anything up.

use super::call::Line;
use super::ledger::Ledger;
use super::process_record::ProcessRecord;
use super::shares::{Part, sum};

/// After how many half leases a process does not wait for holders with older grants to give units up.
const LONG_TURN: u64 = 4;

impl Ledger {
    /// How many units the caller may keep, after its call has been recorded. A fraction of a unit counts as a whole one
    /// unless another process would then go without.
    pub(super) fn keep(&self, now: u64, line: &Line, own: &Part, parts: &[Part]) -> u32 {
        let (process, travels) = (own.claim.process, self.figures.takes_used);
        let due = |p: &Part| p.floor().max(u32::from(!travels && p.claim.is_heard && p.claim.held == 0));
        let others = || parts.iter().filter(move |p| p.claim.process != process);
        let lack = others().map(|p| due(p).saturating_sub(p.claim.held)).fold(0, u32::saturating_add);
        // Only units that travel move before they are free.
        let there = if travels { self.pool.total() } else { self.pool.until(now) };
        let older = others().filter(|p| !p.has_turn && p.order() < own.order());
        let given = older.map(|p| p.claim.held.saturating_sub(p.floor())).fold(0, u32::saturating_add);
        let rotates = !travels && !own.has_turn;
        let waits = rotates && given >= lack.saturating_sub(there) && self.was_granted_within(process, LONG_TURN);
        let fair = if lack <= there || waits {
            own.ceil().max(own.target)
        } else if rotates {
            own.floor()
        } else {
            own.target
        };
        let is_in_turn = || self.was_granted_within(process, 1);
        // A process that has used nothing, and for which nothing waits, does without. So does one to which
        // another's turn leaves nothing: a request for nearly all units would never find the last ones.
        let is_busy = || line.need > 0 || line.returned.iter().any(|(free_in, _)| *free_in > 0);
        let gives_way = || others().any(|p| p.has_turn && p.claim.need > 1);
        let has_use = || sum(own.claim.want) > 0 && is_busy() && !gives_way();
        let least = if travels { u32::from(has_use()) } else { u32::from(is_in_turn()) };
        fair.max(least)
    }

    /// Records the floor with which the caller goes on when it cannot reach the store.
    pub(super) fn keep_floor(&mut self, now: u64, process: u64, line: &Line) {
        let others = self.holders.iter().filter(|(other, _)| **other != process);
        let others = others.map(|(_, holder)| holder.floor).fold(0, u32::saturating_add);
        if let Some(holder) = self.holders.get_mut(&process) {
            holder.keep_floor(now, line, others);
        }
    }

    /// The most units that `process` can hold by the figures in force, if the others give up all but their floors.
    pub(super) fn reach(&self, process: u64) -> u32 {
        let others = self.holders.iter().filter(|(other, holder)| **other != process && !holder.has_ended);
        let floors = others.map(|(_, holder)| holder.floor).fold(0, u32::saturating_add);
        self.figures.units.saturating_sub(floors)
    }

    /// Whether the ledger granted `process` units less than `half_leases` half leases before its present call.
    fn was_granted_within(&self, process: u64, half_leases: u64) -> bool {
        let half_lease = |holder: &ProcessRecord| holder.expires.saturating_sub(holder.called) / 2;
        let within = |holder: &ProcessRecord| half_lease(holder).saturating_mul(half_leases);
        let holder = self.holders.get(&process);
        holder.is_some_and(|holder| holder.called.saturating_sub(holder.granted) < within(holder))
    }
}
