//! Replaces `objects.rs` if the feature `object-store` is off.

use std::time::Duration;

use super::call::{Answer, Call};
use crate::error::Error;

/// An uninhabited type: no such pool can be opened.
pub(crate) enum Objects {}

impl Objects {
    pub(super) async fn exchange(&self, _call: &Call, _within: Duration) -> Result<Answer, String> {
        match *self {}
    }
}

#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub(super) async fn open(_url: &str) -> Result<Objects, Error> {
    Err(Error::config("sharing through an object store is not compiled in; enable the feature `object-store`"))
}
