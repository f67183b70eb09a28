//! Reads of many lanes in parts. A part is halved when its read fails: a read of fewer lanes takes less time, and damage may
//! concern one lane alone. Pure.

use std::time::Duration;

/// Attempts before parts are halved at an error that does not pass by itself. A damaged file must not stop a lane for ever.
const TRIES: u32 = 3;
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(200);
/// The wait between two tries while the store is unreachable. There is no last try: without the store no job can be
/// claimed either.
const AWAY: Duration = Duration::from_secs(1);

/// What is left to be read.
pub(super) struct Parts<T> {
    left: Vec<Vec<T>>,
    /// Reads that failed, and were tried again.
    failed: u32,
}

impl<T> Parts<T> {
    pub(super) fn new(all: Vec<T>) -> Parts<T> {
        Parts { left: vec![all], failed: 0 }
    }

    /// The part to read next.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        self.left.retain(|part| !part.is_empty());
        self.left.pop()
    }

    /// Records that the read of a part failed; the error `may_pass` by itself. Returns what is given up of it,
    /// which is one lane at most, and the wait before the next read.
    pub(super) fn failed(&mut self, mut part: Vec<T>, may_pass: bool) -> (Vec<T>, Duration) {
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
