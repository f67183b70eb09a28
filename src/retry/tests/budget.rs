//! Retries are at most a tenth of the load, once the ten free ones are used.

use proptest::prelude::*;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// The number of `times` in the minute before `now`, including `now` and excluding the minute's start.
fn in_minute(times: &[Time], now: Time) -> usize {
    times.iter().filter(|time| now.since(**time) < MINUTE).count()
}

#[test]
fn ten_retries_need_no_requests() {
    let mut budget = Budget::default();
    assert_eq!((0..20).filter(|_| budget.try_retry(ms(0))).count(), 10);
    assert!(!budget.try_retry(ms(59_999)));
    assert!(budget.try_retry(ms(65_000)), "a minute and a slot later at the latest");
}

#[test]
fn budget_is_a_tenth_of_many() {
    let mut budget = Budget::default();
    (0..1000).for_each(|_| budget.request(ms(0)));
    assert_eq!((0..1000).filter(|_| budget.try_retry(ms(30_000))).count(), 100);
    assert_eq!((0..1000).filter(|_| budget.try_retry(ms(61_000))).count(), 0, "these requests are over");
}

#[test]
fn steady_load_gets_nearly_its_tenth() {
    let mut budget = Budget::default();
    let mut retries = 0;
    for n in 0..60_000 {
        // 100 requests a second for ten minutes, each of which asks for a retry.
        budget.request(ms(n * 10));
        retries += u32::from(budget.try_retry(ms(n * 10)));
    }
    assert!((5_400..=6_000).contains(&retries), "{retries}");
}

#[test]
fn clock_steps_are_survived() {
    let mut budget = Budget::default();
    for now in [ms(100_000), ms(0), Time::ZERO, Time::MAX, ms(5), Time::MAX] {
        budget.request(now);
        budget.try_retry(now);
    }
    let mut budget = Budget::default();
    let granted = (0..40u64).filter(|n| budget.try_retry(ms(60_000 - n * 1_000))).count();
    assert_eq!(granted, 10, "going back frees nothing");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn retry_budget_is_ten_or_a_tenth(
        start in 0..10_000u64,
        // Bursts: the time before each in milliseconds, the number of requests, and the number of retries asked for.
        bursts in proptest::collection::vec((0..9_000u64, 0..200usize, 0..40usize), 1..80),
    ) {
        let mut budget = Budget::default();
        let (mut requests, mut retries, mut at) = (Vec::new(), Vec::new(), start);
        for (wait, more, wanted) in bursts {
            at += wait;
            let now = ms(at);
            (0..more).for_each(|_| budget.request(now));
            requests.extend(std::iter::repeat_n(now, more));
            for _ in 0..wanted {
                if budget.try_retry(now) {
                    retries.push(now);
                    let (retries, requests) = (in_minute(&retries, now), in_minute(&requests, now));
                    prop_assert!(retries <= 10.max(requests / 10), "{retries} retries of {requests} requests");
                }
            }
        }
    }
}
