//! Measures the outbox for metrics: how many jobs wait and for how long, how many are held, and how jobs ended.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::OutboxState;
use super::measured::{Measured, SHARE};
use crate::store::jobs::End;
use crate::store::records;
use crate::telemetry::metrics::{self, OutboxFigures};

/// Shortest interval between two counts of the backlog; see [`SHARE`].
const COUNT_EVERY: Duration = Duration::from_secs(10);
impl OutboxState {
    /// Records how many jobs the worker holds, and how many outcomes it has not written that only it knows.
    pub(super) fn has_in_hand(&self, jobs: usize, unwritten: usize) {
        self.measured.in_hand.store(jobs, Relaxed);
        self.measured.unwritten.store(unwritten, Relaxed);
    }

    /// Counts a job whose outcome is on the disk.
    pub(super) fn job_ended(&self, end: &End) {
        let (count, left) = match end {
            End::Delivered { .. } => (&self.measured.delivered, true),
            End::Dead(_) => (&self.measured.dead, true),
            End::Later { .. } | End::Wait { .. } => (&self.measured.later, false),
            End::Back | End::Dropped => return,
        };
        count.fetch_add(1, Relaxed);
        if left {
            self.backlog.fetch_sub(1, Relaxed);
        }
    }

    /// Counts the backlog, if a count is due and metrics are on.
    pub(super) async fn measure_backlog(&self) {
        let now = self.clock.now();
        if !metrics::IS_ON || now < *self.measured.count_at.lock() {
            return;
        }
        let found = self.store.read((), records::backlog).await.ok();
        let took = self.clock.now().since(now);
        *self.measured.count_at.lock() = now + COUNT_EVERY.max(took * SHARE);
        if let Some(found) = found {
            *self.measured.backlog.lock() = Some(found);
        }
    }

    /// Returns all figures.
    pub(super) fn figures(&self) -> OutboxFigures {
        let Measured { delivered, dead, later, in_hand, backlog, .. } = &self.measured;
        let backlog = backlog.lock().unwrap_or_default();
        let (intake, intake_lag) = self.measured.intake.read();
        OutboxFigures {
            waiting: backlog.waiting,
            oldest: backlog.oldest,
            age: backlog.age,
            replies: backlog.replies.count,
            oldest_reply: backlog.replies.oldest.unwrap_or_default(),
            in_hand: in_hand.load(Relaxed) as u64,
            intake,
            intake_lag,
            ended: [delivered, dead, later].map(|count| count.load(Relaxed)),
            letters_dropped: self.store.surplus_letters.load(Relaxed),
            is_writable: self.store.problems.is_writable(),
            failures: self.store.problems.failures(),
            took: self.store.problems.took(),
        }
    }
}
