//! Requests that outlive the process: they are accepted into a [store](crate::store), sent as soon as the limits allow,
//! and never lost.
//!
//! [`enqueue`](crate::outbox::Outbox::enqueue) returns when the request is on the disk. From then on the request is in
//! exactly one place: in the outbox, among the finished jobs (delivered or cancelled), or among the dead letters, which
//! are kept for [thirty days](crate::store::Store::keep_dead), and [100,000](crate::store::Store::max_dead) of them. A
//! process that [works](crate::IntegrationClientBuilder::work) claims jobs for which the limits have room, at most 250
//! ms of work for each tenant, vendor and priority, and sends them as `send` does: with the same scheduling, limits,
//! retries and events. All other jobs wait in the store and take no memory, however many they are.
//!
//! # Once or more than once
//! A job is delivered at least once. When a process is killed while an exchange is in flight, the library cannot know
//! whether the vendor acted on the request. The job is sent again if a repetition does no harm: its method is
//! idempotent, or it carries a key as the vendor's entry says (`idempotency`) and the vendor still knows that key. The
//! idempotency key is made when the request is accepted and stays the same in all attempts, after restarts, and when a
//! dead letter is sent again, so that a vendor that honours the key acts once. A request that is accepted without a key
//! is sent without one, even if the entry names a place for keys by then. Any other job becomes a [dead
//! letter](DeadLetters) with the reason `ambiguous`, even if its deadline has passed since, unless `on_ambiguous =
//! "resend"` is configured.
//!
//! A vendor knows a key for as long as its entry says ([`keeps`](crate::config::Idempotency::keeps), 24 hours unless
//! stated), from the first exchange that left open whether the vendor acted. A further exchange must end within that
//! time. The same holds after a response that leaves this open, such as a 503, and of a dead letter that is sent again.
//! Only a letter with the reason `ambiguous` is sent whatever its age: ask the vendor first, because it may have forgotten
//! the key, and act twice.
//!
//! # When things go wrong
//! - When an attempt is refused or fails, the job goes back to the store, due when its wait is over. It does not wait
//!   in memory.
//! - While no connection to a vendor's host can be made, a job waits until its deadline, and for four days at most, or
//!   for the `max_age` that the vendor's entry states. It is tried again after a tenth to a fifth of the time for which
//!   it has failed, and after 100 s at the latest. A job on which the vendor may have acted becomes a dead letter after
//!   `max_age`, or 5 minutes, unless its method is safe.
//! - A job that does not fit the configuration waits, because a reload may correct it: for four days if it costs more
//!   than a limit holds, and for ten minutes if its endpoint is missing. The ten minutes begin anew while the
//!   configuration has a problem or other processes work on the store, and then end after four days too.
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

mod accept;
mod aside;
mod batch;
mod bound;
mod call_queue;
mod can_be_sent;
mod counted;
mod dead_letters;
mod handler;
mod held_claims;
mod in_hand;
pub(crate) mod intake;
mod job;
mod keep_usage;
mod lanes;
pub(crate) mod leases;
mod measure;
mod measured;
mod pauses;
mod payload;
mod prompt;
mod queues;
mod recall;
mod receipt;
mod replies;
mod reply_delivery;
mod reply_pace;
mod sealing;
mod sink;
pub(crate) mod starts;
mod state;
mod stored;
mod tokens;
mod unwritten;
mod usage;
mod usage_retention;
mod waits;
mod worker;

use std::sync::Arc;

use crate::Priority;
use crate::core::Core;
use crate::error::{Error, ErrorKind};

pub use self::batch::{Batch, BatchCounts, Checked, Ended, Numbers};
pub use self::dead_letters::{DeadLetters, Redriven};
pub use self::handler::{Delivered, ResponseHandler};
pub use self::intake::{Intake, IntakeSource, Line, MessageRef};
pub(crate) use self::keep_usage::keep_usage;
pub use self::queues::{Queue, WorkerStatus};
pub use self::receipt::{KeptResponse, Receipt, Status};
pub use self::replies::{Reply, UntakenReplies};
pub use self::reply_delivery::ReplyTarget;
pub use self::sealing::KeptLetter;
pub(crate) use self::sink::StoreSink;
pub(crate) use self::state::{OutboxState, Settings};
pub(crate) use self::tokens::StoreTokens;
pub(crate) use self::worker::work;

/// The durable outbox of a client, from [`IntegrationClient::outbox`](crate::IntegrationClient::outbox). Cloning is
/// cheap; a clone keeps the client alive.
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

fn priority(tier: i64) -> Priority {
    match tier {
        0 => Priority::High,
        1 => Priority::Normal,
        _ => Priority::Low,
    }
}
