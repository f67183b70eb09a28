//! The decisions of which request may be sent when. Pure: state, `now` and an input go in, an answer comes out; no
//! runtime, no I/O, no clock.
//!
//! This crate is an implementation detail of `integration-client` without a promise of stability. It is a crate of its
//! own so that the compiler keeps it pure: it can call nothing that is not among its few dependencies.
//!
//! A request is *submitted* with its tier, endpoint and cost. It is granted at once when no request waits on any of its
//! limits and all of them have room, or it waits. A grant is a *permit* and goes through three moments: *started* (the
//! exchange is in flight), *answered* (the rate interval ends) and *finished* (the slot is free). The driver calls
//! [`Engine::poll`] at [`Engine::poll_timeout`], and picks up what was granted with [`Engine::claim`].
//!
//! # Verbs
//!
//! All that a driver can call on [`Engine`]:
//!
//! | what for | verbs |
//! |---|---|
//! | a request asks for a permit | `submit`, `submit_deferred`, `cancel`, `check` (without asking) |
//! | its grant is picked up | `woken`, `claim`, `granted`, `put_back` |
//! | its exchange | `answered`, `answered_with`, `outlasts`, `corrected`, `received`, `received_at_least`, `window_ends`, `finished`, `abandoned`, `not_sent`, `permit_of` |
//! | time passes | `poll`, `poll_timeout`, `is_quiet` |
//! | lanes come and change | `upsert`, `retire`, `pin`, `unpin`, `begin_changes`, `end_changes`, `move_out`, `take_over`, `replay` |
//! | lanes rest | `sweep`, `is_empty`, `waiters_end` |
//! | pauses | `pause`, `unpause`, `resume`, `is_held`, `paused_until`, `pause_group`, `forget_group`, `forgotten`, `stated_pauses`, `counts_in`, `restore_pause` |
//! | limits that several processes share | `wishes`, `hold`, `give_all`, `is_starved`, `was_starved` |
//! | a look | `find`, `has`, `usual`, `headroom`, `view`, `brief`, `survey`, `copy`, `waiting`, `waiting_in`, `in_flight`, `is_busy`, `lane_count` |
//! | begin and end | `new`, `close`, `shut_down` |
//!
//! # State
//!
//! Each part has one owner with private fields, and the engine's own files combine what the owners say:
//!
//! | file | what it owns |
//! |---|---|
//! | `lane.rs` | lanes, accounts and vendors with their limits; a change of the configuration that goes through them |
//! | `limit/`, `throttle/` | one limit: bucket, guard, slots; what the vendor's own word makes slower |
//! | `scheduler.rs` | the tree of tiers, accounts, lanes and endpoints, which says whose turn it is |
//! | `waiting/` | waiters, their queues, and the places where a limit stops them |
//! | `permit_book.rs`, `permit.rs` | permits, which of them are not started, and when the next is overdue |
//! | `timers.rs` | what happens at a moment of its own |
//! | `group.rs` | pauses of accounts and vendors whose limits are not configured |
//! | `pool_places.rs` | where limits are in use whose units several processes share |
//! | `notices.rs` | what events are to tell of pauses, and of which limit |
//!
//! # Decisions
//!
//! | file | what it decides |
//! |---|---|
//! | `admission.rs` | who may wait at all: bounds, deadlines, costs |
//! | `turns.rs` | whether the limits let a request go, and what to wait for if not |
//! | `reservations.rs` | which queue goes first where one has reserved the next units |
//! | `branch.rs`, `wait_points.rs` | where lanes stand in the tree, and who is woken when a limit has room |
//! | `permits.rs`, `deferred.rs` | what happens to a permit until it ends; grants that are picked up by a second call |
//! | `pushback.rs`, `reports.rs`, `attribution.rs`, `hosts.rs` | what an answer changes, of which limit it speaks, and for whom |
//! | `correction.rs` | what an answer corrects: the cost of a request, the end of a window |
//! | `pool.rs` | what this process wants and holds of limits whose units several processes share; `limit/pooled_cell.rs` and `limit/holding.rs` count them, also when the store does not answer |
//! | `stopped_lanes.rs` | which lanes a pause of a limit stops, and what becomes of their requests |
//! | `group_pause.rs`, `pause_notices.rs` | which lanes a pause of an account stops; what events tell of a pause |
//! | `stated_pauses.rs` | which pauses a later process is to keep, and which limit an earlier process's pause is of |
//! | `change.rs`, `under_way.rs`, `moving.rs`, `sweep.rs` | lanes that come, change, go to another engine, or rest |
//! | `replay.rs` | requests that other processes sent, and that still count in the windows of this one |
//! | `view.rs`, `check.rs`, `copy.rs`, `forecast.rs` | nothing: they report the state, or forecast from a copy of it when a request would be granted; a check wants units of limits that processes share |
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    missing_debug_implementations,
    rustdoc::private_intra_doc_links,
    reason = "it is public for one crate, of which it was a part: whoever uses it reads the sources"
)]

mod admission;
mod ask;
mod attribution;
mod branch;
mod cells;
mod change;
mod check;
mod copy;
mod correction;
pub mod cost;
mod deferred;
mod endpoint;
mod forecast;
mod group;
mod group_pause;
mod holder;
mod hosts;
mod index;
pub mod keys;
mod lane;
pub mod limit;
mod moving;
mod need;
mod notices;
mod operator_pause;
mod origin;
mod pace;
mod pause_notices;
mod permit;
mod permit_book;
mod permits;
pub mod plan;
mod pool;
mod pool_places;
mod pushback;
mod replay;
mod reports;
mod reservations;
mod scheduler;
pub mod slab;
mod stated_pauses;
mod stopped_lanes;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod throttle;
pub mod tier;
pub mod time;
mod timers;
mod turns;
mod under_way;
mod view;
mod wait_points;
mod waiting;

use hashbrown::DefaultHashBuilder;

pub use ask::{Answer, Ask, Attempt, Claim, Refusal, Until, WaitReason};
pub use check::Check;
pub use correction::Correction;
pub use forecast::{Batch, forecast};
pub use group::Group;
use group::GroupPauses;
use keys::{LaneKey, WaiterKey};
pub use lane::hash_ids;
use lane::{ChangeUnderWay, Lanes};
use notices::Notices;
pub use notices::{Forgotten, Holder, Noticed, OfLimit};
pub use origin::Whose;
use permit_book::Permits;
pub use pool_places::PooledLimit;
use pool_places::Pools;
pub use pushback::{Feedback, FeedbackEffect};
use scheduler::Tree;
pub use slab::excess;
pub use stated_pauses::{Only, StatedPause, Waits};
pub use sweep::Sweep;
#[cfg(test)]
use testing::{clock, config};
use time::Time;
use timers::{Timer, Timers};
pub use view::{Brief, LimitView, Sum, View};
pub use waiting::Bound;
use waiting::Waiters;

/// A queued grant is charged at the moment it was due, up to this long ago, in nanoseconds: tokio's timers wake about
/// 1 ms late (2 ms seen), which would cost a bucket of one a third of its rate at 500/s.
const LATENESS_NS: u64 = 5_000_000;

/// How long after a decision further evictions are made that are owed, in nanoseconds: others get the lock meanwhile.
const EVICTION_NS: u64 = 1_000_000;

/// The decisions of one shard. Each part of its state has one owner with private fields.
pub struct Engine {
    /// The latest moment that was passed in: time does not go back in here.
    now: Time,
    /// Lanes, accounts and vendors, with their limits.
    lanes: Lanes,
    /// Whose turn it is.
    tree: Tree,
    /// Requests that wait, in their queues.
    waiters: Waiters,
    /// Requests that may go, are in flight, or have been answered.
    permits: Permits,
    timers: Timers,
    /// Pauses of accounts and vendors whose limits are not configured.
    group_pauses: GroupPauses,
    /// Where limits are in use whose units several processes share.
    pools: Pools,
    /// What events, logs and metrics are to tell.
    notices: Notices,
    /// A change of the configuration that goes through the lanes.
    change: ChangeUnderWay,
    admission: Admission,
}

impl Engine {
    pub fn new(bound: Bound, hasher: DefaultHashBuilder) -> Engine {
        Engine {
            now: Time::ZERO,
            lanes: Lanes::new(hasher),
            tree: Tree::default(),
            waiters: Waiters::new(bound),
            permits: Permits::new(),
            timers: Timers::default(),
            group_pauses: GroupPauses::default(),
            pools: Pools::default(),
            notices: Notices::default(),
            change: ChangeUnderWay::default(),
            admission: Admission::Open,
        }
    }

    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Lets time pass: what is due by `now` happens.
    pub fn poll(&mut self, now: Time) {
        let now = self.tick(now);
        while let Some((at, timer)) = self.timers.pop_due(now) {
            match timer {
                Timer::Unpark { node, parking } => {
                    if self.tree.is_parked(node, parking) {
                        self.unpark(node, at);
                    }
                }
                Timer::Review { queue, at } => self.review(queue, at),
                Timer::GiveUp { waiter } => self.give_up(waiter),
            }
        }
        self.revoke_unstarted(now);
        self.settle_overdue(now);
        self.give_way();
        self.run_turns();
    }

    /// When to poll next, if nothing else happens before. Later than the last `now`.
    #[inline]
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let due = if self.timers.is_empty() && self.permits.has_no_unstarted() {
            self.permits.due()
        } else {
            let (tree, waiters) = (&self.tree, &self.waiters);
            let timer = self.timers.next(|timer| has_purpose(timer, tree, waiters));
            timer.min(self.permits.next_unstarted()).min(self.permits.due())
        };
        // A decision makes a bounded number of the evictions that are owed. No request may come for long, so the
        // caller is asked to poll for the rest.
        let due = if self.waiters.is_to_evict() { due.min(self.now.plus_nanos(EVICTION_NS)) } else { due };
        (due < Time::MAX).then(|| due.max(self.now.plus_nanos(1)))
    }

    fn set_timer(&mut self, at: Time, timer: Timer) {
        self.timers.set(at, timer);
        let (tree, waiters) = (&self.tree, &self.waiters);
        self.timers.trim(waiters.timed(), |timer| has_purpose(timer, tree, waiters));
    }

    /// Waiters that were granted or refused since the last call: the holder of one calls [`claim`](Self::claim).
    pub fn woken(&mut self) -> std::vec::Drain<'_, WaiterKey> {
        self.waiters.woken()
    }

    /// No waiter has been woken since the last [`woken`](Self::woken), and none has begun to wait for units of a pooled
    /// limit.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.waiters.woken_count() == 0 && !self.pools.is_starved()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> u32 {
        self.waiters.queued()
    }

    /// Permits of lanes here that have not ended.
    pub fn in_flight(&self) -> usize {
        self.permits.in_flight()
    }

    /// A request waits, or holds a permit. One whose caller has gone away ends by itself.
    pub fn is_busy(&self) -> bool {
        self.waiters.queued() > 0 || self.permits.iter().any(|permit| !permit.is_abandoned())
    }

    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// Requests of a lane that wait, per tier.
    pub fn waiting_in(&self, lane: LaneKey) -> [u32; 3] {
        let waiting = self.lanes.get(lane).and_then(|lane| lane.waiting.as_ref());
        waiting.map_or([0; 3], |waiting| waiting.waiting)
    }

    /// From now on no request is admitted. Those that were admitted earlier go on: they wait, and ask for permits.
    pub fn close(&mut self) {
        self.admission = self.admission.max(Admission::Closed);
    }

    /// From now on no request gets a permit, and waiting requests are refused.
    pub fn shut_down(&mut self, now: Time) {
        self.tick(now);
        self.admission = Admission::Ended;
        let waiting: Vec<WaiterKey> = self.waiters.keys().collect();
        for waiter in waiting {
            self.refuse_waiter(waiter, Refusal::Shutdown);
        }
    }
}

/// Which requests may ask for permits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Admission {
    Open,
    /// Those that were admitted earlier.
    Closed,
    /// None.
    Ended,
}

impl Admission {
    #[inline]
    fn refuses(self, ask: &Ask) -> bool {
        match self {
            Admission::Open => false,
            Admission::Closed => !ask.admitted,
            Admission::Ended => true,
        }
    }
}

/// Something can still happen when a timer is due.
fn has_purpose(timer: &Timer, tree: &Tree, waiters: &Waiters) -> bool {
    match timer {
        Timer::Unpark { node, parking } => tree.is_parked(*node, *parking),
        Timer::Review { queue, at } => waiters.queue(*queue).is_some_and(|queue| queue.review == Some(*at)),
        Timer::GiveUp { waiter } => waiters.is_queued(*waiter),
    }
}
