//! What follows an exchange: the answer goes to the caller, or the request goes again, or the outcome is unknown.
//!
//! The question is never whether a request failed, but whether the vendor may have acted on it. A request that may be
//! repeated without harm is *idempotent*: by its method, or because the vendor knows it by a key. Any other is sent again
//! only where it is certain that the vendor did not act.
//!
//! Pure decisions of what happened, the request, its past and the vendor's policy. They wait for nothing and send
//! nothing. An answer that states a wait is obeyed by the driver that waits; [`backoff`] is for all others.

pub(crate) mod breaker;
mod budget;
mod budgets;
mod classifier;
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
pub(crate) use self::wait::{backoff, later, reconnect};

/// How one exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Status and headers came.
    Answered {
        status: u16,
        /// What a [`Classifier`] says about it; it comes before the status.
        class: Option<Class>,
        /// The vendor stated when to come again.
        retry_after: bool,
    },
    /// They did not.
    Failed { sent: Sent, kind: ErrorKind },
}

/// What there is to know about a request that goes again or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryInput {
    /// Sent twice it does what it does sent once: see [`idempotent`].
    pub(crate) idempotent: bool,
    /// Its body is at hand.
    pub(crate) replayable: bool,
    /// It went with a credential that can be refreshed.
    pub(crate) had_credential: bool,
    /// The request's own choice; `None` leaves it to the vendor's policy.
    pub(crate) on_ambiguous: Option<OnAmbiguous>,
}

impl RetryInput {
    /// The request's own choice comes before the vendor's.
    fn on_ambiguous(&self, policy: &RetryPolicy) -> OnAmbiguous {
        self.on_ambiguous.unwrap_or(policy.on_ambiguous)
    }
}

/// What was tried before the outcome that is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryHistory {
    /// Exchanges after the first that count: neither those that never left nor the one after a refresh.
    pub(crate) retries: u32,
    /// The credential was refreshed for this request.
    pub(crate) refreshed: bool,
    /// Since when no exchange has reached a vendor that would process it, in a row; `None` before the first such failure
    /// and after any other exchange. Time spent in a queue or in a pause says nothing about the vendor, so age is not
    /// counted from the send.
    pub(crate) failing_since: Option<Time>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The answer, or the error, is the caller's.
    Done,
    /// The vendor refused for now and did not act: its scope pauses, and the request goes again after that. Counts.
    Refused,
    /// Again after the wait that the vendor states, or else after [`backoff`]. Counts.
    Again,
    /// Again after [`reconnect`]: it is certain that the vendor did not act, so it does not count.
    RetryUncounted,
    /// Once more with a fresh credential, at once. Does not count.
    Refresh,
    /// It is unknown whether the vendor acted: not sent again.
    Ambiguous,
    /// The same, and it is kept as a dead letter.
    Park,
    /// It would go again, but for the reason stated.
    GiveUp(GiveUpReason),
}

/// Why a request that would go again does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUpReason {
    /// All retries are used.
    Retries,
    /// For `max_age` no connection could be made, or the vendor processed none of the exchanges.
    Age,
    /// The body cannot be sent a second time.
    Body,
    /// Too much of the load is retries already; decided by the caller of the [`Budget`].
    Budget,
}

/// Whether a request may be sent twice without harm, by its method or because a key goes with it.
pub(crate) fn idempotent(method: &Method, has_key: bool) -> bool {
    has_key || matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}

/// What to do after `outcome`. `tried` does not include it.
pub(crate) fn decide(
    outcome: &Outcome,
    request: &RetryInput,
    tried: &RetryHistory,
    policy: &RetryPolicy,
    now: Time,
) -> Verdict {
    match *outcome {
        Outcome::Answered { status, class, retry_after } => match meaning(status, class) {
            Meaning::Final => Verdict::Done,
            // Without a fresh credential or a body to send again, the caller gets the vendor's answer: it did not act.
            Meaning::Unauthorized if request.had_credential && request.replayable && !tried.refreshed => {
                Verdict::Refresh
            }
            Meaning::Unauthorized => Verdict::Done,
            Meaning::RateLimited => count(Verdict::Refused, request, tried, policy),
            Meaning::Unavailable if retry_after && policy.unavailable_is_safe => {
                count(Verdict::Again, request, tried, policy)
            }
            Meaning::Unavailable | Meaning::Failed => unless_ambiguous(request, tried, policy),
        },
        Outcome::Failed { sent: Sent::NotSent, kind } => match kind {
            // Protocol: the connection closed before the request was written to it.
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => unacted(request, tried, policy, now),
            // The request or the configuration is wrong, and will be the next time.
            _ => Verdict::Done,
        },
        Outcome::Failed { sent: Sent::Unprocessed, .. } => unacted(request, tried, policy, now),
        Outcome::Failed { sent: Sent::MaybeSent, kind } => match kind {
            ErrorKind::Connect | ErrorKind::Timeout | ErrorKind::Protocol => unless_ambiguous(request, tried, policy),
            // It would fail in the same way again. The vendor may have acted all the same.
            _ if request.idempotent => Verdict::Done,
            _ => ambiguous(request, policy),
        },
        // The status came: the vendor has acted, and to ask it again is the caller's business.
        Outcome::Failed { sent: Sent::Answered, .. } => Verdict::Done,
    }
}

/// What an answer says about the request, status and classifier taken together.
enum Meaning {
    /// Acted upon or refused for good.
    Final,
    Unauthorized,
    RateLimited,
    /// Possibly refused before anything was done.
    Unavailable,
    /// Possibly in the middle of it.
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

/// Again, where the vendor may have acted: only for what may be sent twice.
fn unless_ambiguous(request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy) -> Verdict {
    if request.idempotent || request.on_ambiguous(policy) == OnAmbiguous::Resend {
        count(Verdict::Again, request, tried, policy)
    } else {
        ambiguous(request, policy)
    }
}

/// Not again. Whether retries are on does not matter: this is none.
fn ambiguous(request: &RetryInput, policy: &RetryPolicy) -> Verdict {
    match request.on_ambiguous(policy) {
        OnAmbiguous::Park => Verdict::Park,
        OnAmbiguous::Fail | OnAmbiguous::Resend => Verdict::Ambiguous,
    }
}

/// `verdict`, if there is a retry left for it.
fn count(verdict: Verdict, request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy) -> Verdict {
    if policy.max_retries == 0 {
        // Nothing is given up on where nothing is tried: a caller without retries wants the answers.
        Verdict::Done
    } else if tried.retries >= policy.max_retries {
        Verdict::GiveUp(GiveUpReason::Retries)
    } else if !request.replayable {
        Verdict::GiveUp(GiveUpReason::Body)
    } else {
        verdict
    }
}

/// Again for `max_age`, where it is certain that the vendor did not act: whatever the method is, and without counting.
fn unacted(request: &RetryInput, tried: &RetryHistory, policy: &RetryPolicy, now: Time) -> Verdict {
    if policy.max_retries == 0 {
        return Verdict::Done;
    }
    if !request.replayable {
        return Verdict::GiveUp(GiveUpReason::Body);
    }
    match tried.failing_since {
        Some(since) if now.since(since) >= policy.max_age => Verdict::GiveUp(GiveUpReason::Age),
        _ => Verdict::RetryUncounted,
    }
}
