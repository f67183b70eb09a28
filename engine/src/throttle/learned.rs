//! A rate learned from refusals that say nothing about what is left.
//!
//! Two figures close in on what the vendor takes: the rate that lasted, and the rate that was refused. The lane goes
//! between them, and looks above only so often that the pauses of its failed looks cost a small part of its time.
//!
//! One refusal alone proves little: vendors shed load, and other users come and go. It slows the lane down for one window; a second
//! one within some windows is believed.

use crate::pace::Pace;
use crate::time::Time;

/// Of what did pass before a refusal, as much is asked for next.
const BELOW: f64 = 0.97;
/// Rates this near to each other are one.
const NEAR: f64 = 0.93;
/// What lasted may be this much too low: the next look goes beyond what was refused.
const BEYOND: f64 = 1.02;
/// Once the refused rate lasts, the rate grows so much with each window.
const GROWTH: f64 = 1.15;
/// A look costs a pause: so many pauses' time is between two looks at most.
const PAUSES_BETWEEN: f64 = 8.0;
/// And so many windows at least.
const WINDOWS_BETWEEN: u64 = 2;

/// Rates are in units a window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Learned {
    rate: f64,
    /// Since when, pauses left out.
    since: Time,
    /// Lasted.
    good: f64,
    /// Was refused; infinite when that is not true any more.
    bad: f64,
    /// How long the last refusal stopped the lane, in nanoseconds.
    cost: u64,
    trial: Trial,
}

/// One refusal alone was heard: it may have been an accident.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    /// The rate is cut for one window.
    Cut,
    /// All that is allowed is tried again, for so long that each of the vendor's windows has seen it.
    Whole,
    /// It was no accident.
    Over,
}

impl Learned {
    /// The vendor refused at this time, when `allowed` units a window were allowed and `passed` had passed in the last
    /// one. `exact`: that is what the vendor takes, and not perhaps parts of two of its windows. `is_first`: nothing was refused
    /// lately.
    pub(super) fn refused(
        before: Option<Learned>,
        now: Time,
        allowed: f64,
        (passed, exact): (f64, bool),
        cost: u64,
        is_first: bool,
    ) -> Learned {
        let passed = passed.clamp(1.0, allowed.max(1.0));
        let bad = passed.min(before.map_or(f64::INFINITY, |before| before.bad * BEYOND));
        // What lasted before still does, if more than that was tried.
        if let Some(good) = before.map(|before| before.good).filter(|good| *good < allowed.min(bad)) {
            let rate = if good < bad * NEAR { (good * bad).sqrt() } else { good };
            return Learned { rate, since: now, good, bad, cost, trial: Trial::Over };
        }
        // It may be half of what did pass, as the last window held parts of two of the vendor's.
        let good = bad / 2.0;
        let rate = if exact { bad * BELOW } else { (good * bad).sqrt() };
        let trial = if is_first { Trial::Cut } else { Trial::Over };
        Learned { rate, since: now, good, bad, cost, trial }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Time passes, in which the rate lasts.
    pub(super) fn advance(&mut self, now: Time, pace: &Pace) {
        while now.since(self.since).as_nanos() >= u128::from(self.lasts(pace)) && !self.is_full(pace) {
            self.since = self.since.plus_nanos(self.lasts(pace));
            if self.trial != Trial::Over {
                // One window may have lain across two of the vendor's: it shows that an exact figure was right, and no more.
                if self.trial == Trial::Cut && self.rate > self.bad * NEAR {
                    self.good = self.rate;
                }
                self.trial = if self.trial == Trial::Cut { Trial::Whole } else { Trial::Over };
                self.rate = f64::INFINITY;
                continue;
            }
            self.good = self.good.max(self.rate);
            if self.good > self.bad {
                self.bad = f64::INFINITY;
            }
            self.rate = match () {
                () if self.bad.is_infinite() => self.good * GROWTH,
                () if self.good < self.bad * NEAR => (self.good * self.bad).sqrt(),
                () => self.bad * BEYOND,
            };
        }
    }

    /// How long a rate has to last, in nanoseconds.
    fn lasts(&self, pace: &Pace) -> u64 {
        let window = pace.window_ns.max(1);
        match self.trial {
            Trial::Cut => return window,
            Trial::Whole => return window.saturating_mul(WINDOWS_BETWEEN),
            Trial::Over if self.bad.is_infinite() => return window,
            Trial::Over => {}
        }
        // The nearer, the less there is to win. One that is beyond has nothing to lose any more.
        let pauses = match self.rate / self.bad {
            share if share > 1.0 => 0.0,
            share => (0.3 / (1.0 - share).max(0.001)).min(PAUSES_BETWEEN),
        };
        ((self.cost as f64 * pauses) as u64).max(window.saturating_mul(WINDOWS_BETWEEN))
    }

    /// Nothing was sent for so long that could have shown that the rate lasts.
    pub(super) fn pause_groups(&mut self, now: Time, paused_at: Time) {
        self.since = self.since + now.since(self.since.max(paused_at));
    }

    pub(super) fn paused_for(&mut self, nanos: u64) {
        self.cost = nanos;
    }

    /// Between two units, in nanoseconds.
    pub(super) fn spacing(&self, pace: &Pace) -> u64 {
        (pace.window_ns as f64 / self.rate.max(0.001)) as u64
    }

    /// It has grown back to what the limits allow.
    pub(super) fn is_full(&self, pace: &Pace) -> bool {
        self.trial != Trial::Whole && self.spacing(pace) <= pace.unit_ns
    }
}
