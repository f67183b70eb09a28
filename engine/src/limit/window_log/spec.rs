//! The figures of the vendor's window that a log copies. The log's window is longer than the vendor's by 100 ppm and
//! 1 ms, because clocks drift and some vendors count both ends of their window.

use crate::limit::lower::Share;

/// What a [`WindowLog`](super::WindowLog) copies of the vendor's window. Shared by every lane with the same limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSpec {
    /// Units that the vendor allows in any window.
    pub(crate) limit: u32,
    /// Units of `limit` that only the high tier may use, until it has used as many.
    pub(crate) reserve: u32,
    /// How long an ended entry counts, in nanoseconds: the vendor's window and the error of its clock.
    pub(crate) window: u64,
    /// The longest time between the send and the vendor's count of a request, in nanoseconds.
    pub(crate) transit: u64,
    /// Ends inside one slot of two to the power of this many nanoseconds are merged; 0 for exact.
    pub(in crate::limit) slot_bits: u32,
    /// Like `slot_bits`, used while the log is far from its limit.
    pub(in crate::limit) wide_bits: u32,
    /// While the log holds at most this many units of the normal and low tiers, their share is not counted: see
    /// `share.rs`.
    pub(in crate::limit) near: u32,
    /// Whether the vendor's windows are fixed: when one ends, all its units are free.
    pub(crate) fixed: bool,
}

/// The lower tiers' units are counted once they exceed their share divided by this. Below that, a decision needs only
/// the log's own cache line.
const NEAR: u32 = 4;

impl LogSpec {
    /// Freeing an entry at exactly one window broke vendors that count both ends of it (1.2 million violations in 11.5
    /// million simulated requests; 0 with this slack): 100 ppm for clocks that drift and one tick of 1 ms.
    const TICK: u64 = 1_000_000;

    pub fn new(limit: u32, reserve: u32, window_ns: u64, transit_ns: u64) -> LogSpec {
        let window = window_ns.saturating_add(window_ns / 10_000).saturating_add(Self::TICK);
        let slot_bits = if limit > 1_000 { (window_ns / 256).max(1).ilog2() } else { 0 };
        let wide_bits = if slot_bits > 0 { slot_bits + 4 } else { 0 };
        let reserve = reserve.min(limit);
        let near = (limit - reserve) / NEAR;
        LogSpec { limit, reserve, window, transit: transit_ns, slot_bits, wide_bits, near, fixed: false }
    }

    /// The specification for the part of a limit that a process holds. The part changes often, so the lower tiers'
    /// units are always counted.
    pub(in crate::limit) fn part(&self, limit: u32, reserve: u32) -> LogSpec {
        LogSpec { limit, reserve, near: 0, ..*self }
    }

    pub(super) fn share(&self) -> Share {
        Share { limit: self.limit, reserve: self.reserve, window: self.window }
    }

    /// The same specification, for fixed windows.
    pub fn fixed(self) -> LogSpec {
        LogSpec { fixed: true, ..self }
    }
}
