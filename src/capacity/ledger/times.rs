//! Access to all times in a ledger, for stores that have no clock to which the times could refer.

use super::clock::Clock;
use super::ledger::Ledger;

/// The meaning of a time in a ledger. The number in a variant is the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Moment {
    LearningUntil,
    CompleteFrom,
    FloorsUntil,
    UncountedUntil,
    TurnUntil,
    PausedUntil,
    Expires(u64),
    FloorUntil(u64),
    Called(u64),
    Granted(u64),
    Turned(u64),
    /// When units of the process's last grant are free, or those whose lease has ended.
    Last(u64),
    /// When units of the pool are free.
    Pool,
}

impl Ledger {
    /// Replaces every time with the result of `map`, which also gets the number of units that the time belongs to (or
    /// 0), and sets the ledger's own time to `now`. A time of 0 means "none" or "long past" and stays.
    pub(crate) fn map_times(&mut self, now: u64, mut map: impl FnMut(Moment, u64, u32) -> u64) {
        let mut map = |moment, time, units| if time == 0 { 0 } else { map(moment, time, units) };
        self.clock = Clock::new(now);
        self.learning_until = map(Moment::LearningUntil, self.learning_until, 0);
        self.complete_from = map(Moment::CompleteFrom, self.complete_from, 0);
        if let Some((until, _)) = &mut self.lost_floors {
            *until = map(Moment::FloorsUntil, *until, 0);
        }
        self.uncounted_until = map(Moment::UncountedUntil, self.uncounted_until, 0);
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
