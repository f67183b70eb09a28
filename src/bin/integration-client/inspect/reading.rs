//! The one place where this program meets the library's reader of responses.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use integration_client::config::Vendor;
use integration_client::signals::Signals;

/// How much of a body is looked at.
pub(super) const BODY_PREFIX: usize = 64 * 1024;

/// What a response says. What it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// The request was refused for its limits.
    pub(super) throttled: bool,
    pub(super) retry_after: Option<Duration>,
    pub(super) windows: Vec<Window>,
    /// What the request cost.
    pub(super) cost: Option<f64>,
    /// What decided, in words.
    pub(super) rule: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Window {
    pub(super) name: Option<String>,
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    pub(super) used: Option<u64>,
    pub(super) reset_in: Option<Duration>,
    pub(super) window: Option<Duration>,
}

/// Reads a response of `vendor` that came in at `now`.
pub(super) fn read(
    _vendor: Option<&Vendor>,
    status: u16,
    headers: &HeaderMap,
    _body: &[u8],
    now: SystemTime,
) -> Reading {
    let signals = Signals::read(headers, now);
    let throttled = status == 429;
    let (retry_after, rule) = match signals.retry_after() {
        Some(wait) => (Some(wait), "a wait that is stated"),
        None if throttled && signals.wait().is_some() => (signals.wait(), "the reset of a window with nothing left"),
        None if throttled => (None, "the status"),
        None => (None, "-"),
    };
    let windows = signals.windows().iter().map(|window| Window {
        name: None,
        limit: window.limit,
        remaining: window.remaining,
        used: None,
        reset_in: window.reset_after,
        window: window.window,
    });
    Reading { throttled, retry_after, windows: windows.collect(), cost: None, rule: rule.to_owned() }
}
