//! Decides what follows an exchange: the caller gets the response, the request is sent again, or its outcome is
//! unknown.
//!
//! The question is never whether a request failed, but whether the vendor may have acted on it. A request that may be
//! repeated without harm is *idempotent*: by its method, or because the vendor recognises it by a key and still knows
//! that key. Any other request is sent again only if it is certain that the vendor did not act.
//!
//! The decisions are pure functions of the outcome, the request, its earlier attempts and the vendor's policy. The
//! driver that calls them sleeps and sends: for the wait that the vendor states, or else for [`backoff`].

pub(crate) mod breaker;
mod budget;
mod budgets;
mod classifier;
mod key_age;
#[cfg(test)]
mod tests;
mod wait;

use http::Method;

use crate::clock::Time;
use crate::config::{OnAmbiguous, RetryPolicy};
use crate::error::ErrorKind;
use crate::transport::Sent;

pub(crate) use self::budget::Budget;
pub(crate) use self::budgets::Budgets;
pub use self::classifier::{Class, Classifier};
pub(crate) use self::key_age::{KEY_FORGOTTEN, Since, knows_key};
pub(crate) use self::wait::{OUTAGE, backoff, later, outage, reconnect};

/// How one exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A status and headers arrived.
    Answered {
        status: u16,
        /// The result of a [`Classifier`], which takes precedence over the status.
        class: Option<Class>,
        /// The response states a wait.
        retry_after: bool,
    },
    /// No response arrived.
    Failed { sent: Sent, kind: ErrorKind },
}

/// The properties of a request that decide whether it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryInput {
    /// A second execution has no further effect: see [`idempotent`] and [`knows_key`].
    pub(crate) idempotent: bool,
    /// Its body can be sent again: it is in memory, or in the store.
    pub(crate) replayable: bool,
    /// It was sent with a credential that can be refreshed.
    pub(crate) had_credential: bool,
    /// The request's own choice; `None` for the vendor's policy.
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
}

impl RetryInput {
    /// The request's choice, or else the vendor's.
    fn on_ambiguous(&self, policy: &RetryPolicy) -> OnAmbiguous {
        self.on_ambiguous.unwrap_or(policy.on_ambiguous)
    }
}

/// The attempts before the outcome that is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryHistory {
    /// Counted retries: all exchanges after the first, except those that were not sent and the one after a refresh.
    pub(crate) retries: u32,
    /// The credential was refreshed for this request.
    pub(crate) refreshed: bool,
    /// Start of the current run of exchanges that the vendor did not process; `None` outside such a run. Age is counted
    /// from here and not from the send, because time in a queue or in a pause says nothing about the vendor.
    pub(crate) failing_since: Option<Time>,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Return the response or the error to the caller.
    Done,
    /// The vendor refused because of a limit and did not act: send again after the pause of that limit. Counts as a
    /// retry.
    Refused,
    /// Send again after the wait that the vendor states, or else after [`backoff`]. Counts as a retry.
    Again,
    /// Send again after [`reconnect`]: the vendor certainly did not act, so this is not counted.
    RetryUncounted,
    /// Send again at once with a fresh credential. Not counted.
    Refresh,
    /// Do not send again: the vendor may have acted.
    Ambiguous,
    /// Do not send again, and keep the request as a dead letter: the vendor may have acted.
    Park,
    /// Do not send again, although the outcome would allow it, for this reason.
    GiveUp(GiveUpReason),
}

/// Why a request is not sent again although its outcome would allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUpReason {
    /// All retries are used.
    Retries,
    /// For `max_age`, no connection could be made or the vendor processed none of the exchanges.
    Age,
    /// The body cannot be sent a second time.
    Body,
    /// Retries are too large a share of the load. The driver decides this, by the [`Budget`].
    Budget,
}

/// Whether a request may be sent twice without harm: it carries a key that the vendor knows, or its method is
/// idempotent by RFC 9110. A vendor that takes keys with this PUT (`takes_key`: with its method and its path) says by
/// this that the PUT is not idempotent: at Xero it creates.
pub(crate) fn idempotent(method: &Method, takes_key: impl FnOnce() -> bool, knows_key: bool) -> bool {
    knows_key
        || match *method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE => true,
            Method::PUT => !takes_key(),
            _ => false,
        }
}

/// Whether a request on which the vendor may have acted may be sent again: because a second execution has no further
/// effect, or because the request (`resend`), or else the vendor's policy, allows it.
pub(crate) fn may_resend(idempotent: bool, resend: Option<bool>, policy: &RetryPolicy) -> bool {
    idempotent || resend.unwrap_or(policy.on_ambiguous == OnAmbiguous::Resend)
}

/// Decides what follows `outcome`. `tried` holds the attempts before it.
pub(crate) fn decide(
    outcome: &Outcome,
    request: &RetryInput,
    tried: &RetryHistory,
    policy: &RetryPolicy,
    now: Time,
) -> Verdict {
    match *outcome {
        Outcome::Answered { status, class, .. } => match meaning(status, class) {
            Meaning::Final => Verdict::Done,
            // Otherwise the caller gets the 401: the vendor did not act.
            Meaning::Unauthorized if request.had_credential && request.replayable && !tried.refreshed => {
                Verdict::Refresh
            }
            Meaning::Unauthorized => Verdict::Done,
            Meaning::RateLimited => count(Verdict::Refused, request, tried, policy),
            Meaning::Unavailable | Meaning::Failed if is_ambiguous(outcome, policy) => {
                unless_ambiguous(request, tried, policy)
            }
            Meaning::Unavailable | Meaning::Failed => count(Verdict::Again, request, tried, policy),
        },
        Outcome::Failed { sent: Sent::NotSent, kind } => match kind {
            // `Protocol`: the connection was closed before the request was written to it.
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => {
                resend_uncounted(request, tried, policy, now)
            }
            // The request or the configuration is wrong: another attempt would fail alike.
            _ => Verdict::Done,
        },
        Outcome::Failed { sent: Sent::Unprocessed, .. } => resend_uncounted(request, tried, policy, now),
        Outcome::Failed { sent: Sent::MaybeSent, kind } => match kind {
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => unless_ambiguous(request, tried, policy),
            // Another attempt would fail alike, and the vendor may have acted.
            _ if request.idempotent => Verdict::Done,
            _ => ambiguous(request, policy),
        },
        // A status arrived, so the vendor acted: the caller decides whether to repeat the request.
        Outcome::Failed { sent: Sent::Answered, .. } => Verdict::Done,
    }
}

/// Whether `outcome` leaves open whether the vendor acted on the request.
pub(crate) fn is_ambiguous(outcome: &Outcome, policy: &RetryPolicy) -> bool {
    match *outcome {
        Outcome::Answered { status, class, retry_after } => match meaning(status, class) {
            Meaning::Final | Meaning::Unauthorized | Meaning::RateLimited => false,
            Meaning::Unavailable => !(retry_after && policy.unavailable_is_safe),
            Meaning::Failed => true,
        },
        Outcome::Failed { sent, .. } => sent == Sent::MaybeSent,
    }
}

/// How a request ends that is not sent again after a failed exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedEnd {
    /// The request cannot be sent as it is.
    Invalid,
    /// The vendor did not act. Another attempt may succeed once the cause is repaired.
    NotPossibleNow,
    /// The vendor said that it did not process the request.
    Rejected,
    /// The vendor may have acted, and a second execution has no further effect.
    Exhausted,
    /// The vendor may have acted, and a second execution might act twice.
    Ambiguous,
}

/// How a request ends after a failed exchange for which [`decide`] returned [`Verdict::Done`].
pub(crate) fn failed_end(sent: Sent, kind: ErrorKind, idempotent: bool) -> FailedEnd {
    match (kind, sent) {
        (ErrorKind::InvalidRequest, _) => FailedEnd::Invalid,
        // Protocol: an HTTP/2 stream that the vendor did not process.
        (_, Sent::NotSent) | (ErrorKind::Protocol, Sent::Unprocessed) => FailedEnd::NotPossibleNow,
        (_, Sent::Unprocessed) => FailedEnd::Rejected,
        (_, Sent::MaybeSent) if idempotent => FailedEnd::Exhausted,
        (_, Sent::MaybeSent | Sent::Answered) => FailedEnd::Ambiguous,
    }
}

/// Whether a response with this status and class may be followed by a successful attempt. Without retries, the response
/// is final nevertheless.
pub(crate) fn may_pass(status: u16, class: Option<Class>) -> bool {
    !matches!(meaning(status, class), Meaning::Final | Meaning::Unauthorized)
}

/// Whether a final response delivers a stored job. A 303 says that the request was processed, and where the result is; a
/// 304 answers a conditional request (RFC 9110, sections 15.4.4 and 15.4.5). Of a request that any other redirect answers
/// nobody knows whether it was processed: redirects are not followed.
pub(crate) fn is_delivery(status: u16, class: Option<Class>) -> bool {
    match class {
        Some(class) => class == Class::Success,
        None => matches!(status, 200..=299 | 303 | 304),
    }
}

/// Whether a refusal with this status is about what the request says. A vendor that acted on an earlier attempt with the
/// same idempotency key would have repeated that outcome instead. Any other refusal may come before the vendor looks at the
/// key, from its gateway or its check of the credential, and says nothing of the earlier attempt. A 409 may even mean that
/// the vendor is busy with that attempt.
pub(crate) fn is_about_content(status: u16) -> bool {
    matches!(status, 200..=299 | 400 | 402 | 422)
}

/// The meaning of a response, from its status and the classifier.
enum Meaning {
    /// The vendor acted, or refused for good.
    Final,
    Unauthorized,
    RateLimited,
    /// The vendor failed, possibly before it acted.
    Unavailable,
    /// The vendor failed, possibly while it acted.
    Failed,
}

fn meaning(status: u16, class: Option<Class>) -> Meaning {
    match (class, status) {
        (Some(Class::Success | Class::Rejected), _) => Meaning::Final,
        (Some(Class::RateLimited), _) => Meaning::RateLimited,
        (Some(Class::Transient), _) => Meaning::Unavailable,
        (None, 401) => Meaning::Unauthorized,
        (None, 429) => Meaning::RateLimited,
        (None, 408 | 425 | 503) => Meaning::Unavailable,
        (None, 500..=599) => Meaning::Failed,
        (None, _) => Meaning::Final,
    }
}

/// After an outcome that leaves open whether the vendor acted: send again only what may be executed twice.
fn unless_ambiguous(request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy) -> Verdict {
    let resend = request.on_ambiguous.map(|choice| choice == OnAmbiguous::Resend);
    if may_resend(request.idempotent, resend, policy) {
        count(Verdict::Again, request, tried, policy)
    } else {
        ambiguous(request, policy)
    }
}

/// The verdict for a request that must not be sent again. It does not depend on `max_retries`, because it is no retry.
fn ambiguous(request: &RetryInput, policy: &RetryPolicy) -> Verdict {
    match request.on_ambiguous(policy) {
        OnAmbiguous::Park => Verdict::Park,
        OnAmbiguous::Fail | OnAmbiguous::Resend => Verdict::Ambiguous,
    }
}

/// `verdict`, if there is a retry left for it.
fn count(verdict: Verdict, request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy) -> Verdict {
    if policy.max_retries == 0 {
        // A caller without retries gets the response itself.
        Verdict::Done
    } else if tried.retries >= policy.max_retries {
        Verdict::GiveUp(GiveUpReason::Retries)
    } else if !request.replayable {
        Verdict::GiveUp(GiveUpReason::Body)
    } else {
        verdict
    }
}

/// After an outcome that proves that the vendor did not act: send again for `max_age`, whatever the method, uncounted.
fn resend_uncounted(request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy, now: Time) -> Verdict {
    if policy.max_retries == 0 {
        return Verdict::Done;
    }
    if !request.replayable {
        return Verdict::GiveUp(GiveUpReason::Body);
    }
    match tried.failing_since {
        Some(since) if now.since(since) >= policy.age() => Verdict::GiveUp(GiveUpReason::Age),
        _ => Verdict::RetryUncounted,
    }
}
