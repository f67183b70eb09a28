//! Whether the messages of a partition go on where they ended. Pure.
//!
//! The client library begins at the first message of a partition if the group has no position there, or a position
//! that the brokers do not have. Messages that were accepted would then be sent again, or new ones taken for old ones.

use integration_client::BoxError;

use crate::memory::Memory;

/// A message of a partition, and where the messages ended.
pub(super) struct Place<'a> {
    pub(super) topic: &'a str,
    pub(super) group: &'a str,
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// The offset behind the last message of this assignment or, for its first message, the group's position. `None` if
    /// the group has none.
    pub(super) position: Option<i64>,
    /// Whether the message is so old that the outbox may have accepted and forgotten it.
    pub(super) is_old: bool,
}

impl Place<'_> {
    /// Returns what is wrong if the message must not be handed over, and what to do.
    pub(super) fn problem(&self, memory: &Memory) -> Option<BoxError> {
        let Place { topic, group, partition, offset, .. } = self;
        let reset = || {
            let program = "kafka-consumer-groups.sh --bootstrap-server SERVER --reset-offsets --execute";
            format!("{program} --group {group} --topic {topic}:{partition}")
        };
        match self.position {
            None if self.is_old => {
                let lack = format!("the group {group} has no position in partition {partition} of the topic {topic}");
                let by_hand = format!("this begins at a certain message: {} --to-offset NUMBER", reset());
                let unbegun = "this intake has never run, or nothing of this partition was ever accepted (a new \
                     partition; messages with old timestamps)";
                Some(memory.no_position(unbegun, &lack, &by_hand))
            }
            Some(position) if *offset < position => {
                let reset = reset();
                let what = format!(
                    "partition {partition} of the topic {topic} goes on at offset {offset}, and the position was \
                     {position}: the brokers have lost messages, or the topic was deleted and created again. Set the \
                     position to the first message that is to be accepted: {reset}, and --to-offset NUMBER or \
                     --to-latest. New messages at offsets below {position} are taken for the old ones, unless the \
                     source gets another name (Kafka::named)"
                );
                Some(what.into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn problem(position: Option<i64>, offset: i64, is_old: bool) -> Option<String> {
        let place = Place { topic: "t", group: "g", partition: 3, offset, position, is_old };
        let memory = Memory::default();
        memory.set(Duration::from_secs(7 * 86_400));
        place.problem(&memory).map(|what| what.to_string())
    }

    #[test]
    fn messages_go_on_where_they_ended() {
        for is_old in [false, true] {
            assert_eq!(problem(Some(7), 7, is_old), None);
            assert_eq!(problem(Some(7), 9, is_old), None, "as in a compacted topic");
            let back = problem(Some(7), 6, is_old).unwrap();
            assert!(back.contains("goes on at offset 6, and the position was 7"), "{back}");
        }
    }

    #[test]
    fn group_without_position_begins_at_no_old_message() {
        assert_eq!(problem(None, 0, false), None, "all that were accepted are recognised");
        let lost = problem(None, 0, true).unwrap();
        assert!(lost.contains("--group g --topic t:3") && lost.contains("--begin-at 168h"), "{lost}");
        assert!(lost.starts_with("if this intake has never run") && lost.contains("--begin-at first"), "{lost}");
        let cases = ["or nothing of this partition was ever accepted", "skip messages that were never accepted"];
        assert!(cases.iter().all(|case| lost.contains(case)), "{lost}");
    }
}
