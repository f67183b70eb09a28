//! The interface by which the send of a stored job records an exchange in the store before it begins.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::BoxFuture;
use crate::error::Error;

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

/// The stored job that is sent.
pub(crate) struct StoredJob {
    /// The job's id, and that of the letter it may become.
    pub(crate) id: String,
    pub(super) records: Arc<dyn RecordExchange>,
    /// Set when the record of an exchange is being written: from then on the worker lets the claim finish.
    pub(super) begun: Arc<AtomicBool>,
}
