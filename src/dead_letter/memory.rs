//! A sink that keeps letters in memory.

use std::collections::VecDeque;
use std::future::ready;

use parking_lot::Mutex;

use super::{DeadLetter, DeadLetterSink};
use crate::BoxError;
use crate::BoxFuture;

/// Keeps the newest letters in memory: for tests, and for pages that show recent failures.
///
/// Give the client an `Arc` of the sink, and keep a clone to read the letters.
#[derive(Debug)]
pub struct MemorySink {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first; at most `capacity`.
    letters: VecDeque<DeadLetter>,
    dropped: u64,
}

impl MemorySink {
    /// Keeps at most `capacity` letters; zero counts as 1. A further letter replaces the oldest.
    pub fn new(capacity: usize) -> MemorySink {
        MemorySink { capacity: capacity.max(1), kept: Mutex::default() }
    }

    /// The letters, oldest first.
    pub fn letters(&self) -> Vec<DeadLetter> {
        self.kept.lock().letters.iter().cloned().collect()
    }

    /// The number of letters that were replaced by newer ones.
    pub fn dropped(&self) -> u64 {
        self.kept.lock().dropped
    }
}

impl DeadLetterSink for MemorySink {
    fn write<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        let mut kept = self.kept.lock();
        if kept.letters.len() == self.capacity {
            kept.letters.pop_front();
            kept.dropped += 1;
        }
        kept.letters.push_back(letter.clone());
        Box::pin(ready(Ok(())))
    }
}
