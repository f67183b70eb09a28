//! How fast a limit goes at its figures, and how it slows down below them.

/// The least that a lane waits when nothing is left, in nanoseconds.
pub(super) const LEAST_PAUSE: u64 = 1_000_000_000;
/// Where the vendor states no wait, this part of a window is tried first.
pub(super) const FIRST_GUESS: u64 = 4;
/// A tier that waits for scarcity to end gets a grant at least this often, in nanoseconds.
pub(super) const TIER_TURN: u64 = 60_000_000_000;

/// The rate of a limit, as far as slowing down is concerned. That of a lane is the slowest of its limits for all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Between two units at the full rate, in nanoseconds; 0 where no limit states a rate.
    pub unit_ns: u64,
    /// What the vendor allows, in its units.
    pub limit: u64,
    /// The window that it allows them in, in nanoseconds.
    pub window_ns: u64,
    pub counting: Counting,
    pub mode: Mode,
}

impl Pace {
    /// The share of the vendor's limit that goes in a window at this rate; 1 where no limit states a rate.
    pub(crate) fn share(&self) -> f64 {
        let most = self.unit_ns.saturating_mul(self.limit);
        if most == 0 { 1.0 } else { self.window_ns as f64 / most as f64 }
    }

    /// The pace of a process that holds `units` of the limit's `total`: their part of the limit, in the same window.
    pub(crate) fn part(&self, (units, total): (u32, u32)) -> Pace {
        let (units, total) = (u128::from(units.max(1)), u128::from(total.max(1)));
        let of = |value: u64, by: u128, per: u128| u64::try_from(u128::from(value) * by / per).unwrap_or(u64::MAX);
        let limit = if self.limit == 0 { 0 } else { of(self.limit, units, total).max(1) };
        Pace { unit_ns: of(self.unit_ns, total, units), limit, ..*self }
    }
}

/// How a vendor's own count of a limit goes down again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counting {
    /// The configuration does not say: at a reset, unless units are seen to come back one by one.
    #[default]
    Unstated,
    /// All at once, at a reset.
    Windows,
    /// Each unit a window after it was taken.
    Log,
    /// Evenly.
    Bucket,
}

impl Counting {
    /// Units come back one by one, and not all at a reset.
    pub(crate) fn regrows(self) -> bool {
        matches!(self, Counting::Log | Counting::Bucket)
    }
}

/// How a limit slows down on what its vendor reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By what others take: what our own count explains slows nothing down.
    #[default]
    Adaptive,
    /// In steps, by what is left.
    Bands,
    /// What is left, spread over the time until the reset.
    Pace,
    Off,
}
