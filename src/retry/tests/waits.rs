//! Waits: within their bounds, and spread at random.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn policy(first: Duration, longest: Duration) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    (policy.first_wait, policy.longest_wait) = (first, longest);
    policy
}

/// The smallest and the largest of a thousand draws.
fn extremes_of_draws(mut draw: impl FnMut(&mut fastrand::Rng) -> Duration) -> (Duration, Duration) {
    let mut rng = fastrand::Rng::with_seed(7);
    let all: Vec<Duration> = (0..1000).map(|_| draw(&mut rng)).collect();
    (all.iter().copied().min().unwrap(), all.iter().copied().max().unwrap())
}

/// Checks that draws fill the range from `low` to `high` and do not leave it.
#[track_caller]
fn assert_fills((least, most): (Duration, Duration), low: Duration, high: Duration) {
    let hundredth = (high - low) / 100;
    assert!((low..=low + hundredth).contains(&least), "{least:?} in {low:?}..{high:?}");
    assert!((high - hundredth..=high).contains(&most), "{most:?} in {low:?}..{high:?}");
}

#[test]
fn default_waits_are_those_that_are_documented() {
    let policy = RetryPolicy::default();
    for (retry, (low, high)) in (1..).zip([(5, 10), (10, 20), (20, 40), (40, 80), (80, 120), (80, 120), (80, 120)]) {
        let spread = extremes_of_draws(|rng| backoff(&policy, retry, rng));
        assert_fills(spread, Duration::from_secs(low), Duration::from_secs(high));
    }
}

#[test]
fn waits_before_connecting_again() {
    let expected = [(250, 500), (500, 1000), (1000, 2000), (2000, 4000), (4000, 8000), (8000, 10_000), (8000, 10_000)];
    for (failures, (low, high)) in (1..).zip(expected) {
        let spread = extremes_of_draws(|rng| reconnect(failures, rng));
        assert_fills(spread, Duration::from_millis(low), Duration::from_millis(high));
    }
}

#[test]
fn waits_in_an_outage_grow_with_its_age() {
    let seconds = Duration::from_secs;
    for (age, low, high) in [(0, 0, 0), (60, 6, 12), (300, 30, 60), (500, 50, 100), (86_400, 50, 100)] {
        let spread = extremes_of_draws(|rng| outage(seconds(age), seconds(age), None, rng).unwrap());
        assert_fills(spread, seconds(low), seconds(high));
    }
}

#[test]
fn outage_ends_by_age_and_by_time_of_trying() {
    let seconds = Duration::from_secs;
    let four_days = seconds(4 * 86_400);
    for (age, tried, max_age, ends) in [
        (four_days - seconds(1), four_days - seconds(1), None, false),
        (four_days, four_days, None, true),
        // Most of the time no worker tried the job.
        (four_days * 2, seconds(3_599), None, false),
        (four_days * 2, seconds(3_600), None, true),
        // A stated age counts, whether it is shorter or longer.
        (seconds(59), seconds(59), Some(seconds(60)), false),
        (seconds(60), seconds(60), Some(seconds(60)), true),
        (four_days, seconds(59), Some(seconds(60)), false),
        (four_days, four_days, Some(four_days * 2), false),
        (Duration::MAX, Duration::MAX, Some(Duration::MAX), true),
    ] {
        let wait = outage(age, tried, max_age, &mut fastrand::Rng::with_seed(1));
        assert_eq!(wait.is_none(), ends, "{age:?} {tried:?} {max_age:?}");
    }
}

#[test]
fn stated_wait_gets_a_supplement() {
    assert_fills(
        extremes_of_draws(|rng| later(Duration::from_secs(10), rng)),
        Duration::from_secs(10),
        Duration::from_secs(11),
    );
    assert_fills(
        extremes_of_draws(|rng| later(Duration::from_secs(3600), rng)),
        Duration::from_secs(3600),
        Duration::from_secs(3605),
    );
    assert_eq!(extremes_of_draws(|rng| later(Duration::ZERO, rng)), (Duration::ZERO, Duration::ZERO));
}

#[test]
fn hostile_durations_saturate() {
    let mut rng = fastrand::Rng::with_seed(1);
    let most = Duration::from_nanos(u64::MAX);
    for retry in [0, 1, 2, 63, 64, 65, u32::MAX] {
        assert_eq!(backoff(&policy(Duration::MAX, Duration::MAX), retry, &mut rng), most);
        assert_eq!(backoff(&policy(Duration::ZERO, Duration::ZERO), retry, &mut rng), Duration::ZERO);
        assert_eq!(backoff(&policy(Duration::ZERO, Duration::MAX), retry, &mut rng), Duration::ZERO);
        let five = Duration::from_secs(5);
        assert_eq!(backoff(&policy(Duration::MAX, five), retry, &mut rng), five, "the longest wait decides");
        assert!(reconnect(retry, &mut rng) <= Duration::from_secs(10));
    }
    assert_eq!(later(Duration::MAX, &mut rng), Duration::MAX);
    assert!(backoff(&policy(Duration::from_nanos(1), Duration::MAX), u32::MAX, &mut rng) >= most / 4);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn backoff_stays_in_its_range(first in 1..100 * SECOND, times in 1..1000u64, retry in 1..30u32, seed: u64) {
        let longest = first * times;
        let policy = policy(Duration::from_nanos(first), Duration::from_nanos(longest));
        let wait = backoff(&policy, retry, &mut fastrand::Rng::with_seed(seed)).as_nanos();
        let (first, longest) = (u128::from(first), u128::from(longest));
        prop_assert!(wait <= (first << retry).min(longest), "never above");
        let low = first << (retry - 1);
        // If the range of a later step would be empty, that of the last step with a range applies.
        prop_assert!(wait >= low.min(longest.div_ceil(2)), "never below");
        prop_assert!(low >= longest || wait >= low, "never below");
    }

    #[test]
    fn ranges_never_go_back(first in 1..100 * SECOND, times in 1..1000u64, seed: u64) {
        let policy = policy(Duration::from_nanos(first), Duration::from_nanos(first * times));
        // The same seed draws nearly the same part of each range. The bounds of the ranges are compared by the extremes
        // of many draws.
        let mut last = (Duration::ZERO, Duration::ZERO);
        for retry in 1..30 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let draws: Vec<Duration> = (0..64).map(|_| backoff(&policy, retry, &mut rng)).collect();
            let ends = (*draws.iter().min().unwrap(), *draws.iter().max().unwrap());
            let slack = Duration::from_nanos(first / 2);
            prop_assert!(ends.0 + slack >= last.0 && ends.1 + slack >= last.1, "{last:?} {ends:?}");
            last = ends;
        }
    }

    #[test]
    fn stated_wait_is_only_ever_lengthened(secs in 0..u64::MAX, nanos in 0..1_000_000_000u32, seed: u64) {
        for wait in [Duration::new(secs, nanos), Duration::new(secs % 1000, nanos)] {
            let later = later(wait, &mut fastrand::Rng::with_seed(seed));
            prop_assert!(later >= wait);
            prop_assert!(later - wait <= wait / 10);
            prop_assert!(later - wait <= Duration::from_secs(5));
        }
    }
}
