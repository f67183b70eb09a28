//! The task that claims jobs, sees them through, and keeps the store in order.
//!
//! One loop and its tasks: it never waits for the store itself, so that a slow query delays no lease. Claims are made one at a
//! time; ends are written in batches, the next while the one before is under way. What is done when it stops: nothing more is
//! claimed, what has no permit is released, what has one goes to its end, and only then is the last word written: a job
//! released earlier could be begun by another process while it is under way here.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::{Id as TaskId, JoinError, JoinSet};

use super::Outbox;
use super::job::{self, Waits};
use super::lanes::Lanes;
use super::{queues, recall};
use crate::client::Inner;
use crate::clock::Time;
use crate::dispatch::plan::pace;
use crate::error::Error;
use crate::store::batches;
use crate::store::jobs::{self, Claimed, End, Finish, Wanted};
use crate::store::records::{self, Retention};
use crate::store::{Id, LaneTier, is_down, millis_of};

/// Work that is claimed of one lane and tier and has no permit yet.
const WORK: Duration = Duration::from_millis(250);
/// Jobs of that, where no limit says how many it is.
const UNLIMITED: u32 = 64;
/// Jobs of that, however fast the lane is.
const MOST: u32 = 256;
/// Jobs of a lane that nobody has configured for long, in one claim.
const GIVEN_UP: u32 = 16;
/// Lanes and tiers in one claim.
const LANES: usize = 256;
/// A look at what has become due.
const LOOK: Duration = Duration::from_millis(250);
/// How far a look goes back behind the last: rows that were committed late.
const OVERLAP_MS: i64 = 2_000;
/// A lane that no configuration knows is given up after this. Another process may know it, or a reload may bring it.
const UNKNOWN: Duration = Duration::from_secs(600);

/// How often an end is tried to be written that is itself what cannot be written.
const FLUSHES: u32 = 4;

/// What is done from time to time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chore {
    Look,
    LookAtAll,
    Renew,
    Recover,
    Expire,
    Purge,
    Tell,
}

const CHORES: [Chore; 7] =
    [Chore::Look, Chore::LookAtAll, Chore::Renew, Chore::Recover, Chore::Expire, Chore::Purge, Chore::Tell];

enum Done {
    /// The task that counts what was sent before has ended.
    Recalled,
    Job(Option<Finish>),
    Claimed(Vec<(LaneTier, u32)>, Result<Vec<Claimed>, Error>),
    Unclaimed(Result<u64, Error>),
    Flushed(Vec<Ended>, Result<Vec<bool>, Error>),
    Looked(Chore, Time, Result<(Vec<LaneTier>, i64), Error>),
    Expired(Result<Vec<Claimed>, Error>),
    Chore(Chore, Result<u64, Error>),
}

/// An end that is to be written, and how often that has failed.
struct Ended {
    finish: Finish,
    failed: u32,
}

struct Worker {
    inner: Weak<Inner>,
    /// The client, which jobs in hand are no part of.
    held: Weak<()>,
    outbox: Arc<Outbox>,
    lanes: Lanes,
    tasks: JoinSet<Done>,
    /// Jobs in hand, by the task that runs them.
    running: HashMap<TaskId, (Id, i64)>,
    /// Ends that are to be written.
    ends: Vec<Ended>,
    /// Not before this: it failed a moment ago.
    flush_at: Time,
    claiming: bool,
    flushing: bool,
    /// Claims whose word was lost may be ours without our knowing.
    doubtful: bool,
    /// Up to when looks have seen, by the store's clock.
    seen: i64,
    chores: [(Time, bool); CHORES.len()],
    look_at_all_every: Duration,
}

/// Works until the client is gone or stopped.
pub(crate) async fn work(inner: Weak<Inner>, held: Weak<()>, outbox: Arc<Outbox>) {
    let mut worker = Worker {
        inner,
        held,
        outbox: outbox.clone(),
        lanes: Lanes::default(),
        tasks: JoinSet::new(),
        running: HashMap::new(),
        ends: Vec::new(),
        flush_at: Time::ZERO,
        claiming: false,
        flushing: false,
        doubtful: false,
        seen: 0,
        chores: [(Time::ZERO, false); CHORES.len()],
        look_at_all_every: Duration::from_secs(5),
    };
    worker.begin().await;
    worker.run().await;
    if outbox.tell_every.is_some() {
        let _ = outbox.store.write((outbox.owner, None), batches::tell).await;
    }
    outbox.store.stop_working();
    outbox.ended.send_replace(true);
}

impl Worker {
    /// What the process before this one left.
    async fn begin(&mut self) {
        let store = &self.outbox.store;
        match store.write(store.is_alone, jobs::recover).await {
            Ok(0) => {}
            Ok(jobs) => tracing::info!(jobs, "jobs of a process that has ended are taken up"),
            Err(error) => tracing::error!(%error, "the store cannot be read"),
        }
        let run = recall::run(self.inner.clone(), self.outbox.clone());
        self.tasks.spawn(async move {
            run.await;
            Done::Recalled
        });
    }

    async fn run(&mut self) {
        let mut stop = self.outbox.stop.subscribe();
        loop {
            for lane in std::mem::take(&mut *self.outbox.fresh.lock()) {
                self.lanes.due(lane);
            }
            let early = std::mem::take(&mut *self.outbox.early.lock());
            early.into_iter().for_each(|finish| self.end(finish));
            let now = self.outbox.clock.now();
            let inner = self.inner.upgrade().filter(|_| self.held.strong_count() > 0);
            let stopping = inner.is_none() || *stop.borrow_and_update();
            if stopping {
                self.outbox.stop.send_replace(true);
                if self.running.is_empty() && self.ends.is_empty() && !self.flushing && !self.claiming {
                    return;
                }
            } else if let Some(inner) = &inner {
                self.claim(inner, now);
            }
            drop(inner);
            let next = self.begin_chores(now, stopping);
            self.flush(now);
            let next = if self.flush_at > now { next.min(self.flush_at) } else { next };
            let wake_up = self.outbox.clock.instant(next);
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => match done {
                    Ok((task, done)) => self.done(task, done),
                    Err(error) => self.broke(&error),
                },
                () = self.outbox.wake.notified() => {}
                () = tokio::time::sleep_until(wake_up) => {}
                _ = stop.changed() => {}
            }
        }
    }

    /// Claims for as many as there is capacity in hand for.
    fn claim(&mut self, inner: &Arc<Inner>, now: Time) {
        if self.claiming {
            return;
        }
        let (outbox, owner) = (self.outbox.clone(), self.outbox.owner);
        if self.doubtful {
            if self.flushing {
                // What is being written is in nobody's list.
                return;
            }
            self.claiming = true;
            let held: Vec<Id> =
                self.running.values().map(|(id, _)| *id).chain(self.ends.iter().map(|end| end.finish.id)).collect();
            self.tasks.spawn(async move { Done::Unclaimed(outbox.store.write((owner, held), jobs::unclaim).await) });
            return;
        }
        let free = outbox.most_jobs.saturating_sub(self.running.len() + self.ends.len());
        if free == 0 || self.lanes.len() == 0 {
            return;
        }
        let mut unknown = Vec::new();
        let mut wanted = self.lanes.wanted(free, LANES, |lane| match inner.tenant(&lane.tenant, &lane.vendor) {
            // What was sent of it before is read first.
            Ok(tenant) if !outbox.is_recalled(&tenant) => 0,
            Ok(tenant) => match pace(&tenant.vendor).unit_ns {
                0 => UNLIMITED,
                unit => u32::try_from(WORK.as_nanos() / u128::from(unit)).unwrap_or(MOST).clamp(1, MOST),
            },
            Err(_) => {
                unknown.push(lane.clone());
                0
            }
        });
        for (lane, _) in &wanted {
            self.lanes.is_known(lane, true, now);
        }
        for lane in unknown {
            let since = self.lanes.is_known(&lane, false, now);
            if since.is_some_and(|since| now.since(since) >= UNKNOWN) && wanted.len() < LANES {
                self.lanes.asked(&lane);
                wanted.push((lane, GIVEN_UP));
            }
        }
        if wanted.is_empty() {
            return;
        }
        self.claiming = true;
        self.tasks.spawn(async move {
            let lease_ms = millis_of(outbox.store.limits.lease);
            let claim = Wanted { owner, lease_ms, lanes: wanted.clone() };
            let claimed = outbox.store.write_once(claim, jobs::claim).await;
            Done::Claimed(wanted, claimed)
        });
    }

    fn start(&mut self, jobs: Vec<Claimed>) {
        let Some(inner) = self.inner.upgrade() else {
            // The client went meanwhile.
            jobs.iter().for_each(|job| self.end(Finish { id: job.id, fence: job.fence, end: End::Back }));
            return;
        };
        let now = self.outbox.clock.now();
        for job in jobs {
            let is_known = inner.tenant(&job.lane.tenant, &job.lane.vendor).is_ok();
            let since = self.lanes.is_known(&job.lane, is_known, now);
            let unknown = since.is_some_and(|since| now.since(since) >= UNKNOWN);
            let waits = Waits::new(self.lanes.waiting(&job.lane), self.outbox.clone());
            let (id, fence) = (job.id, job.fence);
            let run = job::run(inner.clone(), self.outbox.clone(), job, waits, unknown, self.outbox.stop.subscribe());
            let task = self.tasks.spawn(async move { Done::Job(run.await) });
            self.running.insert(task.id(), (id, fence));
        }
    }

    fn end(&mut self, finish: Finish) {
        self.ends.push(Ended { finish, failed: 0 });
    }

    /// Writes the ends that have gathered while the ones before were written; one that has failed by itself, lest it hold up
    /// the others.
    fn flush(&mut self, now: Time) {
        if self.flushing || self.ends.is_empty() || now < self.flush_at {
            return;
        }
        self.flushing = true;
        let ends = match self.ends.iter().position(|end| end.failed > 0) {
            Some(place) => vec![self.ends.swap_remove(place)],
            None => std::mem::take(&mut self.ends),
        };
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move {
            let finishes = ends.iter().map(|end| end.finish.clone()).collect();
            let told = outbox.store.write(finishes, jobs::finish).await;
            Done::Flushed(ends, told)
        });
    }

    /// Ends could not be written. They are kept for as long as it is the store that fails: nothing else knows of them. One
    /// that fails for itself goes back to the others after a few times, as if this process had ended.
    fn not_flushed(&mut self, ends: Vec<Ended>, error: &Error) {
        tracing::error!(%error, ends = ends.len(), "how jobs ended cannot be written");
        self.flush_at = self.outbox.clock.now() + Duration::from_secs(1);
        if *self.outbox.stop.borrow() {
            // Nobody waits for us any longer than need be: the leases end by themselves.
            return;
        }
        for Ended { finish, failed } in ends {
            match (failed, &finish.end) {
                _ if is_down(error) => self.ends.push(Ended { finish, failed }),
                (..FLUSHES, _) => self.ends.push(Ended { finish, failed: failed + 1 }),
                // Not even that: its lease is not renewed by others' words, and `unclaim` finds it.
                (_, End::Dropped) => self.doubtful = true,
                _ => self.ends.push(Ended { finish: Finish { end: End::Dropped, ..finish }, failed: 1 }),
            }
        }
    }

    fn done(&mut self, task: TaskId, done: Done) {
        match done {
            Done::Recalled => {}
            Done::Job(finish) => {
                self.running.remove(&task);
                if let Some(finish) = finish {
                    self.end(finish);
                }
            }
            Done::Claimed(asked, Ok(jobs)) => {
                self.claiming = false;
                for (lane, count) in &asked {
                    let came = jobs.iter().filter(|job| job.lane == *lane).count();
                    self.lanes.claimed(lane, *count, u32::try_from(came).unwrap_or(u32::MAX));
                }
                self.start(jobs);
            }
            Done::Claimed(_, Err(error)) => {
                tracing::error!(%error, "no jobs can be claimed");
                (self.claiming, self.doubtful) = (false, true);
            }
            Done::Unclaimed(result) => {
                (self.claiming, self.doubtful) = (false, result.is_err());
            }
            Done::Flushed(ends, Ok(told)) => {
                self.flushing = false;
                for (Ended { finish, .. }, was_ours) in ends.iter().zip(told) {
                    if !was_ours {
                        tracing::warn!(id = %finish.id, "a job ended here after its lease: another process has it");
                    } else if matches!(finish.end, End::Delivered { .. } | End::Dead(_)) {
                        self.outbox.backlog.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            }
            Done::Flushed(ends, Err(error)) => {
                self.flushing = false;
                self.not_flushed(ends, &error);
            }
            Done::Looked(chore, began, result) => {
                let now = self.outbox.clock.now();
                let every = match chore {
                    Chore::LookAtAll => self.look_at_all_every.max(now.since(began).saturating_mul(20)),
                    _ => LOOK,
                };
                self.over(chore, every);
                match result {
                    Ok((lanes, at)) => {
                        lanes.into_iter().for_each(|lane| self.lanes.due(lane));
                        self.seen = self.seen.max(at);
                    }
                    Err(error) => tracing::error!(%error, "the store cannot be looked at"),
                }
                if chore == Chore::LookAtAll {
                    self.lanes.forget();
                }
            }
            Done::Expired(result) => {
                self.over(Chore::Expire, Duration::from_secs(1));
                match result {
                    Ok(jobs) => self.start(jobs),
                    Err(error) => {
                        tracing::error!(%error, "jobs whose time is over cannot be found");
                        self.doubtful = true;
                    }
                }
            }
            Done::Chore(chore, result) => {
                let every = match chore {
                    // Before the lease ends.
                    Chore::Renew if result.is_err() => LOOK,
                    Chore::Renew | Chore::Recover => self.outbox.store.limits.lease / 4,
                    Chore::Tell => self.outbox.tell_every.unwrap_or(Duration::from_secs(60)),
                    _ => Duration::from_secs(60),
                };
                self.over(chore, every);
                match (chore, result) {
                    (Chore::Recover, Ok(jobs)) if jobs > 0 => {
                        tracing::warn!(jobs, "jobs of a process that gives no sign of life are taken up");
                        self.set(Chore::LookAtAll, Time::ZERO);
                    }
                    (Chore::Purge, Ok(letters)) if letters > 0 => {
                        tracing::warn!(letters, "old dead letters are deleted: `keep_dead` and `max_dead` say when");
                    }
                    (_, Ok(_)) => {}
                    (_, Err(error)) => tracing::error!(%error, "the store cannot be kept in order"),
                }
            }
        }
    }

    /// A task panicked, or was cancelled with the runtime: what it had in hand is as if this process had ended.
    fn broke(&mut self, error: &JoinError) {
        match self.running.remove(&error.id()) {
            Some((id, fence)) => {
                if error.is_panic() {
                    tracing::error!(%id, "the task of a job broke; that is a mistake in the library or in a handler");
                }
                self.end(Finish { id, fence, end: End::Dropped });
            }
            // A claim or a flush, which hold no code but ours.
            None => (self.claiming, self.flushing, self.doubtful) = (false, false, true),
        }
    }

    fn set(&mut self, chore: Chore, at: Time) {
        self.chores[chore as usize].0 = at;
    }

    fn over(&mut self, chore: Chore, every: Duration) {
        self.chores[chore as usize] = (self.outbox.clock.now() + every, false);
    }

    /// Begins what is due. Returns when the next is.
    fn begin_chores(&mut self, now: Time, stopping: bool) -> Time {
        let mut next = now + Duration::from_secs(1);
        for chore in CHORES {
            let (at, runs) = self.chores[chore as usize];
            let wanted = match chore {
                Chore::Renew => true,
                Chore::Tell => !stopping && self.outbox.tell_every.is_some(),
                _ => !stopping,
            };
            if runs || !wanted {
                continue;
            }
            if at > now {
                next = next.min(at);
                continue;
            }
            self.chores[chore as usize].1 = true;
            let (outbox, seen) = (self.outbox.clone(), self.seen.saturating_sub(OVERLAP_MS));
            let lease_ms = millis_of(outbox.store.limits.lease);
            let owner = outbox.owner;
            let said = match chore {
                Chore::Tell => self.inner.upgrade().map(|inner| queues::said(&inner, self.lanes.all())),
                _ => None,
            };
            self.tasks.spawn(async move {
                let store = &outbox.store;
                match chore {
                    Chore::Tell => Done::Chore(chore, store.write((owner, said), batches::tell).await),
                    // Before the first look at all there is nothing to look for.
                    Chore::Look if seen <= 0 => Done::Looked(chore, now, Ok((Vec::new(), 0))),
                    Chore::Look => Done::Looked(chore, now, store.read(seen, jobs::due).await),
                    Chore::LookAtAll => Done::Looked(chore, now, store.read((), jobs::all_due).await),
                    Chore::Renew => Done::Chore(chore, store.write((owner, lease_ms), jobs::renew).await),
                    Chore::Recover => Done::Chore(chore, store.write(false, jobs::recover).await),
                    Chore::Expire => Done::Expired(store.write_once((owner, lease_ms), jobs::expired).await),
                    Chore::Purge => {
                        let limits = &store.limits;
                        let keep = Retention {
                            done_ms: millis_of(limits.keep_done),
                            dead_ms: millis_of(limits.keep_dead),
                            most_dead: i64::try_from(limits.max_dead).unwrap_or(i64::MAX),
                        };
                        Done::Chore(chore, store.write(keep, records::purge).await)
                    }
                }
            });
        }
        next
    }
}
