//! The only place that reads a clock.
//!
//! Decisions take a [`Time`] as an argument, which this module provides. A `Time` counts nanoseconds since the
//! clock's origin in a `u64` (584 years), so that the engine compares and subtracts integers: no float seconds, no
//! panicking `Instant` arithmetic. Every operation saturates, because time may stand still or appear to go back.
//!
//! ```
//! use integration_client::clock::Time;
//! use std::time::Duration;
//!
//! let t = Time::ZERO + Duration::from_millis(250);
//! assert_eq!(t.since(Time::ZERO), Duration::from_millis(250));
//! assert_eq!(Time::ZERO.since(t), Duration::ZERO, "time that goes back saturates");
//! ```
//!
//! The system clock reads `tokio::time::Instant`, so that tests with paused time move it.
//!
//! Times that must agree between the processes of one machine, and remain valid after them, come from `MachineTime`.
//! Two `Moment`s show a duration in which the machine may have been suspended.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::{Serialize as _, Serializer};

/// Milliseconds that [`Clock::wall`] adds to the system's wall clock. Only tests change it.
static WALL_STEP_MS: AtomicI64 = AtomicI64::new(0);

#[doc(inline)]
pub use crate::engine::time::{Time, nanos};

/// Serialises a duration as a number of seconds.
pub(crate) fn as_seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64())
}

/// Serialises a duration as a number of seconds, or as null.
pub(crate) fn as_some_seconds<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(to)
}

/// Returns whole milliseconds, capped at `u64::MAX`.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
    /// A clock whose origin lies 367 days before now, so that moments in the past can be represented: a request that
    /// was sent a month ago counts in a window of a month. If the system's clock does not go back that far, the origin
    /// lies one hour before now.
    ///
    /// Inside a tokio runtime with paused time the clock stands still until time is advanced.
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the clock")]
    pub fn system() -> Clock {
        let now = tokio::time::Instant::now();
        let back = |seconds| now.checked_sub(Duration::from_secs(seconds));
        Clock { origin: back(367 * 86_400).or_else(|| back(3_600)).unwrap_or(now) }
    }

    /// The current moment.
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the clock")]
    pub fn now(&self) -> Time {
        let elapsed = tokio::time::Instant::now().saturating_duration_since(self.origin);
        Time::from_nanos(elapsed.as_secs().wrapping_mul(1_000_000_000).wrapping_add(elapsed.subsec_nanos() as u64))
    }

    /// The wall clock, for signatures and dates. It may jump, so no wait depends on it.
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

    /// The current moment, by both clocks.
    pub(crate) fn moment(&self) -> Moment {
        Moment { at: self.now(), wall: self.wall() }
    }

    /// What the wall clock showed at [`Time::ZERO`], if it has not been stepped since. Calendar windows are computed
    /// from this moment.
    pub(crate) fn epoch(&self) -> SystemTime {
        let since = Duration::from_nanos(self.now().as_nanos());
        self.wall().checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Converts `time` to an instant of the runtime, for its timers. Capped at 30 years after the origin.
    pub fn instant(&self, time: Time) -> tokio::time::Instant {
        const CAP: u64 = 30 * 365 * 86_400 * 1_000_000_000;
        self.origin + Duration::from_nanos(time.as_nanos().min(CAP))
    }
}

/// A moment by two clocks: on most systems the monotonic clock stands still while the machine is suspended, and the
/// wall clock may be stepped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Time,
    pub(crate) wall: SystemTime,
}

impl Moment {
    /// The time since `earlier`, by the clock that counted more. A wall clock that was set forward makes it too long.
    /// It is too short only if the machine was suspended, and its wall clock was set back as well.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        let by_wall = self.wall.duration_since(earlier.wall).unwrap_or_default();
        by_wall.max(self.at.since(earlier.at))
    }

    /// The moment that is `wait` later.
    pub(crate) fn after(self, wait: Duration) -> Moment {
        Moment { at: self.at + wait, wall: self.wall.checked_add(wait).unwrap_or(self.wall) }
    }
}

/// The machine's clocks, in milliseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MachineTime {
    /// The time since 1970, by the wall clock, which may be stepped forwards and back.
    pub(crate) wall_ms: i64,
    /// The name of the machine start that `steady_ms` counts from; the same in all processes of the machine. `None` if
    /// the system has no such name.
    pub(crate) boot: Option<Arc<str>>,
    /// The time since the machine was started, time in suspension included; no step of the wall clock changes it.
    /// Without a `boot` it is the wall-clock time since 1970 at the first call in this process, continued by a
    /// monotonic clock, which counts the time in suspension on macOS too.
    pub(crate) steady_ms: i64,
}

impl MachineTime {
    /// Reads all clocks.
    pub(crate) fn read() -> MachineTime {
        let wall_ms = whole_millis(Clock::wall_since_1970());
        let (boot, ran_ms) = (boot(), whole_millis(ran()));
        let steady_ms = match &boot {
            Some(_) => ran_ms,
            None => {
                static FIRST: OnceLock<(i64, i64)> = OnceLock::new();
                let (first_ms, first_wall_ms) = FIRST.get_or_init(|| (ran_ms, wall_ms));
                first_wall_ms.saturating_add(ran_ms.saturating_sub(*first_ms))
            }
        };
        MachineTime { wall_ms, boot, steady_ms }
    }
}

impl Clock {
    fn wall_since_1970() -> Duration {
        Clock::system().wall().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }
}

fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(all(target_os = "linux", feature = "sqlite"))]
fn boot() -> Option<Arc<str>> {
    static BOOT: OnceLock<Option<Arc<str>>> = OnceLock::new();
    let read = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(name.trim()).filter(|name| !name.is_empty() && !name.contains('/')).map(Arc::from)
    };
    BOOT.get_or_init(read).clone()
}

#[cfg(not(all(target_os = "linux", feature = "sqlite")))]
fn boot() -> Option<Arc<str>> {
    None
}

/// How long the machine has run since a moment that stays the same until it boots again.
#[cfg(all(unix, feature = "sqlite"))]
fn ran() -> Duration {
    use rustix::time::ClockId;
    // `CLOCK_BOOTTIME` of Linux and `CLOCK_MONOTONIC` of macOS count the time in suspension. The clock of
    // `std::time::Instant` does not count it on either system.
    #[cfg(target_os = "linux")]
    const COUNTS_SUSPENSION: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const COUNTS_SUSPENSION: ClockId = ClockId::Monotonic;
    let time = rustix::time::clock_gettime(COUNTS_SUSPENSION);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0));
    Duration::new(seconds, nanos.min(999_999_999))
}

/// How long the process has run since a moment that stays the same until it ends.
#[cfg(not(all(unix, feature = "sqlite")))]
fn ran() -> Duration {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    Duration::from_nanos(CLOCK.get_or_init(Clock::system).now().as_nanos())
}
