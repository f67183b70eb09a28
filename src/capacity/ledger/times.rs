//! All times that stand in a ledger, for a store that has no clock by which they could be kept.

use super::clock::Clock;
use super::ledger::Ledger;

/// What a time of a ledger is the time of. A number is a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    LearningUntil,
    CompleteFrom,
    FloorsUntil,
    TurnUntil,
    PausedUntil,
    Expires(u64),
    FloorUntil(u64),
    Called(u64),
    Granted(u64),
    Turned(u64),
    /// Units of the last grant are free.
    Last(u64),
    /// Units of the pool are free.
    Pool,
}

impl Ledger {
    /// Replaces every time by what `map` makes of it; it is also told the units that the time is of, or 0. The ledger's own time
    /// becomes `now`. A time of 0 means that there is none, or that it is long past, and stays.
    pub(crate) fn map_times(&mut self, now: u64, mut map: impl FnMut(Moment, u64, u32) -> u64) {
        let mut map = |moment, time, units| if time == 0 { 0 } else { map(moment, time, units) };
        self.clock = Clock::new(now);
        self.learning_until = map(Moment::LearningUntil, self.learning_until, 0);
        self.complete_from = map(Moment::CompleteFrom, self.complete_from, 0);
        if let Some((until, _)) = &mut self.lost_floors {
            *until = map(Moment::FloorsUntil, *until, 0);
        }
        if let Some((_, until)) = &mut self.turn {
            *until = map(Moment::TurnUntil, *until, 0);
        }
        if let Some((_, until)) = &mut self.paused {
            *until = map(Moment::PausedUntil, *until, 0);
        }
        for (process, holder) in &mut self.holders {
            holder.expires = map(Moment::Expires(*process), holder.expires, 0);
            holder.floor_until = map(Moment::FloorUntil(*process), holder.floor_until, 0);
            holder.called = map(Moment::Called(*process), holder.called, 0);
            holder.granted = map(Moment::Granted(*process), holder.granted, 0);
            holder.turned = map(Moment::Turned(*process), holder.turned, 0);
            for (at, units) in &mut holder.last {
                *at = map(Moment::Last(*process), *at, *units);
            }
        }
        for (at, units) in &mut self.pool.0 {
            *at = map(Moment::Pool, *at, *units);
        }
        self.pool.0.sort_unstable();
    }
}
