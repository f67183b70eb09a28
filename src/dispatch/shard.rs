//! One engine under one lock, the callers that wait for it, and the task that tells it the time.
//!
//! The lock is held for a decision and never across an await. Its holder wakes others only after letting go.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::clock::{Clock, Time};
use crate::engine::keys::{LaneKey, PermitKey, WaiterKey};
use crate::engine::throttle::Report;
use crate::engine::{Engine, Feedback, FeedbackEffect, Forgotten, Sweep, excess};
use crate::metrics::{End, Series};

/// How often resting lanes are looked for.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Lanes looked at under one hold of the lock: about 20 µs, where no cache holds them.
const SWEEP_CHUNK: u32 = 128;

pub(crate) struct Shard {
    pub(super) core: Mutex<Core>,
    /// The engine wants to be polled earlier than the timer task believes.
    earlier: Notify,
    pub(crate) clock: Clock,
    /// Tells of pauses that are forgotten.
    on_forgotten: OnceLock<Tell>,
}

type Tell = Box<dyn Fn(Forgotten) + Send + Sync>;

pub(super) struct Core {
    pub(super) engine: Engine,
    /// By the waiter's index.
    wakers: Vec<Option<Waker>>,
    /// When the timer task will wake up by itself.
    timer_at: Time,
    closed: bool,
    /// Permits whose lane has gone to another shard, and where they are there. Each stays until its holder has told how
    /// the exchange ended.
    moved: HashMap<PermitKey, (Arc<Shard>, PermitKey)>,
}

impl Core {
    /// Where else an end, or an answer, is to be told. `ends`: nothing more will be told of this permit.
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

    /// Gives the room of waiters back that are gone.
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
    pub(crate) fn new(engine: Engine, clock: Clock) -> Shard {
        let (wakers, moved) = (Vec::new(), HashMap::new());
        let core = Core { engine, wakers, timer_at: Time::MAX, closed: false, moved };
        Shard { core: Mutex::new(core), earlier: Notify::new(), clock, on_forgotten: OnceLock::new() }
    }

    /// Runs a decision. Afterwards the callers that it concerns are woken, and the timer task is told if it is to wake earlier.
    #[inline]
    pub(crate) fn decide<T>(&self, decision: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let now = self.clock.now();
        let mut core = self.core.lock();
        let result = decision(&mut core.engine, now);
        self.after(core);
        result
    }

    /// Tells what becomes of a permit, also where its lane has gone since the grant: from shard to shard, one lock at a
    /// time. `ends`: nothing more will be told. Returns what was said where the lane now is.
    ///
    /// The decision is called at one place, so that it becomes part of the caller.
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
            let mut core = shard.core.lock();
            let result = decision(&mut core.engine, now, permit);
            let next = if core.moved.is_empty() { None } else { core.moved(permit, ends) };
            shard.after(core);
            if next.is_none() {
                return result;
            }
            elsewhere = next;
        }
    }

    /// Takes a lane from shard `a` to shard `b`, under both locks. They are taken in the order of their addresses, so that
    /// two moves cannot wait for each other. `decision` returns the keys of what is in flight, in `a` and in `b`.
    pub(crate) fn move_between(
        a: &Arc<Shard>,
        b: &Arc<Shard>,
        decision: impl FnOnce(&mut Engine, &mut Engine, Time) -> Vec<(PermitKey, PermitKey)>,
    ) {
        let now = a.clock.now();
        let (mut first, mut second);
        let keys = if Arc::as_ptr(a) < Arc::as_ptr(b) {
            (first, second) = (a.core.lock(), b.core.lock());
            decision(&mut first.engine, &mut second.engine, now)
        } else {
            (second, first) = (b.core.lock(), a.core.lock());
            decision(&mut first.engine, &mut second.engine, now)
        };
        first.moved.extend(keys.into_iter().map(|(before, after)| (before, (b.clone(), after))));
        let (earlier_a, earlier_b) = (Self::set_timer(&mut first), Self::set_timer(&mut second));
        let woken = [Self::take_woken(&mut first), Self::take_woken(&mut second)];
        drop((first, second));
        woken.into_iter().flatten().for_each(Waker::wake);
        for (shard, earlier) in [(a, earlier_a), (b, earlier_b)] {
            if earlier {
                shard.earlier.notify_one();
            }
        }
    }

    /// Whether the timer task is to wake earlier than it will by itself.
    #[inline]
    fn set_timer(core: &mut Core) -> bool {
        let due = core.engine.poll_timeout().unwrap_or(Time::MAX);
        let earlier = due < core.timer_at;
        if earlier {
            core.timer_at = due;
        }
        earlier
    }

    #[inline(always)]
    pub(super) fn after(&self, mut core: MutexGuard<'_, Core>) {
        let earlier = Self::set_timer(&mut core);
        if earlier || !core.engine.is_quiet() {
            self.wake(core, earlier);
        }
    }

    /// Wakes the requests that are granted or refused, and with `earlier` the timer task.
    #[inline(never)]
    fn wake(&self, mut core: MutexGuard<'_, Core>, earlier: bool) {
        let woken = Self::take_woken(&mut core);
        drop(core);
        woken.into_iter().for_each(Waker::wake);
        if earlier {
            self.earlier.notify_one();
        }
    }

    fn take_woken(core: &mut Core) -> Vec<Waker> {
        let Core { engine, wakers, .. } = core;
        engine.woken().filter_map(|waiter| wakers.get_mut(waiter.index as usize)?.take()).collect()
    }

    /// The lane of a tenant at a vendor, if there is one.
    #[inline]
    pub(crate) fn find(&self, hash: u64, tenant: &str, vendor: &str) -> Option<LaneKey> {
        self.core.lock().engine.find(hash, tenant, vendor)
    }

    /// Looks, without deciding anything.
    ///
    /// Unlocks fairly, so that the next waiter gets the lock. A scan of all lanes, with the lock held for some of them at a
    /// time, would have it again before a sender that was parked is awake, for a millisecond on end.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let now = self.clock.now();
        let mut core = self.core.lock();
        let seen = look(&mut core.engine, now);
        MutexGuard::unlock_fair(core);
        seen
    }

    /// Pauses that are forgotten from now on are told to `tell`.
    pub(crate) fn tell_forgotten(&self, tell: impl Fn(Forgotten) + Send + Sync + 'static) {
        // A client is built once.
        let _ = self.on_forgotten.set(Box::new(tell));
    }

    /// Ends the timer task.
    pub(crate) fn close(&self) {
        self.core.lock().closed = true;
        self.earlier.notify_one();
    }

    /// Tells the engine the time until the shard is closed, and looks for resting lanes this often. One task per shard.
    pub(crate) async fn keep_time(self: Arc<Self>, sweep_every: Duration) {
        let mut sweep_at = self.clock.now() + sweep_every;
        loop {
            let now = self.clock.now();
            if now >= sweep_at {
                self.sweep(true).await;
                sweep_at = self.clock.now() + sweep_every;
            }
            let due = {
                let mut core = self.core.lock();
                if core.closed {
                    return;
                }
                core.engine.poll(now);
                let mut due = core.engine.poll_timeout().unwrap_or(Time::MAX);
                if !core.engine.is_empty() {
                    due = due.min(sweep_at);
                }
                core.timer_at = due;
                let woken = Self::take_woken(&mut core);
                drop(core);
                woken.into_iter().for_each(Waker::wake);
                due
            };
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.instant(due)), if due < Time::MAX => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Frees what resting lanes do not need, and with `evict` the lanes themselves. Others have the lock between its
    /// steps.
    pub(crate) async fn sweep(&self, evict: bool) {
        let mut next = Some(Sweep::START);
        while let Some(from) = next {
            let (more, forgotten) =
                self.look(|engine, now| (engine.sweep(now, from, SWEEP_CHUNK, evict), engine.forgotten()));
            next = more;
            if let Some(tell) = self.on_forgotten.get() {
                forgotten.into_iter().for_each(tell);
            }
            tokio::task::yield_now().await;
        }
        self.core.lock().shrink();
    }
}

/// A started permit. Dropped without a word, it counts as abandoned in the middle of its exchange.
#[must_use = "a permit that is dropped counts as a request whose caller went away"]
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

    /// Counts it, from now on until it ends.
    #[inline]
    pub(crate) fn counted(self, series: &Series) -> PermitGuard {
        let clock = self.shard.clock;
        self.counted_from(series, || clock.now())
    }

    /// The same where the moment is known.
    #[inline]
    pub(crate) fn counted_from(mut self, series: &Series, began: impl FnOnce() -> Time) -> PermitGuard {
        series.permit_started(began);
        self.series = series.clone();
        self
    }

    pub(crate) fn now(&self) -> Time {
        self.shard.clock.now()
    }

    /// The vendor has answered, and said `word`, and what is left of other limits.
    pub(crate) fn on_response(&self, now: Time, word: Feedback, besides: &[Report]) -> FeedbackEffect {
        self.answered.store(true, Relaxed);
        self.shard.tell(now, self.key, false, |engine, now, key| engine.answered_with(now, key, word, besides, false))
    }

    /// The same where the whole answer is here, and so the exchange has ended: one decision instead of two.
    #[inline(always)]
    pub(crate) fn on_complete(mut self, now: Time, word: Feedback, besides: &[Report]) -> FeedbackEffect {
        self.ended = true;
        let heard = self
            .shard
            .tell(now, self.key, true, |engine, now, key| engine.answered_with(now, key, word, besides, true));
        self.series.permit_ended(now, End::Finished);
        heard
    }

    /// The vendor says what the request really cost: limits that count in points go by that. Fractions are rounded up.
    pub(crate) fn cost(&self, units: Option<f64>) {
        if let Some(units) = units.filter(|units| units.is_finite() && *units >= 0.0) {
            // Float to integer casts saturate.
            let (now, units) = (self.now(), units.ceil() as u32);
            self.shard.tell(now, self.key, false, |engine, now, key| engine.corrected(now, key, units));
        }
    }

    /// The body of the answer had so many bytes.
    pub(crate) fn received(&self, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.shard.tell(self.now(), self.key, false, |engine, now, key| engine.received(now, key, bytes));
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
        // Once it was answered, a drop is as good an end as any.
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
