//! Who may send, when. Pure: state, `now` and an input go in, an answer comes out. No runtime, no I/O, no clock.
//!
//! A request is *submitted* with its tier, endpoint and cost. It is granted at once when no request waits on any of its
//! limits and all of them have room, or it waits. A grant is a *permit* and goes through three moments: *started* (the
//! exchange is in flight), *answered* (the rate interval ends) and *finished* (the slot is free). The driver calls
//! [`Engine::poll`] at [`Engine::poll_timeout`], and picks up what was granted with [`Engine::claim`].
//!
//! | file | what it decides |
//! |---|---|
//! | `admission.rs` | who may wait at all: bounds, deadlines, costs |
//! | `scheduler.rs` | whose turn it is: tiers, lanes, endpoints |
//! | `branch.rs` | where lanes that share a limit stand in that tree |
//! | `turns.rs` | whether the limits let it go, and what to wait for if not |
//! | `wait_points.rs` | where requests wait for a limit, and who is woken when it has room |
//! | `limit/` | one limit: bucket, guard, slots |
//! | `throttle/` | what the vendor's own word makes slower: pauses, spacing, learned rates |
//! | `pushback.rs` | what an answer changes |
//! | `attribution.rs` | of which limit an answer speaks |
//! | `hosts.rs` | whether it speaks for all who share the limit |
//! | `news.rs` | nothing: what events are to tell of a pause, and of which limit |
//! | `group_pause.rs` | pauses of an account, or of all who call a vendor |
//! | `permit.rs`, `permits.rs` | what happens to a permit until it ends |
//! | `cells.rs` | the limits that a permit took from, whatever has become of its lane since |
//! | `replay.rs` | nothing: what was sent before this process was |
//! | `change.rs` | lanes that come, change and go |
//! | `under_way.rs` | in which limits of requests at once a change counts what is in flight |
//! | `deferred.rs` | grants that are picked up, and started then or by a second call |
//! | `moving.rs` | lanes that go to another engine |
//! | `sweep.rs` | lanes that rest, and memory that is no longer needed |
//! | `view.rs` | nothing: what a lane looks like from outside |
//! | `check.rs` | nothing: whether a request could go now |
//! | `copy.rs`, `forecast.rs` | nothing: a copy of a lane, and what would become of it |

mod admission;
mod ask;
mod attribution;
mod branch;
mod cells;
mod change;
mod check;
mod copy;
mod correction;
pub(crate) mod cost;
mod deferred;
pub(crate) mod endpoint;
mod forecast;
mod group;
mod group_pause;
mod hosts;
mod index;
mod lane;
pub(crate) mod limit;
mod moving;
mod need;
mod news;
mod origin;
mod pace;
mod permit;
mod permits;
pub(crate) mod plan;
mod pushback;
mod replay;
mod scheduler;
pub(crate) mod slab;
mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
mod turns;
mod under_way;
mod view;
mod wait_points;
mod waiting;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hashbrown::{DefaultHashBuilder, HashMap};

use crate::clock::Time;
pub(crate) use ask::{Answer, Ask, Claim, Refusal, Until, WaitReason};
pub(crate) use check::Check;
pub(crate) use forecast::{Batch, forecast};
pub(crate) use group::Group;
use lane::Lanes;
pub(crate) use lane::hash_ids;
pub(crate) use news::{Forgotten, Noticed, OfLimit};
pub(crate) use origin::Whose;
use permit::Permit;
pub(crate) use pushback::{Feedback, FeedbackEffect};
use scheduler::Tree;
pub(crate) use slab::excess;
use slab::{Key, Slab};
pub(crate) use sweep::Sweep;
pub(crate) use view::{Holder, LimitView, Sum, View};
use waiting::{BacklogIndex, Queue, Waiter};

/// A permit that was granted and not started for this long is taken back and offered to the next, in nanoseconds.
pub(crate) const UNSTARTED_NS: u64 = 100_000_000;

/// A queued grant is charged at the moment it was due, up to this long ago, in nanoseconds: tokio's timers wake about
/// 1 ms late (2 ms seen), which would cost a bucket of one a third of its rate at 500/s.
const LATENESS_NS: u64 = 5_000_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// A parked node may go on.
    Unpark { node: Key, parking: u32 },
    /// A caller stops waiting.
    GiveUp { waiter: Key },
}

/// A bound on what may wait in all engines of a client together, and how many do.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    most: u32,
    waiting: Arc<AtomicU32>,
}

impl Bound {
    pub(crate) fn new(most: u32) -> Bound {
        Bound { most, waiting: Arc::default() }
    }

    fn is_reached(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.most
    }
}

/// The decisions of one shard.
pub(crate) struct Engine {
    /// The latest moment that was passed in: time does not go back in here.
    now: Time,
    bound: Bound,
    lanes: Lanes,
    tree: Tree,
    queues: Slab<Queue>,
    waiters: Slab<Waiter>,
    waiting: u32,
    backlog_index: BacklogIndex,
    permits: Slab<Permit>,
    /// Permits of lanes that have gone to another engine, where they are counted too.
    departed: u32,
    /// Groups of lanes that wait, by their hash, and until when.
    standing: HashMap<u64, group::Standing>,
    /// Granted and perhaps not started, in the order of granting.
    unstarted: VecDeque<(Time, Key)>,
    /// No permit needs settling by time before this moment.
    permit_due: Time,
    timers: BinaryHeap<Reverse<(Time, Timer)>>,
    /// Roots under which something may have become possible, and since when.
    dirty: Vec<(Key, Time)>,
    woken: Vec<Key>,
    /// What events, logs and metrics are to tell of this decision.
    news: Vec<Noticed>,
    /// Pauses that were told of and are forgotten.
    forgotten: Vec<Forgotten>,
    shutdown: bool,
    /// Lanes are being changed one by one.
    changing: bool,
    /// Holders of limits that grant nothing until that is over.
    gathering: Vec<Key>,
}

impl Engine {
    pub(crate) fn new(bound: Bound, hasher: DefaultHashBuilder) -> Engine {
        Engine {
            now: Time::ZERO,
            bound,
            lanes: Lanes::new(hasher),
            tree: Tree::default(),
            queues: Slab::new(),
            waiters: Slab::new(),
            waiting: 0,
            backlog_index: BacklogIndex::default(),
            permits: Slab::new(),
            departed: 0,
            standing: HashMap::default(),
            unstarted: VecDeque::new(),
            permit_due: Time::MAX,
            timers: BinaryHeap::new(),
            dirty: Vec::new(),
            woken: Vec::new(),
            news: Vec::new(),
            forgotten: Vec::new(),
            shutdown: false,
            changing: false,
            gathering: Vec::new(),
        }
    }

    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    /// Lets time pass: what is due by `now` happens.
    pub(crate) fn poll(&mut self, now: Time) {
        let now = self.tick(now);
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Unpark { node, parking } => {
                    if self.tree.is_parked(node, parking) {
                        self.unpark(node, at);
                    }
                }
                Timer::GiveUp { waiter } => self.give_up(waiter),
            }
        }
        self.revoke_unstarted(now);
        self.settle_overdue(now);
        self.run_turns();
    }

    /// When to poll next, if nothing else happens before. Later than the last `now`.
    #[inline]
    pub(crate) fn poll_timeout(&mut self) -> Option<Time> {
        let due = if self.timers.is_empty() && self.unstarted.is_empty() {
            self.permit_due
        } else {
            self.next_timer().min(self.next_unstarted()).min(self.permit_due)
        };
        (due < Time::MAX).then(|| due.max(self.now.plus_nanos(1)))
    }

    fn next_timer(&mut self) -> Time {
        while let Some(Reverse((_, timer))) = self.timers.peek() {
            let live = match timer {
                Timer::Unpark { node, parking } => self.tree.is_parked(*node, *parking),
                Timer::GiveUp { waiter } => self.is_queued(*waiter),
            };
            if live {
                break;
            }
            self.timers.pop();
        }
        self.timers.peek().map_or(Time::MAX, |Reverse((at, _))| *at)
    }

    fn set_timer(&mut self, at: Time, timer: Timer) {
        if at < Time::MAX {
            self.timers.push(Reverse((at, timer)));
        }
        // Timers of what has ended stay until they are due; a rebuild keeps them from outnumbering the living.
        if self.timers.len() > 64 + 4 * (self.waiters.len() + self.queues.len()) {
            let timers = std::mem::take(&mut self.timers);
            self.timers = timers
                .into_iter()
                .filter(|Reverse((_, timer))| match timer {
                    Timer::Unpark { node, parking } => self.tree.is_parked(*node, *parking),
                    Timer::GiveUp { waiter } => self.waiters.get(*waiter).is_some(),
                })
                .collect();
        }
    }

    /// Waiters that were granted or refused since the last call: the holder of one calls [`claim`](Self::claim).
    pub(crate) fn woken(&mut self) -> std::vec::Drain<'_, Key> {
        self.woken.drain(..)
    }

    /// No waiter has been woken since the last [`woken`](Self::woken).
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.woken.is_empty()
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Permits of lanes here that have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.permits.len().saturating_sub(self.departed as usize)
    }

    /// A request waits, or holds a permit. One whose caller has gone away ends by itself.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting > 0 || self.permits.keys().any(|permit| !self.permits[permit].is_abandoned())
    }

    pub(crate) fn lane_count(&self) -> usize {
        self.lanes.slab.len()
    }

    /// Requests of a lane that wait, per tier.
    pub(crate) fn waiting_in(&self, lane: Key) -> [u32; 3] {
        let waiting = self.lanes.slab.get(lane).and_then(|lane| lane.waiting.as_ref());
        waiting.map_or([0; 3], |waiting| waiting.waiting)
    }

    /// From now on no request is admitted; waiting requests go on waiting.
    pub(crate) fn close(&mut self) {
        self.shutdown = true;
    }

    /// From now on no request is admitted, and waiting requests are refused.
    pub(crate) fn shut_down(&mut self, now: Time) {
        self.tick(now);
        self.shutdown = true;
        let waiting: Vec<Key> = self.waiters.keys().collect();
        for waiter in waiting {
            self.refuse_waiter(waiter, Refusal::Shutdown);
        }
    }
}
