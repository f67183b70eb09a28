//! How limiters are set up, and what they say of themselves.

/// Where fixed windows begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// At this time, in nanoseconds, and every window's length before and after it.
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

/// What a limiter can say about itself: the contents of the usual headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Units per window, or what the full bucket holds.
    pub limit: u32,
    /// Whole units left.
    pub remaining: u32,
    /// When the window ends, the newest entry expires, or the bucket is as good as new.
    pub reset_at_ns: u64,
}
