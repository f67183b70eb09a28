//! The values of labels.

use crate::dead_letter::Reason;
pub(super) use crate::error::KINDS;

pub(super) const TIERS: [&str; 3] = ["high", "normal", "low"];

pub(super) const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// The methods that OpenTelemetry knows, and its value for all others.
pub(super) const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "_OTHER"];

/// The reasons of dead letters, each at the index of its number.
pub(super) const REASONS: [Reason; 6] =
    [Reason::Exhausted, Reason::Ambiguous, Reason::Rejected, Reason::Expired, Reason::Poison, Reason::NotConfigured];

const _: () = {
    let mut number = 0;
    while number < REASONS.len() {
        assert!(REASONS[number] as usize == number);
        number += 1;
    }
};
