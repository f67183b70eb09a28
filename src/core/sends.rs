//! The sends under way: a shutdown admits no further ones, waits for these, and ends those that only wait.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::sync::watch;

use crate::engine::Refusal;

/// Counts the sends of a client from their first poll to their end.
pub(crate) struct Sends {
    count: AtomicUsize,
    is_closed: AtomicBool,
    /// Becomes `true` when the sends that wait have to end.
    ended: watch::Sender<bool>,
}

impl Sends {
    pub(crate) fn new() -> Sends {
        Sends { count: AtomicUsize::new(0), is_closed: AtomicBool::new(false), ended: watch::Sender::new(false) }
    }

    /// Begins a send, which is counted until the returned value is dropped. `None` after [`close`](Self::close).
    pub(crate) fn begin(&self) -> Option<UnderWay<'_>> {
        self.count.fetch_add(1, SeqCst);
        let under_way = UnderWay(self);
        // After the count: a shutdown that finds no send has closed before, so that this one sees it.
        (!self.is_closed.load(SeqCst)).then_some(under_way)
    }

    /// From now on no send begins.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, SeqCst);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// Ends the waits of all sends.
    pub(crate) fn end(&self) {
        self.close();
        self.ended.send_replace(true);
    }

    /// Waits as `wait` does, and no longer than until [`end`](Self::end).
    pub(crate) async fn wait<T>(&self, wait: impl Future<Output = T>) -> Result<T, Refusal> {
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            done = wait => Ok(done),
            _ = ended.wait_for(|ended| *ended) => Err(Refusal::Shutdown),
        }
    }
}

/// A send that has begun.
pub(crate) struct UnderWay<'a>(&'a Sends);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, SeqCst);
    }
}
