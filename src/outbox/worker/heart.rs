//! Handles the result of a heartbeat: when the next one is due, and which processes' jobs are taken over.

use super::full_looks::LOOK;
use super::{Chore, Done, Worker};
use crate::clock::Time;
use crate::error::Error;
use crate::outbox::OutboxState;
use crate::store::owners::{self, Seen, Silent};

/// Takes over the jobs of a silent process, in as many transactions as it takes. Returns how many.
async fn take_over(outbox: &OutboxState, silent: &Silent) -> Result<u64, Error> {
    let mut all = 0;
    loop {
        match outbox.store.write(silent.clone(), owners::take_over).await {
            Ok(jobs) if owners::is_cut(jobs) => all += jobs,
            Ok(jobs) => return Ok(all + jobs),
            // The next heartbeat goes on.
            Err(_) if all > 0 => return Ok(all),
            Err(error) => return Err(error),
        }
    }
}

impl Worker {
    /// Handles a heartbeat that was written, or whose write failed.
    pub(super) fn heartbeat_written(&mut self, asked: Time, result: Result<Option<Vec<Seen>>, Error>) {
        self.over(Chore::Beat, if result.is_ok() { self.leases.every() } else { LOOK });
        let clock = self.outbox.clock;
        match result {
            Ok(Some(seen)) => {
                for silent in self.leases.observe(asked, clock.now(), clock, seen) {
                    let outbox = self.outbox.clone();
                    self.tasks.spawn(async move { Done::TakenOver(take_over(&outbox, &silent).await) });
                }
            }
            Ok(None) => {
                tracing::error!("another process works on the store's file: this one claims nothing more");
                self.outbox.stop.send_replace(true);
            }
            // The store has logged the error.
            Err(_) => {}
        }
    }

    /// Handles a search for processes that have claims and no heartbeat.
    pub(super) fn owners_found(&mut self, asked: Time, result: Result<Vec<Vec<u8>>, Error>) {
        let took = self.outbox.clock.now().since(asked);
        self.over(Chore::FindOwners, self.leases.every().max(took.saturating_mul(10)));
        // The store has logged an error. The earlier result stays: a process that has written a heartbeat since is known by
        // that, and a takeover looks again.
        if let Ok(owners) = result {
            self.leases.found(owners);
        }
    }

    /// Handles the take-over of a silent process's jobs, or its failure.
    pub(super) fn taken_over(&mut self, result: Result<u64, Error>) {
        match result {
            // The store has logged its own errors.
            Ok(0) | Err(_) => {}
            Ok(jobs) => {
                tracing::warn!(jobs, "took over the jobs of a process whose heartbeat stopped");
                self.ask_for_full_look(Time::ZERO);
            }
        }
    }
}
