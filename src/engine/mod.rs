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
mod group_pause;
mod hosts;
mod index;
mod lane;
pub(crate) mod limit;
mod moving;
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
pub(crate) use check::Check;
use cost::Cost;
pub(crate) use forecast::{Batch, forecast};
pub(crate) use group_pause::Group;
use lane::Lanes;
pub(crate) use lane::hash_ids;
use limit::BlockedBy;
pub(crate) use news::{Forgotten, Noticed, OfLimit};
pub(crate) use origin::Whose;
use permit::Permit;
use plan::EndpointId;
pub(crate) use pushback::{Feedback, FeedbackEffect};
use scheduler::Tree;
pub(crate) use slab::excess;
use slab::{Key, Slab};
pub(crate) use sweep::Sweep;
pub(crate) use view::{Holder, Sum, View};
use waiting::{BacklogIndex, Queue, Waiter};

/// A permit that was granted and not started for this long is taken back and offered to the next, in nanoseconds.
pub(crate) const UNSTARTED_NS: u64 = 100_000_000;

/// A queued grant is charged at the moment it was due, up to this long ago, in nanoseconds: tokio's timers wake about
/// 1 ms late (2 ms seen), which would cost a bucket of one a third of its rate at 500/s.
const LATENESS_NS: u64 = 5_000_000;

/// A request for a permit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// 0 high, 1 normal, 2 low.
    pub(crate) tier: u8,
    pub(crate) endpoint: EndpointId,
    pub(crate) cost: Cost,
    pub(crate) retry: bool,
    /// Now or not at all.
    pub(crate) immediate: bool,
    /// When the caller stops waiting.
    pub(crate) give_up: Time,
    /// The vendor's pauses do not count as waiting: after one the caller waits for so long again, in nanoseconds. 0 where
    /// `give_up` holds whatever happens.
    pub(crate) patience_ns: u64,
    /// How long the exchange may take, in nanoseconds: its permit is settled after that, whatever became of it.
    pub(crate) attempt_ns: u64,
}

/// What became of a request for a permit.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// May go now; the permit counts as started.
    Granted(Key),
    /// Waits under this key until the engine names it in [`Engine::woken`].
    Wait { waiter: Key, until: Until, reason: WaitReason },
    /// Not now, nor later by waiting.
    Refused(Refusal),
}

impl Answer {
    /// The answer to a request that goes now or not at all.
    #[inline(always)]
    pub(crate) fn now(self) -> Result<Key, Box<Refusal>> {
        match self {
            Answer::Granted(permit) => Ok(permit),
            Answer::Refused(refusal) => Err(Box::new(refusal)),
            Answer::Wait { until, reason, .. } => Err(Box::new(Refusal::NotNow { until, reason })),
        }
    }
}

/// Until when a request waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// At this moment if nothing else happens; before it only if something is given back or a limit is raised.
    At(Time),
    /// Until something in flight ends; until this moment at the latest.
    OnSettle(Time),
    /// Until others have had their turn; not before this moment.
    Turn(Time),
}

impl Until {
    pub(crate) fn not_before(self) -> Time {
        match self {
            Until::At(at) | Until::Turn(at) => at,
            Until::OnSettle(_) => Time::ZERO,
        }
    }
}

/// What a request waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WaitReason {
    /// The limit's name; none while others are first.
    pub(crate) limit: Option<Arc<str>>,
    /// What that limit lacks.
    pub(crate) lack: Option<BlockedBy>,
}

impl WaitReason {
    pub(crate) fn turn() -> WaitReason {
        WaitReason { limit: None, lack: None }
    }
}

/// Why a request gets no permit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// As many wait in this lane and tier as may.
    LaneFull {
        waiting: u32,
    },
    /// As many wait altogether as may, and this lane holds most of them.
    AllFull {
        waiting: u32,
    },
    /// The caller's time is up.
    Deadline,
    /// The caller's time will be up before the limits allow it.
    TooLate {
        earliest: Time,
    },
    /// The caller's time is up, and an operator's pause goes on.
    Held,
    /// The vendor wants to be left alone until then, and that is after the caller's time, or very long.
    RetryLater {
        at: Time,
    },
    /// The limit never holds as much as the request costs.
    TooExpensive {
        limit: Arc<str>,
        cost: u32,
        largest: u32,
    },
    /// Asked for now or not at all.
    NotNow {
        until: Until,
        reason: WaitReason,
    },
    UnknownEndpoint,
    /// The tenant was removed.
    Retired,
    /// There is no such lane; it may have been dropped while it rested.
    NoLane,
    Shutdown,
}

/// The answer to [`Engine::claim`].
#[derive(Debug)]
pub(crate) enum Claim {
    /// The permit is started. With what it waited for last.
    Started(Key, WaitReason),
    Waiting,
    Refused(Refusal),
}

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
    standing: HashMap<u64, group_pause::Standing>,
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
