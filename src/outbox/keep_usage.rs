//! The task that writes the lanes' usage and pauses, counts the backlog and, if no worker does so, counts what earlier
//! processes sent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::OutboxState;
use super::recall;
use crate::core::Core;
use crate::error::Delivery;
use crate::store::{is_down, may_pass, pauses, usage};

/// How often usage and pauses are written.
const EVERY: Duration = Duration::from_secs(1);
/// Lanes and endpoints in one write to the store.
const TOGETHER: usize = 256;

impl OutboxState {
    /// Writes the units that lanes have taken since the last call.
    pub(crate) async fn write_usage(&self) {
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
    }

    /// Writes the pauses that have begun, changed or ended since the last call.
    pub(crate) async fn write_pauses(&self) {
        let lanes = self.pauses.take();
        let mut left = &lanes[..];
        while !left.is_empty() {
            let (some, later) = left.split_at(left.len().min(TOGETHER));
            let now = self.clock.now();
            let changes = self.pauses.compare(some, now);
            if !changes.is_empty() {
                match self.store.write(changes.rows(now), pauses::keep).await {
                    Ok(()) => self.pauses.are_written(changes),
                    Err(error) if may_pass(&error) => {
                        self.pauses.take_back(left);
                        return;
                    }
                    // The store has logged it, and the pauses are in force in this process.
                    Err(_) => {}
                }
            }
            left = later;
        }
    }
}

/// Writes the lanes' usage and pauses until the client is dropped and, if no worker does so, counts what earlier processes sent.
pub(crate) async fn keep_usage(core: Weak<Core>, outbox: Arc<OutboxState>) {
    let recalled = async {
        if !outbox.works {
            recall::run(core.clone(), outbox.clone()).await;
        }
    };
    let written = async {
        let mut stop = outbox.stop.subscribe();
        loop {
            // If a worker runs, jobs may end until it does.
            let is_over =
                |outbox: &OutboxState| core.strong_count() == 0 || (*outbox.stop.borrow() && *outbox.ended.borrow());
            if !is_over(&outbox) {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    _ = stop.changed() => {}
                }
            }
            tokio::join!(outbox.write_usage(), outbox.write_pauses());
            outbox.measure_backlog().await;
            if is_over(&outbox) {
                // The recall task ends only when it is told to stop.
                outbox.stop.send_if_modified(|stop| !std::mem::replace(stop, true));
                return;
            }
        }
    };
    tokio::join!(recalled, written);
}
