//! Counts the claimed jobs of a lane that wait for their permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel};

use super::OutboxState;
use super::lanes::Gauge;

/// Counts a job as waiting for its permit, until the job has a permit or has ended.
pub(super) struct Waits {
    gauge: Arc<Gauge>,
    over: AtomicBool,
    outbox: Arc<OutboxState>,
}

impl Waits {
    pub(super) fn new(gauge: Arc<Gauge>, outbox: Arc<OutboxState>) -> Waits {
        gauge.begin();
        Waits { gauge, over: AtomicBool::new(false), outbox }
    }

    pub(super) fn end(&self) {
        if !self.over.swap(true, AcqRel) && self.gauge.end() {
            self.outbox.wake.notify_one();
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.end();
    }
}
