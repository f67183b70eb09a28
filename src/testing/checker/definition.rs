//! The definitions of limits, and the entries of the log that they are checked against.

/// A request that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it arrived, in nanoseconds since any origin.
    pub at_ns: u64,
    /// The units that the request took.
    pub cost: u32,
    /// When the request ended; used by concurrency limits only.
    pub end_ns: u64,
}

impl Event {
    /// A request of one unit that never ends.
    pub const fn at(at_ns: u64) -> Event {
        Event { at_ns, cost: 1, end_ns: u64::MAX }
    }

    /// Sets the cost of the request.
    pub const fn cost(mut self, cost: u32) -> Event {
        self.cost = cost;
        self
    }

    /// Sets the end of the request, from which its slot is free.
    pub const fn until(mut self, end_ns: u64) -> Event {
        self.end_ns = end_ns;
        self
    }
}

impl From<&Event> for Event {
    fn from(event: &Event) -> Event {
        *event
    }
}

/// The meaning of a limit, as a property of a log. Windows, intervals and rates of zero count as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Definition {
    /// For every whole `k`: at most `limit` in `[phase + k x window, phase + (k + 1) x window)`.
    FixedWindow {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
        /// Where one of the windows begins.
        phase_ns: u64,
    },
    /// As [`FixedWindow`](Self::FixedWindow), for every phase: at most `limit` in any `[t, t + window)`. This is also
    /// the meaning of a sliding log.
    FixedWindowEveryPhase {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// A window begins at the first request outside of any earlier window, and has at most `limit` units.
    FixedWindowFromFirst {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// At most `limit` in any `[t, t + window)`, or in any `[t, t + window]`.
    SlidingWindow {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
        /// Whether both ends belong to the window.
        both_ends: bool,
    },
    /// Let `b = phase + k x window` be the last edge at or before a request's arrival `t`: the units in `[b, t]`, plus
    /// the units in `[b - window, b)` times `1 - (t - b) / window`, are at most `limit`.
    SlidingCounter {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
        /// Where one of the edges is.
        phase_ns: u64,
    },
    /// As [`SlidingCounter`](Self::SlidingCounter), for every phase, that is, for every edge `b` in `(t - window, t]`.
    /// The time for each request is proportional to the requests in a window.
    SlidingCounterEveryPhase {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// From any request to any later one, both included, at most `capacity` and the units that are refilled between
    /// them.
    TokenBucket {
        /// The capacity of the bucket.
        capacity: u64,
        /// Units that return per `per_ns`.
        rate: u32,
        /// The time in which `rate` units return.
        per_ns: u64,
    },
    /// As [`TokenBucket`](Self::TokenBucket), with `rate x interval / per` units at `phase` and every `interval` after
    /// it.
    LumpedBucket {
        /// The capacity of the bucket.
        capacity: u64,
        /// Units that return per `per_ns`, on average.
        rate: u32,
        /// The time in which `rate` units return.
        per_ns: u64,
        /// Time between lumps.
        interval_ns: u64,
        /// When the first lump comes.
        phase_ns: u64,
    },
    /// Requests leave one after the other, each `cost x per / rate` after the one before it, and at most `capacity`
    /// units may be queued.
    LeakyBucket {
        /// The units that may be queued.
        capacity: u64,
        /// Units that leave per `per_ns`.
        rate: u32,
        /// The time in which `rate` units leave.
        per_ns: u64,
    },
    /// At any time at most `limit` requests that have arrived and have not ended. Costs do not matter.
    Concurrency {
        /// Requests in flight.
        limit: u64,
    },
}

impl Definition {
    pub(super) fn limit(&self) -> u64 {
        match *self {
            Definition::FixedWindow { limit, .. }
            | Definition::FixedWindowEveryPhase { limit, .. }
            | Definition::FixedWindowFromFirst { limit, .. }
            | Definition::SlidingWindow { limit, .. }
            | Definition::SlidingCounter { limit, .. }
            | Definition::SlidingCounterEveryPhase { limit, .. }
            | Definition::Concurrency { limit } => limit,
            Definition::TokenBucket { capacity, .. }
            | Definition::LumpedBucket { capacity, .. }
            | Definition::LeakyBucket { capacity, .. } => capacity,
        }
    }
}
