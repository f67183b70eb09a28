//! Whether a limit has room, and if not, until when and why.

use crate::time::Time;

/// When units become free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Free {
    Now,
    /// At exactly this moment, if nothing else happens.
    At(Time),
    /// When a request in flight ends, at this moment at the latest.
    OnSettle(Time),
}

impl Free {
    /// At `latest`, if this is later.
    pub(crate) fn no_later_than(self, latest: Time) -> Free {
        match self {
            Free::Now => Free::Now,
            Free::At(at) => Free::At(at.min(latest)),
            Free::OnSettle(at) => Free::OnSettle(at.min(latest)),
        }
    }

    /// Whether this is later than `other`. What waits for a request in flight is later than any known moment.
    pub(crate) fn is_after(self, other: Free) -> bool {
        match (self, other) {
            (Free::At(this), Free::At(other)) | (Free::OnSettle(this), Free::OnSettle(other)) => this > other,
            (Free::OnSettle(_), _) | (Free::At(_), Free::Now) => true,
            (Free::At(_), Free::OnSettle(_)) | (Free::Now, _) => false,
        }
    }
}

/// What blocks a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockedBy {
    /// The bucket has too few units.
    Budget,
    /// The vendor's window is full.
    Window,
    /// The remaining units are reserved for the high tier.
    Reserve,
    /// All slots are taken.
    Slots,
    /// This process holds too few units of a limit that several processes share.
    NotHeld,
    /// The request needs more units of such a limit than this process can get, because another process has a lower
    /// figure of it, or others keep some as their floors.
    OutOfReach,
    /// The vendor refused a request or asked for a wait, or exchanges failed in a row.
    Paused,
    /// One request is in flight to find out whether the vendor accepts requests again.
    Probe,
    /// The vendor reported that no units remain.
    Reported,
    /// So few units remain that higher tiers go first.
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
