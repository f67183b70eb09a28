//! The limit algorithms of vendors, as a vendor runs them: pure state, integer nanoseconds, no clock.
//!
//! A [`Rule`] says how a vendor counts, a [`Limiter`] is its state for one caller. They are the vendor's side: exact,
//! without safety margins, and without a line in common with the engine's guards or with the [`checker`](super::checker),
//! so that agreement between the three means something.
//!
//! Times are nanoseconds since any origin. A time earlier than the last one is taken as the last one.

mod bucket;
mod window;

use bucket::{Leaky, Tokens};
use window::{Counter, Fixed, Log};

/// How a vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// A counter that starts again at each window's end; a window holds its start and not its end.
    FixedWindow {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Where windows begin.
        phase: Phase,
    },
    /// Every request counts for one window from its arrival.
    SlidingLog {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Whether a request that is exactly one window old still counts, as it does at some vendors.
        both_ends: bool,
    },
    /// Two fixed windows, the older one weighted by what still overlaps, compared without rounding.
    SlidingCounter {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Where windows begin: at this time and every `window_ns` before and after it.
        phase_ns: u64,
    },
    /// A bucket, full at first, that refills; a request takes its cost from it.
    TokenBucket {
        /// What the full bucket holds.
        capacity: u32,
        /// Units that return per `per_ns`.
        rate: u32,
        /// The time in which `rate` units return.
        per_ns: u64,
        /// Steadily, or in lumps.
        refill: Refill,
    },
    /// A bucket, empty at first, that drains steadily; a request adds its cost to it.
    LeakyBucket {
        /// What the bucket holds before it overflows.
        capacity: u32,
        /// Units that drain per `per_ns`.
        rate: u32,
        /// The time in which `rate` units drain.
        per_ns: u64,
    },
    /// Requests under way at once, whatever their cost.
    Concurrency {
        /// Requests at once.
        limit: u32,
    },
}

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

/// The state of one limit for one caller.
///
/// ```
/// use integration_client::testing::algorithm::{Limiter, Phase, Rule};
///
/// let mut limiter = Limiter::new(Rule::FixedWindow { limit: 2, window_ns: 1_000, phase: Phase::At(0) });
/// assert!(limiter.arrive(998, 1));
/// assert!(limiter.arrive(999, 1));
/// assert!(!limiter.arrive(999, 1), "the window is full");
/// assert!(limiter.arrive(1_000, 1), "the next one has begun");
/// ```
#[derive(Clone, Debug)]
pub struct Limiter {
    state: State,
    /// The latest time seen: earlier ones are taken as this one.
    now: u64,
}

#[derive(Clone, Debug)]
enum State {
    Fixed(Fixed),
    Log(Log),
    Counter(Counter),
    Tokens(Tokens),
    Leaky(Leaky),
    Concurrency { limit: u32, under_way: u32 },
}

impl Limiter {
    /// A limiter that has seen nothing yet. Windows, intervals and rates of zero are taken as one.
    pub fn new(rule: Rule) -> Limiter {
        let state = match rule {
            Rule::FixedWindow { limit, window_ns, phase } => State::Fixed(Fixed::new(limit, window_ns.max(1), phase)),
            Rule::SlidingLog { limit, window_ns, both_ends } => {
                State::Log(Log::new(limit, window_ns.max(1).saturating_add(u64::from(both_ends))))
            }
            Rule::SlidingCounter { limit, window_ns, phase_ns } => {
                State::Counter(Counter::new(limit, window_ns.max(1), phase_ns))
            }
            Rule::TokenBucket { capacity, rate, per_ns, refill } => {
                State::Tokens(Tokens::new(capacity, rate.max(1), per_ns.max(1), refill))
            }
            Rule::LeakyBucket { capacity, rate, per_ns } => {
                State::Leaky(Leaky::new(capacity, rate.max(1), per_ns.max(1)))
            }
            Rule::Concurrency { limit } => State::Concurrency { limit, under_way: 0 },
        };
        Limiter { state, now: 0 }
    }

    /// A request of `cost` units arrives: true, and counted, when it fits.
    pub fn arrive(&mut self, at_ns: u64, cost: u32) -> bool {
        let fits = self.fits(at_ns, cost);
        if fits {
            self.count(at_ns, cost);
        }
        fits
    }

    /// Whether a request of `cost` units would be admitted, without counting it.
    pub fn fits(&mut self, at_ns: u64, cost: u32) -> bool {
        let at = self.advance(at_ns);
        match &mut self.state {
            State::Fixed(s) => s.fits(at, cost),
            State::Log(s) => s.fits(at, cost),
            State::Counter(s) => s.fits(at, cost),
            State::Tokens(s) => s.fits(at, cost),
            State::Leaky(s) => s.fits(at, cost),
            State::Concurrency { limit, under_way } => under_way < limit,
        }
    }

    /// Counts a request whether it fits or not. Windows may so hold more than their limit; a bucket ends empty
    /// (or full, when it leaks) and owes nothing.
    pub fn count(&mut self, at_ns: u64, cost: u32) {
        let at = self.advance(at_ns);
        match &mut self.state {
            State::Fixed(s) => s.count(at, cost),
            State::Log(s) => s.count(at, cost),
            State::Counter(s) => s.count(at, cost),
            State::Tokens(s) => s.count(at, cost),
            State::Leaky(s) => s.count(at, cost),
            State::Concurrency { under_way, .. } => *under_way = under_way.saturating_add(1),
        }
    }

    /// An admitted request has ended: frees its place in a concurrency limit, and means nothing to the others.
    pub fn finish(&mut self, at_ns: u64) {
        self.advance(at_ns);
        if let State::Concurrency { under_way, .. } = &mut self.state {
            *under_way = under_way.saturating_sub(1);
        }
    }

    /// What the limit's headers would say.
    pub fn reading(&mut self, at_ns: u64) -> Reading {
        let at = self.advance(at_ns);
        match &mut self.state {
            State::Fixed(s) => s.reading(at),
            State::Log(s) => s.reading(at),
            State::Counter(s) => s.reading(at),
            State::Tokens(s) => s.reading(at),
            State::Leaky(s) => s.reading(at),
            State::Concurrency { limit, under_way } => {
                Reading { limit: *limit, remaining: limit.saturating_sub(*under_way), reset_at_ns: at }
            }
        }
    }

    /// The earliest time at which a request of `cost` units fits if no other arrives before; `None` when that is
    /// never, or not a matter of time.
    pub fn fits_at(&mut self, at_ns: u64, cost: u32) -> Option<u64> {
        let at = self.advance(at_ns);
        match &mut self.state {
            State::Fixed(s) => s.fits_at(at, cost),
            State::Log(s) => s.fits_at(at, cost),
            State::Counter(s) => s.fits_at(at, cost),
            State::Tokens(s) => s.fits_at(at, cost),
            State::Leaky(s) => s.fits_at(at, cost),
            State::Concurrency { limit, under_way } => (under_way < limit).then_some(at),
        }
    }

    fn advance(&mut self, at_ns: u64) -> u64 {
        self.now = self.now.max(at_ns);
        self.now
    }
}
