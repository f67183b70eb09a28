//! Received messages that the source holds. Pure.

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Of};

#[derive(Clone)]
pub(super) struct Delivery {
    pub(super) message: Message,
    /// Whether a round of extensions has found the delivery before, so that the next one extends it.
    pub(super) is_old: bool,
}

impl Delivery {
    pub(super) fn receipt(&self) -> &str {
        self.message.receipt_handle().unwrap_or_default()
    }

    pub(super) fn attribute(&self, of: &Of) -> Option<&str> {
        self.message.attributes()?.get(of).map(String::as_str)
    }
}
