//! The queue of outcomes of jobs that are not written yet. Pure.
//!
//! While the store does not respond, outcomes are kept. An outcome whose write fails for its own reason waits by
//! itself, and takes turns with the others. After [`REPEATS`] repetitions that failed too, `End::Dropped` is written in
//! its place. An outcome that says how an exchange ended is replaced only if another one of its kind has been written since
//! it first failed: only such a write shows that the row is the cause and not the store, and only this process knows the
//! outcome. If another program keeps the row of a job locked, the outcome of that job waits by itself too. If the store
//! fails at a transaction, the next one has half as many outcomes, because the network may be too slow for the first. After
//! a success the next one has twice as many.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use super::bound::Bound;
use super::in_hand::Amount;
use crate::clock::Time;
use crate::store::jobs::{End, JobEnd, Position};
use crate::store::{Id, LaneTier, STATEMENTS};

/// How often a write is repeated after its first failure, if it fails for its own reason and not because the store
/// fails.
const REPEATS: u32 = 4;
/// The wait before the next try.
const WAIT: Duration = Duration::from_secs(1);
/// The wait before the next try of an outcome whose job another program keeps locked. Each try delays all other writes
/// for a moment.
const LOCKED: Duration = Duration::from_secs(5);

/// The most bytes of one transaction, which must end in time, unless a single outcome has more: after an outage of the
/// store the responses of thousands of jobs may wait.
const BYTES_TOGETHER: usize = 8 << 20;
/// The most outcomes of one transaction.
const TOGETHER: usize = 512;

/// A job that this process holds, and the amount that it takes of the pool.
pub(super) struct HeldJob {
    pub(super) id: Id,
    pub(super) fence: i64,
    pub(super) lane: LaneTier,
    pub(super) position: Position,
    pub(super) amount: Amount,
}

/// An outcome's failures, and its job. The process holds the job until the outcome is written, unless the job's task is
/// still running.
struct About {
    /// How often the write failed for the outcome's own reason.
    failed: u32,
    /// Whether another outcome of its kind has been written since the first of these failures.
    others_written: bool,
    hand: Option<HeldJob>,
}

impl About {
    fn new(hand: Option<HeldJob>) -> About {
        About { failed: 0, others_written: false, hand }
    }
}

/// Why outcomes could not be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The store itself fails.
    Down,
    /// Another program keeps a row or a table locked.
    Locked,
    /// One of the outcomes cannot be written.
    Own,
}

#[derive(Default)]
pub(super) struct Unwritten {
    waiting: Vec<(JobEnd, About)>,
    /// Outcomes of which one or more met a lock or failed, and when each may be written. They are written one by one.
    apart: Vec<(Time, JobEnd, About)>,
    /// Whether the latest outcome to be written was one of those.
    is_apart: bool,
    writing: Option<(Arc<Vec<JobEnd>>, Vec<About>)>,
    /// How many of the outcomes say how an exchange ended.
    telling: usize,
    /// How many of the outcomes that wait are written together.
    bound: Bound,
    /// When the first write failed since the last one that succeeded.
    failing_since: Option<Time>,
    /// When the next outcomes may be written; in the future after a write that failed.
    pub(super) not_before: Time,
}

impl Unwritten {
    pub(super) fn add(&mut self, finish: JobEnd, hand: Option<HeldJob>) {
        self.telling += usize::from(!says_nothing(&finish.end));
        self.waiting.push((finish, About::new(hand)));
    }

    /// How many outcomes are not written that say how an exchange ended: only this process knows them.
    pub(super) fn telling(&self) -> usize {
        self.telling
    }

    /// Whether no outcome waits or is being written.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.apart.is_empty() && self.writing.is_none()
    }

    /// Whether none of the outcomes says more than that this process has ended.
    pub(super) fn say_nothing(&self) -> bool {
        !self.is_writing() && self.not_writing().all(|finish| says_nothing(&finish.end))
    }

    fn not_writing(&self) -> impl Iterator<Item = &JobEnd> {
        let apart = self.apart.iter().map(|(_, finish, _)| finish);
        self.waiting.iter().map(|(finish, _)| finish).chain(apart)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The jobs whose outcomes wait to be written.
    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.not_writing().map(|finish| finish.id)
    }

    /// Whether the outcome that is being written is written by itself, because it met a lock or failed: another program
    /// may keep its job locked.
    pub(super) fn may_be_locked(&self) -> bool {
        self.is_apart
    }

    /// The outcomes to be written now: all that have gathered during the write before, or the first of them if they
    /// have many bytes or take many statements. An outcome that has failed or met a lock is written alone, so that it
    /// cannot make the others fail. Such outcomes take turns with the others.
    pub(super) fn next(&mut self, now: Time) -> Option<Arc<Vec<JobEnd>>> {
        if self.is_writing() || now < self.not_before {
            return None;
        }
        let apart = self.apart.iter().position(|(from, ..)| *from <= now);
        self.is_apart = apart.is_some() && (!self.is_apart || self.waiting.is_empty());
        let ends = match apart.filter(|_| self.is_apart) {
            Some(place) => {
                let (_, finish, about) = self.apart.remove(place);
                vec![(finish, about)]
            }
            None if self.waiting.is_empty() => return None,
            None => {
                let (mut bytes, mut statements) = (0usize, 0usize);
                let fits = |(finish, _): &&(JobEnd, About)| {
                    bytes = bytes.saturating_add(finish.end.bytes());
                    statements = statements.saturating_add(finish.end.statements());
                    bytes <= BYTES_TOGETHER && statements <= STATEMENTS
                };
                let most = TOGETHER.min(self.bound.most());
                let count = self.waiting.iter().take(most).take_while(fits).count().max(1);
                let rest = self.waiting.split_off(count);
                std::mem::replace(&mut self.waiting, rest)
            }
        };
        let (finishes, about): (Vec<_>, _) = ends.into_iter().unzip();
        let finishes = Arc::new(finishes);
        self.writing = Some((finishes.clone(), about));
        Some(finishes)
    }

    /// The outcomes are written. Returns them, and the jobs that this process no longer holds.
    pub(super) fn written(&mut self, now: Time) -> (Arc<Vec<JobEnd>>, Vec<HeldJob>) {
        self.failing_since = None;
        let Some((finishes, about)) = self.writing.take() else { return Default::default() };
        let told = finishes.iter().filter(|finish| !says_nothing(&finish.end)).count();
        self.telling = self.telling.saturating_sub(told);
        self.bound.written(finishes.len(), now);
        for (_, kept, about) in self.apart.iter_mut().filter(|(.., about)| about.failed > 0) {
            let is_kind = |finish: &JobEnd| discriminant(&finish.end) == discriminant(&kept.end);
            about.others_written = about.others_written || finishes.iter().any(is_kind);
        }
        (finishes, about.into_iter().filter_map(|about| about.hand).collect())
    }

    /// The outcomes could not be written. While the store itself fails or rows are locked they are kept, because
    /// nothing else knows them. An outcome that fails for its own reason is replaced after a few tries by one that says
    /// that nothing is known of the job, as if this process had ended; see the head of this file for the exception.
    /// Returns the outcomes for which even that could not be written, with their jobs.
    pub(super) fn failed(&mut self, now: Time, why: Failure) -> Vec<(JobEnd, Option<HeldJob>)> {
        // One outcome that fails for its own reason does not delay the others; a second failure in a row may be the
        // store's.
        let is_second = self.failing_since.is_some();
        if why == Failure::Down || (why == Failure::Own && is_second) {
            self.not_before = now + WAIT;
        }
        let Some((finishes, about)) = self.writing.take() else { return Vec::new() };
        if why == Failure::Down {
            self.bound.failed(finishes.len(), now);
        }
        self.failing_since.get_or_insert(now);
        let wait = if why == Failure::Locked { LOCKED } else { WAIT };
        // Of several, most can be written.
        let from = if finishes.len() > 1 { now } else { now + wait };
        let mut lost = Vec::new();
        for (finish, about) in Arc::unwrap_or_clone(finishes).into_iter().zip(about) {
            match why {
                Failure::Down if about.failed > 0 => self.apart.push((now, finish, about)),
                Failure::Down => self.waiting.push((finish, about)),
                Failure::Locked => self.apart.push((from, finish, about)),
                Failure::Own if about.failed < REPEATS || !(about.others_written || says_nothing(&finish.end)) => {
                    self.apart.push((from, finish, About { failed: about.failed.saturating_add(1), ..about }));
                }
                Failure::Own if matches!(finish.end, End::Dropped) => lost.push((finish, about.hand)),
                Failure::Own => {
                    self.telling = self.telling.saturating_sub(usize::from(!says_nothing(&finish.end)));
                    let finish = JobEnd { known: None, end: End::Dropped, ..finish };
                    self.apart.push((from, finish, About { failed: 1, ..about }));
                }
            }
        }
        lost
    }

    /// How long no write has succeeded; zero if the last one did.
    pub(super) fn failing_for(&self, now: Time) -> Duration {
        self.failing_since.map_or(Duration::ZERO, |since| now.since(since))
    }

    /// Forgets the failures so far: [`failing_for`](Self::failing_for) counts from the next one.
    pub(super) fn count_failures_anew(&mut self) {
        self.failing_since = None;
    }

    /// Discards all outcomes when the process stops: other processes take the jobs over. Returns how many.
    pub(super) fn give_up(&mut self) -> usize {
        let Unwritten { waiting, apart, writing, .. } = std::mem::take(self);
        waiting.len() + apart.len() + writing.map_or(0, |(finishes, _)| finishes.len())
    }
}

/// Whether an outcome says no more than that this process has ended.
fn says_nothing(end: &End) -> bool {
    matches!(end, End::Back | End::Wait { .. } | End::Dropped)
}

#[cfg(test)]
mod tests;
