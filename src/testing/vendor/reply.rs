//! The answers of the server, and their delays.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

/// A time that varies: `fixed`, plus up to `jitter`, uniformly distributed. Waits are rounded up to whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delay {
    /// The minimum.
    pub fixed: Duration,
    /// The largest addition.
    pub jitter: Duration,
}

impl Delay {
    /// A delay of exactly `fixed`.
    pub const fn fixed(fixed: Duration) -> Delay {
        Delay { fixed, jitter: Duration::ZERO }
    }

    /// Adds up to `jitter`.
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
    /// An answer with a text as its body. An invalid status becomes 500.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Reply {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Reply { status, content_type: "text/plain; charset=utf-8", body: body.into() }
    }

    /// An answer with JSON as its body, which is sent as it is. An invalid status becomes 500.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Reply {
        Reply { content_type: "application/json", ..Reply::text(status, body) }
    }
}
