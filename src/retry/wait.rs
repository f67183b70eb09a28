//! How long to wait where the vendor does not say, and how much longer where it does.
//!
//! Waits are drawn, not computed: requests that failed together must not come back together. Integer nanoseconds
//! throughout, and everything saturates: the figures may come from a file or from a vendor.

use std::time::Duration;

use crate::clock::nanos;
use crate::config::RetryPolicy;

/// The first wait before connecting again: about what a restart behind a load balancer takes to be noticed.
const RECONNECT_FIRST: u64 = 250_000_000;
/// The longest one. Nothing is sent meanwhile, so a short one costs the vendor little.
const RECONNECT_LONGEST: u64 = 10_000_000_000;
/// The most that is added to a wait that the vendor states.
const LATER_MOST: u64 = 5_000_000_000;

/// The wait before retry number `retry` (from 1): between `first_wait` doubled `retry - 1` times and twice that, at most
/// `longest_wait`.
pub(crate) fn backoff(policy: &RetryPolicy, retry: u32, rng: &mut fastrand::Rng) -> Duration {
    doubled(nanos(policy.first_wait), nanos(policy.longest_wait), retry, rng)
}

/// The wait before connecting again after `failures` (from 1) in a row.
pub(crate) fn reconnect(failures: u32, rng: &mut fastrand::Rng) -> Duration {
    doubled(RECONNECT_FIRST, RECONNECT_LONGEST, failures, rng)
}

/// `wait` or up to a tenth more, at most 5 s: those who wait for the same moment do not all come in it, and none earlier.
pub(crate) fn later(wait: Duration, rng: &mut fastrand::Rng) -> Duration {
    let most = (nanos(wait) / 10).min(LATER_MOST);
    wait.saturating_add(Duration::from_nanos(rng.u64(0..=most)))
}

/// Once the upper end has reached `longest`, the range stays as it is: one that went on growing from below would shrink
/// to a point, and all would come back at once.
fn doubled(first: u64, longest: u64, step: u32, rng: &mut fastrand::Rng) -> Duration {
    let mut low = first.min(longest);
    // 64 doublings leave the range of the type, whatever they start from.
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
