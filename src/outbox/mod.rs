//! Requests that outlive the process: accepted into a [store](crate::store), sent as soon as the limits allow, and never
//! lost.
//!
//! [`enqueue`](crate::outbox::Outbox::enqueue) returns when the request is on the disk. From then on it is in exactly one
//! place: in the outbox, among what is done (delivered or cancelled), or among the dead letters. A process that
//! [works](crate::IntegrationClientBuilder::work) claims jobs for which the limits have room, at most 250 ms of work for each tenant, vendor
//! and priority, and sends them as `send` does: the same turns, limits, retries and events. The rest waits in the store,
//! whatever its size, and takes no memory.
//!
//! # Once or more than once
//! A job is delivered at least once. When a process is killed while an exchange is under way, nobody knows whether the
//! vendor acted. The job is sent again if that does no harm: a method that may be repeated, or a vendor whose entry names
//! an `idempotency_header`. Its key is made when the request is accepted and is the same in all attempts, after restarts,
//! and when a dead letter is sent again, so that a vendor that honours it acts once. Any other job becomes a
//! [dead letter](DeadLetters) with the reason `ambiguous`, unless `on_ambiguous = "resend"` says otherwise.
//!
//! # When things go wrong
//! - A refusal or a failure puts the job back, due when its wait is over. It waits in the store, not in memory.
//! - A process that dies gives no sign of life; its jobs go to others after [the lease](crate::store::Store::lease), 20 s, and
//!   five more. With SQLite they are taken up at once when the next process starts.
//! - A sign of life is a number that grows, and others wait for the next one by clocks that no step moves. While the store
//!   answers nobody, nobody loses a job: each gets a new lease when the store is back.
//! - A process that was stopped for longer than that and goes on finds its jobs gone, and sends nothing: every exchange is
//!   written down before it leaves, which is refused to it. What it knows of exchanges that have ended counts: a delivery takes
//!   the job out, also where it had become a dead letter `ambiguous` meanwhile.
//! - Every exchange is written down, so that a new process knows what the old one has sent and counts it against the limits. Its
//!   permit starts when the record is on the disk: a store that is slow delays it, and leads to nothing above the limits.
//! - A job of which five exchanges began and had no outcome becomes a dead letter with the reason `poison`: it may be what ends
//!   the process. So does one that was claimed 25 times without an outcome; most likely it only stood in line.
//! - A store that cannot be written (a full disk, a server that is away) refuses what is enqueued, in words. How jobs ended is
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

/// The durable outbox of a client: [`IntegrationClient::outbox`](crate::IntegrationClient::outbox). Cheap to clone; while
/// one exists, the client stays alive.
#[derive(Clone)]
pub struct Outbox {
    core: Arc<Core>,
    state: Option<Arc<OutboxState>>,
    /// Keeps the client's worker at work, as a clone of the client does.
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

/// Takes the answers to jobs.
///
/// # When it is called
/// After the vendor's answer, and as a rule before the job leaves the outbox, so at least once: a process that is killed in
/// between sends the job again, with its key, and calls it again. A call that fails or panics is made three times in all;
/// then an error is logged, and the answer is kept in the store ([`Status::Delivered`]).
///
/// # What it may do
/// - **Wait, and block its thread.** Calls run on tokio's threads for blocking work, at most 64 at once; a call that awaits
///   something occupies none. Sends, leases and other jobs' outcomes never wait for a call.
/// - **Take its time.** After one second the outcome of the job is written, with the answer, and the call goes on. A process
///   that is killed later than that does not call again: the answer is in [`Status::Delivered`]
///   (not where the vendor's entry says `at_rest = "redacted"`).
/// - **Be slow for long.** A job counts as in hand ([`IntegrationClientBuilder::max_jobs`](crate::IntegrationClientBuilder::max_jobs)) until its call is over, so
///   that fewer jobs are claimed when the handler cannot keep up.
///
/// # What becomes of a call that does not return
/// After 30 s, waiting for one of the 64 threads included, it is not waited for any longer, nor made again: it may still be at
/// work. An error is logged, and the answer stays in the store. A call that blocks its thread for ever keeps that thread, and
/// tokio's runtime waits for it when it is dropped (`Runtime::shutdown_background` does not).
///
/// Closures that take a [`Delivered`] are handlers, where what was given up needs no call:
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
    /// The vendor took a job.
    ///
    /// # Errors
    /// It is called again. The error's text goes into an event, so it must hold no secret.
    fn delivered<'a>(&'a self, answer: &'a Delivered) -> BoxFuture<'a, Result<(), BoxError>>;

    /// A job was given up, and is a dead letter in a moment. By default there is nothing to do.
    ///
    /// A letter with the reason `ambiguous` may be taken back: the process that lost the job may still tell what came of its
    /// exchange, and calls [`delivered`](Self::delivered) if that was a delivery.
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
    /// The job's id, as its [receipt](Receipt::id) states it.
    pub id: String,
    /// Whose request it was.
    pub tenant: String,
    /// Who answered.
    pub vendor: String,
    /// The tier that it waited in.
    pub priority: Priority,
    /// The caller's own notes about the request.
    pub metadata: std::collections::BTreeMap<String, String>,
    /// The answer's status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body; what had come of one that broke off is not kept, and it is empty then.
    pub body: Bytes,
    /// Exchanges it took.
    pub attempts: u32,
}

impl std::fmt::Debug for Delivered {
    /// No header value and no body.
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

/// What one client does with its store.
pub(crate) struct OutboxState {
    pub(crate) store: Opened,
    handler: Option<Handler>,
    pub(crate) works: bool,
    /// What one tenant may have in hand at one vendor at most.
    most_in_hand: pool::Amount,
    tier_weights: [u32; 3],
    /// How often the worker says in the store what it does.
    tell_every: Option<Duration>,
    clock: Clock,
    starts: starts::Starts,
    /// Lanes that got jobs which this process knows of.
    fresh: Mutex<Vec<LaneTier>>,
    /// Ends to be written of jobs whose tasks still wait for the handler.
    early: Mutex<Vec<Finish>>,
    wake: Notify,
    /// About how many jobs there are, and when they were counted.
    backlog: AtomicI64,
    counted: Mutex<Option<Time>>,
    /// The same by tenant and vendor, where a bound asks for it.
    lanes: Mutex<HashMap<(String, String), (i64, Time)>>,
    recall: recall::Recall,
    stop: watch::Sender<bool>,
    ended: watch::Sender<bool>,
}

/// What a program says about its outbox.
pub(crate) struct Settings {
    pub(crate) works: bool,
    /// What one tenant may have in hand at one vendor: jobs, and bytes of them.
    pub(crate) max_jobs: usize,
    pub(crate) max_job_bytes: usize,
    pub(crate) tier_weights: [u32; 3],
    /// How often the worker says in the store what it does.
    pub(crate) tell_every: Option<Duration>,
}

/// How old a count of the backlog may be.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// The same for a lane that has reached its bound.
const COUNT_FULL_EVERY: Duration = Duration::from_millis(500);
/// Lanes that are remembered until the worker looks. Beyond that it finds them itself, a moment later.
const MOST_FRESH: usize = 100_000;

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

    /// A lane has got a job.
    fn told(&self, lane: LaneTier) {
        if !self.works {
            return;
        }
        let mut fresh = self.fresh.lock();
        if fresh.len() < MOST_FRESH && fresh.last() != Some(&lane) {
            fresh.push(lane);
        }
        drop(fresh);
        self.wake.notify_one();
    }

    /// The end of a job is to be written although its task goes on.
    fn end_early(&self, finish: Finish) {
        self.early.lock().push(finish);
        self.wake.notify_one();
    }

    /// Refuses where the backlog has reached its bound.
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
            // Up to the bound alone: a larger number would take longer to count, and say no more.
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

    /// The same for one tenant at one vendor. What goes out is not subtracted, but counted anew soon.
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
                if lanes.len() >= MOST_FRESH {
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

    /// One more of it was accepted.
    fn count_in(&self, lane: &LaneTier) {
        self.backlog.fetch_add(1, Relaxed);
        if self.store.limits.max_lane_backlog.is_some() {
            let key = (lane.tenant.clone(), lane.vendor.clone());
            if let Some((count, _)) = self.lanes.lock().get_mut(&key) {
                *count += 1;
            }
        }
    }

    /// Claims nothing more, releases what has not begun, and waits for the rest.
    pub(crate) async fn stop(&self, grace: Duration) -> bool {
        self.stop.send_replace(true);
        let mut ended = self.ended.subscribe();
        tokio::time::timeout(grace, ended.wait_for(|ended| *ended)).await.is_ok()
    }
}

/// An id of its own: later ones sort behind earlier ones, and 74 bits of it are random.
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
