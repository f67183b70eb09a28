//! Moments. The engine is handed them and reads no clock.
//!
//! A [`Time`] counts nanoseconds in a `u64` (584 years), so that the engine compares and subtracts integers: no float
//! seconds, no panicking `Instant` arithmetic. Every operation saturates, because time may stand still or appear to go back.

use std::time::Duration;

/// A moment: nanoseconds since the origin of the clock that made it, which is the library's.
///
/// Moments of different clocks do not compare. What reaches beyond [`Time::ZERO`] or [`Time::MAX`] ends there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

impl Time {
    /// The clock's origin.
    pub const ZERO: Time = Time(0);
    /// Later than every moment that a clock returns: "never".
    pub const MAX: Time = Time(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not later.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment, `nanos` nanoseconds later; saturates at [`Time::MAX`].
    pub const fn plus_nanos(self, nanos: u64) -> Time {
        Time(self.0.saturating_add(nanos))
    }

    /// This moment, `nanos` nanoseconds earlier; saturates at the origin.
    pub const fn minus_nanos(self, nanos: u64) -> Time {
        Time(self.0.saturating_sub(nanos))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        self.plus_nanos(nanos(duration))
    }
}

/// `duration` in whole nanoseconds, saturating at `u64::MAX` (584 years).
pub const fn nanos(duration: Duration) -> u64 {
    let n = duration.as_nanos();
    if n > u64::MAX as u128 { u64::MAX } else { n as u64 }
}
