//! Tests of the clock of a ledger.

use super::*;

const S: u64 = 1_000_000;

#[test]
fn slack_is_a_tenth_within_bounds() {
    assert_eq!([slack(0), slack(5 * S), slack(60 * S)], [100_000, 500_000, S]);
}

/// 200 millionths of six hours.
#[test]
fn slack_grows_with_long_spans() {
    let hours = 21_600 * S;
    assert_eq!([slack(5_000 * S), slack(hours)], [S, 4_320_000]);
    assert_eq!([lease_slack(hours), slack_after_lease(hours)], [S, 3_320_000]);
    assert_eq!([lease_slack(5 * S), slack_after_lease(5 * S)], [500_000, 0]);
}

#[test]
fn short_gap_counts_in_full() {
    let mut clock = Clock::new(50 * S);
    assert_eq!(clock.advance(50 * S + 90_000, None), 50 * S + 90_000);
}

#[test]
fn long_gap_needs_a_witness() {
    let (mut alone, mut seen) = (Clock::new(0), Clock::new(0));
    assert_eq!(alone.advance(3 * S, None), 100_000);
    assert_eq!(seen.advance(3 * S, Some(3 * S - 50_000)), 3 * S);
}

#[test]
fn step_is_bounded_by_a_witness() {
    let mut clock = Clock::new(0);
    assert_eq!(clock.advance(11 * S, Some(S)), S + 100_000);
}

#[test]
fn very_long_gap_counts_less_ten_seconds() {
    let mut clock = Clock::new(0);
    assert_eq!(clock.advance(100 * S, None), 90 * S);
}

#[test]
fn step_back_does_not_stop_the_clock() {
    let mut clock = Clock::new(20 * S);
    assert_eq!(clock.advance(10 * S, None), 20 * S);
    assert_eq!(clock.advance(10 * S + 50_000, None), 20 * S + 50_000);
}

/// Callers at random times, some with a witness, and one step of up to 10 s either way.
#[test]
fn span_exceeds_truth_by_one_step_allowance() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let (count, mean) = (random.usize(1..6), random.u64(5_000..2 * S));
        let (step, at) = (random.i64(-10 * S as i64..10 * S as i64), random.u64(0..60 * S));
        let mut clock = Clock::new(100 * S);
        let mut seen: Vec<Option<(u64, u64)>> = vec![None; count];
        let mut calls = vec![];
        let mut now = 0;
        while now < 60 * S {
            now += random.u64(1..2 * mean);
            let shift = if now >= at { step } else { 0 };
            let store = (100 * S + now) as i64 + shift;
            let who = random.usize(0..count);
            let expected = seen[who].map(|(store, then)| store + now - then);
            let time = clock.advance(store as u64, expected.filter(|_| random.u8(0..5) > 0));
            seen[who] = Some((store as u64, now));
            calls.push((now, time));
        }
        for (first, (now, time)) in calls.iter().enumerate() {
            for (later, reached) in calls.iter().skip(first + 1) {
                assert!(reached - time <= later - now + STEP_US);
            }
        }
    }
}

#[test]
fn small_falls_do_not_add_up() {
    let mut clock = Clock::new(S);
    for _ in 0..100 {
        clock.advance(S - 10_000, None);
        clock.advance(S, None);
    }
    assert_eq!(clock.now(), S);
}
