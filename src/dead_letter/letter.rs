//! What was given up, why, and what was tried.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::{NoContext, Uuid};

use super::letter_request::LetterRequest;
use crate::config::AtRest;
use crate::request::priority::Priority;

/// A request that the client gave up on.
///
/// As JSON it is one object, with the field names below. Readers skip fields that they do not know.
///
/// Its `Debug` shows no header value, no query and no body. The [metadata](DeadLetter::metadata) is shown, here and in
/// [redacted](DeadLetter::redacted) letters: put nothing secret into it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// 128 bits in lower-case hex, no two letters' alike. Ids of later moments sort behind those of earlier ones.
    pub id: String,
    /// When the request was given up.
    pub at: Timestamp,
    /// Whose request it was.
    pub tenant: String,
    /// Whom it was for.
    pub vendor: String,
    /// The vendor's endpoint, where one was named or found by the path. Otherwise the template of the path, which begins with a
    /// slash: without a query, and with `*` for segments that do not look like words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The tier that it waited in. Also the order in which letters are written when many come at once.
    pub priority: Priority,
    /// Why it was given up.
    pub reason: Reason,
    /// The caller's own notes about the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The key that all attempts carried, and that a new attempt must carry too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What was tried, first to last.
    #[serde(default)]
    pub attempts: Vec<AttemptRecord>,
    /// The request, as much of it as is kept.
    pub request: LetterRequest,
    /// In which form the client's own store is to keep it.
    #[serde(skip)]
    pub(crate) at_rest: AtRest,
}

impl DeadLetter {
    /// A letter with an id of its own. What is not given is empty.
    pub fn new(
        at: Timestamp,
        tenant: impl Into<String>,
        vendor: impl Into<String>,
        priority: Priority,
        reason: Reason,
        request: LetterRequest,
    ) -> DeadLetter {
        // The moment is the letter's own, so that nothing here reads a clock. Before 1970 it counts as 1970.
        let seconds = u64::try_from(at.as_second()).unwrap_or(0);
        let nanos = u32::try_from(at.subsec_nanosecond()).unwrap_or(0);
        let id = Uuid::new_v7(uuid::Timestamp::from_unix(NoContext, seconds, nanos));
        DeadLetter {
            id: id.simple().to_string(),
            at,
            tenant: tenant.into(),
            vendor: vendor.into(),
            endpoint: None,
            priority,
            reason,
            metadata: BTreeMap::new(),
            idempotency_key: None,
            attempts: Vec::new(),
            request,
            at_rest: AtRest::Plain,
        }
    }

    /// The same letter with its request [redacted](LetterRequest::redacted): no header, no query, no body.
    #[must_use]
    pub fn redacted(&self) -> DeadLetter {
        DeadLetter {
            id: self.id.clone(),
            at: self.at,
            tenant: self.tenant.clone(),
            vendor: self.vendor.clone(),
            endpoint: self.endpoint.clone(),
            priority: self.priority,
            reason: self.reason,
            metadata: self.metadata.clone(),
            idempotency_key: self.idempotency_key.clone(),
            attempts: self.attempts.clone(),
            // Not cloned first and redacted then: a body may be large.
            request: self.request.redacted(),
            at_rest: self.at_rest,
        }
    }
}

/// Why a request was given up. In JSON in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// All retries were used.
    Exhausted,
    /// The vendor may have acted on it, and sending it again might make it act twice.
    Ambiguous,
    /// The vendor answered that it will not act, or the request cannot be sent as it is. Of accepted requests alone: for
    /// others the answer is the caller's.
    Rejected,
    /// It was not delivered in time: the deadline of an accepted request passed; or the vendor has refused a request that stated
    /// no deadline, and it could not be tried again within the time that anybody is kept waiting.
    Expired,
    /// The process ended again and again while it had the request in hand. Of accepted requests alone, like the one below.
    Poison,
    /// Its tenant, vendor or endpoint is in no configuration.
    NotConfigured,
}

impl Reason {
    /// Its name in snake case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Exhausted => "exhausted",
            Reason::Ambiguous => "ambiguous",
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::Poison => "poison",
            Reason::NotConfigured => "not_configured",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What came of one attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// When it began.
    pub at: Timestamp,
    /// How far it came.
    pub phase: Phase,
    /// The status of the vendor's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the answer asked to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What failed. Holds no credential, no body and no query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the vendor said, as far as its entry lets it be kept ([`Keep`](crate::config::Keep)). Of the answer that ended an accepted
    /// request alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// From its begin to the answer's headers or the failure, in milliseconds.
    pub took_ms: u64,
}

impl AttemptRecord {
    /// An attempt that began `at` and took `took_ms`. What is not given is empty.
    pub fn new(at: Timestamp, phase: Phase, took_ms: u64) -> AttemptRecord {
        AttemptRecord { at, phase, status: None, retry_after_ms: None, error: None, answer: None, took_ms }
    }
}

/// How far an attempt came. In JSON in lower case with underscores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// No byte of the request left.
    NotSent,
    /// The request reached the vendor, which said that it did not process it.
    Unprocessed,
    /// The request may have reached the vendor; no answer came.
    MaybeSent,
    /// The vendor answered.
    Answered,
}
