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
/// If a probe is not answered for this long, in nanoseconds, another request probes too: a vendor may take minutes for an
/// answer, and all who share the limit wait.
const PATIENCE: u64 = 10_000_000_000;

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
    /// The pause has ended, and a request is in flight to find out whether the vendor accepts requests.
    Probing(Probe),
}

/// The requests that probe a pause: usually one, and one more each time that [`PATIENCE`] is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Probe {
    /// The permit of the last of them.
    pub(super) permit: PermitKey,
    /// When the first and the last of them were granted.
    first: Time,
    last: Time,
}

impl Probe {
    fn is_overdue(&self, now: Time) -> bool {
        self.last.plus_nanos(PATIENCE) <= now
    }
}

impl Pause {
    pub(super) fn gate(self, now: Time) -> Gate {
        match self {
            Pause::Over => Gate::Open,
            Pause::Until(until) if until <= now => Gate::Open,
            Pause::Until(until) => Gate::Shut(Free::At(until), BlockedBy::Paused),
            Pause::Probing(_) if self.wants_another_probe(now) => Gate::Open,
            // The end of the probe wakes the waiting requests.
            Pause::Probing(probe) => Gate::Shut(Free::OnSettle(probe.last.plus_nanos(PATIENCE)), BlockedBy::Probe),
        }
    }

    /// The permit is granted; its request probes the pause if there is one. Returns whether it is the first that does.
    pub(super) fn granted(&mut self, now: Time, permit: PermitKey) -> bool {
        match self {
            Pause::Until(_) => *self = Pause::Probing(Probe { permit, first: now, last: now }),
            Pause::Probing(probe) if probe.is_overdue(now) => {
                (probe.permit, probe.last) = (permit, now);
                return false;
            }
            Pause::Over | Pause::Probing(_) => return false,
        }
        true
    }

    /// Whether a request probes the pause and is not answered for so long that another one is to probe too.
    pub(super) fn wants_another_probe(self, now: Time) -> bool {
        matches!(self, Pause::Probing(probe) if probe.is_overdue(now))
    }

    /// The request of this permit has ended without a response. If it was the last that probed the pause, another request
    /// may probe it at once. Returns whether it was.
    pub(super) fn ended(&mut self, now: Time, permit: PermitKey) -> bool {
        let Pause::Probing(probe) = self else { return false };
        if probe.permit != permit {
            return false;
        }
        if probe.first == probe.last {
            *self = Pause::Until(now);
        } else {
            // Earlier ones may still be answered.
            probe.last = Time::ZERO;
        }
        true
    }

    /// Whether the request of this permit, which began at `granted`, probes the pause. While a pause is probed, no other
    /// request begins, so each that began since the first probe is one.
    pub(super) fn is_probed_by(self, permit: PermitKey, granted: Time) -> bool {
        matches!(self, Pause::Probing(probe) if probe.permit == permit || granted >= probe.first)
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
