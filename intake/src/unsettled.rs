//! Deliveries that were handed over to the outbox and are not acknowledged to the broker yet.

use std::collections::HashMap;

use integration_client::outbox::{Intake, MessageRef};
use parking_lot::Mutex;

/// Deliveries by number. A source never uses a number twice.
pub(crate) struct Unsettled<D> {
    inner: Mutex<(u64, HashMap<u64, D>)>,
}

impl<D> Unsettled<D> {
    pub(crate) fn new() -> Unsettled<D> {
        Unsettled { inner: Mutex::new((0, HashMap::new())) }
    }

    /// Stores a delivery, and puts its number into the message.
    pub(crate) fn keep(&self, message: Intake, delivery: D) -> Intake {
        let mut inner = self.inner.lock();
        inner.0 += 1;
        let number = inner.0;
        inner.1.insert(number, delivery);
        message.delivery(number)
    }

    /// Removes and returns the delivery of a message. Returns `None` if it was taken before, or forgotten because the
    /// broker redelivers the message.
    pub(crate) fn take(&self, message: &MessageRef) -> Option<D> {
        self.inner.lock().1.remove(&message.delivery)
    }

    /// Removes and returns all deliveries, in the order of their numbers.
    #[cfg(any(feature = "nats", feature = "sqs"))]
    pub(crate) fn take_all(&self) -> Vec<D> {
        let mut all: Vec<(u64, D)> = self.inner.lock().1.drain().collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// Calls `look` with each delivery and its number.
    #[cfg(any(feature = "nats", feature = "sqs"))]
    pub(crate) fn for_each(&self, mut look: impl FnMut(u64, &mut D)) {
        self.inner.lock().1.iter_mut().for_each(|(number, delivery)| look(*number, delivery));
    }

    /// Whether the delivery with this number was not taken yet.
    #[cfg(any(feature = "nats", feature = "sqs"))]
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.inner.lock().1.contains_key(&number)
    }

    /// Whether the delivery with this number was not taken yet, and is such a one.
    #[cfg(feature = "kafka")]
    pub(crate) fn holds_such(&self, number: u64, is_such: impl FnOnce(&D) -> bool) -> bool {
        self.inner.lock().1.get(&number).is_some_and(is_such)
    }

    /// Forgets all deliveries, because their connection is closed and they can no longer be acknowledged.
    #[cfg(any(feature = "kafka", feature = "rabbitmq"))]
    pub(crate) fn forget_all(&self) {
        self.inner.lock().1.clear();
    }
}
