//! Whether a limit has room, and if not, until when and why.

use crate::time::Time;

/// When units are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Free {
    Now,
    /// At this moment, neither earlier nor later, if nothing else happens.
    At(Time),
    /// When something that is in flight ends; at this moment at the latest.
    OnSettle(Time),
}

/// What stands in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockedBy {
    /// The bucket has too few units.
    Budget,
    /// The vendor's window is full.
    Window,
    /// Only what is held back for the high tier is left.
    Reserve,
    /// All slots are taken.
    Slots,
    /// This process holds too few units of a limit that several processes share.
    NotHeld,
    /// The vendor refused, and said or showed that it wants to be left alone.
    Paused,
    /// One request is in flight to find out whether it takes requests again.
    Probe,
    /// The vendor said that nothing is left.
    Reported,
    /// So little is left that higher tiers go first.
    Scarce,
    /// Grants are spaced out.
    Throttled,
    /// An operator's pause.
    Held,
}

/// Whether units are free, and if not, until when and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Yes,
    No { free: Free, lack: BlockedBy },
}
