//! The task that calls the store: it collects what the shards want and passes on what the store grants.
//!
//! One call is under way at a time. `process.rs` decides what the call says and what its answer means.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::call::{Answer, Call, Entry, LineAnswer, Witness};
use super::cold_start::warn_of_spent_limits;
use super::ledger::{self, State};
use super::process::Process;
use super::renamed_limits::KnownLimits;
use super::status::{Known, SharedLimit, SharingMode, SharingStatus};
use super::{CallTiming, Pool, unique_number};
use crate::clock::{Clock, Time};
use crate::core::Core;
use crate::dispatch::Shard;
use crate::engine::PooledLimit;
use crate::engine::limit::{Got, Wish};

/// The longest last call of a process that has no units to give back.
const FAREWELL: Duration = Duration::from_secs(1);
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

    /// Returns all units, and waits until the store has recorded this, at most for the time that two calls may take:
    /// one may be under way, and the one that returns the units follows it.
    pub(crate) async fn leave(&self) {
        self.stop.send_replace(true);
        let mut ended = self.ended.subscribe();
        let _ = timeout(self.timing.call.saturating_mul(2), ended.wait_for(|ended| *ended)).await;
    }
}

/// The task, which owns the pool and this process's side of the calls.
pub(crate) struct StoreTask {
    pool: Pool,
    shards: Vec<Arc<Shard>>,
    /// Held while a lane moves to another shard ([`Dispatch::moves`](crate::dispatch::Dispatch::moves)).
    moves: Arc<Mutex<()>>,
    clock: Clock,
    process: Process,
    sharing: Arc<Sharing>,
}

/// What the shards want, and the limits to which the answers belong.
#[derive(Default)]
struct Gathered {
    asked: Vec<Asked>,
    lines: Lines,
}

impl Gathered {
    fn add(&mut self, shard: usize, limit: PooledLimit, name: String, wish: Wish) {
        let want = wish.want.iter().fold(0u32, |sum, want| sum.saturating_add(*want));
        let rank = (want, wish.claim);
        self.asked.push(Asked { line: self.lines.add(name, wish), rank, shard, limit });
    }
}

/// Where a limit is counted, and the line that tells of it. While the lanes of an account move to another shard, both
/// shards count its limits.
struct Asked {
    line: usize,
    /// The units that are wanted there, and those that are held.
    rank: (u32, u32),
    shard: usize,
    limit: PooledLimit,
}

/// The lines of a call, one for each limit: a ledger knows one claim of a process, and a store writes each limit once.
#[derive(Default)]
struct Lines {
    wishes: Vec<(String, Wish)>,
    numbers: HashMap<String, usize>,
}

impl Lines {
    /// Adds what one shard says of a limit. Returns the number of the limit's line.
    fn add(&mut self, name: String, wish: Wish) -> usize {
        if let Some(number) = self.numbers.get(&name) {
            join(&mut self.wishes[*number].1, wish);
            return *number;
        }
        let number = self.wishes.len();
        self.numbers.insert(name.clone(), number);
        self.wishes.push((name, wish));
        number
    }
}

/// Adds what another shard says of the same limit.
fn join(wish: &mut Wish, other: Wish) {
    wish.claim = wish.claim.saturating_add(other.claim);
    wish.returned.extend(other.returned);
    for (want, more) in wish.want.iter_mut().zip(other.want) {
        *want = want.saturating_add(more);
    }
    wish.need = wish.need.max(other.need);
    if other.figures.units < wish.figures.units {
        (wish.figures, wish.floor) = (other.figures, other.floor);
    }
    wish.paused_ns = wish.paused_ns.max(other.paused_ns);
    wish.ends_pause |= other.ends_pause;
    wish.is_starved |= other.is_starved;
}

/// The place of each line that gets what the store grants: the one that wants the most. The other places return what
/// they hold, unless the main place has what it wants. `asked` has the line and the rank of each place.
fn main_places(asked: impl Iterator<Item = (usize, (u32, u32))>, lines: usize) -> Vec<Option<usize>> {
    let mut best: Vec<Option<(usize, (u32, u32))>> = vec![None; lines];
    for (number, (line, rank)) in asked.enumerate() {
        if best[line].is_none_or(|(_, before)| before < rank) {
            best[line] = Some((number, rank));
        }
    }
    best.into_iter().map(|best| best.map(|(number, _)| number)).collect()
}

impl StoreTask {
    pub(crate) fn new(
        pool: Pool,
        shards: Vec<Arc<Shard>>,
        moves: Arc<Mutex<()>>,
        clock: Clock,
        lease: Duration,
        sharing: Arc<Sharing>,
    ) -> StoreTask {
        StoreTask { pool, shards, moves, clock, process: Process::new(unique_number(), lease), sharing }
    }

    /// Calls the store until the client is dropped or shut down, then returns all units.
    pub(crate) async fn run(mut self, core: Weak<Core>, starved: Arc<Notify>) {
        let mut stop = self.sharing.stop.subscribe();
        // When the next call is due, and when a call may be made at the earliest if requests are starved of units
        // before then.
        let (mut due, mut soon) = (Time::MAX, Time::ZERO);
        // The version of the configuration that has been searched for settings without effect and for renamed limits.
        let (mut searched, mut limits) = (None, KnownLimits::default());
        loop {
            if let Some(core) = core.upgrade() {
                let config = core.registry.config.load();
                if searched.replace(config.version()) != Some(config.version()) {
                    warn_of_spent_limits(&config);
                    limits.go_over_to(&config);
                }
            }
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
            let wishes = &gathered.lines.wishes;
            if wishes.is_empty() && !self.process.owes(began) {
                self.sharing.known.lock().rests();
                due = Time::MAX;
                continue;
            }
            let every = every(self.sharing.timing, wishes.iter().map(|(_, wish)| wish));
            let is_starved = wishes.iter().any(|(_, wish)| wish.is_starved);
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

    /// Makes the next call, with this process's clock as a witness.
    fn make_call(&mut self, wishes: Vec<(String, Wish)>, leaves: bool) -> Call {
        let made = self.clock.now();
        let witness = Some(Witness { clock: self.clock, made });
        Call { witness, ..self.process.call(made, wishes, leaves) }
    }

    fn gather(&self) -> Gathered {
        let mut gathered = Gathered::default();
        each_wish(&self.shards, &self.moves, |shard, limit, name, wish| gathered.add(shard, limit, name, wish));
        gathered
    }

    /// Makes a call and passes on its answer. Returns whether the store granted units, and whether a lease had been
    /// lost.
    async fn call(&mut self, gathered: Gathered, began: Time) -> (bool, bool) {
        let Gathered { asked, lines } = gathered;
        let main = main_places(asked.iter().map(|asked| (asked.line, asked.rank)), lines.wishes.len());
        let of_main = |place: &Option<usize>| place.and_then(|number| asked.get(number)).map_or(0, |it| it.rank.0);
        let main_wants: Vec<u32> = main.iter().map(of_main).collect();
        let call = self.make_call(lines.wishes, false);
        let answer = self.exchange(call.clone(), self.sharing.timing.call).await;
        let now = self.clock.now();
        self.note(&call, began, now, &answer);
        let Ok(answer) = answer else { return (false, false) };
        let is_lost = answer.got.iter().flatten().flatten().any(|got| got.state == State::Lost);
        let until = self.process.until(began);
        let got = self.process.answered(began, now, &call, &answer);
        let mut brought = false;
        for (number, asked) in asked.into_iter().enumerate() {
            // The lease on a limit about which the store said nothing goes on to its end.
            let Some(got) = got.get(asked.line).and_then(Option::as_ref) else { continue };
            brought |= !got.units.is_empty();
            let is_main = main[asked.line] == Some(number);
            let aside;
            let got = if is_main {
                got
            } else {
                // Requests may still wait there: it goes on with what the main place does not want.
                let keep = got.keep.saturating_sub(main_wants[asked.line]);
                aside = Got { units: Vec::new(), keep, floor: 0, ..got.clone() };
                &aside
            };
            let is_held = self.shards[asked.shard].decide(|engine, now| engine.hold(now, asked.limit, got, until));
            if is_main && !is_held {
                self.process.not_held(&call.lines[asked.line]);
            }
        }
        (brought, is_lost)
    }

    async fn exchange(&self, call: Call, longest: Duration) -> Result<Answer, String> {
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
                let answered = || answer.got.iter().flatten().flatten();
                known.lost += answered().filter(|got| matches!(got.state, State::Lost)).count() as u64;
                let of_entry = |(entry, got): (&Entry, &LineAnswer)| {
                    got.as_ref().is_ok_and(|got| got.as_ref().is_some_and(|got| entry.lacks_by_loss(got)))
                };
                known.is_learning = call.lines.iter().zip(&answer.got).any(of_entry);
                known.lease_until = Some(self.process.until(began));
                let has_floor = answered().any(|got| got.floor > 0);
                known.floor_until = has_floor.then(|| self.process.floor_until(began));
                known.said = None;
                known.failing = answer.got.iter().filter(|got| got.is_err()).count();
                for (entry, got) in call.lines.iter().zip(&answer.got) {
                    let got = match got {
                        Ok(Some(got)) => got,
                        Ok(None) => continue,
                        Err(why) => {
                            if known.missed(&entry.limit, why, now) {
                                tracing::warn!(
                                    limit = entry.limit,
                                    why,
                                    "the store does not answer about this shared limit, but about others: with the \
                                     lease ends all but the floor"
                                );
                            }
                            continue;
                        }
                    };
                    if known.saw(&entry.limit, got.all, entry.held_after(got), now) {
                        warn_of_figures(entry, got);
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

    /// Takes all units from the shards. Units of a lane that moved between two shards meanwhile could be missed.
    fn take_all(&self) -> Lines {
        let mut given = Lines::default();
        let _lanes_stay = self.moves.lock();
        for shard in &self.shards {
            shard.decide(|engine, now| {
                engine.give_all(now, |name, wish| {
                    given.add(name, wish);
                });
            });
        }
        given
    }

    async fn leave(&mut self) {
        let given = self.take_all();
        let call = self.make_call(given.wishes, true);
        if call.lines.is_empty() {
            return;
        }
        let (longest, gives_back) = last_call(&call, self.sharing.timing.call);
        let failed = match self.exchange(call, longest).await {
            Ok(answer) => answer.got.into_iter().find_map(Result::err),
            Err(why) => Some(why),
        };
        if let Some(why) = failed.filter(|_| gives_back) {
            tracing::warn!(
                why,
                "units of shared limits could not be given back: others have them when the lease has ended"
            );
        }
    }
}

/// Tells what each shard holds and wants, with the shard's number. No lane moves meanwhile: if one did, its units could
/// be claimed twice, and the store would take a claim above what it has granted for one under a lease that has ended.
fn each_wish(shards: &[Arc<Shard>], moves: &Mutex<()>, mut tell: impl FnMut(usize, PooledLimit, String, Wish)) {
    let _lanes_stay = moves.lock();
    for (number, shard) in shards.iter().enumerate() {
        // `decide` wakes the waiters that may go on by the floor, should the lease have ended.
        shard.decide(|engine, now| engine.wishes(now, |limit, name, wish| tell(number, limit, name, wish)));
    }
}

/// Warns that the configurations of processes differ about a limit: here, and in force at the store.
fn warn_of_figures(entry: &Entry, got: &ledger::Got) {
    let (here, in_force) = (&entry.line.figures, &got.all);
    tracing::warn!(
        limit = entry.limit,
        here = here.units,
        in_force = in_force.units,
        window_here = ?Duration::from_micros(here.again_us),
        window_in_force = ?Duration::from_micros(in_force.again_us),
        transit_here = ?Duration::from_micros(here.transit_us),
        transit_in_force = ?Duration::from_micros(in_force.transit_us),
        "processes that share this limit have different figures of it: the lowest number of units applies to all, but \
         each process counts by its own window, so those with a shorter one may exceed the limit; give all of them the \
         same configuration at once, or stop those with the shorter window"
    );
}

/// How long the last call may take, of which any call may take `longest`; and whether it gives units back. If not, the
/// store forgets the process by itself when the lease ends, so the program's end is not delayed for it.
fn last_call(call: &Call, longest: Duration) -> (Duration, bool) {
    let gives_back = call.lines.iter().any(|entry| !entry.line.returned.is_empty());
    (if gives_back { longest } else { longest.min(FAREWELL) }, gives_back)
}

/// The time between two calls: a quarter of the shortest window, within the bounds of the store's timing.
fn every<'a>(timing: CallTiming, wishes: impl Iterator<Item = &'a Wish>) -> Duration {
    let windows = wishes.map(|wish| wish.figures.again_ns).filter(|window| *window > 0);
    windows
        .min()
        .map_or(timing.every.1, |window| Duration::from_nanos(window / 4))
        .clamp(timing.every.0, timing.every.1)
}

#[cfg(test)]
mod tests;
