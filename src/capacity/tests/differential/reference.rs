//! The pure ledgers, as a store without troubles would keep them. What `call.rs` does around a ledger is written a second time here: a
//! fault in it would otherwise be on both sides of the comparison.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::call::{Call, Entry};
use crate::capacity::ledger::{Caller, Got, Ledger};

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
    /// Until when a ledger that is missing may have been lost; none before the first call.
    learning_until_us: Option<u64>,
    was_lost: bool,
}

impl Reference {
    pub(super) fn new(loss: Loss) -> Reference {
        let was_lost = matches!(loss, Loss::OfAll(_));
        Reference { ledgers: BTreeMap::new(), loss, long: BTreeSet::new(), learning_until_us: None, was_lost }
    }

    pub(super) fn lose(&mut self) {
        self.was_lost = true;
        self.learning_until_us = None;
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
                let learning_us = self.learning_us(clock_us, call, entry);
                let figures = &entry.line.figures;
                if figures.again_us >= LONG_US {
                    self.long.insert(entry.limit.clone());
                }
                let ledger = self.ledgers.entry(entry.limit.clone());
                let ledger = ledger.or_insert_with(|| Ledger::new(figures, clock_us, learning_us));
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
                *ledger = Ledger::new(figures, clock_us, lease_and_slack(call));
                Some(ledger.exchange(clock_us, &caller, &entry.line))
            })
            .collect()
    }

    /// For how long a ledger that is missing would learn.
    fn learning_us(&mut self, clock_us: u64, call: &Call, entry: &Entry) -> u64 {
        let outlives = !matches!(self.loss, Loss::OfAll(_)) && entry.line.figures.again_us >= LONG_US;
        if outlives || self.ledgers.contains_key(&entry.limit) {
            return 0;
        }
        let longest = match self.loss {
            Loss::OfAll(more_us) => lease_and_slack(call) + more_us,
            Loss::Never | Loss::OfShortLimits => lease_and_slack(call),
        };
        let learns = if self.was_lost { longest } else { 0 };
        self.learning_until_us.get_or_insert(clock_us + learns).saturating_sub(clock_us)
    }
}

fn lease_and_slack(call: &Call) -> u64 {
    call.lease_us + (call.lease_us / 10).clamp(100_000, 1_000_000)
}
