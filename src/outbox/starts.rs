//! Counts the records of exchanges that are being written, and tells whether the store makes progress.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::BoxFuture;
use crate::clock::{Clock, Time};

/// The store counts as stalled when records are being written and none was finished for this long.
const STALL: Duration = Duration::from_millis(500);

pub(crate) struct Starts {
    clock: Clock,
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Default)]
struct State {
    /// Records that are being written.
    writing: u32,
    /// When a record was last finished, or when the first of those being written was begun, whichever is later.
    since: Time,
}

/// Counts a record as being written until this value is dropped.
pub(crate) struct Writing<'a>(&'a Starts);

impl Starts {
    pub(crate) fn new(clock: Clock) -> Starts {
        Starts { clock, state: Mutex::default(), moved: Notify::new() }
    }

    pub(crate) fn begin(&self) -> Writing<'_> {
        let mut state = self.state.lock();
        if state.writing == 0 {
            state.since = self.clock.now();
        }
        state.writing += 1;
        Writing(self)
    }

    fn stalls(&self) -> bool {
        let state = self.state.lock();
        state.writing > 0 && self.clock.now().since(state.since) >= STALL
    }

    /// If the store is stalled, returns a future that completes when it makes progress again.
    pub(crate) fn stall(&self) -> Option<BoxFuture<'_, ()>> {
        self.stalls().then(|| {
            Box::pin(async {
                loop {
                    let moved = self.moved.notified();
                    if !self.stalls() {
                        return;
                    }
                    moved.await;
                }
            }) as BoxFuture<'_, ()>
        })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing -= 1;
        state.since = self.0.clock.now();
        drop(state);
        self.0.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
