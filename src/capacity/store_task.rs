//! The task that calls the store: it collects what the shards want and passes on what the store grants.
//!
//! One call is under way at a time. `process.rs` decides what the call says and what its answer means.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::call::{Answer, Call};
use super::ledger::State;
use super::process::Process;
use super::status::{Known, SharedLimit, SharingMode, SharingStatus};
use super::{CallTiming, Pool};
use crate::clock::{Clock, Time};
use crate::core::Core;
use crate::dispatch::Shard;
use crate::engine::PooledLimit;
use crate::engine::limit::Wish;

/// The shortest time between two calls.
const LEAST: Duration = Duration::from_millis(20);

/// The handle through which the client sees and ends the task.
pub(crate) struct Sharing {
    known: Mutex<Known>,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    timing: CallTiming,
}

impl Sharing {
    pub(crate) fn new(timing: CallTiming) -> Sharing {
        Sharing { known: Mutex::default(), stop: watch::Sender::new(false), ended: watch::Sender::new(false), timing }
    }

    /// The current state of the sharing.
    pub(crate) fn status(&self, now: Time) -> SharingStatus {
        self.known.lock().status(now)
    }

    /// The limits that are shared, by name.
    pub(crate) fn limits(&self, now: Time) -> Vec<SharedLimit> {
        self.known.lock().limits(now)
    }

    /// Returns all units, and waits until the store has recorded this, at most for the time that one call may take.
    pub(crate) async fn leave(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.subscribe();
        let _ = timeout(self.timing.call, ended.wait_for(|ended| *ended)).await;
    }
}

/// The task, which owns the pool and this process's side of the calls.
pub(crate) struct StoreTask {
    pool: Pool,
    shards: Vec<Arc<Shard>>,
    clock: Clock,
    process: Process,
    sharing: Arc<Sharing>,
}

/// What the shards want, and the limits to which the answers belong.
#[derive(Default)]
struct Gathered {
    asked: Vec<(usize, PooledLimit)>,
    wishes: Vec<(String, Wish)>,
}

impl StoreTask {
    pub(crate) fn new(
        pool: Pool,
        shards: Vec<Arc<Shard>>,
        clock: Clock,
        lease: Duration,
        sharing: Arc<Sharing>,
    ) -> StoreTask {
        StoreTask { pool, shards, clock, process: Process::new(fastrand::u64(1..), lease), sharing }
    }

    /// Calls the store until the client is dropped or shut down, then returns all units.
    pub(crate) async fn run(mut self, core: Weak<Core>, starved: Arc<Notify>) {
        let mut stop = self.sharing.stop.subscribe();
        // When the next call is due, and when a call may be made at the earliest if requests are starved of units
        // before then.
        let (mut due, mut soon) = (Time::MAX, Time::ZERO);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.instant(due)), if due < Time::MAX => {}
                () = starved.notified() => {
                    let at = soon.min(due);
                    tokio::select! {
                        () = tokio::time::sleep_until(self.clock.instant(at)) => {}
                        _ = stop.changed() => {}
                    }
                }
                _ = stop.changed() => {}
            }
            if core.strong_count() == 0 || *stop.borrow() {
                self.leave().await;
                self.sharing.ended.send_replace(true);
                return;
            }
            let began = self.clock.now();
            let gathered = self.gather();
            if gathered.wishes.is_empty() {
                self.sharing.known.lock().rests();
                due = Time::MAX;
                continue;
            }
            let every = every(self.sharing.timing, gathered.wishes.iter().map(|(_, wish)| wish));
            let is_starved = gathered.wishes.iter().any(|(_, wish)| wish.is_starved);
            let (brought, is_lost) = self.call(gathered, began).await;
            // All processes of a service start together, so their calls are spread at random.
            let next = if is_lost { every / 4 } else { every };
            due = began + next.mul_f64(0.95 + 0.1 * fastrand::f64());
            soon = match (brought, is_starved) {
                (false, true) => began + (every / 2).max(LEAST),
                _ => began + (every / 4).max(LEAST),
            };
        }
    }

    fn gather(&self) -> Gathered {
        let mut gathered = Gathered::default();
        for (number, shard) in self.shards.iter().enumerate() {
            // `decide` wakes the waiters that may go on by the floor, should the lease have ended.
            shard.decide(|engine, now| {
                engine.wishes(now, |limit, name, wish| {
                    gathered.asked.push((number, limit));
                    gathered.wishes.push((name, wish));
                });
            });
        }
        gathered
    }

    /// Makes a call and passes on its answer. Returns whether the store granted units, and whether a lease had been
    /// lost.
    async fn call(&mut self, gathered: Gathered, began: Time) -> (bool, bool) {
        let Gathered { asked, wishes } = gathered;
        let call = self.process.call(self.clock.now(), wishes, false);
        let answer = self.exchange(call.clone()).await;
        let now = self.clock.now();
        self.note(&call, began, now, &answer);
        let Ok(answer) = answer else { return (false, false) };
        let until = self.process.until(began);
        let got = self.process.answered(began, now, &call, &answer);
        let (mut brought, mut is_lost) = (false, false);
        for ((shard, limit), got) in asked.into_iter().zip(got) {
            brought |= !got.units.is_empty();
            is_lost |= got.is_lost;
            self.shards[shard].decide(|engine, now| engine.hold(now, limit, &got, until));
        }
        (brought, is_lost)
    }

    async fn exchange(&self, call: Call) -> Result<Answer, String> {
        let longest = self.sharing.timing.call;
        let late = |_| Err(format!("the store did not answer within {} s", longest.as_secs()));
        timeout(longest, self.pool.exchange(call)).await.unwrap_or_else(late)
    }

    fn note(&self, call: &Call, began: Time, now: Time, answer: &Result<Answer, String>) {
        let mut known = self.sharing.known.lock();
        known.limits = call.lines.len();
        known.calls[usize::from(answer.is_err())] += 1;
        match answer {
            Ok(answer) => {
                if let Some(since) = known.away_since.take() {
                    tracing::info!(after = ?now.since(since), "the store of shared limits answers again");
                }
                let states = || answer.got.iter().flatten().map(|got| &got.state);
                known.lost += states().filter(|state| matches!(state, State::Lost)).count() as u64;
                known.is_learning = states().any(|state| matches!(state, State::Learning));
                known.lease_until = Some(self.process.until(began));
                let has_floor = answer.got.iter().flatten().any(|got| got.floor > 0);
                known.floor_until = has_floor.then(|| self.process.floor_until(began));
                known.said = None;
                for (entry, got) in call.lines.iter().zip(&answer.got) {
                    let Some(got) = got else { continue };
                    let came = got.units.iter().fold(0, |sum: u32, (_, units)| sum.saturating_add(*units));
                    let held = if got.state == State::Lost { 0 } else { entry.line.claim.saturating_add(came) };
                    if known.saw(&entry.limit, got.all, held, now) {
                        tracing::warn!(
                            limit = entry.limit,
                            here = entry.line.figures.units,
                            in_force = got.all.units,
                            "processes that share this limit have different figures of it: the strictest are in force; give all of them the same configuration"
                        );
                    }
                }
                known.forget(now);
            }
            Err(why) => {
                known.away_since.get_or_insert(began);
                let news = known.news(now);
                let SharingStatus { lease_left, floor_left, .. } = known.status(now);
                match news {
                    Some(SharingMode::Away) if floor_left.is_zero() => {
                        tracing::warn!(
                            why,
                            ?lease_left,
                            "the store of shared limits does not answer: sending stops with the lease"
                        );
                    }
                    Some(SharingMode::Away) => {
                        tracing::warn!(
                            why,
                            ?lease_left,
                            "the store of shared limits does not answer: with the lease ends all but the floor"
                        );
                    }
                    Some(SharingMode::Floor) => {
                        tracing::warn!(
                            why,
                            ?floor_left,
                            "the store of shared limits does not answer, and the lease has ended: requests go by the floor"
                        );
                    }
                    Some(_) => tracing::warn!(
                        why,
                        "the store of shared limits does not answer: nothing of shared limits is sent"
                    ),
                    None => {}
                }
            }
        }
    }

    async fn leave(&mut self) {
        let mut given = Vec::new();
        for shard in &self.shards {
            shard.decide(|engine, now| engine.give_all(now, |name, wish| given.push((name, wish))));
        }
        if given.is_empty() {
            return;
        }
        let call = self.process.call(self.clock.now(), given, true);
        if let Err(why) = self.exchange(call).await {
            tracing::warn!(
                why,
                "units of shared limits could not be given back: others have them when the lease has ended"
            );
        }
    }
}

/// The time between two calls: a quarter of the shortest window, within the bounds of the store's timing.
fn every<'a>(timing: CallTiming, wishes: impl Iterator<Item = &'a Wish>) -> Duration {
    let windows = wishes.map(|wish| wish.figures.again_ns).filter(|window| *window > 0);
    windows
        .min()
        .map_or(timing.every.1, |window| Duration::from_nanos(window / 4))
        .clamp(timing.every.0, timing.every.1)
}
