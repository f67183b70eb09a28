//! The task that writes the lanes' usage and pauses, counts the backlog and, if no worker does so, counts what earlier
//! processes sent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::OutboxState;
use super::pauses::{Looked, compare, take_lanes};
use super::recall;
use crate::core::Core;
use crate::error::Delivery;
use crate::store::{is_down, pauses, usage};

/// How often usage and pauses are written.
const EVERY: Duration = Duration::from_secs(1);
/// Lanes and endpoints in one write to the store.
const TOGETHER: usize = 256;
/// If the writes of this many lanes fail one after the other, the store is at fault and not the lanes, whatever the error
/// says.
const MOST_FAILED: u32 = 4;

impl OutboxState {
    /// Writes the units that lanes have taken since the last call.
    pub(crate) async fn write_usage(&self) {
        let _alone = self.writes_usage.lock().await;
        let taken = self.usage.take(self.clock.now());
        let mut left = &taken[..];
        while !left.is_empty() {
            let (some, later) = left.split_at(left.len().min(TOGETHER));
            let now = self.clock.now();
            let rows: Vec<usage::Taken> = some.iter().map(|one| one.row(now)).collect();
            // A write that may have been committed is not retried: usage counted twice would end a quota too early.
            if let Err(error) = self.store.write_once((self.store.owner, rows), usage::add).await
                && error.delivery() == Delivery::NotSent
                && is_down(&error)
            {
                // Each further write would wait for the store as long as this one did.
                self.usage.take_back(left);
                return;
            }
            left = later;
        }
        self.usage.all_is_written();
    }

    /// Compares the pauses in force with those in the store, and writes the differences: of the lanes of which a notice
    /// came and, each time that it is due or with `all`, of all others of which something is written or is to be written.
    pub(crate) async fn write_pauses(&self, core: &Weak<Core>, all: bool) {
        let _alone = self.writes_pauses.lock().await;
        let lanes = take_lanes(&self.pauses, &self.told, self.clock.now(), all);
        let mut left: Vec<Vec<Looked>> = lanes.chunks(TOGETHER).map(<[Looked]>::to_vec).collect();
        let mut failed = 0;
        while let Some(mut some) = left.pop() {
            let now = self.clock.now();
            let changes = compare(&self.pauses, core.upgrade().as_deref(), &some, now);
            if changes.is_empty() {
                tokio::task::yield_now().await;
                continue;
            }
            // A row that has been written already may be written again.
            let rows = (self.clock, changes.begun.clone(), changes.shortened.clone());
            match self.store.write(rows, pauses::keep).await {
                Ok(()) => {
                    failed = 0;
                    self.pauses.lock().are_written(changes, now);
                }
                Err(error) if is_down(&error) || failed >= MOST_FAILED => {
                    // Each further write would wait for the store as long as this one did, or fail as the last ones.
                    self.pauses.lock().put_off(some.into_iter().chain(left.into_iter().flatten()));
                    return;
                }
                // The database may refuse the names of one lane alone.
                Err(_) if some.len() > 1 => {
                    let half = some.split_off(some.len() / 2);
                    left.extend([half, some]);
                }
                // The store has logged it.
                Err(_) => {
                    failed += 1;
                    self.pauses.lock().put_off(some);
                }
            }
        }
    }
}

/// Waits until usage and pauses are to be written again. Returns whether it is the last time.
async fn wait(core: &Weak<Core>, outbox: &OutboxState) -> bool {
    let mut stop = outbox.stop.subscribe();
    // If a worker runs, jobs may end until it does.
    let is_last = core.strong_count() == 0 || (*outbox.stop.borrow() && *outbox.ended.borrow());
    if !is_last {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.changed() => {}
        }
    }
    is_last
}

/// Writes the lanes' usage and pauses until the client is dropped and, if no worker does so, counts what earlier processes sent.
pub(crate) async fn keep_usage(core: Weak<Core>, outbox: Arc<OutboxState>) {
    let recalled = async {
        if !outbox.works {
            recall::run(core.clone(), outbox.clone()).await;
        }
    };
    // Pauses of many lanes may take long, and usage does not wait for them.
    let usage = async {
        loop {
            let is_last = wait(&core, &outbox).await;
            outbox.write_usage().await;
            outbox.measure_backlog().await;
            if is_last {
                return;
            }
        }
    };
    let pauses = async {
        loop {
            let is_last = wait(&core, &outbox).await;
            outbox.write_pauses(&core, is_last).await;
            if is_last {
                return;
            }
        }
    };
    let written = async {
        tokio::join!(usage, pauses);
        // The recall task ends only when it is told to stop.
        outbox.stop.send_if_modified(|stop| !std::mem::replace(stop, true));
    };
    tokio::join!(recalled, written);
}
