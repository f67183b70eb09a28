//! Time that moves only when a test says so.

use std::time::Duration;

use crate::clock::{Clock, Time};

/// tokio's paused time, for tests of code that waits.
///
/// Timers of the current runtime stand still until [`advance`](Self::advance) moves them, or until every task waits for
/// a timer: then the runtime itself advances time to the next one. [`Clock::system`] follows.
///
/// **Never use it together with sockets or database pools.** A task that waits for a socket looks idle to the runtime,
/// so time advances to the next timer, which is mostly a timeout: requests fail at random although nothing is wrong.
/// Use [`FakeTransport`](super::FakeTransport) under virtual time, and [`FakeVendor`](super::FakeVendor) under real
/// time.
///
/// ```
/// use integration_client::testing::VirtualClock;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let clock = VirtualClock::start();
/// let began = clock.now();
/// tokio::time::sleep(Duration::from_secs(3600)).await; // returns at once
/// clock.advance(Duration::from_secs(60)).await;
/// let passed = clock.now().since(began);
/// assert_eq!(passed.as_secs(), 3660); // and a millisecond: timers are that coarse
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    clock: Clock,
}

impl VirtualClock {
    /// Pauses the time of the current runtime, which must be a current-thread runtime.
    ///
    /// # Panics
    ///
    /// As `tokio::time::pause` does: outside a current-thread runtime, or when time is paused already. Under
    /// `#[tokio::test(start_paused = true)]` use [`VirtualClock::paused`].
    pub fn start() -> VirtualClock {
        tokio::time::pause();
        VirtualClock::paused()
    }

    /// A clock for a runtime with time that is paused already.
    pub fn paused() -> VirtualClock {
        VirtualClock { clock: Clock::system() }
    }

    /// Advances time, and runs the timers that become due. Timers have a resolution of a millisecond.
    pub async fn advance(&self, by: Duration) {
        tokio::time::advance(by).await;
    }

    /// The current time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}
