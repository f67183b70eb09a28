//! Counts failed sends by kind, and logs at most [`LINES`] of them a second; the next line says how many were left out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::clock::Time;
use crate::error::{ErrorKind, KINDS};

/// The most log lines in a second. A full queue may refuse thousands of requests: all are counted, and the next line
/// states how many were left out.
const LINES: u32 = 10;

/// The failed sends since the client was built.
pub(crate) struct Failures {
    by_kind: [AtomicU64; KINDS.len()],
    lines: Mutex<Lines>,
}

impl Failures {
    pub(crate) fn new() -> Failures {
        Failures { by_kind: std::array::from_fn(|_| AtomicU64::new(0)), lines: Mutex::default() }
    }

    /// Counts a failure.
    pub(crate) fn count(&self, kind: ErrorKind) {
        self.by_kind[kind as usize].fetch_add(1, Relaxed);
    }

    /// Takes a log line at `now`. If there is one, returns how many were left out since the last.
    pub(crate) fn line(&self, now: Time) -> Option<u64> {
        self.lines.lock().allow(now)
    }

    /// The counts of all kinds that have occurred, by the kind's name.
    pub(crate) fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        let counts = KINDS.iter().zip(&self.by_kind).map(|(kind, count)| (kind.as_str(), count.load(Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

/// Allows [`LINES`] log lines in each second.
#[derive(Debug, Default)]
struct Lines {
    /// The current second, counted from the clock's origin.
    second: u64,
    said: u32,
    left_out: u64,
}

impl Lines {
    fn allow(&mut self, now: Time) -> Option<u64> {
        let second = now.as_nanos() / 1_000_000_000;
        if second > self.second {
            (self.second, self.said) = (second, 0);
        }
        if self.said >= LINES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests;
