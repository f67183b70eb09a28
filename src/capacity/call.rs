//! A call of one process to the store of a pool, and the store's answer.

use super::ledger::{Caller, FLOOR_LEASE_US, Got, Ledger, Line, Loss, State};
use crate::clock::{Clock, Time, nanos};

/// What one process tells the store about its limits.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) process: u64,
    /// Grows with every call of the process.
    pub(crate) seq: u64,
    pub(crate) lease_us: u64,
    /// Whether the process ends. It then returns all of its units.
    pub(crate) leaves: bool,
    /// The process's own clock, by which the answer says when the store's clock was read. Without it nothing confirms the
    /// time that the call takes.
    pub(crate) witness: Option<Witness>,
    pub(crate) lines: Vec<Entry>,
}

/// The clock of the process that makes a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    pub(crate) clock: Clock,
    /// When the call was made.
    pub(crate) made: Time,
}

/// What a call read from the store's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The store's clock, in microseconds.
    pub(crate) clock_us: u64,
    /// The time from the making of the call to just before that reading, by the process's own clock; 0 if it is not known.
    pub(crate) waited_us: u64,
}

impl Reading {
    /// A reading at an unknown time after the call was made.
    #[cfg(test)]
    pub(crate) fn of(clock_us: u64) -> Reading {
        Reading { clock_us, waited_us: 0 }
    }
}

/// What a process says about one limit.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The limit's name, the same in all processes.
    pub(crate) limit: String,
    /// The number of the process's last answered call about this limit; 0 if there is none.
    pub(crate) known_seq: u64,
    /// What the store's clock should show when the call is made: its value in the last answer about this limit, plus
    /// the time that has passed since it was read, by the process's own clock.
    pub(crate) expected_us: Option<u64>,
    pub(crate) line: Line,
}

impl Entry {
    /// The units that the process holds after this answer.
    pub(super) fn held_after(&self, got: &Got) -> u32 {
        let came = got.units.iter().fold(0, |sum: u32, (_, units)| sum.saturating_add(*units));
        if got.state == State::Lost { 0 } else { self.line.claim.saturating_add(came) }
    }

    /// Whether the process waits for the ledger to learn who holds what, or for units withheld since a loss.
    pub(super) fn lacks_by_loss(&self, got: &Got) -> bool {
        let wanted = self.line.want.iter().fold(0, |sum: u32, want| sum.saturating_add(*want));
        got.state == State::Learning || (got.all.withheld > 0 && self.held_after(got) < wanted)
    }
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The store's clock, in microseconds, as it was read last.
    pub(crate) clock_us: u64,
    /// A moment just after that reading, by the clock of the process that called; `None` if only the arrival of the
    /// answer is known.
    pub(crate) read_at: Option<Time>,
    /// One entry per line of the call, in the call's order.
    pub(crate) got: Vec<LineAnswer>,
}

/// What the ledger answered to a line of a call, `None` for a process that ends; or why the store did not answer this
/// line.
pub(crate) type LineAnswer = Result<Option<Got>, String>;

impl Answer {
    /// Returns the answer, or the error of its first line if the store answered no line.
    #[cfg(any(feature = "etcd", feature = "object-store", feature = "redis", feature = "zookeeper"))]
    pub(super) fn checked(self) -> Result<Answer, String> {
        if self.got.is_empty() || self.got.iter().any(Result::is_ok) {
            return Ok(self);
        }
        Err(self.got.into_iter().find_map(Result::err).unwrap_or_default())
    }
}

/// State that all ledgers of a store have in common, lost whenever they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Root {
    /// A missing ledger may have been lost. Until this time of the store's clock, processes may go on using what they
    /// held before the loss, and the new ledgers learn what each of them holds. 0 if nothing was lost.
    pub(crate) learning_until_us: u64,
    /// The same time for floors.
    #[serde(default)]
    pub(crate) floors_until_us: u64,
}

impl Root {
    /// `lost` says whether the store held ledgers before.
    pub(crate) fn new(lost: bool, clock_us: u64, lease_us: u64) -> Root {
        if !lost {
            return Root::default();
        }
        let after =
            |lease_us: u64| clock_us.saturating_add(lease_us).saturating_add((lease_us / 10).clamp(100_000, 1_000_000));
        Root { learning_until_us: after(lease_us), floors_until_us: after(FLOOR_LEASE_US) }
    }

    /// The same root for a store that went on answering for `by_us` after it was lost.
    #[cfg(feature = "redis")]
    pub(super) fn later(self, by_us: u64) -> Root {
        Root {
            learning_until_us: self.learning_until_us.saturating_add(by_us),
            floors_until_us: self.floors_until_us.saturating_add(by_us),
        }
    }

    pub(super) fn loss(&self) -> Option<Loss> {
        let loss = Loss { leases_until: self.learning_until_us, floors_until: self.floors_until_us };
        (self.learning_until_us > 0).then_some(loss)
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Option<Root> {
        serde_json::from_str(text).ok()
    }
}

impl Call {
    /// Now, by the clock of the process that called. To be asked just after the store's clock was read.
    pub(crate) fn now(&self) -> Option<Time> {
        self.witness.map(|witness| witness.clock.now())
    }

    /// How long ago the call was made, in microseconds; 0 if it is not known. To be asked just before the store's clock
    /// is read: until then at least this time has passed.
    pub(crate) fn waited_us(&self) -> u64 {
        self.witness.map_or(0, |witness| nanos(witness.clock.now().since(witness.made)) / 1_000)
    }

    /// The loss to assume for a ledger that has been lost just now.
    pub(super) fn loss(&self, clock_us: u64) -> Option<Loss> {
        Root::new(true, clock_us, self.lease_us).loss()
    }

    /// Answers one line of the call from the limit's ledger. `kept` is the stored text of the ledger, empty if there is
    /// none yet. A text that cannot be parsed counts as a lost ledger.
    pub(crate) fn answer(&self, entry: &Entry, kept: &str, root: &Root, reading: Reading) -> Answered {
        let mut loss = root.loss();
        let ledger = match serde_json::from_str(kept) {
            Ok(ledger) => Some(ledger),
            Err(_) if kept.is_empty() => None,
            Err(error) => {
                tracing::error!(limit = entry.limit, %error, "what the store keeps of a shared limit cannot be read: it is made anew");
                loss = self.loss(reading.clock_us);
                None
            }
        };
        let (got, ledger) = self.exchange(entry, ledger, loss, reading);
        let text = serde_json::to_string(&ledger).unwrap_or_default();
        Answered { got, text, matters_for_us: ledger.matters_for_us() }
    }

    /// Answers one line of the call from the limit's ledger. If there is none, creates one that allows for `loss`.
    pub(super) fn exchange(
        &self,
        entry: &Entry,
        ledger: Option<Ledger>,
        loss: Option<Loss>,
        Reading { clock_us, waited_us }: Reading,
    ) -> (Option<Got>, Ledger) {
        let new = |loss| Ledger::new(&entry.line.figures, entry.line.floor, clock_us, loss);
        let mut ledger = ledger.unwrap_or_else(|| new(loss));
        let caller = Caller {
            process: self.process,
            seq: self.seq,
            lease_us: self.lease_us,
            expected_us: entry.expected_us,
            waited_us,
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
            ledger = new(self.loss(clock_us));
            got = ledger.exchange(clock_us, &caller, &entry.line);
        }
        (Some(got), ledger)
    }
}

/// A ledger's answer to one line of a call.
#[derive(Debug)]
pub(crate) struct Answered {
    /// `None` if the process ends.
    pub(crate) got: Option<Got>,
    /// The text of the ledger to store.
    pub(crate) text: String,
    /// The shortest time, in microseconds, for which the store must keep the text after this call, should no other call follow.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "SQL keeps its rows"))]
    pub(crate) matters_for_us: u64,
}
