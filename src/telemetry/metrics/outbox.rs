//! The metrics of an outbox and its store, and of limits that several processes share.

use std::time::Duration;

use parking_lot::Mutex;

use super::handle::{Count, Depth, Figure};
use super::table::{
    BACKLOG, BACKLOG_AGE, IN_HAND, INTAKE_LAG, INTAKE_REFUSED, INTAKE_TAKEN, JOBS, LETTERS_DROPPED, OLDEST_JOB,
    REPLIES, REPLY_AGE, SHARED_LIMITS, SHARING_DOWN, SHARING_FAILURES, SHARING_LEFT, SHARING_LOST, SHARING_MODE, STORE,
    STORE_TIME, WRITABLE,
};
use super::words::TIERS;

/// The number of kinds of work of a store.
pub(crate) const KINDS_OF_WORK: usize = 6;

/// The figures of an outbox that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutboxFigures {
    /// The number of jobs that wait in the store, by tier, at the latest count.
    pub(crate) waiting: [u64; 3],
    /// How long the job that waits longest has been due.
    pub(crate) oldest: Duration,
    /// How long ago the oldest job was accepted that has not ended.
    pub(crate) age: Duration,
    /// The number of replies that wait in the store, and the age of the oldest, at the latest count.
    pub(crate) replies: u64,
    pub(crate) oldest_reply: Duration,
    /// The number of jobs that this process has claimed and not ended.
    pub(crate) in_hand: u64,
    /// The numbers of jobs that this process delivered, gave up, and put back for later.
    pub(crate) ended: [u64; 3],
    /// The number of dead letters that this process deleted because there were too many.
    pub(crate) letters_dropped: u64,
    /// The numbers of messages that were accepted and that were refused.
    pub(crate) intake: [u64; 2],
    /// The age of the oldest message that was fetched since this figure was last read.
    pub(crate) intake_lag: Duration,
    pub(crate) is_writable: bool,
    /// The number of failures of the store, by kind of work.
    pub(crate) failures: [(&'static str, u64); KINDS_OF_WORK],
    /// The number of calls of the store that succeeded and the nanoseconds that they took together, by kind of work.
    pub(crate) took: [(u64, u64); KINDS_OF_WORK],
}

/// The figures of shared limits that the metrics report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SharingFigures {
    pub(crate) limits: u64,
    /// Whether the store of shared units does not answer, or has lost what it knew.
    pub(crate) is_down: bool,
    /// The number of the mode, as the metric `integration_client_sharing_mode` reports it.
    pub(crate) mode: u8,
    /// How long the process may send without another answer of the store.
    pub(crate) left: Duration,
    pub(crate) failed: u64,
    pub(crate) leases_lost: u64,
}

#[derive(Default)]
pub(super) struct OutboxSeries {
    waiting: [Figure; 3],
    oldest: Figure,
    age: Figure,
    replies: Figure,
    oldest_reply: Figure,
    in_hand: Depth,
    ended: [Count; 3],
    letters_dropped: Count,
    intake: [Count; 2],
    intake_lag: Figure,
    writable: Figure,
    failures: [Count; KINDS_OF_WORK],
    took: [Figure; KINDS_OF_WORK],
    took_before: Mutex<[(u64, u64); KINDS_OF_WORK]>,
}

impl OutboxSeries {
    pub(super) fn tell(&self, figures: &OutboxFigures, last: bool) {
        for ((series, count), tier) in self.waiting.iter().zip(figures.waiting).zip(TIERS) {
            series.tell(count as f64, &BACKLOG, &[("priority", tier.into())]);
        }
        self.oldest.tell(figures.oldest.as_secs_f64(), &BACKLOG_AGE, &[]);
        self.age.tell(figures.age.as_secs_f64(), &OLDEST_JOB, &[]);
        self.replies.tell(figures.replies as f64, &REPLIES, &[]);
        self.oldest_reply.tell(figures.oldest_reply.as_secs_f64(), &REPLY_AGE, &[]);
        self.in_hand.tell(if last { 0 } else { figures.in_hand as i64 }, &IN_HAND, &[], &[]);
        for ((series, total), outcome) in self.ended.iter().zip(figures.ended).zip(["delivered", "dead", "later"]) {
            series.set(total);
            series.tell(&JOBS, &[], &[("outcome", outcome)]);
        }
        self.letters_dropped.set(figures.letters_dropped);
        self.letters_dropped.tell(&LETTERS_DROPPED, &[], &[]);
        for ((series, total), metric) in self.intake.iter().zip(figures.intake).zip([&INTAKE_TAKEN, &INTAKE_REFUSED]) {
            series.set(total);
            series.tell(metric, &[], &[]);
        }
        self.intake_lag.tell(figures.intake_lag.as_secs_f64(), &INTAKE_LAG, &[]);
        self.writable.tell(f64::from(u8::from(figures.is_writable)), &WRITABLE, &[]);
        for (series, (work, failures)) in self.failures.iter().zip(figures.failures) {
            series.set(failures);
            series.tell(&STORE, &[], &[("work", work)]);
        }
        let mut before = self.took_before.lock();
        for (number, (series, (calls, ns))) in self.took.iter().zip(figures.took).enumerate() {
            let (calls_before, ns_before) = std::mem::replace(&mut before[number], (calls, ns));
            let (work, _) = figures.failures[number];
            if let Some(mean_ns) = ns.saturating_sub(ns_before).checked_div(calls.saturating_sub(calls_before)) {
                series.tell(mean_ns as f64 / 1e9, &STORE_TIME, &[("work", work.into())]);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct SharingSeries {
    limits: Figure,
    down: Figure,
    mode: Figure,
    left: Figure,
    failures: Count,
    lost: Count,
}

impl SharingSeries {
    pub(super) fn tell(&self, figures: &SharingFigures) {
        self.limits.tell(figures.limits as f64, &SHARED_LIMITS, &[]);
        self.down.tell(f64::from(u8::from(figures.is_down)), &SHARING_DOWN, &[]);
        self.mode.tell(f64::from(figures.mode), &SHARING_MODE, &[]);
        self.left.tell(figures.left.as_secs_f64(), &SHARING_LEFT, &[]);
        self.failures.set(figures.failed);
        self.failures.tell(&SHARING_FAILURES, &[], &[]);
        self.lost.set(figures.leases_lost);
        self.lost.tell(&SHARING_LOST, &[], &[]);
    }
}
