use super::*;

const FULL: Option<Duration> = Some(Duration::from_millis(500));

fn at(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

/// The first time in milliseconds at which a count that took this long is made again.
fn again(took_ms: u64, full_every: Option<Duration>) -> u64 {
    let counted = || Counted::new(at(100_000 - took_ms), at(100_000));
    (0u64..).step_by(100).find(|ms| counted().begin(at(100_000 + ms), full_every)).unwrap()
}

#[test]
fn slow_count_below_its_bound_is_used_longer() {
    assert_eq!([0, 100, 300, 6_000].map(|took| again(took, None)), [5_000, 5_000, 15_000, 60_000]);
}

#[test]
fn count_at_its_bound_is_repeated_soon() {
    assert_eq!([0, 300, 6_000].map(|took| again(took, FULL)), [500, 600, 12_000]);
}

#[test]
fn one_call_counts_at_a_time() {
    let mut counted = Counted::default();
    let (first, second) = (at(100_000), at(119_999));
    assert!(counted.begin(first, None));
    assert!(!counted.begin(first, None) && !counted.begin(second, FULL));
    assert!(counted.begin(at(120_000), FULL), "the first call was dropped");
}
