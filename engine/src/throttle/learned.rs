//! A rate learned from refusals that do not say how many units remain.
//!
//! Two figures enclose the rate that the vendor accepts: the highest rate that lasted, and the lowest rate that was
//! refused. The limit's rate lies between them. A rate above the refused one is tried so rarely that the pauses after
//! failed trials cost a small part of the time.
//!
//! A single refusal proves little: vendors shed load, and other clients come and go. It cuts the rate for one window; a
//! second refusal within some windows is believed. If the window is longer than an hour, each refusal counts as a
//! single one and cuts the rate for an hour.

use crate::pace::{LONGEST_CUT, Pace};
use crate::time::Time;

/// The share of the rate that passed before a refusal that is tried next.
const BELOW: f64 = 0.97;
/// Two rates are treated as equal if the lower is at least this share of the higher.
const NEAR: f64 = 0.93;
/// The refused rate may be too low by this factor, so the next trial exceeds it by as much.
const BEYOND: f64 = 1.02;
/// The factor by which the rate grows with each window once the refused rate has lasted.
const GROWTH: f64 = 1.15;
/// A failed trial costs a pause, so a rate near the refused one must last for up to this many pauses before a trial.
const PAUSES_BETWEEN: f64 = 8.0;
/// A rate must last at least this many windows before a trial.
const WINDOWS_BETWEEN: u64 = 2;

/// A learned rate. All rates are in units per window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Learned {
    rate: f64,
    /// When the present rate came into force, moved forward by pauses.
    since: Time,
    /// The highest rate that lasted.
    good: f64,
    /// The lowest rate that was refused; infinite once a higher rate has lasted.
    bad: f64,
    /// How long the last refusal paused the limit.
    pause_ns: u64,
    trial: Trial,
}

/// How far a single refusal, which may have been an accident, has been checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    /// The rate is cut for one window, or for as long as one refusal is believed.
    Cut,
    /// The full rate is tried again for two windows, so that it covers a whole window of the vendor's.
    Whole,
    /// The check is over: the refusal was no accident, or the full rate has lasted.
    Over,
}

impl Learned {
    /// The vendor refused a request at `now`, when the limit allowed `allowed` units per window and `passed` units had
    /// passed in the last window. `exact`: these lay in one of the vendor's windows, so that it accepts exactly `passed`.
    /// `is_first`: there was no other refusal lately. `pause_ns` is the pause.
    pub(super) fn refused(
        before: Option<Learned>,
        now: Time,
        allowed: f64,
        (passed, exact): (f64, bool),
        pause_ns: u64,
        is_first: bool,
    ) -> Learned {
        let passed = passed.clamp(1.0, allowed.max(1.0));
        let bad = passed.min(before.map_or(f64::INFINITY, |before| before.bad * BEYOND));
        // A rate that lasted before is still good if the refused rate was higher.
        if let Some(good) = before.map(|before| before.good).filter(|good| *good < allowed.min(bad)) {
            let rate = if good < bad * NEAR { (good * bad).sqrt() } else { good };
            return Learned { rate, since: now, good, bad, pause_ns, trial: Trial::Over };
        }
        // The good rate may be only half of what passed, because our last window may cover parts of two of the
        // vendor's.
        let good = bad / 2.0;
        let rate = if exact { bad * BELOW } else { (good * bad).sqrt() };
        let trial = if is_first { Trial::Cut } else { Trial::Over };
        Learned { rate, since: now, good, bad, pause_ns, trial }
    }

    /// With this rate at least.
    pub(super) fn at_least(self, rate: f64) -> Learned {
        Learned { rate: self.rate.max(rate), ..self }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Raises the rate for each period up to `now` in which it lasted.
    pub(super) fn advance(&mut self, now: Time, pace: &Pace) {
        while now.since(self.since).as_nanos() >= u128::from(self.lasts(pace)) && !self.is_full(pace) {
            self.since = self.since.plus_nanos(self.lasts(pace));
            if self.trial != Trial::Over {
                // Our window may have covered parts of two of the vendor's: it proves that an exact figure was right,
                // and no more.
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

    /// Until when the present rate stays as it is, if no pause comes in between.
    pub(super) fn until(&self, pace: &Pace) -> Time {
        self.since.plus_nanos(self.lasts(pace))
    }

    /// How long a rate must last before the next trial, in nanoseconds.
    fn lasts(&self, pace: &Pace) -> u64 {
        let window = pace.window_ns.max(1);
        match self.trial {
            Trial::Cut => return window.min(LONGEST_CUT),
            Trial::Whole => return window.saturating_mul(WINDOWS_BETWEEN),
            Trial::Over if self.bad.is_infinite() => return window,
            Trial::Over => {}
        }
        // The closer the rate is to the refused one, the less a trial can gain. A rate above it has nothing more to
        // lose.
        let pauses = match self.rate / self.bad {
            share if share > 1.0 => 0.0,
            share => (0.3 / (1.0 - share).max(0.001)).min(PAUSES_BETWEEN),
        };
        ((self.pause_ns as f64 * pauses) as u64).max(window.saturating_mul(WINDOWS_BETWEEN))
    }

    /// Leaves the pause since `paused_at` out of the time that the rate lasted: nothing was sent that could prove the
    /// rate.
    pub(super) fn pause_ended(&mut self, now: Time, paused_at: Time) {
        self.since = self.since + now.since(self.since.max(paused_at));
    }

    pub(super) fn paused_for(&mut self, nanos: u64) {
        self.pause_ns = nanos;
    }

    /// The time between two units, in nanoseconds.
    pub(super) fn spacing(&self, pace: &Pace) -> u64 {
        (pace.window_ns as f64 / self.rate.max(0.001)) as u64
    }

    /// Whether the rate has grown back to what the limit allows.
    pub(super) fn is_full(&self, pace: &Pace) -> bool {
        self.trial != Trial::Whole && self.spacing(pace) <= pace.unit_ns
    }
}
