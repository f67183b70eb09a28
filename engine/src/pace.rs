//! The full rate of a limit, how the limit slows down below it, and how long its first pause is if a refusal states no
//! wait: a quarter of its window ([`FIRST_GUESS`]).

/// The shortest pause of a lane that has nothing left, in nanoseconds.
pub(super) const LEAST_PAUSE: u64 = 1_000_000_000;
/// If the vendor states no wait, the first pause is the window divided by this.
pub(super) const FIRST_GUESS: u64 = 4;
/// While little is left, a lower tier still gets a grant at least this often, in nanoseconds.
pub(super) const TIER_TURN: u64 = 60_000_000_000;

/// What a single response says about a limit's rate is believed for at most this long, in nanoseconds, however long the
/// window is. A vendor that states it with each response renews it.
pub(super) const LONGEST_BELIEF: u64 = 900_000_000_000;
/// A first refusal of a limit that our own count supports cuts the rate for one window and for at most this long, in
/// nanoseconds. It is longer than [`LONGEST_BELIEF`] because the rate is at least half of what passed, and because a
/// trial of the full rate in the same window would be refused again. If the window is longer than this, each refusal
/// counts as a first one.
pub(super) const LONGEST_CUT: u64 = 3_600_000_000_000;

/// The rate of a limit, as far as throttling needs it. A lane's is the slowest of its limits for all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// The spacing of units at the full rate, in nanoseconds; 0 if no limit states a rate.
    pub unit_ns: u64,
    /// The vendor's limit, in its units.
    pub limit: u64,
    /// The window of the vendor's limit, in nanoseconds.
    pub window_ns: u64,
    pub counting: Counting,
    pub mode: Mode,
}

impl Pace {
    /// Whether the window is so long that a mistake about the limit would last for hours.
    pub(crate) fn is_long(&self) -> bool {
        self.window_ns > LONGEST_BELIEF
    }

    /// The share of the vendor's limit that is used per window at this rate; 1 if no limit states a rate.
    pub(crate) fn share(&self) -> f64 {
        let most = self.unit_ns.saturating_mul(self.limit);
        if most == 0 { 1.0 } else { self.window_ns as f64 / most as f64 }
    }

    /// The pace of a process that holds `units` of the pooled limit's `total`: its share of the limit, in the same
    /// window.
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
    /// Not configured: at a reset, unless units are seen to come back one by one.
    #[default]
    Unstated,
    /// All at once, at a reset.
    Windows,
    /// Each unit one window after it was taken.
    Log,
    /// Evenly, at the refill rate of a bucket.
    Bucket,
}

impl Counting {
    /// Whether units come back gradually, and not all at a reset.
    pub(crate) fn regrows(self) -> bool {
        matches!(self, Counting::Log | Counting::Bucket)
    }
}

/// How a limit slows down by what its vendor reports as remaining.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// By what other clients use: usage that our own count explains slows nothing down.
    #[default]
    Adaptive,
    /// In steps, by the remaining share.
    Bands,
    /// By spreading the remaining units over the time until the reset.
    Pace,
    Off,
}
