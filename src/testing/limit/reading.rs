//! The settings of limiters, and the state that they announce.

/// Where fixed windows begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// At this time, in nanoseconds, and at every window's length before and after it.
    At(u64),
    /// At the first request after the last window's end.
    FirstRequest,
}

/// How a token bucket refills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refill {
    /// A little every nanosecond.
    Steady,
    /// `rate x interval / per` units at `phase_ns` and every `interval_ns` after it.
    Lumps {
        /// Time between lumps.
        interval_ns: u64,
        /// When the first lump comes.
        phase_ns: u64,
    },
}

/// The state of a limiter as the usual headers announce it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Units per window, or the capacity of the bucket.
    pub limit: u32,
    /// Whole units left.
    pub remaining: u32,
    /// When the window ends, the newest entry expires, or the bucket is full (or drained) again.
    pub reset_at_ns: u64,
}
