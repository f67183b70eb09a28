//! A pause, and the one request that finds out whether it is over.

use super::{Gate, Throttle};
use crate::clock::Time;
use crate::engine::limit::Lack;
use crate::engine::limit::window_log::Free;
use crate::engine::slab::Key;

/// A pause is forgotten so long after its end, in nanoseconds.
const FORGOTTEN: u64 = 60_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Pause {
    #[default]
    Over,
    Until(Time),
    /// One request goes alone, to see.
    Probing(Key),
}

impl Pause {
    pub(super) fn gate(self, now: Time) -> Gate {
        match self {
            Pause::Over => Gate::Open,
            Pause::Until(until) if until <= now => Gate::Open,
            Pause::Until(until) => Gate::Shut(Free::At(until), Lack::Paused),
            // Its end wakes the others.
            Pause::Probing(_) => Gate::Shut(Free::OnSettle(Time::MAX), Lack::Probe),
        }
    }

    /// It ended so long ago that forgetting it makes no difference: whoever asks next would be alone anyway.
    pub(super) fn is_long_over(self, now: Time) -> bool {
        match self {
            Pause::Over => true,
            Pause::Until(until) => until.plus_nanos(FORGOTTEN) <= now,
            Pause::Probing(_) => false,
        }
    }

    pub(super) fn until(self) -> Time {
        match self {
            Pause::Until(until) => until,
            _ => Time::ZERO,
        }
    }
}

impl Throttle {
    /// The vendor asks to wait until `until`, and has refused nothing. The lane does so until `later`, unless it waits that
    /// long already. Returns whether it did not.
    pub(crate) fn wait_until(&mut self, now: Time, until: Time, later: Time) -> bool {
        if self.pause.until() >= until || until <= now {
            return false;
        }
        if self.pause.until() <= now {
            (self.stands_since, self.paused_at) = (now, now);
        }
        self.pause = Pause::Until(later);
        true
    }

    /// The lane has used more of a shared limit than was there: it sends nothing before this moment.
    pub(crate) fn pay_back(&mut self, until: Time) {
        self.next = self.next.max(until);
    }

    /// In another engine permits have other keys: pairs of what they were and what they are. What a permit that is not among
    /// them was to find out, another will.
    pub(crate) fn rename_permits(&mut self, now: Time, keys: &[(Key, Key)]) {
        let pauses = self.endpoints.iter_mut().map(|(_, pause, _)| pause).chain([&mut self.pause]);
        for pause in pauses {
            if let Pause::Probing(probe) = pause {
                let found = keys.iter().find(|(before, _)| before == probe);
                *pause = found.map_or(Pause::Until(now), |(_, key)| Pause::Probing(*key));
            }
        }
    }
}
