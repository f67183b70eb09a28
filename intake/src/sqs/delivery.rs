//! Received messages that the source holds. Pure.

use std::collections::{HashMap, HashSet};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName as Of};

use crate::unsettled::Unsettled;

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

/// The received messages that the source does not hold yet. Of the others it takes the new receipts, because only they
/// count from now on: SQS delivers a held message again when it is older than 12 hours, and each such delivery would take
/// the place of another message.
pub(super) fn without_held(held: &Unsettled<Delivery>, received: Vec<Message>) -> Vec<Message> {
    let mut known: HashSet<String> = HashSet::new();
    {
        let by_id = received.iter().filter_map(|message| Some((message.message_id()?, message)));
        let by_id: HashMap<&str, &Message> = by_id.collect();
        held.for_each(|_, delivery| {
            let again = delivery.message.message_id().and_then(|id| by_id.get(id).copied());
            if let Some(again) = again {
                known.extend(again.message_id().map(str::to_owned));
                delivery.message.receipt_handle = again.receipt_handle().map(str::to_owned);
                delivery.is_old = false;
            }
        });
    }
    let is_new = |message: &Message| !message.message_id().is_some_and(|id| known.contains(id));
    received.into_iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use integration_client::outbox::Intake;

    use super::*;

    fn message(id: &str, receipt: &str) -> Message {
        Message::builder().message_id(id).receipt_handle(receipt).build()
    }

    #[test]
    fn held_message_takes_new_receipt() {
        let held = Unsettled::new();
        let keep = |id: &str, receipt: &str| {
            let delivery = Delivery { message: message(id, receipt), is_old: true };
            held.keep(Intake::json(id, ""), delivery)
        };
        let (first, second) = (keep("1", "a"), keep("2", "b"));
        let received = vec![message("3", "c"), message("1", "d"), Message::builder().build()];
        let new = without_held(&held, received);
        let ids: Vec<Option<&str>> = new.iter().map(Message::message_id).collect();
        assert_eq!(ids, [Some("3"), None], "the others are handed over");
        let of = |intake: &Intake| {
            let delivery = held.take(intake.message()).unwrap();
            (delivery.receipt().to_owned(), delivery.is_old)
        };
        assert_eq!((of(&first), of(&second)), (("d".to_owned(), false), ("b".to_owned(), true)));
    }
}
