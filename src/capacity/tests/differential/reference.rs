//! The pure ledgers, as a faultless store would keep them. The code that `call.rs` has around a ledger is written here
//! a second time: otherwise a mistake in it would be on both sides of the comparison.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::call::{Call, Entry};
use crate::capacity::ledger::{Caller, FLOOR_LEASE_US, Got, Ledger, Loss as Lost};

/// SQL stores keep ledgers of windows from this length on in a table that survives a crash.
pub(super) const LONG_US: u64 = 3_600_000_000;

/// What a store knows after it has been emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The store is never emptied.
    Never,
    /// The store loses limits with windows below an hour, and knows that it had some. Other limits survive.
    OfShortLimits,
    /// The store cannot tell a loss from a first start. A replaced server may go on answering for this time, in
    /// microseconds.
    OfAll(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) ledgers: BTreeMap<String, Ledger>,
    loss: Loss,
    /// Limits that some process has called for with a long window.
    long: BTreeSet<String>,
    /// The outer `None` means that there was no call since the start or the last loss; the inner `None`, that nothing
    /// was lost.
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
                let lost = self.assumed_loss(clock_us, call, entry);
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
                    waited_us: 0,
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

    /// The loss to assume for a ledger that is missing.
    fn assumed_loss(&mut self, clock_us: u64, call: &Call, entry: &Entry) -> Option<Lost> {
        let outlives = !matches!(self.loss, Loss::OfAll(_)) && entry.line.figures.again_us >= LONG_US;
        if outlives || self.ledgers.contains_key(&entry.limit) {
            return None;
        }
        let more_us = if let Loss::OfAll(more_us) = self.loss { more_us } else { 0 };
        *self.lost.get_or_insert(self.was_lost.then(|| loss_now(clock_us, call, more_us)))
    }
}

/// A loss that is noticed now, of a store that may have gone on answering for `more_us`.
fn loss_now(clock_us: u64, call: &Call, more_us: u64) -> Lost {
    let ends = |lease: u64| clock_us + lease + (lease / 10).clamp(100_000, 1_000_000) + more_us;
    Lost { leases_until: ends(call.lease_us), floors_until: ends(FLOOR_LEASE_US) }
}
