//! The copies of messages that are put aside, into the queue of refused or of postponed messages; and the broker's count of
//! deliveries. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use integration_client::Error as Refusal;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};

use crate::reason;

/// The header of a refused message that holds the reason.
const WHY: &str = "x-refused-because";
/// The header in which a quorum queue counts how often it delivered a message before.
const DELIVERED_BEFORE: &str = "x-delivery-count";
/// The delivery mode of persistent messages, which survive a restart of the broker.
const KEEP: u8 = 2;

/// How often the queue has delivered a message, this delivery included. 0 if the queue does not count: only quorum queues
/// do, beginning with the second delivery.
pub(super) fn deliveries(properties: &BasicProperties) -> u64 {
    let headers = properties.headers().as_ref();
    let before: Option<i64> = headers.and_then(|headers| match headers.inner().get(DELIVERED_BEFORE)? {
        AMQPValue::ShortShortInt(count) => Some((*count).into()),
        AMQPValue::ShortShortUInt(count) => Some((*count).into()),
        AMQPValue::ShortInt(count) => Some((*count).into()),
        AMQPValue::ShortUInt(count) => Some((*count).into()),
        AMQPValue::LongInt(count) => Some((*count).into()),
        AMQPValue::LongUInt(count) => Some((*count).into()),
        AMQPValue::LongLongInt(count) => Some(*count),
        _ => None,
    });
    before.and_then(|before| u64::try_from(before).ok()).map_or(0, |before| before.saturating_add(1))
}

/// The queue for a message that is not accepted now, and why.
pub(super) enum Aside<'a> {
    Refused(&'a Refusal),
    Later(Duration),
}

impl Aside<'_> {
    /// The queue's name and its arguments.
    pub(super) fn queue(&self, queue: &str) -> (String, FieldTable) {
        let mut arguments = FieldTable::default();
        match self {
            Aside::Refused(_) => (format!("{queue}.refused"), arguments),
            Aside::Later(_) => {
                // When a message expires, the broker routes it back to the source's queue through the default exchange,
                // to which every queue is bound by its name.
                arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
                arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(queue.into()));
                (format!("{queue}.later"), arguments)
            }
        }
    }

    /// The properties of the copy in that queue.
    pub(super) fn properties(&self, properties: &BasicProperties) -> BasicProperties {
        let kept = copied(properties);
        match self {
            Aside::Refused(why) => {
                let mut headers = kept.headers().clone().unwrap_or_default();
                let why: String = why.to_string().chars().take(reason::LONGEST).collect();
                headers.insert(WHY.into(), AMQPValue::LongString(why.into()));
                kept.with_headers(headers)
            }
            Aside::Later(after) => kept.with_expiration(after.as_millis().to_string().into()),
        }
    }
}

/// The properties of a persistent copy of a message. The broker refuses a `user_id` that is not the name of this
/// connection's user, and a refused message must not be deleted by the `expiration` that its producer set.
fn copied(of: &BasicProperties) -> BasicProperties {
    let copy = BasicProperties::default().with_delivery_mode(KEEP);
    let copy = of.content_type().iter().cloned().fold(copy, BasicProperties::with_content_type);
    let copy = of.content_encoding().iter().cloned().fold(copy, BasicProperties::with_content_encoding);
    let copy = headers(of).into_iter().fold(copy, BasicProperties::with_headers);
    let copy = of.priority().iter().copied().fold(copy, BasicProperties::with_priority);
    let copy = of.correlation_id().iter().cloned().fold(copy, BasicProperties::with_correlation_id);
    let copy = of.reply_to().iter().cloned().fold(copy, BasicProperties::with_reply_to);
    let copy = of.message_id().iter().cloned().fold(copy, BasicProperties::with_message_id);
    let copy = of.timestamp().iter().copied().fold(copy, BasicProperties::with_timestamp);
    let copy = of.kind().iter().cloned().fold(copy, BasicProperties::with_type);
    let copy = of.app_id().iter().cloned().fold(copy, BasicProperties::with_app_id);
    of.cluster_id().iter().cloned().fold(copy, BasicProperties::with_cluster_id)
}

/// The headers of a copy. The copy is a new message, whose deliveries are counted anew.
fn headers(of: &BasicProperties) -> Option<FieldTable> {
    let kept = of.headers().as_ref()?.inner().iter().filter(|(name, _)| name.as_str() != DELIVERED_BEFORE);
    let kept: BTreeMap<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    Some(kept.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_but_two() -> BasicProperties {
        let mut headers = FieldTable::default();
        headers.insert("h".into(), AMQPValue::LongString("v".into()));
        let properties = BasicProperties::default().with_delivery_mode(KEEP).with_headers(headers);
        let properties = properties.with_content_type("t".into()).with_content_encoding("e".into()).with_priority(3);
        let properties = properties.with_correlation_id("c".into()).with_reply_to("r".into()).with_timestamp(7);
        let properties = properties.with_message_id("m".into()).with_type("k".into()).with_app_id("a".into());
        properties.with_cluster_id("l".into())
    }

    #[test]
    fn copy_has_all_properties_but_the_user_and_the_expiration() {
        let message = all_but_two().with_user_id("another".into()).with_expiration("1000".into());
        assert_eq!(copied(&message.with_delivery_mode(1)), all_but_two());
    }

    #[test]
    fn postponed_copy_expires_after_its_own_time() {
        let message = all_but_two().with_user_id("another".into()).with_expiration("1000".into());
        let properties = Aside::Later(Duration::from_secs(5)).properties(&message);
        assert_eq!(properties, all_but_two().with_expiration("5000".into()));
    }

    fn delivered(before: AMQPValue) -> BasicProperties {
        let mut headers = all_but_two().headers().clone().unwrap();
        headers.insert(DELIVERED_BEFORE.into(), before);
        all_but_two().with_headers(headers)
    }

    #[test]
    fn deliveries_include_this_one() {
        assert_eq!(deliveries(&all_but_two()), 0, "a queue that does not count");
        for before in [AMQPValue::LongLongInt(3), AMQPValue::LongInt(3), AMQPValue::ShortShortUInt(3)] {
            assert_eq!(deliveries(&delivered(before)), 4);
        }
        assert_eq!(deliveries(&delivered(AMQPValue::LongString("3".into()))), 0);
    }

    #[test]
    fn copy_has_no_count_of_deliveries() {
        assert_eq!(copied(&delivered(AMQPValue::LongLongInt(3))), all_but_two());
    }
}
