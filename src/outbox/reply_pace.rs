//! Decides which replies are delivered when.
//!
//! The error of a reply does not say whether the target is away or refuses this one reply. A target that is away must
//! not be called without pause. A target that accepts some replies must get those soon, however many others it refuses.
//! Hence two rules:
//!
//! - Replies that were never tried get half of each claim. Otherwise repetitions of refused replies would precede them,
//!   because those have been due for longer.
//! - A claim of which the target accepts nothing is followed by a wait, which grows each time. Replies that were never
//!   tried and repetitions wait separately: if the target refuses again what it refused before, this says little about
//!   the target, and must not delay new replies. While the target refuses new replies, the newest are tried beside the
//!   oldest, so that a long queue of replies that it refuses does not hide one that it accepts.

use std::time::Duration;

use crate::BoxError;
use crate::clock::Time;
use crate::store::millis_of;
use crate::store::replies::{Claim, Settled, ToDeliver, Which};
use crate::transport::Cause;

/// The most replies in one claim.
const TOGETHER: i64 = 64;
/// The most replies of each kind in one claim while the target accepts none.
const PROBES: i64 = 16;
/// The first and the longest wait before a reply is delivered again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));
/// The longest waits while the target accepts no reply at all: of replies that were never tried, and of the others.
/// With [`PROBES`], about two replies a second are tried then.
const TARGET_AWAY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(30));

/// The waits of one process that delivers replies.
#[derive(Default, Debug)]
pub(super) struct Pace {
    untried: Backoff,
    tried: Backoff,
}

#[derive(Default, Debug)]
struct Backoff {
    /// Claims in a row of which the target accepted nothing.
    failures: u32,
    /// The time of the next claim.
    until: Time,
}

impl Pace {
    /// The claim to make at `now`; `None` if all replies have to wait.
    pub(super) fn claim(&self, now: Time, held: Duration) -> Option<Claim> {
        let mut shares = Vec::new();
        match &self.untried {
            Backoff { failures: 0, .. } => shares.push((Which::Untried, TOGETHER / 2)),
            Backoff { until, .. } if *until <= now => {
                shares.extend([(Which::NewestUntried, PROBES / 2), (Which::Untried, PROBES / 2)]);
            }
            Backoff { .. } => {}
        }
        if self.tried.until <= now {
            shares.push((Which::Tried, if self.tried.failures == 0 { TOGETHER } else { PROBES }));
        }
        if self.untried.failures == 0 {
            // The part that the others do not need.
            shares.push((Which::Untried, TOGETHER));
        }
        (!shares.is_empty()).then(|| Claim { most: TOGETHER, shares, held_ms: millis_of(held) })
    }

    /// Records at `now` what became of a claim. `random`, from 0 to 1, spreads the waits of several processes.
    pub(super) fn after(&mut self, now: Time, outcome: &Outcome, random: f64) {
        if !outcome.settled.delivered.is_empty() {
            *self = Pace::default();
            return;
        }
        if outcome.untried_failed {
            self.untried.grow(now, TARGET_AWAY.0, random);
        }
        if outcome.tried_failed {
            self.tried.grow(now, TARGET_AWAY.1, random);
        }
    }
}

impl Backoff {
    fn grow(&mut self, now: Time, longest: Duration, random: f64) {
        self.failures = self.failures.saturating_add(1);
        self.until = now + wait_after(self.failures, longest, random);
    }
}

/// A claimed reply: its number, its tries (this one included), and whether it was claimed as one that was never tried.
pub(super) struct Attempted {
    pub(super) number: i64,
    pub(super) tries: i64,
    pub(super) was_untried: bool,
}

impl From<&ToDeliver> for Attempted {
    fn from(claimed: &ToDeliver) -> Attempted {
        let ToDeliver { kept, tries, was_untried } = claimed;
        Attempted { number: kept.seq, tries: *tries, was_untried: *was_untried }
    }
}

/// What became of the replies of one claim.
#[derive(Default, Debug)]
pub(super) struct Outcome {
    pub(super) settled: Settled,
    /// An error of a reply that was not delivered, if there is one.
    pub(super) why: Option<String>,
    /// Whether further replies may be due.
    pub(super) is_full: bool,
    untried_failed: bool,
    tried_failed: bool,
}

impl Outcome {
    /// Pairs claimed replies with the results of their delivery. A reply without a result was not delivered. `random`
    /// returns numbers from 0 to 1.
    pub(super) fn of(
        claimed: impl IntoIterator<Item = Attempted>,
        results: Vec<Result<(), BoxError>>,
        random: impl Fn() -> f64,
    ) -> Outcome {
        let (mut outcome, mut results) = (Outcome::default(), results.into_iter());
        let mut count = 0;
        for Attempted { number, tries, was_untried } in claimed {
            count += 1;
            match results.next() {
                Some(Ok(())) => outcome.settled.delivered.push(number),
                failed => {
                    let why = failed.and_then(Result::err).map(|error| Cause::of(&*error).to_string());
                    outcome.why = why.or(outcome.why);
                    outcome.untried_failed |= was_untried;
                    outcome.tried_failed |= !was_untried;
                    let tries = u32::try_from(tries).unwrap_or(u32::MAX);
                    outcome.settled.later.push((number, millis_of(wait_after(tries, AGAIN.1, random()))));
                }
            }
        }
        outcome.is_full = count >= TOGETHER;
        outcome
    }
}

/// The wait after `failures` consecutive failures: doubled each time up to `longest`, less up to a quarter at random
/// (jitter).
fn wait_after(failures: u32, longest: Duration, random: f64) -> Duration {
    let doubled = AGAIN.0.saturating_mul(1 << (failures.clamp(1, 20) - 1)).min(longest);
    doubled.mul_f64(1.0 - 0.25 * random.clamp(0.0, 1.0))
}

#[cfg(all(test, any(feature = "sqlite", feature = "postgres")))]
mod tests;
