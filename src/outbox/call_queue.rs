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
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn blocked_call_holds_up_no_quick_one() {
        let queue = Arc::new(CallQueue::default());
        let (told, heard) = mpsc::channel();
        let (go_on, blocked) = mpsc::channel::<()>();
        let tell = |number: usize| {
            let told = told.clone();
            Box::new(move || told.send((number, std::thread::current().id())).unwrap_or_default())
        };
        let wait = told.clone();
        queue.push(Box::new(move || {
            wait.send((0, std::thread::current().id())).unwrap_or_default();
            blocked.recv().unwrap_or_default();
        }));
        assert!(!queue.begin(1), "there may be more threads");
        let (_, first) = heard.recv().unwrap();
        queue.push(tell(1));
        queue.push(tell(2));
        assert!(!queue.begin(1), "the thread that is blocked counts as one");
        assert!(heard.try_recv().is_err());
        queue.begin(2);
        let others = [heard.recv().unwrap(), heard.recv().unwrap()];
        assert_eq!(others.map(|(number, _)| number), [1, 2]);
        assert!(others[0].1 == others[1].1 && others[0].1 != first, "both on a thread that is not blocked");
        go_on.send(()).unwrap();
        while queue.0.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
    }
}
