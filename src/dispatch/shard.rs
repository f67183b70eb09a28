//! A shard: one engine under one lock, the wakers of waiting callers, and the timer task.
//!
//! The lock is held for one decision and never across an await. Wakers are called after it is released.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use compact_str::CompactString;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::{Clock, Time};
use crate::engine::cost::Settled;
use crate::engine::keys::{LaneKey, PermitKey, WaiterKey};
use crate::engine::plan::EndpointId;
use crate::engine::throttle::Report;
use crate::engine::{Correction, Engine, Feedback, FeedbackEffect, Forgotten, Sweep, excess};
use crate::telemetry::metrics::{End, Series};

/// How often a shard is swept for idle lanes.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Lanes swept under one hold of the lock: about 20 µs if none is in the processor's cache.
const SWEEP_CHUNK: u32 = 128;

pub(crate) struct Shard {
    pub(super) state: Mutex<ShardState>,
    /// Wakes the timer task when the engine has to be polled earlier than planned.
    earlier: Notify,
    /// Notified when the store of limits that processes share is to be called at once: a request was stopped for lack
    /// of units, or an operator has ended pauses. Notified also when the shard is closed. Common to all shards.
    starved: Arc<Notify>,
    pub(crate) clock: Clock,
    /// Called with each pause that a sweep removes.
    on_forgotten: OnceLock<Tell>,
    /// State of the client that the holders of permits need. It is kept here, because a reference in each permit would
    /// be one more reference to count for every grant.
    owner: OnceLock<Weak<dyn Any + Send + Sync>>,
}

type Tell = Box<dyn Fn(Forgotten) + Send + Sync>;

pub(super) struct ShardState {
    pub(super) engine: Engine,
    /// The wakers of waiting callers, by the waiter's index.
    wakers: Vec<Option<Waker>>,
    /// When the timer task wakes up by itself.
    timer_at: Time,
    closed: bool,
    /// Permits whose lane has moved to another shard, with their shard and key there. An entry stays until the permit's
    /// holder reports the end of the exchange.
    moved: HashMap<PermitKey, (Arc<Shard>, PermitKey)>,
}

impl ShardState {
    /// The other shard and key to which feedback for `permit` has to be passed on. `ends`: it is the last feedback.
    #[cold]
    fn moved(&mut self, permit: PermitKey, ends: bool) -> Option<Box<(Arc<Shard>, PermitKey)>> {
        let found = if ends { self.moved.remove(&permit) } else { self.moved.get(&permit).cloned() };
        found.map(Box::new)
    }

    pub(super) fn wait(&mut self, waiter: WaiterKey, waker: &Waker) {
        let index = waiter.index as usize;
        if self.wakers.len() <= index {
            self.wakers.resize(index + 1, None);
        }
        match &mut self.wakers[index] {
            Some(known) if known.will_wake(waker) => {}
            slot => *slot = Some(waker.clone()),
        }
    }

    /// Frees memory of wakers whose requests no longer wait.
    fn shrink(&mut self) {
        let end = self.engine.waiters_end();
        if let Some(room) = excess(self.wakers.capacity(), end) {
            self.wakers.truncate(end);
            self.wakers.shrink_to(room);
        }
    }

    pub(super) fn forget(&mut self, waiter: WaiterKey) {
        if let Some(waker) = self.wakers.get_mut(waiter.index as usize) {
            *waker = None;
        }
    }
}

impl Shard {
    pub(crate) fn new(engine: Engine, clock: Clock, starved: Arc<Notify>) -> Shard {
        let (wakers, moved) = (Vec::new(), HashMap::new());
        let state = ShardState { engine, wakers, timer_at: Time::MAX, closed: false, moved };
        Shard {
            state: Mutex::new(state),
            earlier: Notify::new(),
            starved,
            clock,
            on_forgotten: OnceLock::new(),
            owner: OnceLock::new(),
        }
    }

    /// Runs a decision under the lock, then wakes the callers that it concerns and, if necessary, the timer task.
    #[inline]
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let result = decision(&mut state.engine, now);
        self.after(state);
        result
    }

    /// Reports feedback for a permit to every shard to which its lane has moved since the grant, one lock at a time.
    /// `ends`: it is the last feedback. Returns the result of the last shard, where the lane is now.
    ///
    /// `decision` has a single call site, so that it is inlined.
    #[inline]
    fn tell<T>(
        &self,
        now: Time,
        permit: PermitKey,
        ends: bool,
        decision: impl Fn(&mut Engine, Time, PermitKey) -> T,
    ) -> T {
        let mut elsewhere: Option<Box<(Arc<Shard>, PermitKey)>> = None;
        loop {
            let (shard, permit) = elsewhere.as_deref().map_or((self, permit), |(shard, permit)| (&**shard, *permit));
            let mut state = shard.state.lock();
            let result = decision(&mut state.engine, now, permit);
            let next = if state.moved.is_empty() { None } else { state.moved(permit, ends) };
            shard.after(state);
            if next.is_none() {
                return result;
            }
            elsewhere = next;
        }
    }

    /// Moves a lane from shard `a` to shard `b`, under the lock of [`moves`](super::Dispatch::moves) and both shards'
    /// locks. `decision` returns, for each permit in flight, its key in `a` and its key in `b`.
    pub(crate) fn move_between(
        moves: &Mutex<()>,
        a: &Arc<Shard>,
        b: &Arc<Shard>,
        decision: impl FnOnce(&mut Engine, &mut Engine, Time) -> Vec<(PermitKey, PermitKey)>,
    ) {
        let moving = moves.lock();
        let now = a.clock.now();
        // Nothing else locks two shards, so two tasks that do never wait for each other.
        let (mut first, mut second) = (a.state.lock(), b.state.lock());
        let keys = decision(&mut first.engine, &mut second.engine, now);
        first.moved.extend(keys.into_iter().map(|(before, after)| (before, (b.clone(), after))));
        let (earlier_a, earlier_b) = (Self::set_timer(&mut first), Self::set_timer(&mut second));
        let woken = [Self::take_woken(&mut first), Self::take_woken(&mut second)];
        drop((first, second));
        drop(moving);
        woken.into_iter().flatten().for_each(Waker::wake);
        for (shard, earlier) in [(a, earlier_a), (b, earlier_b)] {
            if earlier {
                shard.earlier.notify_one();
            }
        }
    }

    /// Updates the timer. Returns whether the timer task has to wake earlier than planned.
    #[inline]
    fn set_timer(state: &mut ShardState) -> bool {
        let due = state.engine.poll_timeout().unwrap_or(Time::MAX);
        let earlier = due < state.timer_at;
        if earlier {
            state.timer_at = due;
        }
        earlier
    }

    #[inline(always)]
    pub(super) fn after(&self, mut state: MutexGuard<'_, ShardState>) {
        let earlier = Self::set_timer(&mut state);
        if earlier || !state.engine.is_quiet() {
            self.wake(state, earlier);
        }
    }

    /// Wakes the requests that were granted or refused, and the timer task if `earlier`.
    #[inline(never)]
    fn wake(&self, mut state: MutexGuard<'_, ShardState>, earlier: bool) {
        let woken = Self::take_woken(&mut state);
        let starved = state.engine.was_starved();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if earlier {
            self.earlier.notify_one();
        }
        if starved {
            self.starved.notify_one();
        }
    }

    fn take_woken(state: &mut ShardState) -> Vec<Waker> {
        let ShardState { engine, wakers, .. } = state;
        engine.woken().filter_map(|waiter| wakers.get_mut(waiter.index as usize)?.take()).collect()
    }

    /// The lane of a tenant at a vendor, if there is one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, tenant: &str, vendor: &str) -> Option<LaneKey> {
        self.state.lock().engine.find(hash, tenant, vendor)
    }

    /// Reads the engine without making a decision.
    ///
    /// Unlocks fairly, so that the next waiting thread gets the lock. A scan of all lanes takes the lock once per
    /// chunk, and would otherwise take it again before a parked sender is awake, which then starves for up to a
    /// millisecond.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let seen = look(&mut state.engine, now);
        MutexGuard::unlock_fair(state);
        seen
    }

    /// Sets the function that is called with each pause that a sweep removes.
    pub(crate) fn tell_forgotten(&self, tell: impl Fn(Forgotten) + Send + Sync + 'static) {
        // Set once, when the client is built.
        let _ = self.on_forgotten.set(Box::new(tell));
    }

    /// Sets what [`PermitGuard::owner`] returns.
    pub(crate) fn belongs_to<T: Any + Send + Sync>(&self, owner: &Arc<T>) {
        let owner: Weak<dyn Any + Send + Sync> = Arc::<T>::downgrade(owner);
        // Set once, when the client is built.
        let _ = self.owner.set(owner);
    }

    /// Ends the timer task.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.earlier.notify_one();
        self.starved.notify_one();
    }

    /// The timer task of the shard: polls the engine when it is due and sweeps it every `sweep_every`, until the shard
    /// is closed.
    pub(crate) async fn keep_time(self: Arc<Self>, sweep_every: Duration) {
        let mut sweep_at = self.clock.now() + sweep_every;
        loop {
            if self.clock.now() >= sweep_at {
                let mut next = Some(Sweep::START);
                while let Some(from) = next {
                    next = self.sweep_step(from, true);
                    // A sweep over many lanes takes long, and grants that are due meanwhile must not wait for its end.
                    if self.is_due() && self.poll(Time::MAX).is_none() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                sweep_at = self.clock.now() + sweep_every;
            }
            let Some(due) = self.poll(sweep_at) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.instant(due)), if due < Time::MAX => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Whether the timer task should have polled the engine by now.
    fn is_due(&self) -> bool {
        let now = self.clock.now();
        self.state.lock().timer_at <= now
    }

    /// Polls the engine, for the timer task alone: it has to wake up at the returned moment, which is `sweep_at` at the
    /// latest if there are lanes. `None` if the shard is closed.
    fn poll(&self, sweep_at: Time) -> Option<Time> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.engine.poll(now);
        let mut due = state.engine.poll_timeout().unwrap_or(Time::MAX);
        if !state.engine.is_empty() {
            due = due.min(sweep_at);
        }
        state.timer_at = due;
        self.wake(state, false);
        Some(due)
    }

    /// Frees memory of idle lanes, and with `evict` the lanes themselves. The lock is released between its steps.
    pub(crate) async fn sweep(&self, evict: bool) {
        let mut next = Some(Sweep::START);
        while let Some(from) = next {
            next = self.sweep_step(from, evict);
            tokio::task::yield_now().await;
        }
    }

    /// One step of a sweep, under one hold of the lock. Returns where to go on.
    fn sweep_step(&self, from: Sweep, evict: bool) -> Option<Sweep> {
        let (next, forgotten) =
            self.look(|engine, now| (engine.sweep(now, from, SWEEP_CHUNK, evict), engine.forgotten()));
        if let Some(tell) = self.on_forgotten.get() {
            forgotten.into_iter().for_each(tell);
        }
        if next.is_none() {
            self.state.lock().shrink();
        }
        next
    }
}

/// A started permit. Dropping it without reporting an end counts as abandoning the exchange.
#[must_use = "dropping a permit counts as abandoning its exchange"]
pub(crate) struct PermitGuard {
    shard: Arc<Shard>,
    key: PermitKey,
    ended: bool,
    answered: AtomicBool,
    series: Series,
}

impl PermitGuard {
    pub(super) fn new(shard: &Arc<Shard>, key: PermitKey) -> PermitGuard {
        PermitGuard {
            shard: shard.clone(),
            key,
            ended: false,
            answered: AtomicBool::new(false),
            series: Series::none(),
        }
    }

    /// Counts the permit in `series` from now until it ends.
    #[inline]
    pub(crate) fn counted(self, series: &Series) -> PermitGuard {
        let clock = self.shard.clock;
        self.counted_from(series, || clock.now())
    }

    /// Counts the permit in `series` from `began` until it ends.
    #[inline]
    pub(crate) fn counted_from(mut self, series: &Series, began: impl FnOnce() -> Time) -> PermitGuard {
        series.permit_started(began);
        self.series = series.clone();
        self
    }

    pub(crate) fn now(&self) -> Time {
        self.shard.clock.now()
    }

    /// The owner that was set by [`Shard::belongs_to`], if it still exists.
    pub(crate) fn owner<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.shard.owner.get()?.upgrade()?.downcast().ok()
    }

    /// The tenant, the vendor and the endpoint of the request that the permit is for; `None` if its lane is gone.
    pub(crate) fn is_for(&self) -> Option<(CompactString, Arc<str>, EndpointId)> {
        self.shard.tell(self.now(), self.key, false, |engine, _, key| engine.permit_of(key))
    }

    /// Reports the headers of the response: their `feedback`, and `besides` the reports about other limits.
    pub(crate) fn on_response(&self, now: Time, feedback: Feedback, besides: &[Report]) -> FeedbackEffect {
        self.answered.store(true, Relaxed);
        self.shard
            .tell(now, self.key, false, |engine, now, key| engine.answered_with(now, key, feedback, besides, false))
    }

    /// Reports a response whose body has arrived completely, which ends the exchange: one decision instead of two.
    #[inline(always)]
    pub(crate) fn on_complete(mut self, now: Time, feedback: Feedback, besides: &[Report]) -> FeedbackEffect {
        self.ended = true;
        let effect = self
            .shard
            .tell(now, self.key, true, |engine, now, key| engine.answered_with(now, key, feedback, besides, true));
        self.series.permit_ended(now, End::Finished);
        effect
    }

    /// Keeps the permit until this guard ends it, also after the attempt's timeout: for a stream, or an exchange that
    /// the program makes itself.
    pub(crate) fn outlasts(&self) {
        self.shard.tell(self.now(), self.key, false, |engine, _, key| engine.outlasts(key));
    }

    /// Corrects the cost to what the vendor states, for limits that count points. Returns the correction.
    pub(crate) fn settled(&self, stated: &Settled) -> Option<Correction> {
        if stated.is_empty() {
            return None;
        }
        self.shard.tell(self.now(), self.key, false, |engine, now, key| engine.corrected(now, key, stated))
    }

    /// Reports the size of the response body, or if that is not known (`is_whole` is not set), how much of it has
    /// arrived at least. Returns the correction.
    pub(crate) fn received(&self, bytes: u64, is_whole: bool) -> Option<Correction> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.shard.tell(self.now(), self.key, false, |engine, now, key| match is_whole {
            true => engine.received(now, key, bytes),
            false => engine.received_at_least(now, key, bytes),
        })
    }

    #[inline]
    pub(crate) fn finish(mut self) {
        self.end(End::Finished);
    }

    pub(crate) fn not_sent(mut self) {
        self.end(End::NotSent);
    }

    #[inline]
    fn end(&mut self, end: End) {
        self.ended = true;
        let now = self.now();
        self.shard.tell(now, self.key, true, |engine, now, key| match end {
            End::Finished => engine.finished(now, key),
            End::NotSent => engine.not_sent(now, key),
            End::Abandoned => engine.abandoned(now, key),
        });
        // After a response, dropping the permit is a normal end.
        let end = if self.answered.load(Relaxed) { End::Finished } else { end };
        self.series.permit_ended(now, end);
    }
}

impl Drop for PermitGuard {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.end(End::Abandoned);
        }
    }
}
