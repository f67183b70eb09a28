//! The kinds of errors.

use serde::Serialize;

/// What failed. Its JSON is its [name](ErrorKind::as_str).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration of vendors or tenants cannot be used; the message names line and column.
    Config,
    /// The tenant is not configured for this vendor.
    UnknownTenant,
    /// The vendor is not configured.
    UnknownVendor,
    /// The vendor has no endpoint of this name.
    UnknownEndpoint,
    /// The request cannot be sent as it is: a forbidden header, a malformed path, a body that is too large.
    InvalidRequest,
    /// Too many requests are waiting already.
    QueueFull,
    /// The deadline or the longest wait that the caller allows has passed, or will pass before the limits allow the
    /// request.
    Deadline,
    /// The request costs more than its limit can ever hold.
    CostAboveCapacity,
    /// `try_send` or `try_acquire` would have had to wait for a permit.
    /// [`Error::retry_after`](crate::Error::retry_after) states the earliest time for another try.
    NotNow,
    /// The vendor accepts no request before a time that lies after this request's deadline, or too far ahead to wait
    /// for. [`Error::retry_after`](crate::Error::retry_after) states the time. The caller may send the request again
    /// then, unless the request has become a dead letter ([`Error::letter_id`](crate::Error::letter_id)): that happens
    /// when the vendor has refused it and no deadline was stated.
    RetryLater,
    /// The credential could not be read or refreshed, or the request could not be signed. If a token URL does not answer,
    /// or asks for a wait, [`Error::retry_after`](crate::Error::retry_after) says when it is asked again.
    Credential,
    /// No connection could be made: name resolution, connect, a TLS handshake that broke off.
    Connect,
    /// The vendor's certificate is invalid (expired, for another host, or not signed by a trusted authority), or client
    /// and vendor support no TLS version in common. A retry would fail in the same way, so there is none.
    Tls,
    /// The exchange did not end in time.
    Timeout,
    /// The connection broke, or the vendor spoke something that is not HTTP.
    Protocol,
    /// The response is larger than the cap.
    ResponseTooLarge,
    /// All retries are used, or no more are allowed. [`Error::response`](crate::Error::response) is the vendor's last
    /// response, if there was one, and [`Error::letter_id`](crate::Error::letter_id) is the dead letter that the
    /// request has become.
    Exhausted,
    /// The vendor's response has a status of 400 or above, and the caller asked for an error in that case.
    Status,
    /// The response body does not fit the type that the caller asked for; it is not JSON, for example.
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
    /// The name in snake case, as it stands in spans and metrics.
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

/// All kinds of errors; each stands at the index that equals its discriminant.
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

/// Makes the compiler refuse a new kind that is missing in [`KINDS`].
const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number);
        number += 1;
    }
    assert!(ErrorKind::KeyReused as usize + 1 == KINDS.len());
};

#[cfg(test)]
mod tests;
