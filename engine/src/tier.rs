//! The three tiers of requests, and the weights by which they share a limit.

/// How urgent a request is, the most urgent first. The shell's word for it is `Priority`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Tier {
    High,
    Normal,
    Low,
}

impl Tier {
    /// All tiers, the most urgent first.
    pub const ALL: [Tier; 3] = [Tier::High, Tier::Normal, Tier::Low];

    /// The shares of high, normal and low while all of them wait: 60 / 30 / 10.
    pub const WEIGHTS: [u32; 3] = [6, 3, 1];

    /// The tier's place in arrays that hold something for each.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// The tier's place among the tiers: 0 for high, 2 for low.
    #[inline]
    pub const fn rank(self) -> u8 {
        self as u8
    }

    #[inline]
    pub(crate) const fn is_high(self) -> bool {
        matches!(self, Tier::High)
    }
}
