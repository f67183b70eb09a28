//! The task that calls the store: it gathers what the shards want, and passes on what the store gives.
//!
//! One call is under way at a time. What a call gives back has left the engine before the call is made, and is named again in
//! every call until one is answered: whether a call that failed has reached the store cannot be known.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::Pool;
use super::call::{Answer, Call, Entry};
use super::ledger::{Figures, Line, State};
use crate::clock::{Clock, Time, nanos};
use crate::core::Core;
use crate::dispatch::Shard;
use crate::engine::{PooledLimit, limit};

/// The longest that one call may take. The lease is longer.
const CALL: Duration = Duration::from_secs(1);
/// Between two calls, at least.
const LEAST: Duration = Duration::from_millis(20);
/// The bounds of the time between two calls: a quarter of the shortest window in use.
const EVERY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// What is known of the sharing, for status and metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Limits with units or requests that wait for some.
    pub(crate) limits: usize,
    /// Calls that were answered, and those that were not.
    pub(crate) calls: [u64; 2],
    /// Leases that had ended at the store.
    pub(crate) lost: u64,
    /// Since when no call was answered; none while they are.
    pub(crate) away_since: Option<Time>,
    /// The end of the lease that was renewed last.
    pub(crate) lease_until: Option<Time>,
    /// The store learns who holds what.
    pub(crate) is_learning: bool,
}

/// The handle of the task.
pub(crate) struct Sharing {
    known: Mutex<Known>,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

impl Sharing {
    pub(crate) fn new() -> Sharing {
        Sharing { known: Mutex::default(), stop: watch::Sender::new(false), ended: watch::Sender::new(false) }
    }

    pub(crate) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Gives everything back, and waits until the store knows, for a second at most.
    pub(crate) async fn leave(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.subscribe();
        let _ = timeout(CALL, ended.wait_for(|ended| *ended)).await;
    }
}

/// What the task knows of one limit.
#[derive(Default)]
struct Limit {
    /// The last call about it that was answered.
    known_seq: u64,
    /// What was given back in calls that were not answered: until when each counts.
    unheard: Vec<(Time, u32)>,
    /// Nothing is known of it that matters after this.
    until: Time,
    /// The store's clock in the last answer, and when that came.
    last: Option<(u64, Time)>,
}

/// The task's state.
pub(crate) struct Exchange {
    pool: Pool,
    shards: Vec<Arc<Shard>>,
    clock: Clock,
    process: u64,
    lease: Duration,
    seq: u64,
    limits: HashMap<String, Limit>,
    sharing: Arc<Sharing>,
}

/// A line of a call, and where its answer goes.
struct Asked {
    shard: usize,
    limit: PooledLimit,
}

/// What the shards want.
#[derive(Default)]
struct Gathered {
    asked: Vec<Asked>,
    entries: Vec<Entry>,
    shortest: Option<Duration>,
    is_starved: bool,
}

impl Exchange {
    pub(crate) fn new(
        pool: Pool,
        shards: Vec<Arc<Shard>>,
        clock: Clock,
        lease: Duration,
        sharing: Arc<Sharing>,
    ) -> Exchange {
        let (seq, limits) = (0, HashMap::new());
        Exchange { pool, shards, clock, process: fastrand::u64(1..), lease, seq, limits, sharing }
    }

    /// Calls the store until the client goes or is shut down, and then gives everything back.
    pub(crate) async fn run(mut self, core: Weak<Core>, starved: Arc<Notify>) {
        let mut stop = self.sharing.stop.subscribe();
        // The next call, and the earliest moment of a call that cannot wait for it.
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
            if gathered.entries.is_empty() {
                due = Time::MAX;
                continue;
            }
            let every = gathered.shortest.map_or(EVERY.1, |window| window / 4).clamp(EVERY.0, EVERY.1);
            let is_starved = gathered.is_starved;
            let brought = self.call(gathered, began).await;
            // All processes of a service start together: they should not call together for ever.
            due = began + every.mul_f64(0.95 + 0.1 * fastrand::f64());
            soon = match (brought, is_starved) {
                (false, true) => began + (every / 2).max(LEAST),
                _ => began + (every / 4).max(LEAST),
            };
        }
    }

    fn gather(&mut self) -> Gathered {
        let mut gathered = Gathered::default();
        for number in 0..self.shards.len() {
            let shard = self.shards[number].clone();
            let mut wishes = Vec::new();
            shard.look(|engine, now| engine.wishes(now, |limit, name, wish| wishes.push((limit, name, wish))));
            let now = self.clock.now();
            for (limit, name, wish) in wishes {
                gathered.is_starved |= wish.is_starved;
                if wish.figures.again_ns > 0 {
                    let window = Duration::from_nanos(wish.figures.again_ns);
                    gathered.shortest = Some(gathered.shortest.map_or(window, |shortest| shortest.min(window)));
                }
                gathered.asked.push(Asked { shard: number, limit });
                gathered.entries.push(self.entry(now, name, &wish));
            }
        }
        gathered
    }

    fn entry(&mut self, now: Time, name: String, wish: &limit::Wish) -> Entry {
        let known = self.limits.entry(name.clone()).or_default();
        known.unheard.extend(wish.returned.iter().map(|(free_in, units)| (now.plus_nanos(*free_in), *units)));
        let left = |at: &Time| at.as_nanos().saturating_sub(now.as_nanos()).div_ceil(1_000);
        let line = Line {
            figures: figures(&wish.figures),
            claim: wish.claim,
            returned: known.unheard.iter().map(|(at, units)| (left(at), *units)).collect(),
            want: wish.want,
            need: wish.need,
        };
        let expected_us = known.last.map(|(clock_us, at)| clock_us.saturating_add(nanos(now.since(at)) / 1_000));
        Entry { limit: name, known_seq: known.known_seq, expected_us, line }
    }

    /// Makes a call and passes its answer on. Returns whether it brought units.
    async fn call(&mut self, gathered: Gathered, began: Time) -> bool {
        let Gathered { asked, entries, .. } = gathered;
        let limits = entries.len();
        let names: Vec<(String, u64)> =
            entries.iter().map(|entry| (entry.limit.clone(), entry.line.figures.again_us)).collect();
        let answer = self.exchange(entries, false).await;
        let now = self.clock.now();
        self.note(limits, began, now, &answer);
        let Ok(answer) = answer else { return false };
        let until = began + (self.lease - self.lease / 100);
        let (mut brought, mut is_stale) = (false, false);
        for ((asked, (name, again_us)), got) in asked.into_iter().zip(names).zip(answer.got) {
            let known = self.limits.entry(name).or_default();
            known.known_seq = self.seq;
            known.unheard.clear();
            known.last = Some((answer.clock_us, now));
            let Some(got) = got else { continue };
            known.until = now + self.lease * 2 + Duration::from_micros(again_us);
            brought |= !got.units.is_empty();
            is_stale |= got.is_stale;
            let is_lost = got.is_stale || matches!(got.state, State::Lost);
            let got = limit::Got {
                units: got.units.iter().map(|(free_in, units)| (free_in.saturating_mul(1_000), *units)).collect(),
                keep: got.keep,
                travels: got.travels,
                is_lost,
                weights: got.weights,
            };
            self.shards[asked.shard].decide(|engine, now| engine.hold(now, asked.limit, &got, until));
        }
        self.limits.retain(|_, known| known.until > now || !known.unheard.is_empty());
        if is_stale {
            // What the store knows of this process is of an earlier time: it ends with its lease.
            self.process = fastrand::u64(1..);
            self.limits.clear();
        }
        brought
    }

    async fn exchange(&mut self, lines: Vec<Entry>, leaves: bool) -> Result<Answer, String> {
        self.seq += 1;
        let (process, seq, lease_us) = (self.process, self.seq, nanos(self.lease) / 1_000);
        let call = Call { process, seq, lease_us, leaves, lines };
        let late = |_| Err(format!("the store did not answer within {} s", CALL.as_secs()));
        timeout(CALL.min(self.lease / 2), self.pool.exchange(call)).await.unwrap_or_else(late)
    }

    fn note(&self, limits: usize, began: Time, now: Time, answer: &Result<Answer, String>) {
        let mut known = self.sharing.known.lock();
        known.limits = limits;
        known.calls[usize::from(answer.is_err())] += 1;
        match answer {
            Ok(answer) => {
                if let Some(since) = known.away_since.take() {
                    tracing::info!(after = ?now.since(since), "the store of shared limits answers again");
                }
                let states = || answer.got.iter().flatten().map(|got| &got.state);
                known.lost += states().filter(|state| matches!(state, State::Lost)).count() as u64;
                known.is_learning = states().any(|state| matches!(state, State::Learning));
                known.lease_until = Some(began + (self.lease - self.lease / 100));
                if answer.got.iter().flatten().any(|got| got.is_stale) {
                    tracing::error!(
                        "the store of shared limits has gone back to an earlier state, as a restored backup does: what this \
                         process held is given up"
                    );
                }
            }
            Err(why) => {
                if known.away_since.is_none() {
                    known.away_since = Some(began);
                    let left = known.lease_until.map(|until| until.since(now)).unwrap_or_default();
                    tracing::warn!(why, lease_left = ?left, "the store of shared limits does not answer: sending stops with the lease");
                }
            }
        }
    }

    async fn leave(&mut self) {
        let mut entries = Vec::new();
        for shard in self.shards.clone() {
            let mut given = Vec::new();
            shard.decide(|engine, now| engine.give_all(now, |name, wish| given.push((name, wish))));
            let now = self.clock.now();
            for (name, wish) in given {
                entries.push(self.entry(now, name, &wish));
            }
        }
        if !entries.is_empty()
            && let Err(why) = self.exchange(entries, true).await
        {
            tracing::warn!(
                why,
                "units of shared limits could not be given back: others have them when the lease has ended"
            );
        }
    }
}

fn figures(figures: &limit::Figures) -> Figures {
    Figures {
        units: figures.units,
        again_us: figures.again_ns.div_ceil(1_000),
        transit_us: figures.transit_ns.div_ceil(1_000),
        takes_used: figures.travels,
    }
}
