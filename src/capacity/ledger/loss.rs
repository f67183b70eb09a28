//! New ledgers. If an earlier ledger was lost, processes may still use units that it granted.

use std::collections::BTreeMap;

use super::call::{Figures, Floor, Loss};
use super::clock::Clock;
use super::ledger::Ledger;
use super::pool::Pool;

impl Ledger {
    /// A ledger without holders.
    ///
    /// A store that may have lost the earlier ledger passes `loss`: when the longest lease granted before the loss has
    /// ended, with its slack (a tenth, 100 ms to 1 s) and the time for which a lost store may have gone on answering.
    /// Without a loss, all units are free at once.
    pub(crate) fn new(figures: &Figures, floor: Floor, clock_us: u64, loss: Option<Loss>) -> Ledger {
        let mut ledger = Ledger {
            clock: Clock::new(clock_us),
            figures: *figures,
            learning_until: 0,
            complete_from: 0,
            pool: Pool::default(),
            holders: BTreeMap::new(),
            turn: None,
            paused: None,
            lost_floors: None,
            uncounted_until: 0,
            withheld: 0,
        };
        let Some(loss) = loss else {
            ledger.pool.put(clock_us, figures.units);
            return ledger;
        };
        ledger.lost_floors = (floor.all > 0).then_some((loss.floors_until, floor.all));
        if loss.leases_until > clock_us {
            ledger.learning_until = loss.leases_until;
        } else {
            ledger.has_learnt(loss.leases_until);
        }
        ledger
    }

    /// Ends learning: all leases from before the loss ended at `leases_until`, except those of floors.
    pub(super) fn has_learnt(&mut self, leases_until: u64) {
        self.learning_until = 0;
        self.complete_from = leases_until.saturating_add(self.figures.lapse_us());
        if let Some((until, units)) = self.lost_floors.take() {
            self.complete_from = until.saturating_add(self.figures.lapse_us());
            self.fill_up(until, units);
        }
        self.withheld = self.missing_units();
        self.fill_up(leases_until, u32::MAX);
        // Before the loss, processes may have held more units than the limit has by the figures now in force.
        self.uncounted_until = self.uncounted_until.max(self.counts_until(leases_until));
    }

    /// The units that no process holds and that the ledger does not grant yet: a process may have used them before the store
    /// lost its data, and has not declared them since. Units of floors count only while the ledger is learning.
    pub(super) fn withheld(&self) -> u32 {
        if self.is_learning() {
            return self.missing_units();
        }
        let free = self.pool.until(self.clock.now());
        self.withheld.min(self.pool.total().saturating_sub(free))
    }
}
