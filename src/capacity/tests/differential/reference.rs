//! The pure ledgers, as a store without troubles would keep them. What `call.rs` does around a ledger is written a second time here: a
//! fault in it would otherwise be on both sides of the comparison.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::call::{Call, Entry};
use crate::capacity::ledger::{Caller, FLOOR_LEASE_US, Got, Ledger, Loss as Lost};

/// Limits whose units count for an hour or more are kept where a crash does not reach them, by the stores that tell them apart.
pub(super) const LONG_US: u64 = 3_600_000_000;

/// What a store says when it was emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It is not emptied.
    Never,
    /// Of limits below an hour it knows that there were some; others outlive it.
    OfShortLimits,
    /// It cannot tell a loss from a start, and a server that is replaced may go on for so long, in microseconds.
    OfAll(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) ledgers: BTreeMap<String, Ledger>,
    loss: Loss,
    /// Limits that some process counts for long.
    long: BTreeSet<String>,
    /// What was lost, if it was; none before the first call.
    lost: Option<Option<Lost>>,
    was_lost: bool,
}

impl Reference {
    pub(super) fn new(loss: Loss) -> Reference {
        let was_lost = matches!(loss, Loss::OfAll(_));
        Reference { ledgers: BTreeMap::new(), loss, long: BTreeSet::new(), lost: None, was_lost }
    }

    pub(super) fn lose(&mut self) {
        self.was_lost = true;
        self.lost = None;
        match self.loss {
            Loss::Never => unreachable!("such a store is not emptied"),
            Loss::OfShortLimits => self.ledgers.retain(|limit, _| self.long.contains(limit)),
            Loss::OfAll(_) => self.ledgers.clear(),
        }
    }

    pub(super) fn exchange(&mut self, clock_us: u64, call: &Call) -> Vec<Option<Got>> {
        call.lines
            .iter()
            .map(|entry| {
                let lost = self.lost(clock_us, call, entry);
                let figures = &entry.line.figures;
                if figures.again_us >= LONG_US {
                    self.long.insert(entry.limit.clone());
                }
                let ledger = self.ledgers.entry(entry.limit.clone());
                let ledger = ledger.or_insert_with(|| Ledger::new(figures, entry.line.floor, clock_us, lost));
                let caller = Caller {
                    process: call.process,
                    seq: call.seq,
                    known_seq: entry.known_seq,
                    lease_us: call.lease_us,
                    expected_us: entry.expected_us,
                };
                if call.leaves {
                    ledger.leave(clock_us, &caller, &entry.line);
                    return None;
                }
                let got = ledger.exchange(clock_us, &caller, &entry.line);
                if !got.is_stale {
                    return Some(got);
                }
                *ledger = Ledger::new(figures, entry.line.floor, clock_us, Some(loss_now(clock_us, call, 0)));
                Some(ledger.exchange(clock_us, &caller, &entry.line))
            })
            .collect()
    }

    /// What a ledger that is missing was lost with.
    fn lost(&mut self, clock_us: u64, call: &Call, entry: &Entry) -> Option<Lost> {
        let outlives = !matches!(self.loss, Loss::OfAll(_)) && entry.line.figures.again_us >= LONG_US;
        if outlives || self.ledgers.contains_key(&entry.limit) {
            return None;
        }
        let more_us = if let Loss::OfAll(more_us) = self.loss { more_us } else { 0 };
        *self.lost.get_or_insert(self.was_lost.then(|| loss_now(clock_us, call, more_us)))
    }
}

/// A loss that is noticed now, of a store that may have gone on answering for so long.
fn loss_now(clock_us: u64, call: &Call, more_us: u64) -> Lost {
    let ends = |lease: u64| clock_us + lease + (lease / 10).clamp(100_000, 1_000_000) + more_us;
    Lost { leases_until: ends(call.lease_us), floors_until: ends(FLOOR_LEASE_US) }
}
