//! A pause, and the probe: the one request that finds out whether the pause is over.

use crate::keys::PermitKey;
use crate::limit::free::BlockedBy;
use crate::limit::free::Free;
use crate::time::Time;

/// How long after its end a pause is forgotten, in nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;
/// How long other processes wait while a request of this process probes a pause, in nanoseconds. The next report from
/// this process renews that wait.
const PROBE: u64 = 1_000_000_000;

/// Whether the state set by the vendor's responses allows a grant.
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
    /// The pause has ended, and this permit's request is in flight alone to find out whether the vendor accepts
    /// requests.
    Probing(PermitKey),
}

impl Pause {
    pub(super) fn gate(self, now: Time) -> Gate {
        match self {
            Pause::Over => Gate::Open,
            Pause::Until(until) if until <= now => Gate::Open,
            Pause::Until(until) => Gate::Shut(Free::At(until), BlockedBy::Paused),
            // The end of the probe wakes the waiting requests.
            Pause::Probing(_) => Gate::Shut(Free::OnSettle(Time::MAX), BlockedBy::Probe),
        }
    }

    /// Whether the pause ended so long ago that it can be forgotten.
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
