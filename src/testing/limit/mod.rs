//! Limiters without a client: the textbook algorithms as pure state, for programs that only need to know whether
//! something may happen now, and if not, when.
//!
//! [`Limiter::check`] returns the same [`Outcome`] for every algorithm: allowed, or not before a certain time, and the
//! values of the usual headers (`limit`, `remaining`, `reset`). A limiter has no clock, no I/O and no thread: the
//! caller passes times, in nanoseconds since any origin; a time before the latest one counts as the latest one.
//!
//! | rule | what it does | choose it when |
//! |---|---|---|
//! | [`FixedWindow`](Rule::FixedWindow) | counts, and restarts at each window's end | the cheapest is good enough, and twice the limit around the end of a window does no harm |
//! | [`SlidingWindow`](Rule::SlidingWindow) | stores the time of each request | no period of one window may ever hold more, and limits are small: memory grows with the limit |
//! | [`SlidingCounter`](Rule::SlidingCounter) | two windows, the older one weighted by its overlap | limits are large and a few percent do not matter |
//! | [`TokenBucket`](Rule::TokenBucket) | a level that refills steadily | bursts up to a size are allowed, and the long-run rate is what matters |
//!
//! A [`LeakyBucket`](Rule::LeakyBucket) is a token bucket that counts used instead of free units;
//! [`Concurrency`](Rule::Concurrency) counts requests in flight.
//!
//! These limiters are for the side that *enforces* a limit, which knows when requests arrive. The caller of another
//! party's API does not know that, and needs what a [client](crate::IntegrationClient) does: that a limiter of this
//! kind allows a request does not mean that the vendor will admit it, as `examples/simulate.rs` shows for each of them.
//! The vendors of [`testing`](crate) judge by these rules, which share no code with the client's own guards, so that
//! agreement between the two means something.
//!
//! ```
//! use integration_client::testing::limit::{Decision, Limiter, Rule};
//!
//! const SECOND: u64 = 1_000_000_000;
//! let mut limiter = Limiter::new(Rule::SlidingWindow { limit: 2, window_ns: SECOND, both_ends: false });
//! assert_eq!(limiter.check(0, 1).decision, Decision::Allowed);
//! assert_eq!(limiter.check(SECOND / 4, 1).remaining, 0);
//! let third = limiter.check(SECOND / 2, 1);
//! assert_eq!(third.decision, Decision::Until(SECOND), "the first is a window old then");
//! assert_eq!(limiter.check(SECOND, 3).decision, Decision::Never, "more than the limit");
//! ```

mod bucket;
mod reading;
mod window;

use bucket::{Leaky, Tokens};
pub use reading::{Phase, Reading, Refill};
use window::{Counter, Fixed, Log};

/// How a vendor counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rule {
    /// A counter that restarts at each window's end; a window includes its start and not its end.
    FixedWindow {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Where windows begin.
        phase: Phase,
    },
    /// Every request counts for one window from its arrival.
    SlidingWindow {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Whether a request that is exactly one window old still counts, as at some vendors.
        both_ends: bool,
    },
    /// Two fixed windows. The older one is weighted by the share of it that lies less than a window before the request,
    /// and compared without rounding.
    SlidingCounter {
        /// Units per window.
        limit: u32,
        /// Length of the window.
        window_ns: u64,
        /// Where windows begin: at this time and every `window_ns` before and after it.
        phase_ns: u64,
    },
    /// A bucket, full at first, that refills; a request takes its cost from the bucket.
    TokenBucket {
        /// The capacity of the bucket.
        capacity: u32,
        /// Units that return per `per_ns`.
        rate: u32,
        /// The time in which `rate` units return.
        per_ns: u64,
        /// Steadily, or in lumps.
        refill: Refill,
    },
    /// A bucket, empty at first, that drains steadily; a request adds its cost to the bucket.
    LeakyBucket {
        /// The capacity of the bucket, above which it overflows.
        capacity: u32,
        /// Units that drain per `per_ns`.
        rate: u32,
        /// The time in which `rate` units drain.
        per_ns: u64,
    },
    /// Requests in flight, whatever their cost.
    Concurrency {
        /// The most requests in flight at once.
        limit: u32,
    },
}

/// The decision about a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Allowed now, and counted.
    Allowed,
    /// Not before this time, in nanoseconds, and then only if nothing else is counted first. The request was not
    /// counted.
    Until(u64),
    /// Waiting does not help: the cost exceeds the limit, or a request in flight must end first.
    Never,
}

/// The result of [`Limiter::check`], for every algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The decision.
    pub decision: Decision,
    /// Units per window, or the capacity of the bucket.
    pub limit: u32,
    /// Whole units left after this.
    pub remaining: u32,
    /// When the window ends, the newest entry expires, or the bucket is full (or drained) again, in nanoseconds.
    pub reset: u64,
}

impl Outcome {
    /// Whether the request is allowed now.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allowed
    }
}

/// The state of one limit for one caller.
///
/// ```
/// use integration_client::testing::limit::{Limiter, Phase, Rule};
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
    /// The latest time so far; earlier times count as this one.
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
    /// A limiter that has counted nothing yet. Windows, intervals and rates of zero count as one.
    pub fn new(rule: Rule) -> Limiter {
        let state = match rule {
            Rule::FixedWindow { limit, window_ns, phase } => State::Fixed(Fixed::new(limit, window_ns.max(1), phase)),
            Rule::SlidingWindow { limit, window_ns, both_ends } => {
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

    /// Decides whether a request of `cost` units may go at `now_ns`, and counts it if so.
    pub fn check(&mut self, now_ns: u64, cost: u32) -> Outcome {
        let decision = match self.arrive(now_ns, cost) {
            true => Decision::Allowed,
            false => self.fits_at(now_ns, cost).map_or(Decision::Never, Decision::Until),
        };
        let Reading { limit, remaining, reset_at_ns } = self.reading(now_ns);
        Outcome { decision, limit, remaining, reset: reset_at_ns }
    }

    /// Counts a request of `cost` units if it fits. Returns whether it did.
    pub fn arrive(&mut self, at_ns: u64, cost: u32) -> bool {
        let fits = self.fits(at_ns, cost);
        if fits {
            self.count(at_ns, cost);
        }
        fits
    }

    /// Whether a request of `cost` units would fit, without counting it.
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

    /// Counts a request even if it does not fit. Windows may then hold more than their limit; a bucket becomes empty (a
    /// leaky one full) and has no debt.
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

    /// Ends an admitted request, which frees its slot in a concurrency limit and has no effect on others.
    pub fn finish(&mut self, at_ns: u64) {
        self.advance(at_ns);
        if let State::Concurrency { under_way, .. } = &mut self.state {
            *under_way = under_way.saturating_sub(1);
        }
    }

    /// The state of the limit as headers announce it.
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

    /// The earliest time at which a request of `cost` units fits if no other arrives first; `None` when waiting does
    /// not help.
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

#[cfg(test)]
mod tests;
