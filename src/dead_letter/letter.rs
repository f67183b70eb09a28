//! The dead letter: the request, the reason, and the attempts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::{NoContext, Uuid};

use super::kept_headers::KeptHeaders;
use super::letter_request::LetterRequest;
use crate::clock::Moment;
use crate::config::AtRest;
use crate::config::priority::Priority;

/// A request that the client gave up on.
///
/// Its JSON is one object with the field names below. Readers ignore unknown fields.
///
/// Its `Debug` shows no header value, no query and no body. The [metadata](DeadLetter::metadata) is shown, also in
/// [redacted](DeadLetter::redacted) letters: put nothing secret into it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// A unique id: 128 bits in lower-case hex. Ids sort by the time of their letters.
    pub id: String,
    /// When the request was given up.
    pub at: Timestamp,
    /// The tenant on whose behalf the request was made.
    pub tenant: String,
    /// The vendor that the request was for.
    pub vendor: String,
    /// The vendor's endpoint, where the request named one or its path matches one. Otherwise the template of the path,
    /// which begins with a slash: without the query, and with `*` for segments that do not look like words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The priority of the request. Letters of high priority are written first when many come at once.
    pub priority: Priority,
    /// The reason why the request was given up.
    pub reason: Reason,
    /// The caller's metadata of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The idempotency key that all attempts carried, and that a new attempt must carry too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The cost that the request stated, by kind of points ([`Request::cost`](crate::Request::cost)). A new attempt
    /// takes as many units.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub costs: BTreeMap<String, u32>,
    /// The attempts, first to last.
    #[serde(default)]
    pub attempts: Vec<AttemptRecord>,
    /// As much of the request as is kept.
    pub request: LetterRequest,
    /// The headers that were left out of the request, because each attempt carried a secret of the entry in their place.
    /// A new attempt needs such a secret too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) replaced: Vec<Box<str>>,
    /// How the client's own store must keep the letter.
    #[serde(skip)]
    pub(crate) at_rest: AtRest,
    /// When the first exchange began that left open whether the vendor acted, in milliseconds by the clock of the client's
    /// store. Only the letter's row in the store states it.
    #[serde(default, skip_serializing)]
    pub(crate) may_have_acted_at: Option<i64>,
    /// The same for a plain send, by the clocks of this process.
    #[serde(skip)]
    pub(crate) in_doubt_since: Option<Moment>,
}

impl DeadLetter {
    /// A letter with a new id. All optional fields are empty.
    pub fn new(
        at: Timestamp,
        tenant: impl Into<String>,
        vendor: impl Into<String>,
        priority: Priority,
        reason: Reason,
        request: LetterRequest,
    ) -> DeadLetter {
        // The id uses the letter's own time, so that nothing here reads a clock. A time before 1970 counts as 1970.
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
            costs: BTreeMap::new(),
            attempts: Vec::new(),
            request,
            replaced: Vec::new(),
            at_rest: AtRest::Plain,
            may_have_acted_at: None,
            in_doubt_since: None,
        }
    }

    /// A copy with its request [redacted](LetterRequest::redacted): no header, no query, no body.
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
            costs: self.costs.clone(),
            attempts: self.attempts.clone(),
            // Built field by field, because a clone would copy a body that may be large.
            request: self.request.redacted(),
            replaced: Vec::new(),
            at_rest: self.at_rest,
            may_have_acted_at: self.may_have_acted_at,
            in_doubt_since: self.in_doubt_since,
        }
    }
}

/// Why a request was given up. Its JSON is in snake case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// All retries were used.
    Exhausted,
    /// The vendor may have acted on the request, and a repetition might make it act twice.
    Ambiguous,
    /// The vendor responded that it will not act, or with a redirect, none of which is followed (a 303 and a 304 are
    /// deliveries); or the request cannot be sent as it is. For accepted requests only: a plain send returns the response
    /// to its caller.
    Rejected,
    /// The request was not delivered in time. The deadline of an accepted request passed; or the vendor refused a
    /// request without a deadline, and the next attempt would have come later than the longest time that a caller is
    /// kept waiting; or the client was shut down before the next attempt.
    Expired,
    /// The process ended again and again while it was sending the request. For accepted requests only.
    Poison,
    /// Its tenant, vendor or endpoint is missing in the configuration, or its path or a header no longer fits it. For
    /// accepted requests only.
    NotConfigured,
}

impl Reason {
    /// The name in snake case.
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

/// The result of one attempt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptRecord {
    /// When the attempt began.
    pub at: Timestamp,
    /// How far the attempt came.
    pub phase: Phase,
    /// The status of the vendor's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the vendor asked to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What failed. The text holds no credential, no body and no query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The text of the vendor's response, as far as the vendor's entry allows to keep it
    /// ([`Keep`](crate::config::Keep)). Kept only of the response that ended an accepted request. If the response
    /// repeats the tenant's secret, `***` replaces it, unless the secret has fewer than six characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The headers of that response, under the same conditions. Without `dead_letters = "whole"` URLs in them have no
    /// query.
    #[serde(default, skip_serializing_if = "KeptHeaders::is_empty")]
    pub headers: KeptHeaders,
    /// The time from the start to the response headers or to the failure, in milliseconds.
    pub took_ms: u64,
}

impl AttemptRecord {
    /// An attempt that began `at` and took `took_ms`. All optional fields are empty.
    pub fn new(at: Timestamp, phase: Phase, took_ms: u64) -> AttemptRecord {
        let headers = KeptHeaders::default();
        AttemptRecord { at, phase, status: None, retry_after_ms: None, error: None, answer: None, headers, took_ms }
    }
}

/// How far an attempt came. Its JSON is in snake case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// No byte of the request was sent.
    NotSent,
    /// The request reached the vendor, which said that it did not process it.
    Unprocessed,
    /// The request may have reached the vendor; no response arrived.
    MaybeSent,
    /// The vendor responded.
    Answered,
}
