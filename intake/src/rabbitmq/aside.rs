//! The copies of messages that are put aside, into the queue of refused or of postponed messages; and the broker's count of
//! deliveries. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use integration_client::{BoxError, Error as Refusal};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ErrorKind};

use crate::reason;

/// The header of a refused message that holds the reason.
const WHY: &str = "x-refused-because";
/// The header in which a quorum queue counts how often it delivered a message before.
const DELIVERED_BEFORE: &str = "x-delivery-count";
/// Headers that a copy does not have. RabbitMQ routes a message to the queues in `CC` and `BCC` too: the producer would
/// put the copy into any queue with the rights of this process, also into the source's own, where it would be copied
/// again. The copy is a new message, whose deliveries are counted anew. If `x-death` says that a message was
/// dead-lettered from the source's queue before, RabbitMQ 3 takes its return for a cycle, and does not return it.
const NOT_COPIED: [&str; 4] = ["CC", "BCC", DELIVERED_BEFORE, "x-death"];
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
                let settings = [
                    // When a message expires, the broker routes it back to the source's queue through the default
                    // exchange, to which every queue is bound by its name.
                    ("x-dead-letter-exchange", ""),
                    ("x-dead-letter-routing-key", queue),
                    // A quorum queue keeps an expired message until the source's queue has confirmed it. A classic
                    // queue loses it if the source's queue does not take it just then. The strategy requires this
                    // overflow.
                    ("x-queue-type", "quorum"),
                    ("x-dead-letter-strategy", "at-least-once"),
                    ("x-overflow", "reject-publish"),
                ];
                for (name, value) in settings {
                    arguments.insert(name.into(), AMQPValue::LongString(value.into()));
                }
                (format!("{queue}.postponed"), arguments)
            }
        }
    }

    /// The properties of the copy in that queue.
    pub(super) fn properties(&self, properties: &BasicProperties) -> BasicProperties {
        let kept = copied(properties);
        match self {
            Aside::Refused(why) => {
                let mut headers = kept.headers().clone().unwrap_or_default();
                headers.insert(WHY.into(), AMQPValue::LongString(reason::short(&why.to_string()).into()));
                kept.with_headers(headers)
            }
            Aside::Later(after) => kept.with_expiration(after.as_millis().to_string().into()),
        }
    }
}

/// The error of a queue of that name that could not be declared, and what to do if there is one with other arguments.
pub(super) fn not_declared(queue: &str, error: lapin::Error) -> BoxError {
    let other = AMQPErrorKind::Soft(AMQPSoftError::PRECONDITIONFAILED);
    if !matches!(error.kind(), ErrorKind::ProtocolError(told) if *told.kind() == other) {
        return error.into();
    }
    format!(
        "the queue {queue} exists with other arguments than are needed: delete it when it is empty (rabbitmqctl \
         delete_queue {queue} --if-empty), and it is declared anew ({error})"
    )
    .into()
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

/// The headers of a copy.
fn headers(of: &BasicProperties) -> Option<FieldTable> {
    let kept = of.headers().as_ref()?.inner().iter().filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()));
    let kept: BTreeMap<_, _> = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
    Some(kept.into())
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

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

    fn with_header(name: &str, value: AMQPValue) -> BasicProperties {
        let mut headers = all_but_two().headers().clone().unwrap();
        headers.insert(name.into(), value);
        all_but_two().with_headers(headers)
    }

    fn delivered(before: AMQPValue) -> BasicProperties {
        with_header(DELIVERED_BEFORE, before)
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
    fn copy_has_no_headers_for_the_broker() {
        assert_eq!(copied(&delivered(AMQPValue::LongLongInt(3))), all_but_two());
        for name in ["CC", "BCC", "x-death"] {
            let queues = AMQPValue::FieldArray(vec![AMQPValue::LongString("requests".into())].into());
            assert_eq!(copied(&with_header(name, queues)), all_but_two(), "{name}");
        }
    }

    #[test]
    fn postponed_copies_return_at_least_once() {
        let (name, arguments) = Aside::Later(Duration::from_secs(5)).queue("requests");
        let argument = |name: &str| arguments.inner()[name].as_long_string().unwrap().to_string();
        assert_eq!(name, "requests.postponed");
        for (name, value) in [
            ("x-queue-type", "quorum"),
            ("x-dead-letter-strategy", "at-least-once"),
            ("x-overflow", "reject-publish"),
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", "requests"),
        ] {
            assert_eq!(argument(name), value, "{name}");
        }
    }

    #[test]
    fn queue_with_other_arguments_is_named() {
        let error = |kind: AMQPSoftError| {
            let told = AMQPError::new(AMQPErrorKind::Soft(kind), "inequivalent arg".into());
            not_declared("requests.postponed", ErrorKind::ProtocolError(told).into()).to_string()
        };
        let other = error(AMQPSoftError::PRECONDITIONFAILED);
        assert!(
            other.contains("delete_queue requests.postponed --if-empty") && other.contains("inequivalent"),
            "{other}"
        );
        let refused = error(AMQPSoftError::ACCESSREFUSED);
        assert!(!refused.contains("delete_queue") && refused.contains("ACCESS"), "{refused}");
    }
}
