//! What a limit means, and the log that it is asked of.

/// One request that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it arrived, in nanoseconds since any origin.
    pub at_ns: u64,
    /// Units that it took.
    pub cost: u32,
    /// When it was over; only concurrency looks at this.
    pub end_ns: u64,
}

impl Event {
    /// A request of one unit, never over.
    pub const fn at(at_ns: u64) -> Event {
        Event { at_ns, cost: 1, end_ns: u64::MAX }
    }

    /// The same request with another cost.
    pub const fn cost(mut self, cost: u32) -> Event {
        self.cost = cost;
        self
    }

    /// The same request, over at `end_ns`: from then on its place is free.
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

/// What a limit means, as a statement about a log. Windows, intervals and rates of zero are taken as one.
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
    /// The same for every phase at once: at most `limit` in any `[t, t + window)`. This is also what a sliding log
    /// means.
    FixedWindowEveryPhase {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// A window begins at the first request that no window holds, and holds at most `limit`.
    FixedWindowFromFirst {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// At most `limit` in any `[t, t + window)`, or in any `[t, t + window]`.
    SlidingLog {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
        /// Whether both ends belong to a window.
        both_ends: bool,
    },
    /// With the last edge `b = phase + k x window` at or before a request's arrival `t`: what arrived in `[b, t]`, plus
    /// what arrived in `[b - window, b)` times `1 - (t - b) / window`, is at most `limit`.
    SlidingCounter {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
        /// Where one of the edges is.
        phase_ns: u64,
    },
    /// The same for every phase at once, that is, for every edge `b` in `(t - window, t]`. Takes time in proportion to
    /// the requests in a window, for each request.
    SlidingCounterEveryPhase {
        /// Units per window.
        limit: u64,
        /// Length of the window.
        window_ns: u64,
    },
    /// From any request to any later one, both included, at most `capacity` and what is refilled between them.
    TokenBucket {
        /// What the full bucket holds.
        capacity: u64,
        /// Units that return per `per_ns`.
        rate: u32,
        /// The time in which `rate` units return.
        per_ns: u64,
    },
    /// The same with `rate x interval / per` units at `phase` and every `interval` after it.
    LumpedBucket {
        /// What the full bucket holds.
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
    /// Requests leave one after the other, each `cost x per / rate` after the one before it; none may have to wait so
    /// long that more than `capacity` stands in line.
    LeakyBucket {
        /// What may stand in line.
        capacity: u64,
        /// Units that leave per `per_ns`.
        rate: u32,
        /// The time in which `rate` units leave.
        per_ns: u64,
    },
    /// At any time at most `limit` requests that have arrived and are not over. Costs do not matter.
    Concurrency {
        /// Requests at once.
        limit: u64,
    },
}

impl Definition {
    pub(super) fn limit(&self) -> u64 {
        match *self {
            Definition::FixedWindow { limit, .. }
            | Definition::FixedWindowEveryPhase { limit, .. }
            | Definition::FixedWindowFromFirst { limit, .. }
            | Definition::SlidingLog { limit, .. }
            | Definition::SlidingCounter { limit, .. }
            | Definition::SlidingCounterEveryPhase { limit, .. }
            | Definition::Concurrency { limit } => limit,
            Definition::TokenBucket { capacity, .. }
            | Definition::LumpedBucket { capacity, .. }
            | Definition::LeakyBucket { capacity, .. } => capacity,
        }
    }
}
