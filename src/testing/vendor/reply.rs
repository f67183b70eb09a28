//! What the server answers, and when.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

/// A time that varies: `fixed`, and up to `jitter` more, evenly spread. Waits are rounded up to whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// The least.
    pub fixed: Duration,
    /// What may come on top.
    pub jitter: Duration,
}

impl Delay {
    /// Always `fixed`.
    pub const fn fixed(fixed: Duration) -> Delay {
        Delay { fixed, jitter: Duration::ZERO }
    }

    /// The same with up to `jitter` on top.
    pub const fn jitter(mut self, jitter: Duration) -> Delay {
        self.jitter = jitter;
        self
    }
}

/// An answer to an admitted request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl Reply {
    /// A text. A number that is no status becomes 500.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Reply {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Reply { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// JSON, as written.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply { content_type: "application/json", ..Reply::text(status, body) }
    }
}
