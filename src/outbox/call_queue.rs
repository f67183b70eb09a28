//! The queue of handler calls, and the threads that run them.
//!
//! A handler may block, so it is called on the runtime's threads for blocking work. Passing a call to a thread and
//! learning of its end costs two wake-ups, which is more than most handlers take. So calls that are ready at the same
//! time are queued, and one thread runs them one after another. A call that is not started for [`PATIENCE`] is behind
//! one that blocks: then another thread starts, up to [`THREADS`]. A thread ends when the queue is empty.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::panic::catch_panic;

/// The most threads. tokio has 512 threads for blocking work by default, which file access and name resolution need
/// too.
pub(super) const THREADS: usize = 64;
/// How long a call waits for a running thread before another one is started.
pub(super) const PATIENCE: Duration = Duration::from_millis(2);

/// A closure that polls a call once.
type Turn = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<Turn>,
    threads: usize,
}

#[derive(Default)]
pub(super) struct CallQueue(Mutex<State>);

impl CallQueue {
    pub(super) fn push(&self, turn: Turn) {
        self.0.lock().waiting.push_back(turn);
    }

    /// Starts a thread unless `most` are running or no call waits. Returns whether [`THREADS`] are running, which will
    /// take every waiting call.
    pub(super) fn begin(self: &Arc<CallQueue>, most: usize) -> bool {
        {
            let mut state = self.0.lock();
            if state.threads >= most.min(THREADS) || state.waiting.is_empty() {
                return state.threads >= THREADS;
            }
            state.threads += 1;
        }
        let queue = self.clone();
        tokio::task::spawn_blocking(move || queue.work());
        false
    }

    fn work(&self) {
        while let Some(turn) = self.next() {
            catch_panic(turn);
        }
    }

    fn next(&self) -> Option<Turn> {
        let mut state = self.0.lock();
        let next = state.waiting.pop_front();
        // Under the same lock, so that no call is queued for a thread that is about to end.
        state.threads -= usize::from(next.is_none());
        next
    }
}

#[cfg(test)]
mod tests;
