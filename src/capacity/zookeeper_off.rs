//! Replaces `zookeeper/` if the feature `zookeeper` is off.

use std::time::Duration;

use super::call::{Answer, Call};
use crate::BoxFuture;
use crate::error::Error;

/// An uninhabited type: no such pool can be opened.
pub(crate) enum Zookeeper {}

impl Zookeeper {
    pub(super) async fn exchange(&self, _call: &Call, _within: Duration) -> Result<Answer, String> {
        match *self {}
    }
}

#[expect(clippy::unused_async, reason = "the same signature as with the feature")]
pub(super) async fn open(_url: &str) -> Result<(Zookeeper, BoxFuture<'static, ()>), Error> {
    Err(Error::config("sharing through ZooKeeper is not compiled in; enable the feature `zookeeper`"))
}
