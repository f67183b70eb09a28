//! What is left of a limit.

/// The remaining units of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headroom {
    remaining: u32,
    limit: u32,
}

impl Headroom {
    pub(crate) fn of(pair: (u32, u32)) -> Headroom {
        Headroom { remaining: pair.0, limit: pair.1 }
    }

    /// The units that are left in the current window, or the free slots.
    pub fn remaining(self) -> u32 {
        self.remaining
    }

    /// The vendor's limit in the same units.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// `remaining` in percent of `limit`, rounded down.
    pub fn percent(self) -> u32 {
        match self.limit {
            0 => 0,
            limit => (self.remaining as u64 * 100 / limit as u64).min(100) as u32,
        }
    }
}
