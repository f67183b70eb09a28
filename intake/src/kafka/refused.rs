//! A refused message on its way to the topic of refused messages: what is published of it, and what follows a failure.
//! Pure.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::FutureRecord;

use crate::reason;

/// The header of a refused message that holds the reason.
const WHY: &str = "refused-because";
/// The header of a refused message that is not published whole: the number of bytes of its content.
const WAS_CUT: &str = "refused-cut";
/// Attempts to publish a refused message while the error is not that brokers are away.
const TRIES: u32 = 3;
/// Bytes of content that fit into a topic with the brokers' default limit of 1 MB, together with key and headers.
const CUT: usize = 900_000;
/// If so few bytes of content do not fit, the key or the headers are too large.
const SHORTEST: usize = 1_000;

/// A refused message and the reason.
pub(super) struct Refused {
    pub(super) message: OwnedMessage,
    pub(super) why: String,
}

/// The part of a refused message that is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    /// The first bytes of the content, with the key and all headers.
    Content(usize),
    /// The reason alone, without content, key and the message's own headers.
    Reason,
}

/// What follows a failure to publish a refused message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Publish this smaller part.
    Cut(Part),
    /// Try again soon.
    Again,
    /// Try again when the brokers are back.
    Later,
    /// End the hand-over: it goes on when the topic, its settings or the rights have been corrected.
    Fail,
}

impl Refused {
    pub(super) fn new(message: OwnedMessage, why: &str) -> Refused {
        Refused { message, why: reason::line(why) }
    }

    /// The partition and the offset from which the message came.
    pub(super) fn place(&self) -> (i32, i64) {
        (self.message.partition(), self.message.offset())
    }

    /// Bytes of content.
    pub(super) fn length(&self) -> usize {
        self.message.payload().map_or(0, <[u8]>::len)
    }

    /// The record of a part of the message.
    pub(super) fn record<'a>(&'a self, topic: &'a str, part: Part) -> FutureRecord<'a, [u8], [u8]> {
        let most = match part {
            Part::Whole => usize::MAX,
            Part::Content(most) => most,
            Part::Reason => 0,
        };
        let own_headers = self.message.headers().filter(|_| part != Part::Reason).cloned();
        let headers = own_headers.unwrap_or_else(OwnedHeaders::new);
        let mut headers = headers.insert(Header { key: WHY, value: Some(self.why.as_str()) });
        if part != Part::Whole {
            let length = self.length().to_string();
            headers = headers.insert(Header { key: WAS_CUT, value: Some(length.as_str()) });
        }
        let mut record: FutureRecord<'a, [u8], [u8]> = FutureRecord::to(topic).headers(headers);
        record.key = self.message.key().filter(|_| part != Part::Reason);
        record.payload = self.message.payload().map(|content| content.get(..most).unwrap_or(content));
        record
    }

    /// What follows after the attempt number `tries` to publish `part` failed.
    pub(super) fn step(&self, error: &KafkaError, part: Part, tries: u32) -> Step {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::MessageBatchTooLarge) => {
                part.smaller(self.length()).map_or(Step::Fail, Step::Cut)
            }
            Some(code) if are_brokers_away(code) => Step::Later,
            _ if tries < TRIES => Step::Again,
            _ => Step::Fail,
        }
    }
}

impl Part {
    /// The next smaller part of a message with `length` bytes of content. The limit of a topic is not known here.
    fn smaller(self, length: usize) -> Option<Part> {
        match self {
            Part::Whole => Some(Part::Content(CUT.min(length / 2))),
            Part::Content(most) if most > SHORTEST => Some(Part::Content(most / 2)),
            Part::Content(_) => Some(Part::Reason),
            Part::Reason => None,
        }
    }
}

/// Whether an error ends by itself when brokers are back.
fn are_brokers_away(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::TimedOutQueue
            | RDKafkaErrorCode::QueueFull
            | RDKafkaErrorCode::LeaderNotAvailable
            | RDKafkaErrorCode::NotLeaderForPartition
            | RDKafkaErrorCode::RequestTimedOut
            | RDKafkaErrorCode::BrokerNotAvailable
            | RDKafkaErrorCode::ReplicaNotAvailable
            | RDKafkaErrorCode::NetworkException
            | RDKafkaErrorCode::NotEnoughReplicas
            | RDKafkaErrorCode::NotEnoughReplicasAfterAppend
            | RDKafkaErrorCode::KafkaStorageError
    )
}

#[cfg(test)]
mod tests {
    use rdkafka::Timestamp;
    use rdkafka::message::Headers;

    use super::*;

    fn refused(length: usize) -> Refused {
        let headers = OwnedHeaders::new().insert(Header { key: "own", value: Some("1") });
        let (content, key) = (Some(vec![b'x'; length]), Some(b"key".to_vec()));
        let message = OwnedMessage::new(content, key, "t".to_owned(), Timestamp::NotAvailable, 0, 7, Some(headers));
        Refused::new(message, "not\nJSON")
    }

    fn failed(code: RDKafkaErrorCode) -> KafkaError {
        KafkaError::MessageProduction(code)
    }

    /// Bytes of content, whether there is a key, and the headers.
    fn published(refused: &Refused, part: Part) -> (usize, bool, Vec<String>) {
        let record = refused.record("t.refused", part);
        let headers = record.headers.unwrap();
        let text = |header: Header<'_, &[u8]>| {
            format!("{}={}", header.key, String::from_utf8_lossy(header.value.unwrap_or_default()))
        };
        let headers = headers.iter().map(text).collect();
        (record.payload.map_or(0, <[u8]>::len), record.key.is_some(), headers)
    }

    #[test]
    fn record_tells_the_reason_and_what_was_cut() {
        let refused = refused(3_000_000);
        let why = "refused-because=not JSON";
        let (whole, key, headers) = published(&refused, Part::Whole);
        assert_eq!((whole, key, headers), (3_000_000, true, vec!["own=1".to_owned(), why.to_owned()]));
        let (cut, key, headers) = published(&refused, Part::Content(CUT));
        assert_eq!((cut, key), (CUT, true));
        assert_eq!(headers, ["own=1", why, "refused-cut=3000000"]);
        let (cut, key, headers) = published(&refused, Part::Reason);
        assert_eq!((cut, key), (0, false));
        assert_eq!(headers, [why, "refused-cut=3000000"]);
    }

    #[test]
    fn message_that_is_too_large_is_cut_until_it_fits() {
        for length in [0, 10, 800_000, 30_000_000] {
            let refused = refused(length);
            let (mut part, mut parts) = (Part::Whole, Vec::new());
            while let Step::Cut(smaller) = refused.step(&failed(RDKafkaErrorCode::MessageSizeTooLarge), part, 1) {
                parts.push(smaller);
                part = smaller;
            }
            assert_eq!(parts.first(), Some(&Part::Content(CUT.min(length / 2))), "{length}");
            assert_eq!(parts.last(), Some(&Part::Reason), "{length}");
            assert!(parts.len() < 15, "{length}: {parts:?}");
        }
    }

    #[test]
    fn brokers_that_are_away_are_awaited_and_a_missing_topic_is_an_error() {
        let refused = refused(10);
        for tries in [1, TRIES, 100] {
            for away in [RDKafkaErrorCode::MessageTimedOut, RDKafkaErrorCode::NotEnoughReplicas] {
                assert_eq!(refused.step(&failed(away), Part::Whole, tries), Step::Later);
            }
        }
        for other in [RDKafkaErrorCode::UnknownTopicOrPartition, RDKafkaErrorCode::TopicAuthorizationFailed] {
            assert_eq!(refused.step(&failed(other), Part::Whole, TRIES - 1), Step::Again);
            assert_eq!(refused.step(&failed(other), Part::Whole, TRIES), Step::Fail);
        }
    }
}
