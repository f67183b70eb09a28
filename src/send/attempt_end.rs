//! The end of one attempt, which a driver turns into a response, an error, a dead letter or a row of the store.
//!
//! Three values follow each other: [`AttemptEnd`] is the end of one attempt; `durable::ClaimEnd` says how one claim of a
//! stored job ended, with its response or letter; and `store::jobs::JobEnd` holds the same as the store writes it.
//! `outbox/unwritten.rs` keeps those that are not written yet.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Moment, Time};
use crate::dispatch::PermitGuard;
use crate::engine::Refusal;
use crate::error::{Delivery, Error, ErrorKind, LastResponse};
use crate::request::WaitReason;
use crate::retry::GiveUpReason;
use crate::route::Authorization;
use crate::send::response::Response;
use crate::transport::{Answer, Sent, TransportError};

/// The end of an attempt that took a permit, or that has to start over.
pub(super) enum AttemptEnd {
    /// The caller gets the response.
    Done(Response),
    /// The next attempt begins without a wait: the tenant's configuration changed before the exchange, the host or the
    /// signer took too long, or the credential was refreshed.
    AtOnce,
    /// The retry policy allows another attempt, later.
    Again(Box<Again>),
    /// The retry policy would allow another attempt, except for this reason.
    GaveUp(GiveUpReason, Box<Cause>),
    /// The vendor may have acted, and the policy forbids another attempt. `park`: it asks for a dead letter.
    Ambiguous { park: bool, cause: Box<Cause> },
    /// Another attempt would fail in the same way.
    Failed(Box<TransportError>),
}

impl AttemptEnd {
    /// The failure of the exchange, if the vendor certainly did not process the request.
    pub(super) fn unprocessed(&self) -> Option<&TransportError> {
        let failure = match self {
            AttemptEnd::Again(again) => again.cause.failure(),
            AttemptEnd::GaveUp(_, cause) => cause.failure(),
            AttemptEnd::Failed(failure) => Some(&**failure),
            AttemptEnd::Done(_) | AttemptEnd::AtOnce | AttemptEnd::Ambiguous { .. } => None,
        };
        failure.filter(|failure| matches!(failure.sent(), Sent::NotSent | Sent::Unprocessed))
    }
}

/// Another attempt that the retry policy allows.
pub(super) struct Again {
    /// How long the request itself sleeps. Zero if the pause of its lane holds it back.
    pub(super) wait: Duration,
    /// The next exchange begins no earlier.
    pub(super) earliest: Time,
    /// The vendor stated the wait.
    pub(super) is_stated: bool,
    /// The attempt counts against the share of the load that retries may be.
    pub(super) takes_budget: bool,
    pub(super) cause: Cause,
}

/// The result of an exchange that is not returned to the caller as its response.
pub(super) enum Cause {
    /// `is_ambiguous`: the response leaves open whether the vendor acted.
    Answer {
        answered: Box<Answered>,
        is_ambiguous: bool,
    },
    Failure(TransportError),
}

/// A response, with its permit and the wait for it.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) held: PermitGuard,
    pub(super) waited: Duration,
    pub(super) reason: Option<WaitReason>,
    pub(super) began: Moment,
    pub(super) authorization: Option<Arc<Authorization>>,
}

impl Cause {
    /// Whether the vendor may have acted on the request.
    pub(super) fn delivery(&self) -> Delivery {
        match self {
            Cause::Answer { is_ambiguous: true, .. } => Delivery::Ambiguous,
            Cause::Answer { is_ambiguous: false, .. } => Delivery::Rejected,
            Cause::Failure(failure) => failure.sent().delivery(),
        }
    }

    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            Cause::Answer { .. } => ErrorKind::Status,
            Cause::Failure(failure) => failure.kind(),
        }
    }

    fn failure(&self) -> Option<&TransportError> {
        match self {
            Cause::Answer { .. } => None,
            Cause::Failure(failure) => Some(failure),
        }
    }

    /// Describes the outcome for the text of an error.
    pub(super) fn text(&self) -> String {
        match self {
            Cause::Answer { answered, .. } => {
                let status = answered.answer.status;
                // `StatusCode`'s `Display` shows a vendor's own status as "<unknown status code>".
                match status.canonical_reason() {
                    Some(reason) => format!("the vendor answered {} {reason}", status.as_u16()),
                    None => format!("the vendor answered {}", status.as_u16()),
                }
            }
            Cause::Failure(failure) => failure.to_string(),
        }
    }

    /// Reads the beginning of a response body, so that the connection can be used again, and ends the permit.
    pub(super) async fn drain(self) -> Option<LastResponse> {
        match self {
            Cause::Answer { answered, .. } => Some(last_response(*answered).await),
            Cause::Failure(_) => None,
        }
    }

    /// Adds the response or the failure to the error that the caller gets.
    pub(super) async fn add_to(self, error: Error) -> Error {
        match self {
            Cause::Answer { answered, .. } => error.with_response(last_response(*answered).await),
            Cause::Failure(failure) => error.with_source(failure),
        }
    }
}

/// Why an attempt ended before its exchange.
pub(super) enum NotSent {
    /// The limits, the queues or the client refused a permit.
    Refused(Refusal),
    /// The circuit of the host is open; `next` is the time until the next probe, if known.
    HostShut { next: Option<Duration> },
    /// The credential or the signature could not be obtained.
    Credential(Error),
    /// The token URL gave no access token, for a reason that may pass without anybody's help.
    NoTokenNow(Error),
    /// The request cannot be sent as it is.
    Invalid(Error),
    /// The configuration has changed while the request waited, and the request does not fit it.
    NoLongerFits(Error),
    /// The store could not record the exchange.
    Store(Error),
    /// The vendor may have acted on an earlier attempt, and may no longer know the request's idempotency key.
    KeyForgotten,
    /// Another process has taken over the job.
    Taken,
    /// The worker stops.
    Stopped,
}

impl From<Refusal> for NotSent {
    fn from(refusal: Refusal) -> NotSent {
        NotSent::Refused(refusal)
    }
}

impl NotSent {
    /// Whether a later attempt may succeed: time or room has run out, or a credential or host is unavailable now.
    pub(super) fn may_be_sent_later(&self) -> bool {
        match self {
            NotSent::Refused(refusal) => matches!(
                refusal,
                Refusal::Deadline
                    | Refusal::TooLate { .. }
                    | Refusal::Held
                    | Refusal::RetryLater { .. }
                    | Refusal::LaneFull { .. }
                    | Refusal::AllFull { .. }
            ),
            NotSent::HostShut { .. } | NotSent::Credential(_) | NotSent::NoTokenNow(_) => true,
            NotSent::Invalid(_)
            | NotSent::NoLongerFits(_)
            | NotSent::Store(_)
            | NotSent::KeyForgotten
            | NotSent::Taken
            | NotSent::Stopped => false,
        }
    }
}

/// The longest prefix of a body that is kept or drained, in bytes.
pub(super) const EXCERPT: usize = 16 * 1024;

/// The part of a response that an error keeps. Reads the body unless it is long or slow.
async fn last_response(answered: Answered) -> LastResponse {
    let Answered { answer, held, .. } = answered;
    let mut body = answer.body;
    let mut excerpt = Vec::new();
    let read = async {
        while let Ok(Some(data)) = body.data().await {
            let room = EXCERPT - excerpt.len();
            excerpt.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                break;
            }
        }
    };
    // The body of a refusal is usually short and arrives with the headers; slower bodies are not waited for.
    let _ = tokio::time::timeout(Duration::from_secs(1), read).await;
    held.finish();
    LastResponse::new(answer.status, answer.headers, excerpt.into())
}

/// The longest wait for a body that is only kept in a letter.
const READ: Duration = Duration::from_secs(1);

/// The beginning of a response body.
pub(super) async fn excerpt(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(data)) = response.chunk().await {
            let room = EXCERPT - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() >= room {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(READ, read).await;
    body
}
