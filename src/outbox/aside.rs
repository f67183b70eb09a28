//! Queued lanes without room, which are kept out of the queue until they are looked at again. Pure.
//!
//! There may be hundreds of thousands: of paused or removed tenants, or of tenants whose quota is used up. In the queue,
//! each claim would look at all of them on its way to a lane that has room.

use std::time::Duration;
use std::vec::Drain;

use crate::clock::Time;
use crate::store::LaneTier;

/// How long a lane is not looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The part of that time which each lane adds if there are many. A look takes about a microsecond, so that the looks take
/// a tenth of a processor.
const EACH: Duration = Duration::from_micros(10);
/// The most lanes that one claim looks at again, in milliseconds. With 50 claims a second, these are as many as [`EACH`]
/// allows.
pub(super) const AT_ONCE: usize = 2_048;

/// A lane's place in the queue: the lane, and its ticket.
pub(super) type Place = (LaneTier, u64);

#[derive(Default)]
pub(super) struct Aside {
    /// The lanes that were found without room since `since`.
    places: Vec<Place>,
    since: Time,
    /// Whether some of the lanes may have got room.
    is_early: bool,
    /// Lanes whose time to be looked at has come.
    due: Vec<Place>,
}

impl Aside {
    pub(super) fn add(&mut self, places: Vec<Place>) {
        self.places.extend(places);
    }

    /// Has the lanes looked at as soon as their number allows: some of them may have got room.
    pub(super) fn look_early(&mut self) {
        self.is_early = true;
    }

    /// When the lanes are to be looked at again.
    pub(super) fn look_at(&self) -> Time {
        let each = EACH.saturating_mul(u32::try_from(self.places.len()).unwrap_or(u32::MAX));
        self.since + if self.is_early { each } else { each.max(LOOK_AGAIN) }
    }

    /// The lanes that the next claim looks at again.
    pub(super) fn take_due(&mut self, now: Time) -> Drain<'_, Place> {
        if self.due.is_empty() && self.look_at() <= now {
            self.due = std::mem::take(&mut self.places);
            (self.since, self.is_early) = (now, false);
        }
        self.due.drain(self.due.len().saturating_sub(AT_ONCE)..)
    }

    /// Whether more lanes are due than one claim looks at.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }
}
