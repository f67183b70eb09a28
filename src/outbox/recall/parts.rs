//! Reads of many lanes in parts. A part is halved when its read fails: a read of fewer lanes takes less time, and damage may
//! concern one lane alone. Pure.

use std::time::Duration;

/// Attempts before parts are halved at an error that does not pass by itself. A damaged file must not stop a lane for ever.
const TRIES: u32 = 3;
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(200);
/// The wait between two tries while the store is unreachable, or its disk or memory fails. There is no last try while it is
/// unreachable: without the store no job can be claimed either.
const AWAY: Duration = Duration::from_secs(1);
/// Attempts while the store's disk or memory fails. That mostly ends; if it does not, a part of the file cannot be read any more.
const STORAGE_TRIES: u32 = 60;

/// What a read failed of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The store was unreachable, or another transaction was in the way.
    Passes,
    /// The store's disk or memory failed.
    Storage,
    /// What was read.
    Data,
}

/// What is left to be read.
pub(super) struct Parts<T> {
    left: Vec<Vec<T>>,
    /// Reads that failed of the data, and were tried again.
    failed: u32,
    /// The same for the store's disk or memory.
    failed_storage: u32,
}

impl<T> Parts<T> {
    pub(super) fn new(all: Vec<T>) -> Parts<T> {
        Parts { left: vec![all], failed: 0, failed_storage: 0 }
    }

    /// The part to read next.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        self.left.retain(|part| !part.is_empty());
        self.left.pop()
    }

    /// Records that the read of a part failed. Returns what is given up of it, which is one lane at most, and the wait before
    /// the next read.
    pub(super) fn failed(&mut self, mut part: Vec<T>, fault: Fault) -> (Vec<T>, Duration) {
        let may_pass = match fault {
            Fault::Passes => true,
            Fault::Storage => self.failed_storage + 1 < STORAGE_TRIES,
            Fault::Data => false,
        };
        if may_pass && fault == Fault::Storage {
            self.failed_storage += 1;
        }
        if !may_pass && self.failed + 1 < TRIES {
            self.failed += 1;
            self.left.push(part);
            return (Vec::new(), BETWEEN_TRIES);
        }
        if !may_pass && part.len() == 1 {
            return (part, Duration::ZERO);
        }
        let later = part.split_off(part.len().div_ceil(2));
        self.left.extend([later, part]);
        (Vec::new(), if may_pass { AWAY } else { Duration::ZERO })
    }
}

#[cfg(test)]
mod tests;
