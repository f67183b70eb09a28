//! A rate learned from refusals that say nothing about what is left.

use crate::clock::Time;
use crate::engine::plan::Pace;

/// Windows after which a rate that was cut is back where it was refused.
const REGROW_WINDOWS: f64 = 3.0;
/// A rate is cut by this share of what passed, and to this share of that it soon returns.
const CUT: f64 = 0.1;
pub(super) const PLATEAU: f64 = 0.97;

/// A rate learned from refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    /// Units a window that it soon returns to.
    pub(super) plateau: f64,
    pub(super) since: Time,
}

impl Learned {
    /// Units a window: slow around the plateau, then faster and faster (as TCP CUBIC does).
    pub(super) fn rate(&self, now: Time, window: u64) -> f64 {
        let windows = now.since(self.since).as_nanos() as f64 / window as f64;
        let x = (windows - REGROW_WINDOWS) / REGROW_WINDOWS;
        self.plateau * (1.0 + CUT * x * x * x)
    }

    /// Between two units, in nanoseconds.
    pub(super) fn spacing(&self, now: Time, pace: &Pace) -> u64 {
        (pace.window_ns as f64 / self.rate(now, pace.window_ns.max(1)).max(0.001)) as u64
    }

    /// It has grown back to what the limits allow.
    pub(super) fn is_full(&self, now: Time, pace: &Pace) -> bool {
        self.spacing(now, pace) <= pace.unit_ns
    }
}
