//! The waits between attempts: exponential backoff if the vendor states no wait, and a random supplement if it does.
//!
//! Every wait is random, so that requests that failed together do not return together. The arithmetic is in integer
//! nanoseconds and saturates, because its figures come from a configuration file or from a vendor.

use std::time::Duration;

use crate::clock::nanos;
use crate::config::RetryPolicy;

/// The first wait before reconnecting, in nanoseconds: about the time in which a load balancer notices a restart.
const RECONNECT_FIRST: u64 = 250_000_000;
/// The longest wait before reconnecting. It may be short, because an attempt to connect costs the vendor little.
const RECONNECT_LONGEST: u64 = 10_000_000_000;
/// The largest supplement to a wait that the vendor states.
const LATER_MOST: u64 = 5_000_000_000;
/// How long a stored job outlasts an outage, unless `max_age` is stated: as long as mail servers try a message (RFC
/// 5321, section 4.5.4.1).
pub(crate) const OUTAGE: Duration = Duration::from_secs(4 * 86_400);
/// How long a job must have been tried before it is given up. The process may have been stopped for days: the first
/// failure after that is no reason to give up.
const TRIED: Duration = Duration::from_secs(3_600);
/// The longest wait in an outage. It is shorter than the two minutes after which the breaker no longer counts a host
/// that nobody tries, so that an outage in which a single job waits stays visible in the metrics.
const OUTAGE_WAIT_LONGEST: u64 = 100_000_000_000;

/// The wait before retry number `retry` (from 1): random between `first_wait` doubled `retry - 1` times and twice that,
/// at most `longest_wait`.
pub(crate) fn backoff(policy: &RetryPolicy, retry: u32, rng: &mut fastrand::Rng) -> Duration {
    doubled(nanos(policy.first_wait), nanos(policy.longest_wait), retry, rng)
}

/// The wait before reconnecting after `failures` (from 1) in a row.
pub(crate) fn reconnect(failures: u32, rng: &mut fastrand::Rng) -> Duration {
    doubled(RECONNECT_FIRST, RECONNECT_LONGEST, failures, rng)
}

/// The wait before a stored job tries its host again, to which no connection could be made for `age`: random between a
/// tenth and a fifth of `age`, at most 100 s. So a job is late by a small part of the outage, and a long outage costs
/// few claims. `None` if the job is given up: once `age` is `max_age`, or four days if that is not stated, and the job
/// was `tried` for an hour of it, or for `max_age` if that is shorter.
pub(crate) fn outage(
    age: Duration,
    tried: Duration,
    max_age: Option<Duration>,
    rng: &mut fastrand::Rng,
) -> Option<Duration> {
    let most = max_age.unwrap_or(OUTAGE);
    let low = (nanos(age) / 10).min(OUTAGE_WAIT_LONGEST / 2);
    let waits = age < most || tried < most.min(TRIED);
    waits.then(|| Duration::from_nanos(rng.u64(low..=low * 2)))
}

/// `wait` plus a random supplement of up to a tenth and at most 5 s: requests that wait for the same moment are spread
/// over the time after it.
pub(crate) fn later(wait: Duration, rng: &mut fastrand::Rng) -> Duration {
    let most = (nanos(wait) / 10).min(LATER_MOST);
    wait.saturating_add(Duration::from_nanos(rng.u64(0..=most)))
}

/// A random wait between `low` and twice `low`, at most `longest`, where `low` is `first` doubled `step - 1` times.
/// `low` stops growing below `longest`: otherwise the range would shrink to a point, and all requests would return at
/// once.
fn doubled(first: u64, longest: u64, step: u32, rng: &mut fastrand::Rng) -> Duration {
    let mut low = first.min(longest);
    // 64 doublings exceed a `u64`, whatever they start from.
    for _ in 1..step.min(64) {
        let next = low.saturating_mul(2);
        if next >= longest {
            break;
        }
        low = next;
    }
    let high = low.saturating_mul(2).min(longest);
    Duration::from_nanos(rng.u64(low..=high))
}
