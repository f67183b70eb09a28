//! Replaces `redis.rs` if the feature `redis` is off.

use super::call::{Answer, Call};
use crate::error::Error;

/// An uninhabited type: no such pool can be opened.
pub(crate) enum Redis {}

impl Redis {
    pub(super) async fn exchange(&self, _call: &Call) -> Result<Answer, String> {
        match *self {}
    }
}

#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub(super) async fn open(_url: &str) -> Result<Redis, Error> {
    Err(Error::config("sharing through Redis is not compiled in; enable the feature `redis`"))
}
