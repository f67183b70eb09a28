//! The interface by which the send of a stored job records an exchange in the store before it begins.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::BoxFuture;
use crate::clock::{Moment, Time, millis};
use crate::core::{Remembers, Used};
use crate::error::Error;
use crate::retry::Since;
use crate::route::{Authorization, Route};
use crate::send::unfit::Unfit;

/// Records exchanges that are about to begin.
pub(crate) trait RecordExchange: Send + Sync {
    /// Returns once the record is durable. `false` if another process has taken over the job. `again` updates the
    /// record that this exchange already has.
    fn start<'a>(&'a self, endpoint: &'a str, cost: u32, again: bool) -> BoxFuture<'a, Result<bool, Error>>;

    /// How long after the record was requested the exchange may begin. A process that replays the record counts the
    /// exchange for this much longer.
    fn latest(&self) -> Duration;

    /// While the store is stalled: a future that ends when it writes records again.
    fn stall(&self) -> Option<BoxFuture<'_, ()>>;

    /// Ends when the worker stops.
    fn stopped(&self) -> BoxFuture<'_, ()>;
}

/// What the store's clock showed at a moment of this process. It compares times of rows with those of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreTime {
    pub(crate) at: Moment,
    /// Milliseconds since 1970.
    pub(crate) ms: i64,
}

impl StoreTime {
    /// How long before this moment the store's clock showed `ms`; zero if it was not before.
    pub(crate) fn age(self, ms: i64) -> Duration {
        Duration::from_millis(u64::try_from(self.ms.saturating_sub(ms)).unwrap_or(0))
    }

    /// What the store's clock showed when the vendor may first have acted, or less: a time in which the machine was
    /// suspended since the claim is left out, because no clock of the process shows it for certain.
    pub(super) fn of(self, since: Since) -> i64 {
        let whole = |time: Duration| i64::try_from(millis(time)).unwrap_or(i64::MAX);
        self.ms.saturating_add(whole(since.at.at.since(self.at.at))).saturating_sub(whole(since.age))
    }
}

/// The stored job that is sent.
pub(crate) struct StoredJob {
    /// The job's id, and that of the letter it may become.
    pub(crate) id: String,
    pub(super) clock: StoreTime,
    pub(super) records: Arc<dyn RecordExchange>,
    /// Set when the record of an exchange is being written: from then on the worker lets the claim finish.
    pub(super) begun: Arc<AtomicBool>,
    /// Whether the program gets the response.
    pub(super) has_reader: bool,
    /// For how long the job has not fitted the configuration, as the claim before found.
    pub(super) unfit: Unfit,
    /// The record of the latest exchange, if the usage of its limits is kept.
    pub(super) recorded: Option<Recorded>,
    /// What the latest exchange was authenticated with, until its attempt ends. A letter must not hold this secret if
    /// the vendor repeats it.
    pub(super) authorization: Option<Arc<Authorization>>,
}

/// The usage of an exchange that is recorded in the store. An exchange that never leaves must not count after a
/// restart: dropping this takes its units out of the store again, unless the exchange has left. A process that dies
/// meanwhile leaves them there.
pub(super) struct Recorded {
    pub(super) remembers: Remembers,
    pub(super) route: Arc<Route>,
    pub(super) used: Used,
    /// When the record was written.
    pub(super) at: Time,
    pub(super) has_left: bool,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if !self.has_left {
            self.remembers.not_sent(&self.route, &self.used, self.at);
        }
    }
}
