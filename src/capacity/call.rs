//! A call of one process to the store of a pool, and what the store answers.

use super::ledger::{Caller, Got, Ledger, Line};

/// What one process says of its limits.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) process: u64,
    /// Grows with every call of the process.
    pub(crate) seq: u64,
    pub(crate) lease_us: u64,
    /// The process ends, and gives everything back.
    pub(crate) leaves: bool,
    pub(crate) lines: Vec<Entry>,
}

/// What a process says of one limit.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The limit's name, the same in all processes.
    pub(crate) limit: String,
    /// The last call of the process about this limit that was answered; 0 for none.
    pub(crate) known_seq: u64,
    /// What the store's clock should say: that of the last answer about this limit, and the process's own time since.
    pub(crate) expected_us: Option<u64>,
    pub(crate) line: Line,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The store's clock, in microseconds.
    pub(crate) clock_us: u64,
    /// In the order of the call's lines; none to a process that ends.
    pub(crate) got: Vec<Option<Got>>,
}

/// What all ledgers of a store have in common. It is lost where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Root {
    /// Until then, by the store's clock, a ledger that is missing may be one that was lost: it learns who holds what.
    pub(crate) learning_until_us: u64,
}

impl Root {
    /// `lost`: there were ledgers before.
    pub(crate) fn new(lost: bool, clock_us: u64, lease_us: u64) -> Root {
        let slack = (lease_us / 10).clamp(100_000, 1_000_000);
        let learning = if lost { lease_us.saturating_add(slack) } else { 0 };
        Root { learning_until_us: clock_us.saturating_add(learning) }
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Option<Root> {
        serde_json::from_str(text).ok()
    }
}

impl Call {
    /// For how long a ledger learns that was lost.
    pub(super) fn learning_us(&self) -> u64 {
        Root::new(true, 0, self.lease_us).learning_until_us
    }

    /// Answers one line by a limit's ledger. The ledger is `kept` as a text, and empty where there is none yet. A text that is no
    /// ledger is one that was lost.
    pub(crate) fn answer(&self, entry: &Entry, kept: &str, root: &Root, clock_us: u64) -> Answered {
        let mut learning_us = root.learning_until_us.saturating_sub(clock_us);
        let ledger = match serde_json::from_str(kept) {
            Ok(ledger) => Some(ledger),
            Err(_) if kept.is_empty() => None,
            Err(error) => {
                tracing::error!(limit = entry.limit, %error, "what the store keeps of a shared limit cannot be read: it is made anew");
                learning_us = self.learning_us();
                None
            }
        };
        let (got, ledger) = self.exchange(entry, ledger, learning_us, clock_us);
        let text = serde_json::to_string(&ledger).unwrap_or_default();
        Answered { got, text, matters_for_us: ledger.matters_for_us() }
    }

    /// Answers one line by a limit's ledger; where there is none, by a new one that learns for `learning_us`.
    pub(super) fn exchange(
        &self,
        entry: &Entry,
        ledger: Option<Ledger>,
        learning_us: u64,
        clock_us: u64,
    ) -> (Option<Got>, Ledger) {
        let mut ledger = ledger.unwrap_or_else(|| Ledger::new(&entry.line.figures, clock_us, learning_us));
        let caller = Caller {
            process: self.process,
            seq: self.seq,
            lease_us: self.lease_us,
            expected_us: entry.expected_us,
            known_seq: entry.known_seq,
        };
        if self.leaves {
            ledger.leave(clock_us, &caller, &entry.line);
            return (None, ledger);
        }
        let mut got = ledger.exchange(clock_us, &caller, &entry.line);
        if got.is_stale {
            tracing::error!(
                limit = entry.limit,
                "the store has gone back to an earlier state of a shared limit, as a restored backup does: who holds what is learnt anew"
            );
            ledger = Ledger::new(&entry.line.figures, clock_us, self.learning_us());
            got = ledger.exchange(clock_us, &caller, &entry.line);
        }
        (Some(got), ledger)
    }
}

/// What a ledger answers to one line of a call.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Nothing where the process ends.
    pub(crate) got: Option<Got>,
    /// The ledger as it is to be kept.
    pub(crate) text: String,
    /// The shortest time, in microseconds, for which the store must keep the text after this call, should no other call follow.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "SQL keeps its rows"))]
    pub(crate) matters_for_us: u64,
}
