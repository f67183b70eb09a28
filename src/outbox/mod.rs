//! Requests that outlive the process: they are accepted into a [store](crate::store), sent as soon as the limits allow,
//! and never lost.
//!
//! [`enqueue`](crate::outbox::Outbox::enqueue) returns when the request is on the disk. From then on the request is in
//! exactly one place: in the outbox, among the finished jobs (delivered or cancelled), or among the dead letters. A
//! process that [works](crate::IntegrationClientBuilder::work) claims jobs for which the limits have room, at most 250
//! ms of work for each tenant, vendor and priority, and sends them as `send` does: with the same scheduling, limits,
//! retries and events. All other jobs wait in the store and take no memory, however many they are.
//!
//! # Once or more than once
//! A job is delivered at least once. When a process is killed while an exchange is in flight, the library cannot know
//! whether the vendor acted on the request. The job is sent again if a repetition does no harm: its method is
//! idempotent, or the vendor's entry names an `idempotency_header`. The idempotency key is made when the request is
//! accepted and stays the same in all attempts, after restarts, and when a dead letter is sent again, so that a vendor
//! that honours the key acts once. Any other job becomes a [dead letter](DeadLetters) with the reason `ambiguous`,
//! unless `on_ambiguous = "resend"` is configured.
//!
//! # When things go wrong
//! - When an attempt is refused or fails, the job goes back to the store, due when its wait is over. It does not wait
//!   in memory.
//! - When a process dies, its heartbeat stops. Other processes take over its jobs after [the
//!   lease](crate::store::Store::lease), 20 s, and five seconds more. With SQLite the next process takes them over as
//!   soon as it starts.
//! - A heartbeat is a number that grows. Other processes wait for the next one by monotonic clocks, which no clock step
//!   moves. While the store is down for all processes, no process loses a job: each gets a new lease when the store is
//!   back.
//! - A process that was stopped for longer than its lease and then resumes finds its jobs taken over and sends nothing,
//!   because it must record every exchange before the exchange leaves and the store rejects that record. The outcomes
//!   of exchanges that it had already made still count: a delivery finishes the job, even if the job had become a dead
//!   letter `ambiguous` in the meantime.
//! - Every exchange is recorded, so that a new process counts what the old one sent against the limits. The permit of
//!   an exchange starts when its record is on the disk: a slow store delays exchanges and never causes more of them
//!   than the limits allow.
//! - A job of which five exchanges began without an outcome becomes a dead letter with the reason `poison`: it may be
//!   what kills the process. So does a job that was claimed 25 times without an outcome; that bound is higher, because
//!   such a job most likely only waited while processes were killed.
//! - A store that cannot be written (a full disk, an unreachable server) refuses new requests, and the error says why.
//!   The outcomes of jobs stay in memory until they can be written, and no more jobs are claimed than fit beside them.
//!   kept until it can be written again, and nothing more is claimed than fits beside it.

mod accept;
mod batch;
mod dead_letters;
mod ends;
mod handler;
mod intake;
mod job;
mod lanes;
pub(crate) mod leases;
mod pool;
mod queues;
mod recall;
mod receipt;
mod sealing;
mod sink;
pub(crate) mod starts;
mod stored;
mod worker;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::BoxError;
use crate::BoxFuture;
use crate::Priority;
use crate::clock::{Clock, Time};
use crate::core::Core;
use crate::dead_letter::DeadLetter;
use crate::error::{Delivery, Error, ErrorKind};
use crate::store::jobs::Finish;
use crate::store::{Id, LaneTier, Opened, records};

pub use self::batch::{Batch, BatchCounts, Checked, Ended, Numbers};
pub use self::dead_letters::{DeadLetters, KeptLetter};
use self::handler::Handler;
pub use self::intake::{Intake, IntakeSource};
pub use self::queues::{Queue, WorkerStatus};
pub use self::receipt::{KeptResponse, Receipt, Status};
pub(crate) use self::sink::StoreSink;
pub(crate) use self::worker::work;

/// The durable outbox of a client, from [`IntegrationClient::outbox`](crate::IntegrationClient::outbox). Cheap to clone;
/// a clone keeps the client alive.
#[derive(Clone)]
pub struct Outbox {
    core: Arc<Core>,
    state: Option<Arc<OutboxState>>,
    /// Keeps the client's worker running, as a clone of the client does.
    _held: Arc<()>,
}

impl Outbox {
    pub(crate) fn new(core: Arc<Core>, state: Option<Arc<OutboxState>>, held: Arc<()>) -> Outbox {
        Outbox { core, state, _held: held }
    }

    pub(crate) fn state(&self) -> Result<&Arc<OutboxState>, Error> {
        let none = "the client has no store; give it one with `IntegrationClientBuilder::store`";
        self.state.as_ref().ok_or_else(|| Error::not_sent(ErrorKind::Store, none))
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("has_store", &self.state.is_some()).finish_non_exhaustive()
    }
}

/// Receives the vendors' answers to jobs.
///
/// # When it is called
/// The handler is called after the vendor's answer, and usually before the job leaves the outbox. So it is called at
/// least once for each job: a process that is killed in between sends the job again, with its key, and calls the
/// handler again. A call that fails or panics is tried three times in all; then the client logs an error and keeps the
/// answer in the store ([`Status::Delivered`]).
///
/// # What it may do
/// - **Wait, and block its thread.** Calls run on tokio's threads for blocking work, at most 64 at once; a call that is
///   waiting in an `await` occupies no thread. Sends, leases and other jobs' outcomes never wait for a call.
/// - **Take its time.** After one second the client writes the outcome of the job together with the answer, and the
///   call goes on. A process that is killed later than that does not call again: the answer is in [`Status::Delivered`]
///   (unless the vendor's entry says `at_rest = "redacted"`).
/// - **Stay slow.** A job counts against
///   [`IntegrationClientBuilder::max_jobs`](crate::IntegrationClientBuilder::max_jobs) until its call is over, so that
///   fewer jobs are claimed when the handler cannot keep up.
///
/// # What becomes of a call that does not return
/// After 30 s, which include the wait for one of the 64 threads, the client stops waiting for the call and does not
/// repeat it, because it may still be running. The client logs an error, and the answer stays in the store. A call that
/// blocks its thread for ever keeps that thread, and tokio's runtime waits for it when the runtime is dropped
/// (`Runtime::shutdown_background` does not).
///
/// A closure that takes a [`Delivered`] is a handler too; it ignores jobs that are given up:
///
/// ```
/// use integration_client::IntegrationClient;
/// use integration_client::outbox::Delivered;
///
/// let builder = IntegrationClient::builder().response_handler(|answer: Delivered| async move {
///     println!("job {} of {}: {}", answer.id, answer.tenant, answer.status);
///     Ok(())
/// });
/// # drop(builder);
/// ```
pub trait ResponseHandler: Send + Sync + 'static {
    /// The vendor accepted a job.
    ///
    /// # Errors
    /// The handler is called again. The error's text goes into an event, so it must hold no secret.
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>>;

    /// A job was given up, and becomes a dead letter right after this call. The default does nothing.
    ///
    /// A letter with the reason `ambiguous` may be withdrawn: the process that lost the job to another may still learn
    /// the outcome of its exchange, and calls [`delivered`](Self::delivered) if that was a delivery.
    ///
    /// # Errors
    /// As for [`delivered`](Self::delivered).
    fn given_up<'a>(&'a self, letter: &'a DeadLetter) -> BoxFuture<'a, Result<(), BoxError>> {
        let _ = letter;
        Box::pin(std::future::ready(Ok(())))
    }
}

impl<F, R> ResponseHandler for F
where
    F: Fn(Delivered) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(self(answer.clone()))
    }
}

/// The answer to a job.
#[derive(Clone)]
#[non_exhaustive]
pub struct Delivered {
    /// The job's id, as in its [receipt](Receipt::id).
    pub id: String,
    /// The tenant on whose behalf the request was sent.
    pub tenant: String,
    /// The vendor that answered.
    pub vendor: String,
    /// The priority of the job.
    pub priority: Priority,
    /// The caller's metadata of the request.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// The answer's status.
    pub status: StatusCode,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The body of the answer; empty where the body broke off, because a partial body is discarded.
    pub body: Bytes,
    /// The number of exchanges that the job took.
    pub attempts: u32,
}

impl std::fmt::Debug for Delivered {
    /// Shows no header value and no body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivered")
            .field("id", &self.id)
            .field("tenant", &self.tenant)
            .field("vendor", &self.vendor)
            .field("status", &self.status)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The state of one client's outbox.
pub(crate) struct OutboxState {
    pub(crate) store: Opened,
    handler: Option<Handler>,
    pub(crate) works: bool,
    /// The most that one tenant may hold at one vendor.
    most_in_hand: pool::Amount,
    tier_weights: [u32; 3],
    /// How often the worker publishes its status in the store.
    tell_every: Option<Duration>,
    clock: Clock,
    starts: starts::Starts,
    /// Lanes that got jobs in this process since the worker last looked.
    fresh: Mutex<Vec<LaneTier>>,
    /// Outcomes to be written of jobs whose tasks still wait for the handler.
    early: Mutex<Vec<Finish>>,
    wake: Notify,
    /// The approximate number of jobs, and when they were counted.
    backlog: AtomicI64,
    counted: Mutex<Option<Time>>,
    /// The approximate number by tenant and vendor, where `max_lane_backlog` is configured.
    lanes: Mutex<HashMap<(String, String), (i64, Time)>>,
    recall: recall::Recall,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

/// The builder's settings of the outbox.
pub(crate) struct Settings {
    pub(crate) works: bool,
    /// The most that one tenant may hold at one vendor: jobs, and their bytes.
    pub(crate) max_jobs: usize,
    pub(crate) max_job_bytes: usize,
    pub(crate) tier_weights: [u32; 3],
    /// How often the worker publishes its status in the store.
    pub(crate) tell_every: Option<Duration>,
}

/// The age up to which a count of the backlog is used.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// The age up to which the count of a lane that has reached its bound is used.
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
        let Settings { works, max_jobs, max_job_bytes, tier_weights, tell_every } = settings;
        OutboxState {
            store,
            handler: handler.map(Handler::new),
            works,
            most_in_hand: pool::Amount { jobs: max_jobs, bytes: max_job_bytes },
            tier_weights,
            tell_every,
            clock,
            starts: starts::Starts::new(clock),
            fresh: Mutex::default(),
            early: Mutex::default(),
            wake: Notify::new(),
            backlog: AtomicI64::new(0),
            counted: Mutex::default(),
            lanes: Mutex::default(),
            recall: recall::Recall::default(),
            stop: watch::Sender::new(false),
            ended: watch::Sender::new(!works),
        }
    }

    /// Tells the worker that a lane has got a job.
    fn lane_has_job(&self, lane: LaneTier) {
        if !self.works {
            return;
        }
        let mut fresh = self.fresh.lock();
        if fresh.len() < MAX_FRESH && fresh.last() != Some(&lane) {
            fresh.push(lane);
        }
        drop(fresh);
        self.wake.notify_one();
    }

    /// Has the outcome of a job written although the job's task is still running.
    fn end_early(&self, finish: Finish) {
        self.early.lock().push(finish);
        self.wake.notify_one();
    }

    /// Refuses a job when the backlog has reached its bound.
    async fn check_backlog(&self, lane: &LaneTier) -> Result<(), Error> {
        if let Some(most) = self.store.limits.max_lane_backlog {
            self.check_lane(lane, i64::try_from(most).unwrap_or(i64::MAX)).await?;
        }
        let now = self.clock.now();
        let stale = {
            let mut counted = self.counted.lock();
            let stale = counted.is_none_or(|at| now.since(at) > COUNT_EVERY);
            if stale {
                *counted = Some(now);
            }
            stale
        };
        let most = i64::try_from(self.store.limits.max_backlog).unwrap_or(i64::MAX);
        if stale {
            // Counts up to the bound only: a larger number would take longer to count and would not change the
            // decision.
            let found = self.store.read(most, records::count).await?;
            self.backlog.store(found, Relaxed);
        }
        if self.backlog.load(Relaxed) < most {
            return Ok(());
        }
        let message = format!(
            "the outbox holds {most} requests, as many as it may (`max_backlog`); enqueue less, or work faster"
        );
        Err(Error::not_sent(ErrorKind::QueueFull, message).with_retry_after(COUNT_EVERY))
    }

    /// Refuses a job when the backlog of its tenant at its vendor has reached its bound. Jobs that end are not
    /// subtracted from the count; the count is repeated soon instead.
    async fn check_lane(&self, lane: &LaneTier, most: i64) -> Result<(), Error> {
        let now = self.clock.now();
        let key = (lane.tenant.clone(), lane.vendor.clone());
        let known = self.lanes.lock().get(&key).copied();
        let fresh = known.filter(|(count, at)| {
            let every = if *count < most { COUNT_EVERY } else { COUNT_FULL_EVERY };
            now.since(*at) < every
        });
        let count = match fresh {
            Some((count, _)) => count,
            None => {
                let count = self.store.read((lane.clone(), most), records::count_lane).await?;
                let mut lanes = self.lanes.lock();
                if lanes.len() >= MAX_FRESH {
                    lanes.clear();
                }
                lanes.insert(key, (count, now));
                count
            }
        };
        if count < most {
            return Ok(());
        }
        let why =
            format_args!("the outbox holds {most} requests of this tenant, as many as it may (`max_lane_backlog`)");
        let error = Error::of_tenant(&lane.tenant, &lane.vendor, ErrorKind::QueueFull, Delivery::NotSent, why);
        Err(error.with_retry_after(COUNT_FULL_EVERY))
    }

    /// Adds an accepted job to the counts.
    fn count_in(&self, lane: &LaneTier) {
        self.backlog.fetch_add(1, Relaxed);
        if self.store.limits.max_lane_backlog.is_some() {
            let key = (lane.tenant.clone(), lane.vendor.clone());
            if let Some((count, _)) = self.lanes.lock().get_mut(&key) {
                *count += 1;
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

/// A new unique id: ids sort by their time, and 74 bits are random.
pub(crate) fn new_id(clock: Clock) -> Id {
    let since = clock.wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let at = uuid::Timestamp::from_unix(uuid::NoContext, since.as_secs(), since.subsec_nanos());
    Id::new_v7(at)
}

fn priority(tier: i64) -> Priority {
    match tier {
        0 => Priority::High,
        1 => Priority::Normal,
        _ => Priority::Low,
    }
}
