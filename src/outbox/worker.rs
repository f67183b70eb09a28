//! The task that claims jobs, runs them to their end, and does the store's maintenance.
//!
//! One loop spawns tasks and never waits for the store itself, so that a slow query delays no heartbeat. Claims are
//! made one at a time; outcomes gather while a batch of them is being written. To stop, the worker claims nothing more,
//! releases jobs without a permit, lets jobs with a permit end, and only then deregisters from the store: another
//! process could start a job that was released earlier while it is still in flight here. Outcomes that cannot be
//! written are kept for as long as a shutdown waits for the worker. When nothing waits for it, it discards them after a
//! lease in which no write has succeeded, so that a client that was dropped releases the file of a SQLite store.

mod blocked;
mod chores;
mod claiming;
mod full_looks;
mod heart;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::{Id as TaskId, JoinError, JoinSet};

use self::blocked::BlockedLanes;
use self::full_looks::{FullLooks, LOOK};
use super::OutboxState;
use super::held_claims::HeldClaims;
use super::in_hand::Pool;
use super::lanes::Lanes;
use super::leases::Leases;
use super::recall;
use super::unwritten::{Failure, HeldJob, Unwritten};
use crate::clock::Time;
use crate::core::Core;
use crate::error::Error;
use crate::store::batches;
use crate::store::claims_by_lane::Claims;
use crate::store::jobs::{self, Claimed, End, Found, JobEnd, LaneClaim, Position, Unclaimed};
use crate::store::owners::{self, Seen};
use crate::store::problems::Work;
use crate::store::purge;
use crate::store::{Id, Size, is_down, is_locked};

/// The most bytes of one claim, which are in memory more than once while it is read.
const CLAIM_BYTES: usize = 8 << 20;
/// Ended tasks that one turn of the loop handles, beside the first.
const AT_ONCE: usize = 255;
/// The wait before the next claim after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// When a client that sends its own jobs only claims them again, after limits that allow one of them nothing for long.
const OWN_AGAIN: Duration = Duration::from_secs(5);
/// The wait before claims whose rows another program kept locked are released.
const AFTER_LOCK: Duration = Duration::from_secs(5);

/// The worker's periodic chores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chore {
    Look,
    LookAtAll,
    Beat,
    FindOwners,
    Recover,
    FindExpired,
    Expire,
    Purge,
    Tell,
}

const CHORES: [Chore; 9] = [
    Chore::Look,
    Chore::LookAtAll,
    Chore::Beat,
    Chore::FindOwners,
    Chore::Recover,
    Chore::FindExpired,
    Chore::Expire,
    Chore::Purge,
    Chore::Tell,
];

enum Done {
    /// The task that counts earlier usage has ended.
    Recalled,
    Job(Option<JobEnd>),
    Claimed(Claims),
    Unclaimed(Result<Unclaimed, Error>),
    Flushed(Result<Vec<bool>, Error>),
    Looked(Chore, Time, Result<Found, Error>),
    /// The earliest deadline that has passed, if any.
    ExpiredFound(Time, Result<Option<i64>, Error>),
    Expired(Result<Vec<Claimed>, Error>),
    Beaten(Time, Result<Option<Vec<Seen>>, Error>),
    OwnersFound(Time, Result<Vec<Vec<u8>>, Error>),
    TakenOver(Result<u64, Error>),
    Chore(Chore, Time, Result<u64, Error>),
}

struct Worker {
    core: Weak<Core>,
    /// Alive while the caller holds the client. Jobs hold `inner`, but not this.
    held: Weak<()>,
    outbox: Arc<OutboxState>,
    lanes: Lanes,
    leases: Leases,
    /// Whether the claims that earlier processes left in a SQLite file are still to be released.
    recovers: bool,
    /// The earliest deadline of a waiting job that has passed: the expired jobs are to be claimed.
    passed: Option<i64>,
    pool: Pool,
    tasks: JoinSet<Done>,
    /// Jobs of this process, by the task that runs them.
    running: HashMap<TaskId, HeldJob>,
    in_hand: HeldClaims,
    ends: Unwritten,
    /// Whether the worker claims nothing more, and ends when its jobs have ended.
    is_stopping: bool,
    /// The claim in flight: how many jobs of which lanes, and how many bytes at most.
    claiming: Option<(Vec<LaneClaim>, usize)>,
    /// Whether claims whose result was lost are being released.
    unclaiming: bool,
    /// When the next claim may be made; in the future after a claim that failed.
    claim_at: Time,
    /// When all lanes may be looked at again, after a look that found none with room.
    look_at: Time,
    /// Lanes whose limits allow a claimed job nothing.
    blocked: BlockedLanes,
    /// Whether a look was put off until `look_at`.
    is_look_due: bool,
    /// Set if a claim may have been committed whose result was lost, so that this process does not know its jobs: from
    /// this time on, such claims are released before the next claim.
    unclaim_at: Option<Time>,
    /// The store's time up to which looks have seen due jobs.
    seen: i64,
    chores: [(Time, bool); CHORES.len()],
    full_looks: FullLooks,
}

/// Runs the worker until the client is dropped or stopped.
pub(crate) async fn work(core: Weak<Core>, held: Weak<()>, outbox: Arc<OutboxState>) {
    let mut worker = Worker {
        core,
        held,
        outbox: outbox.clone(),
        lanes: Lanes::new(outbox.tier_weights),
        pool: Pool::new(outbox.most_in_hand),
        leases: Leases::new(outbox.store.limits.lease),
        recovers: outbox.store.is_alone,
        passed: None,
        tasks: JoinSet::new(),
        running: HashMap::new(),
        in_hand: HeldClaims::default(),
        ends: Unwritten::default(),
        is_stopping: false,
        claiming: None,
        unclaiming: false,
        claim_at: Time::ZERO,
        look_at: Time::ZERO,
        blocked: BlockedLanes::default(),
        is_look_due: false,
        unclaim_at: None,
        seen: 0,
        chores: [(Time::ZERO, false); CHORES.len()],
        full_looks: FullLooks::default(),
    };
    worker.begin();
    worker.run().await;
    if outbox.tell_every.is_some() {
        let _ = outbox.store.write((outbox.store.owner, None), batches::tell).await;
    }
    // If this cannot be written, the next process finds out by itself.
    let leave = outbox.store.write(outbox.store.owner, owners::leave);
    let _ = tokio::time::timeout(Duration::from_secs(1), leave).await;
    outbox.store.stop_working();
    outbox.ended.send_replace(true);
}

impl Worker {
    /// Starts to count what earlier processes sent.
    fn begin(&mut self) {
        let run = recall::run(self.core.clone(), self.outbox.clone());
        self.tasks.spawn(async move {
            run.await;
            Done::Recalled
        });
    }

    async fn run(&mut self) {
        let mut stop = self.outbox.stop.subscribe();
        loop {
            let fresh = std::mem::take(&mut *self.outbox.fresh.lock());
            if self.outbox.own.is_some() && !fresh.is_empty() {
                self.set(Chore::Expire, Time::ZERO);
            }
            fresh.into_iter().for_each(|(lane, from)| self.lanes.due(lane, from));
            if self.outbox.has_recalled() {
                self.lanes.look_early();
            }
            self.take_early();
            self.outbox.has_in_hand(self.running.len(), self.ends.telling());
            let now = self.outbox.clock.now();
            let refused = std::mem::take(&mut *self.outbox.refused.lock());
            if self.outbox.own.is_some() && !refused.is_empty() {
                self.set(Chore::Expire, now + OWN_AGAIN);
            }
            for lane in refused {
                // Its jobs are due, and go back into the store. `Flushed` states their positions.
                self.lanes.due(lane.clone(), Position::LAST);
                self.blocked.refused(lane, now);
            }
            let core = self.core.upgrade().filter(|_| self.held.strong_count() > 0);
            let stopping = core.is_none() || *stop.borrow_and_update();
            if stopping {
                // Set the flag only once: each further change would wake this loop again, and it would do nothing
                // else.
                self.outbox.stop.send_if_modified(|stop| !std::mem::replace(stop, true));
                if !std::mem::replace(&mut self.is_stopping, true) {
                    // The store gets a whole lease, even if it failed before.
                    self.ends.count_failures_anew();
                }
                if self.running.is_empty() && self.ends.is_empty() && !self.is_claiming() {
                    return;
                }
            } else if let Some(core) = &core {
                self.claim(core, now);
            }
            drop(core);
            let next = self.begin_chores(now, stopping);
            self.flush(now);
            let look_at = if self.is_look_due { self.look_at } else { Time::ZERO };
            let timers = [self.ends.not_before, self.claim_at, look_at, self.lanes.look_at()];
            let next = timers.into_iter().filter(|at| *at > now).fold(next, Time::min);
            let wake_up = self.outbox.clock.instant(next);
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    self.joined(done);
                    // Handle all tasks that have ended by now, so that the loop's other work is done once for all of
                    // them.
                    for _ in 0..AT_ONCE {
                        let Some(done) = self.tasks.try_join_next_with_id() else { break };
                        self.joined(done);
                    }
                }
                () = self.outbox.wake.notified() => {}
                () = tokio::time::sleep_until(wake_up) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Takes the outcomes of jobs whose tasks may still be running.
    fn take_early(&mut self) {
        let early = std::mem::take(&mut *self.outbox.early.lock());
        for finish in early {
            self.in_hand.has_outcome(finish.id, finish.fence);
            self.ends.add(finish, None);
        }
    }

    fn joined(&mut self, done: Result<(TaskId, Done), JoinError>) {
        // A task that has ended may have handed over its outcome just before.
        self.take_early();
        match done {
            Ok((task, done)) => self.done(task, done),
            Err(error) => self.broke(&error),
        }
    }

    fn flush(&mut self, now: Time) {
        if let Some(finishes) = self.ends.next(now) {
            let outbox = self.outbox.clone();
            let ends = || finishes.iter().map(|finish| &finish.end);
            let size = Size { bytes: ends().map(End::bytes).sum(), statements: ends().map(End::statements).sum() };
            let step = if self.ends.may_be_locked() { jobs::finish_briefly } else { jobs::finish_all };
            self.tasks
                .spawn(async move { Done::Flushed(outbox.store.write_bulk(Work::End, size, finishes, step).await) });
        }
    }

    fn not_flushed(&mut self, why: Failure) {
        let now = self.outbox.clock.now();
        for (lost, hand) in self.ends.failed(now, why) {
            // The job stays claimed for as long as this process works; `unclaim` finds it.
            self.unclaim_at = Some(Time::ZERO);
            self.free(hand);
            self.forget(&lost);
        }
        // A shutdown has a receiver while it waits for the worker.
        let is_awaited = self.outbox.ended.receiver_count() > 0;
        let is_over = !is_awaited && self.ends.failing_for(now) >= self.outbox.store.limits.lease;
        if self.is_stopping && (is_over || (self.running.is_empty() && self.ends.say_nothing())) {
            let jobs = self.ends.give_up();
            if jobs > 0 {
                tracing::error!(jobs, "the client has ended, and could not write the outcomes of jobs to its store");
            }
        }
    }

    fn done(&mut self, task: TaskId, done: Done) {
        match done {
            Done::Recalled => {}
            Done::Job(finish) => {
                let hand = self.running.remove(&task);
                match (finish, hand) {
                    (Some(finish), hand) => self.ends.add(finish, hand),
                    (None, Some(hand)) => {
                        if self.in_hand.ends_with_task(hand.id, hand.fence) {
                            self.lose(hand.id, hand.fence);
                        }
                        self.free(Some(hand));
                    }
                    (None, None) => {}
                }
            }
            Done::Claimed(claims) => self.claimed(claims),
            Done::Unclaimed(result) => {
                self.unclaiming = false;
                self.lanes.search_all_anew();
                let now = self.outbox.clock.now();
                self.unclaim_at = match &result {
                    Ok(Unclaimed::All(_)) => None,
                    // A row that another program keeps locked must not block all further claims.
                    Ok(Unclaimed::Part) => Some(now + AFTER_LOCK),
                    // A claim that is still being committed is released when it can be seen.
                    Ok(Unclaimed::Pending) => Some(Time::ZERO),
                    // A row that cannot be read must not block all further claims.
                    Err(error) => is_down(error).then_some(Time::ZERO),
                };
                if matches!(result, Ok(Unclaimed::Pending) | Err(_)) {
                    self.claim_at = now + AFTER_FAILURE;
                }
            }
            Done::Flushed(Ok(told)) => {
                let (finishes, hands) = self.ends.written(self.outbox.clock.now());
                finishes.iter().zip(&told).filter(|(_, told)| !**told).for_each(|(finish, _)| self.bury_later(finish));
                let is_back = |finish: &&JobEnd| matches!(finish.end, End::Back | End::Dropped);
                let back: HashSet<Id> = finishes.iter().filter(is_back).map(|finish| finish.id).collect();
                for hand in hands {
                    if back.contains(&hand.id) {
                        self.lanes.searched(&hand.lane, hand.position);
                    }
                    self.free(Some(hand));
                }
                for (finish, was_ours) in finishes.iter().zip(told) {
                    match (was_ours, &finish.end) {
                        (true, end) => {
                            self.forget(finish);
                            self.outbox.job_ended(end);
                            if matches!(end, End::Delivered { .. } | End::Dead(_)) {
                                self.outbox.forget_own(&finish.id);
                            }
                        }
                        (false, End::Back) => self.forget(finish),
                        (false, _) => {
                            self.lose(finish.id, finish.fence);
                            let id = finish.id.simple();
                            tracing::warn!(%id, "a job ended here after another process had taken it over");
                        }
                    }
                }
            }
            Done::Flushed(Err(error)) => {
                let why = match is_down(&error) {
                    true if is_locked(&error) => Failure::Locked,
                    true => Failure::Down,
                    false => Failure::Own,
                };
                self.not_flushed(why);
            }
            Done::Looked(chore, began, result) => self.looked(chore, began, result),
            Done::ExpiredFound(began, result) => {
                let took = self.outbox.clock.now().since(began);
                self.over(Chore::FindExpired, Duration::from_secs(1).max(took.saturating_mul(10)));
                // The store has logged an error.
                self.passed = result.unwrap_or(None);
            }
            Done::Expired(result) => {
                self.passed = None;
                self.over(Chore::Expire, LOOK);
                match result {
                    Ok(jobs) => self.start(jobs),
                    Err(_) => self.unclaim_at = Some(Time::ZERO),
                }
            }
            Done::Beaten(asked, result) => self.heartbeat_written(asked, result),
            Done::OwnersFound(asked, result) => self.owners_found(asked, result),
            Done::TakenOver(result) => self.taken_over(result),
            Done::Chore(chore, began, result) => {
                let every = match chore {
                    Chore::Recover => LOOK,
                    Chore::Tell => self.outbox.tell_every.unwrap_or(Duration::from_secs(60)),
                    _ => purge::again_after(self.outbox.clock.now().since(began)),
                };
                self.over(chore, every);
                match (chore, result) {
                    (Chore::Recover, Ok(jobs)) => {
                        self.recovers = false;
                        if jobs > 0 {
                            tracing::info!(jobs, "took over the jobs of a process that has ended");
                            self.ask_for_full_look(Time::ZERO);
                        }
                    }
                    (Chore::Purge, Ok(letters)) if letters > 0 => {
                        tracing::warn!(letters, "deleted old dead letters, as `keep_dead` and `max_dead` say");
                    }
                    // The store has logged its own errors.
                    _ => {}
                }
            }
        }
    }

    /// A task panicked, or was cancelled with the runtime: its job is treated as if this process had ended.
    fn broke(&mut self, error: &JoinError) {
        match self.running.remove(&error.id()) {
            Some(hand) => {
                let (id, fence) = (hand.id, hand.fence);
                if error.is_panic() {
                    let id = id.simple();
                    tracing::error!(%id, "the task of a job panicked; this is a bug in the library or in a handler");
                }
                self.ends.add(JobEnd { id, fence, known: None, end: End::Dropped }, Some(hand));
            }
            // The task made a claim or wrote outcomes; these run only the library's own code.
            None => {
                self.unclaiming = false;
                self.not_claimed();
                self.not_flushed(Failure::Down);
            }
        }
    }

    fn set(&mut self, chore: Chore, at: Time) {
        self.chores[chore as usize].0 = at;
    }

    fn over(&mut self, chore: Chore, every: Duration) {
        self.chores[chore as usize] = (self.outbox.clock.now() + every, false);
    }
}
