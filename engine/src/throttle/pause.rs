//! A pause, and the one request that finds out whether it is over.

use crate::keys::PermitKey;
use crate::limit::free::BlockedBy;
use crate::limit::free::Free;
use crate::time::Time;

/// A pause is forgotten so long after its end, in nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;
/// Other processes wait for so long, in nanoseconds, while a request of this one finds out whether a pause is over: until they hear
/// of it again.
const PROBE: u64 = 1_000_000_000;

/// Whether a request may go as far as the vendor's word is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    Shut(Free, BlockedBy),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Pause {
    #[default]
    Over,
    Until(Time),
    /// One request goes alone, to see.
    Probing(PermitKey),
}

impl Pause {
    pub(super) fn gate(self, now: Time) -> Gate {
        match self {
            Pause::Over => Gate::Open,
            Pause::Until(until) if until <= now => Gate::Open,
            Pause::Until(until) => Gate::Shut(Free::At(until), BlockedBy::Paused),
            // Its end wakes the others.
            Pause::Probing(_) => Gate::Shut(Free::OnSettle(Time::MAX), BlockedBy::Probe),
        }
    }

    /// It ended so long ago that forgetting it makes no difference: the next request would be alone anyway.
    pub(super) fn is_long_over(self, now: Time) -> bool {
        match self {
            Pause::Over => true,
            Pause::Until(until) => until.plus_nanos(FORGOTTEN) <= now,
            Pause::Probing(_) => false,
        }
    }

    /// For how long other processes are to wait, in nanoseconds.
    pub(super) fn left(self, now: Time) -> u64 {
        match self {
            Pause::Over => 0,
            Pause::Until(until) => until.as_nanos().saturating_sub(now.as_nanos()),
            Pause::Probing(_) => PROBE,
        }
    }

    pub(super) fn until(self) -> Time {
        match self {
            Pause::Until(until) => until,
            _ => Time::ZERO,
        }
    }
}
