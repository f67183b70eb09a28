//! What follows from a sign of life: when the next is given, and whose jobs are taken over.

use super::{Chore, Done, LOOK, Worker};
use crate::clock::Time;
use crate::error::Error;
use crate::store::owners::{self, Seen};

impl Worker {
    /// The heart has beaten, or it failed to.
    pub(super) fn beaten(&mut self, asked: Time, result: Result<Option<Vec<Seen>>, Error>) {
        self.over(Chore::Beat, if result.is_ok() { self.leases.every() } else { LOOK });
        let clock = self.outbox.clock;
        match result {
            Ok(Some(seen)) => {
                for silent in self.leases.observe(asked, clock.now(), clock, seen) {
                    let outbox = self.outbox.clone();
                    self.tasks
                        .spawn(async move { Done::TakenOver(outbox.store.write(silent, owners::take_over).await) });
                }
            }
            Ok(None) => {
                tracing::error!("another process works on the store's file: this one claims nothing more");
                self.outbox.stop.send_replace(true);
            }
            // The store has logged it.
            Err(_) => {}
        }
    }

    /// Jobs of a silent process were made ready, or that failed.
    pub(super) fn taken_over(&mut self, result: Result<u64, Error>) {
        match result {
            // What the store fails with it has logged.
            Ok(0) | Err(_) => {}
            Ok(jobs) => {
                tracing::warn!(jobs, "jobs of a process that gives no sign of life are taken up");
                self.set(Chore::LookAtAll, Time::ZERO);
            }
        }
    }
}
