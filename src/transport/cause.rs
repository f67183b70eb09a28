//! Converts errors of other crates into causes that this crate's errors can hold.

use std::fmt;

use super::{Sent, TransportError};
use crate::error::ErrorKind;

/// The text of another crate's error: its chain of messages, without the URL and without control characters.
///
/// The error value is not kept: its `Debug` may show secrets, and no foreign type belongs in the public API.
pub(crate) struct Cause(String);

impl Cause {
    pub(crate) fn of(error: &dyn std::error::Error) -> Cause {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let next = cause.to_string();
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            source = cause.source();
        }
        Cause(text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect())
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cause {}

/// A setting of the connection that cannot be used; nothing was sent.
pub(super) fn unusable(why: impl Into<String>) -> TransportError {
    TransportError::new(Sent::NotSent, ErrorKind::Config, why)
}

/// The only place that converts reqwest's errors while a response body is read.
pub(super) fn body_error(error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    let message = if error.is_decode() {
        "the response body could not be decoded, or ended early"
    } else {
        "the connection broke in the response body"
    };
    TransportError::new(Sent::Answered, ErrorKind::Protocol, message).with_source(Cause::of(&error))
}
