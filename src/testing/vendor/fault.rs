//! Faults, and the requests that they apply to.

use std::time::Duration;

/// A failure of an admitted request. The request counts in the limits all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// An answer with this status and an empty body. A redirect leads to `/`.
    Status(u16),
    /// No answer ever comes; the connection stays open.
    Stall,
    /// The connection is reset (RST) without an answer.
    Reset,
    /// A body of `chunks` pieces of `chunk_bytes`, with a pause before each.
    SlowBody {
        /// Number of pieces.
        chunks: u32,
        /// Bytes in each.
        chunk_bytes: u32,
        /// Time before each.
        pause: Duration,
    },
    /// Status 200 and half of the announced body, then the connection is reset.
    HalfBody,
}

/// Selects the requests that a fault applies to: by path, and then by their order.
///
/// ```
/// use integration_client::testing::When;
///
/// let always = When::any();
/// let third_report = When::path("/reports").nth(3);
/// let tenth_each = When::any().every(10);
/// # let _ = (always, third_report, tenth_each);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct When {
    prefix: String,
    turn: Turn,
    seen: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Always,
    Nth(u64),
    First(u64),
    Every(u64),
}

impl When {
    /// Every admitted request.
    pub fn any() -> When {
        When::path("/")
    }

    /// Every admitted request to this path or below it.
    pub fn path(prefix: &str) -> When {
        When { prefix: prefix.to_owned(), turn: Turn::Always, seen: 0 }
    }

    /// Selects only the `n`th of them, from 1.
    pub fn nth(mut self, n: u64) -> When {
        self.turn = Turn::Nth(n);
        self
    }

    /// Selects only the first `n` of them.
    pub fn first(mut self, n: u64) -> When {
        self.turn = Turn::First(n);
        self
    }

    /// Selects only every `n`th of them.
    pub fn every(mut self, n: u64) -> When {
        self.turn = Turn::Every(n.max(1));
        self
    }

    /// Counts a request. Returns whether the fault applies to it.
    pub(super) fn strikes(&mut self, path: &str) -> bool {
        if !is_below(path, &self.prefix) {
            return false;
        }
        self.seen += 1;
        match self.turn {
            Turn::Always => true,
            Turn::Nth(n) => self.seen == n,
            Turn::First(n) => self.seen <= n,
            Turn::Every(n) => self.seen.is_multiple_of(n),
        }
    }
}

/// Whether `path` is `prefix` or below it, by whole segments.
pub(super) fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
