//! What the send of a stored job needs of the store: to write down that an exchange leaves, before it does.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::BoxFuture;
use crate::error::Error;

/// Writes down that an exchange is about to leave.
pub(crate) trait Ledger: Send + Sync {
    /// Returns when it is on the disk. False where the job is another process's by now. With `again` the record of this
    /// exchange is there already, and is brought up to date.
    fn start<'a>(&'a self, endpoint: &'a str, cost: u32, again: bool) -> BoxFuture<'a, Result<bool, Error>>;

    /// How long after its record was asked for an exchange may leave. The store counts it from its record and for so much
    /// longer.
    fn latest(&self) -> Duration;

    /// While the store does not get on with writing records: a future that ends when it does.
    fn stall(&self) -> Option<BoxFuture<'_, ()>>;

    /// Ends when the process is to stop.
    fn stopped(&self) -> BoxFuture<'_, ()>;
}

/// What the send of a stored job knows of the store.
pub(crate) struct StoredJob {
    /// The job's id, and that of the letter it may become.
    pub(crate) id: String,
    pub(super) ledger: Arc<dyn Ledger>,
    /// The store writes down that an exchange leaves: from now on the worker lets the claim come to its end.
    pub(super) begun: Arc<AtomicBool>,
}
