//! What labels say.

use crate::dead_letter::Reason;
use crate::error::ErrorKind;

pub(super) const TIERS: [&str; 3] = ["high", "normal", "low"];

pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The methods that OpenTelemetry knows, and its word for all others.
pub(super) const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "_OTHER"];

/// Why requests are given up, at the place of its number.
pub(super) const REASONS: [Reason; 6] =
    [Reason::Exhausted, Reason::Ambiguous, Reason::Rejected, Reason::Expired, Reason::Poison, Reason::NotConfigured];

/// Every kind of error, at the place of its number.
pub(super) const KINDS: [ErrorKind; 23] = [
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

const _: () = {
    let mut number = 0;
    while number < REASONS.len() {
        assert!(REASONS[number] as usize == number);
        number += 1;
    }
};

/// A kind that is added without a place here does not compile.
const _: () = {
    let mut number = 0;
    while number < KINDS.len() {
        assert!(KINDS[number] as usize == number);
        number += 1;
    }
    assert!(ErrorKind::KeyReused as usize + 1 == KINDS.len());
};
