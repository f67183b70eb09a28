//! Replaces `etcd.rs` if the feature `etcd` is off.

use std::time::Duration;

use super::call::{Answer, Call};
use crate::error::Error;

/// An uninhabited type: no such pool can be opened.
pub(crate) enum Etcd {}

impl Etcd {
    pub(super) async fn exchange(&self, _call: &Call, _within: Duration) -> Result<Answer, String> {
        match *self {}
    }
}

#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub(super) async fn open(_url: &str) -> Result<Etcd, Error> {
    Err(Error::config("sharing through etcd is not compiled in; enable the feature `etcd`"))
}
