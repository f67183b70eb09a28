//! Deliveries that were handed over and about which the broker was not told yet.

use std::collections::HashMap;

use integration_client::outbox::{Intake, MessageRef};
use parking_lot::Mutex;

/// Deliveries by numbers that this source never uses twice.
pub(crate) struct Unsettled<D> {
    inner: Mutex<(u64, HashMap<u64, D>)>,
}

impl<D> Unsettled<D> {
    pub(crate) fn new() -> Unsettled<D> {
        Unsettled { inner: Mutex::new((0, HashMap::new())) }
    }

    /// Keeps a delivery, and gives the message its number.
    pub(crate) fn keep(&self, message: Intake, delivery: D) -> Intake {
        let mut inner = self.inner.lock();
        inner.0 += 1;
        let number = inner.0;
        inner.1.insert(number, delivery);
        message.delivery(number)
    }

    /// The delivery of a message, once; `None` where it was forgotten: the broker delivers the message again.
    pub(crate) fn take(&self, message: &MessageRef) -> Option<D> {
        self.inner.lock().1.remove(&message.delivery)
    }

    /// Calls `look` with each.
    #[cfg(feature = "sqs")]
    pub(crate) fn for_each(&self, look: impl FnMut(&mut D)) {
        self.inner.lock().1.values_mut().for_each(look);
    }

    /// The connection is gone by which they were delivered.
    #[cfg(feature = "rabbitmq")]
    pub(crate) fn forget_all(&self) {
        self.inner.lock().1.clear();
    }
}
