//! The only reader of time.
//!
//! Decisions take a [`Time`] as an argument; this module is where one comes from. A `Time` counts nanoseconds since
//! the clock's origin in a `u64` (584 years), so that the engine compares and subtracts integers: no float seconds, no
//! panicking `Instant` arithmetic. Every operation saturates, because time may stand still or appear to go back.
//!
//! The system clock reads `tokio::time::Instant`, so that tests with paused time move it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

/// Milliseconds that [`Clock::wall`] adds to the system's wall clock. Only tests change it.
static WALL_STEP_MS: AtomicI64 = AtomicI64::new(0);

/// A moment: nanoseconds since the origin of the [`Clock`] that made it.
///
/// Moments of different clocks do not compare.
///
/// ```
/// use integration_client::clock::Time;
/// use std::time::Duration;
///
/// let t = Time::ZERO + Duration::from_millis(250);
/// assert_eq!(t.since(Time::ZERO), Duration::from_millis(250));
/// assert_eq!(Time::ZERO.since(t), Duration::ZERO, "time that goes back saturates");
/// ```
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

/// Steps the wall clock of this process by `by_ms` milliseconds, as an operator or a time server would.
#[cfg(feature = "testing")]
pub(crate) fn step_wall(by_ms: i64) {
    WALL_STEP_MS.fetch_add(by_ms, Ordering::Relaxed);
}

/// Reads the time of one client. Cheap to clone; clones agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock whose origin is one hour before now, so that there is a past to speak of.
    ///
    /// Inside a tokio runtime with paused time it stands still until time is advanced.
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the clock")]
    pub fn system() -> Clock {
        let now = tokio::time::Instant::now();
        Clock { origin: now.checked_sub(Duration::from_secs(3600)).unwrap_or(now) }
    }

    /// The current moment.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the clock")]
    pub fn now(&self) -> Time {
        let elapsed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Time(elapsed.as_secs().wrapping_mul(1_000_000_000).wrapping_add(elapsed.subsec_nanos() as u64))
    }

    /// The wall clock, for signatures and dates. It may jump; nothing waits by it.
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the clock")]
    pub fn wall(&self) -> SystemTime {
        let wall = SystemTime::now();
        match WALL_STEP_MS.load(Ordering::Relaxed) {
            0 => wall,
            step => {
                let size = Duration::from_millis(step.unsigned_abs());
                let stepped = if step > 0 { wall.checked_add(size) } else { wall.checked_sub(size) };
                stepped.unwrap_or(wall)
            }
        }
    }

    /// The runtime's instant of `time`, for its timers. Far moments are capped at 30 years from the origin.
    pub fn instant(&self, time: Time) -> tokio::time::Instant {
        const CAP: u64 = 30 * 365 * 86_400 * 1_000_000_000;
        self.origin + Duration::from_nanos(time.0.min(CAP))
    }
}
