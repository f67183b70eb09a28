//! What the settings of a stream and of a consumer must be, and what follows from them. Pure.

use async_nats::jetstream::consumer::{AckPolicy, Config as ConsumerConfig};

use crate::error::Error;
use crate::spread::MAX_UNACKNOWLEDGED;

/// Messages that one pull request asks the server for at most.
const PREFETCH: usize = 1024;
/// The same before the size of any message is known: a message may have a megabyte or more.
const FIRST_PREFETCH: usize = 64;

/// The stream of refused messages, which is also its subject.
pub(super) fn refused_stream(stream: &str) -> String {
    format!("{stream}_REFUSED")
}

/// What to do if the consumer allows so few unacknowledged messages that a single full lane may use them up. A number
/// below one is no limit.
pub(super) fn too_few(stream: &str, consumer: &str, max_ack_pending: i64) -> Option<String> {
    (1..MAX_UNACKNOWLEDGED).contains(&max_ack_pending).then(|| {
        format!(
            "with {max_ack_pending} of them postponed, the server delivers nothing else (max_ack_pending); to raise the \
             number: nats consumer edit {stream} {consumer} --max-pending={MAX_UNACKNOWLEDGED}"
        )
    })
}

/// Fails if the stream stores the subject of refused messages itself. The server allows no second stream to store it,
/// and a refused message that is published to it would come again.
pub(super) fn check_subjects(stream: &str, subjects: &[String]) -> Result<(), Error> {
    let refused = refused_stream(stream);
    let Some(subject) = subjects.iter().find(|subject| [">", "*", refused.as_str()].contains(&subject.as_str())) else {
        return Ok(());
    };
    Err(Error::new(format!(
        "the stream {stream:?} stores {refused} too, by its subject {subject:?}, and messages that are no valid request \
         need {refused} in a stream of their own: limit this stream to other subjects (nats stream edit {stream} \
         --subjects=SUBJECT)"
    )))
}

/// Fails if the consumer's settings would lose messages.
pub(super) fn check(stream: &str, consumer: &str, config: &ConsumerConfig) -> Result<(), Error> {
    // Without acknowledgements the server counts a delivered message as settled, and with the policy `all` an
    // acknowledgement settles earlier messages too, which may not be in the store.
    if config.ack_policy != AckPolicy::Explicit {
        return Err(Error::new(format!(
            "the acknowledgements of the consumer {consumer:?} are {:?}, and must be explicit: name another consumer \
             in the URL (consumer=NAME), and set where it begins in the stream {stream} (--begin-at of integration-client \
             intake). If this consumer is deleted, the record of what was accepted is lost",
            config.ack_policy
        )));
    }
    // A postponed message is delivered again each few seconds. The server gives it up after `max_deliver` deliveries.
    if config.max_deliver > 0 {
        return Err(Error::new(format!(
            "the consumer {consumer:?} delivers a message {} times at most (max_deliver), after which the message is \
             lost: remove the limit (nats consumer edit {stream} {consumer} --max-deliver=-1)",
            config.max_deliver
        )));
    }
    Ok(())
}

/// Messages that one pull request asks for; `is_first` if none has come yet. The server refuses a request for more than
/// the consumer's `max_batch`, where 0 or less is no limit.
pub(super) fn batch(max_batch: i64, is_first: bool) -> usize {
    let most = if is_first { FIRST_PREFETCH } else { PREFETCH };
    usize::try_from(max_batch).ok().filter(|limit| *limit > 0).map_or(most, |limit| limit.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_within_the_limit_of_the_consumer() {
        for (limit, expected) in [(0, PREFETCH), (-1, PREFETCH), (1, 1), (100, 100), (i64::MAX, PREFETCH)] {
            assert_eq!(batch(limit, false), expected, "{limit}");
            assert_eq!(batch(limit, true), expected.min(FIRST_PREFETCH), "{limit}");
        }
    }

    #[test]
    fn stream_of_refused_subject_is_an_error() {
        let checked = |subject: &str| check_subjects("S", &["A".to_owned(), subject.to_owned()]);
        for subject in [">", "*", "S_REFUSED"] {
            let error = checked(subject).unwrap_err().to_string();
            assert!(error.contains(subject) && error.contains("nats stream edit S --subjects"), "{error}");
        }
        for subject in ["S", "S.>", "S.*", "S_REFUSED.>", "s_refused"] {
            assert!(checked(subject).is_ok(), "{subject}");
        }
    }

    #[test]
    fn consumer_with_few_unacknowledged_messages_is_named() {
        let advice = too_few("S", "C", 1_000).unwrap();
        assert!(advice.contains("nats consumer edit S C --max-pending=65536"), "{advice}");
        for enough in [-1, 0, MAX_UNACKNOWLEDGED, i64::MAX] {
            assert_eq!(too_few("S", "C", enough), None);
        }
    }

    #[test]
    fn consumer_that_would_lose_messages_is_an_error() {
        let config = |ack_policy, max_deliver| ConsumerConfig { ack_policy, max_deliver, ..ConsumerConfig::default() };
        let checked = |config: &ConsumerConfig| check("S", "C", config).map_err(|error| error.to_string());
        for unlimited in [-1, 0] {
            assert_eq!(checked(&config(AckPolicy::Explicit, unlimited)), Ok(()));
        }
        let limited = checked(&config(AckPolicy::Explicit, 5)).unwrap_err();
        assert!(limited.contains("5 times") && limited.contains("edit S C --max-deliver=-1"), "{limited}");
        for policy in [AckPolicy::None, AckPolicy::All] {
            let other = checked(&config(policy, -1)).unwrap_err();
            assert!(other.contains("explicit") && other.contains("--begin-at"), "{other}");
        }
    }
}
