//! The state of a client's outbox: the counts of its backlog, the refusals when it is full, and the messages to its
//! worker.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::bound::Bound;
use super::counted::{COUNT_EVERY, Counted};
use super::handler::{Handler, ResponseHandler};
use super::measured::Measured;
use super::pauses::{Pauses, Told};
use super::recall::order::Recall;
use super::{in_hand, starts, usage};
use crate::clock::Clock;
use crate::error::{Delivery, Error, ErrorKind};
use crate::store::jobs::{DueLanes, JobEnd, Position};
use crate::store::{Id, LaneTier, Opened, records};

/// The state of one client's outbox.
pub(crate) struct OutboxState {
    pub(crate) store: Opened,
    pub(super) handler: Option<Handler>,
    pub(crate) works: bool,
    /// The jobs that this client accepted and that have not ended, if its worker sends no others.
    pub(super) own: Option<Mutex<HashMap<Id, LaneTier>>>,
    /// The most that one tenant may hold at one vendor.
    pub(super) most_in_hand: in_hand::Amount,
    pub(super) tier_weights: [u32; 3],
    /// How often the worker publishes its status in the store.
    pub(super) tell_every: Option<Duration>,
    pub(super) clock: Clock,
    pub(super) starts: starts::Starts,
    /// Lanes that got jobs in this process since the worker last looked.
    pub(super) fresh: Mutex<DueLanes>,
    /// Lanes whose limits allow a claimed job nothing for longer than it waits. Their jobs go back into the store.
    pub(super) refused: Mutex<HashSet<LaneTier>>,
    /// Outcomes to be written of jobs whose tasks still wait for the handler.
    pub(super) early: Mutex<Vec<JobEnd>>,
    pub(super) wake: Notify,
    /// The approximate number of jobs, and when they were counted.
    pub(super) backlog: AtomicI64,
    counted: Mutex<Counted>,
    /// The approximate number by tenant and vendor, where `max_lane_backlog` is configured.
    lanes: Mutex<HashMap<(String, String), LaneCount>>,
    /// How many messages or rows the hand-overs write in one transaction.
    pub(super) intake_bound: Mutex<Bound>,
    pub(super) recall: Recall,
    pub(super) usage: usage::NewUsage,
    pub(super) pauses: Mutex<Pauses>,
    /// Not held together with `pauses`.
    pub(super) told: Told,
    /// Held while usage is written, and while pauses are. A shutdown writes them too: without it, it would not wait for what
    /// the background task has taken and not written yet.
    pub(super) writes_usage: tokio::sync::Mutex<()>,
    pub(super) writes_pauses: tokio::sync::Mutex<()>,
    pub(super) measured: Measured,
    pub(super) stop: watch::Sender<bool>,
    pub(super) ended: watch::Sender<bool>,
}

/// The approximate number of a lane's jobs.
#[derive(Clone, Copy, Debug)]
struct LaneCount {
    jobs: i64,
    counted: Counted,
}

/// The builder's settings of the outbox.
pub(crate) struct Settings {
    pub(crate) works: bool,
    /// Whether the worker sends only the jobs that this client accepts.
    pub(crate) only_own: bool,
    /// The most that one tenant may hold at one vendor: jobs, and their bytes.
    pub(crate) max_jobs: usize,
    pub(crate) max_job_bytes: usize,
    pub(crate) tier_weights: [u32; 3],
    /// How often the worker publishes its status in the store.
    pub(crate) tell_every: Option<Duration>,
}

/// The age up to which the count of a lane that has reached its bound is used, or twice the time that the count took, if that
/// is longer.
const COUNT_FULL_EVERY: Duration = Duration::from_millis(500);
/// Lanes that are remembered until the worker looks. The worker finds further lanes itself a moment later, in the
/// store.
const MAX_FRESH: usize = 100_000;

impl OutboxState {
    pub(crate) fn new(
        store: Opened,
        handler: Option<Arc<dyn ResponseHandler>>,
        settings: Settings,
        clock: Clock,
    ) -> OutboxState {
        let Settings { works, only_own, max_jobs, max_job_bytes, tier_weights, tell_every } = settings;
        OutboxState {
            store,
            handler: handler.map(Handler::new),
            works,
            own: only_own.then(Mutex::default),
            most_in_hand: in_hand::Amount { jobs: max_jobs, bytes: max_job_bytes },
            tier_weights,
            tell_every,
            clock,
            starts: starts::Starts::new(clock),
            fresh: Mutex::default(),
            refused: Mutex::default(),
            early: Mutex::default(),
            wake: Notify::new(),
            backlog: AtomicI64::new(0),
            counted: Mutex::default(),
            lanes: Mutex::default(),
            intake_bound: Mutex::default(),
            recall: Recall::default(),
            usage: usage::NewUsage::new(clock.epoch()),
            pauses: Mutex::default(),
            told: Told::default(),
            writes_usage: tokio::sync::Mutex::default(),
            writes_pauses: tokio::sync::Mutex::default(),
            measured: Measured::default(),
            stop: watch::Sender::new(false),
            ended: watch::Sender::new(!works),
        }
    }

    /// Tells the worker that a lane has got a job.
    pub(super) fn lane_has_job(&self, lane: LaneTier) {
        if !self.works {
            return;
        }
        let mut fresh = self.fresh.lock();
        if fresh.len() < MAX_FRESH && fresh.last().is_none_or(|(last, _)| *last != lane) {
            // Usually the job is due later than those that were claimed. If it is not, because its transaction is committed
            // late or the store's clock was stepped back, a look finds it.
            fresh.push((lane, Position::LAST));
        }
        drop(fresh);
        self.wake.notify_one();
    }

    /// Tells a worker that sends only the jobs of this client of one of them.
    pub(super) fn add_own(&self, id: Id, lane: &LaneTier) {
        if let Some(own) = &self.own {
            own.lock().insert(id, lane.clone());
        }
    }

    /// Forgets a job of this client that has ended.
    pub(super) fn forget_own(&self, id: &Id) {
        if let Some(own) = &self.own {
            own.lock().remove(id);
        }
    }

    /// Tells the worker of lanes that have due jobs.
    pub(super) fn lanes_have_jobs(&self, lanes: DueLanes) {
        self.fresh.lock().extend(lanes);
        self.wake.notify_one();
    }

    /// Has the outcome of a job written although the job's task is still running.
    pub(super) fn end_early(&self, finish: JobEnd) {
        self.early.lock().push(finish);
        self.wake.notify_one();
    }

    /// Refuses a job when the backlog has reached its bound.
    pub(super) async fn check_backlog(&self, lane: &LaneTier) -> Result<(), Error> {
        if let Some(most) = self.store.limits.max_lane_backlog {
            self.check_lane(lane, i64::try_from(most).unwrap_or(i64::MAX)).await?;
        }
        let now = self.clock.now();
        let most = i64::try_from(self.store.limits.max_backlog).unwrap_or(i64::MAX);
        let is_full = || self.backlog.load(Relaxed) >= most;
        // Jobs that end in this process are subtracted meanwhile.
        let is_due = self.counted.lock().begin(now, is_full().then_some(COUNT_EVERY));
        if is_due {
            // Counts up to the bound only: a larger number would take longer to count and would not change the
            // decision.
            let found = self.store.read(most, records::count).await;
            // While an old snapshot is held, a count reads all that has ended since, and other reads wait for it.
            *self.counted.lock() = Counted::new(now, self.clock.now());
            // Without a new figure the old one decides: the write of the job tells whether the store can take it. The store
            // has logged the error.
            if let Ok(found) = found {
                self.backlog.store(found, Relaxed);
            }
        }
        if !is_full() {
            return Ok(());
        }
        let message = format!(
            "the outbox holds {most} requests, the most that `max_backlog` allows; enqueue less, or work faster"
        );
        Err(Error::not_sent(ErrorKind::QueueFull, message).with_retry_after(COUNT_EVERY))
    }

    /// Refuses a job when the backlog of its tenant at its vendor has reached its bound. Jobs that end are not
    /// subtracted from the count; a count that has reached the bound is repeated soon instead.
    async fn check_lane(&self, lane: &LaneTier, most: i64) -> Result<(), Error> {
        let now = self.clock.now();
        let key = (lane.tenant.clone(), lane.vendor.clone());
        let known = self.lanes.lock().get_mut(&key).map(|known| {
            let full_every = (known.jobs >= most).then_some(COUNT_FULL_EVERY);
            (known.jobs, known.counted.begin(now, full_every))
        });
        let count = match known {
            Some((jobs, false)) => jobs,
            // Without any figure each call counts.
            None | Some((_, true)) => {
                let found = self.store.read((lane.clone(), most), records::count_lane).await;
                let counted = Counted::new(now, self.clock.now());
                let mut lanes = self.lanes.lock();
                let jobs = match (found, lanes.get(&key)) {
                    (Ok(found), _) => found,
                    // The old figure decides, as for the whole backlog.
                    (Err(_), Some(known)) => known.jobs,
                    (Err(error), None) => return Err(error),
                };
                if lanes.len() >= MAX_FRESH {
                    lanes.clear();
                }
                lanes.insert(key, LaneCount { jobs, counted });
                jobs
            }
        };
        if count < most {
            return Ok(());
        }
        let why =
            format_args!("the outbox holds {most} requests of this tenant, the most that `max_lane_backlog` allows");
        let error = Error::of_tenant(&lane.tenant, &lane.vendor, ErrorKind::QueueFull, Delivery::NotSent, why);
        Err(error.with_retry_after(COUNT_FULL_EVERY))
    }

    /// Adds an accepted job to the counts.
    pub(super) fn count_in(&self, lane: &LaneTier) {
        self.backlog.fetch_add(1, Relaxed);
        if self.store.limits.max_lane_backlog.is_some() {
            let key = (lane.tenant.clone(), lane.vendor.clone());
            if let Some(known) = self.lanes.lock().get_mut(&key) {
                known.jobs += 1;
            }
        }
    }

    /// Takes a job out of the counts that was counted and not accepted.
    pub(super) fn count_out(&self, lane: &LaneTier) {
        self.backlog.fetch_sub(1, Relaxed);
        if self.store.limits.max_lane_backlog.is_some() {
            let key = (lane.tenant.clone(), lane.vendor.clone());
            if let Some(known) = self.lanes.lock().get_mut(&key) {
                known.jobs -= 1;
            }
        }
    }

    /// Stops claiming, releases jobs whose exchange has not begun, and waits up to `grace` for the others. Returns
    /// whether all ended in that time.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        let mut ended = self.ended.subscribe();
        tokio::time::timeout(grace, ended.wait_for(|ended| *ended)).await.is_ok()
    }
}
