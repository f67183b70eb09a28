//! What can fail.

use serde::Serialize;

/// What failed. Its JSON is its [name](ErrorKind::as_str).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// A vendor or tenant table cannot be used; the message names line and column.
    Config,
    /// The tenant is not configured for this vendor.
    UnknownTenant,
    /// The vendor is not configured.
    UnknownVendor,
    /// The vendor has no endpoint of this name.
    UnknownEndpoint,
    /// The request cannot be sent as it is: a forbidden header, a malformed path, a body that is too large.
    InvalidRequest,
    /// Too many requests wait already.
    QueueFull,
    /// The deadline or the longest wait the caller allows has passed, or will have before the limits allow the request.
    Deadline,
    /// The request costs more than its limit can ever hold.
    CostAboveCapacity,
    /// `try_send` or `try_acquire`: not now. [`Error::retry_after`](crate::Error::retry_after) says when at the earliest.
    NotNow,
    /// The vendor wants no request before a moment that lies after this one's deadline, or very far off.
    /// [`Error::retry_after`](crate::Error::retry_after) says when. The request is still the caller's, unless it has become a dead letter
    /// ([`Error::letter_id`](crate::Error::letter_id)): the vendor has refused it, and no deadline was stated.
    RetryLater,
    /// The credential could not be read or refreshed, or the request could not be signed.
    Credential,
    /// No connection could be made: name resolution, connect, a TLS handshake that broke off.
    Connect,
    /// The vendor's certificate is invalid (expired, for another host, or not signed by a trusted authority), or client and
    /// vendor support no TLS version in common. A retry would fail in the same way, so there is none.
    Tls,
    /// The exchange did not end in time.
    Timeout,
    /// The connection broke, or the vendor spoke something that is not HTTP.
    Protocol,
    /// The response is larger than the cap.
    ResponseTooLarge,
    /// All retries are used, or no more are allowed. [`Error::response`](crate::Error::response) is the vendor's last answer, if it answered;
    /// [`Error::letter_id`](crate::Error::letter_id) the dead letter that the request has become.
    Exhausted,
    /// The vendor answered with a status of 400 or above, and the caller asked for an error then.
    Status,
    /// The response body is not what the caller asked for, for example not JSON.
    Decode,
    /// The tenant was removed while the request waited.
    Retired,
    /// The client is shutting down.
    Shutdown,
    /// The store cannot be reached, read or written, or the client has none.
    Store,
    /// Another request was accepted with this idempotency key before.
    KeyReused,
}

impl ErrorKind {
    /// Its name in snake case, as spans and metrics state it.
    ///
    /// ```
    /// assert_eq!(integration_client::ErrorKind::QueueFull.as_str(), "queue_full");
    /// ```
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Config => "config",
            ErrorKind::UnknownTenant => "unknown_tenant",
            ErrorKind::UnknownVendor => "unknown_vendor",
            ErrorKind::UnknownEndpoint => "unknown_endpoint",
            ErrorKind::InvalidRequest => "invalid_request",
            ErrorKind::QueueFull => "queue_full",
            ErrorKind::Deadline => "deadline",
            ErrorKind::CostAboveCapacity => "cost_above_capacity",
            ErrorKind::NotNow => "not_now",
            ErrorKind::RetryLater => "retry_later",
            ErrorKind::Credential => "credential",
            ErrorKind::Connect => "connect",
            ErrorKind::Tls => "tls",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Protocol => "protocol",
            ErrorKind::ResponseTooLarge => "response_too_large",
            ErrorKind::Exhausted => "exhausted",
            ErrorKind::Status => "status",
            ErrorKind::Decode => "decode",
            ErrorKind::Retired => "retired",
            ErrorKind::Shutdown => "shutdown",
            ErrorKind::Store => "store",
            ErrorKind::KeyReused => "key_reused",
        }
    }
}

/// Every kind of error, at the place of its number.
pub(crate) const KINDS: [ErrorKind; 23] = [
    ErrorKind::Config,
    ErrorKind::UnknownTenant,
    ErrorKind::UnknownVendor,
    ErrorKind::UnknownEndpoint,
    ErrorKind::InvalidRequest,
    ErrorKind::QueueFull,
    ErrorKind::Deadline,
    ErrorKind::CostAboveCapacity,
    ErrorKind::NotNow,
    ErrorKind::RetryLater,
    ErrorKind::Credential,
    ErrorKind::Connect,
    ErrorKind::Tls,
    ErrorKind::Timeout,
    ErrorKind::Protocol,
    ErrorKind::ResponseTooLarge,
    ErrorKind::Exhausted,
    ErrorKind::Status,
    ErrorKind::Decode,
    ErrorKind::Retired,
    ErrorKind::Shutdown,
    ErrorKind::Store,
    ErrorKind::KeyReused,
];

/// A kind that is added without a place here does not compile.
const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number);
        number += 1;
    }
    assert!(ErrorKind::KeyReused as usize + 1 == KINDS.len());
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_of_a_kind_is_its_name() {
        for kind in KINDS {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        use crate::error::Delivery;
        for delivery in [Delivery::NotSent, Delivery::Rejected, Delivery::Ambiguous, Delivery::Delivered] {
            assert_eq!(serde_json::to_value(delivery).unwrap(), delivery.as_str());
        }
    }
}
