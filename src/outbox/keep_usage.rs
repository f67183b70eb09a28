//! The task that writes what lanes take, counts what waits, and, where no worker does so, counts what earlier processes sent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::OutboxState;
use super::recall;
use crate::core::Core;
use crate::store::usage;

/// How often it is written.
const EVERY: Duration = Duration::from_secs(1);
/// Lanes and endpoints in one piece of work for the store.
const TOGETHER: usize = 256;

impl OutboxState {
    /// Writes what lanes have taken since the last time.
    pub(crate) async fn write_usage(&self) {
        for some in self.usage.take().chunks(TOGETHER) {
            // Not tried again where it may have been written: twice counted is a quota that ends too early.
            let _ = self.store.write_once((self.store.owner, some.to_vec()), usage::add).await;
        }
    }
}

/// Writes what lanes take, until the client goes; and where no worker does so, counts what earlier processes sent.
pub(crate) async fn keep_usage(core: Weak<Core>, outbox: Arc<OutboxState>) {
    let recalled = async {
        if !outbox.works {
            recall::run(core.clone(), outbox.clone()).await;
        }
    };
    let written = async {
        let mut stop = outbox.stop.subscribe();
        loop {
            // Where a worker runs, jobs may end until it does.
            let is_over =
                |outbox: &OutboxState| core.strong_count() == 0 || (*outbox.stop.borrow() && *outbox.ended.borrow());
            if !is_over(&outbox) {
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    _ = stop.changed() => {}
                }
            }
            outbox.write_usage().await;
            outbox.measure_backlog().await;
            if is_over(&outbox) {
                // The other half has no end of its own.
                outbox.stop.send_if_modified(|stop| !std::mem::replace(stop, true));
                return;
            }
        }
    };
    tokio::join!(recalled, written);
}
