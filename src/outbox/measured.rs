//! Counts of the outbox that its metrics state.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use crate::clock::Time;
use crate::store::records::Backlog;

#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) delivered: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) later: AtomicU64,
    pub(super) in_hand: AtomicUsize,
    /// What waited when it was counted last.
    pub(super) backlog: Mutex<Option<Backlog>>,
    /// When it is counted next.
    pub(super) count_at: Mutex<Time>,
}
