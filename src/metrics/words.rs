//! What labels say.

use crate::error::ErrorKind;

pub(super) const TIERS: [&str; 3] = ["high", "normal", "low"];

pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The methods that OpenTelemetry knows, and its word for all others.
pub(super) const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "_OTHER"];

/// Every kind of error, at the place of its number.
pub(super) const KINDS: [ErrorKind; 21] = [
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
];

/// A kind that is added without a place here does not compile.
const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number);
        number += 1;
    }
    assert!(ErrorKind::Shutdown as usize + 1 == KINDS.len());
};
