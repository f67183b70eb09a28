//! For how long a key keeps the vendor from acting twice.

use std::time::SystemTime;

use super::*;
use crate::clock::Moment;

/// The moment at which the monotonic clock shows [`ms`]`(n)`, and the wall clock `wall_ms` milliseconds since 1970.
fn moment(n: u64, wall_ms: u64) -> Moment {
    Moment { at: ms(n), wall: SystemTime::UNIX_EPOCH + Duration::from_millis(wall_ms) }
}

#[test]
fn key_counts_while_the_vendor_knows_it() {
    let (seconds, half_hour, timeout) = (Duration::from_secs, Duration::from_secs(1_800), Duration::from_secs(30));
    for (age, knows) in [(0, true), (1_200, true), (1_769, true), (1_770, false), (1_860, false), (u64::MAX, false)] {
        assert_eq!(knows_key(half_hour, seconds(age), timeout), knows, "{age} s");
    }
    assert!(!knows_key(timeout, Duration::ZERO, timeout), "the exchange may take as long as the vendor keeps the key");
}

#[test]
fn age_goes_on_from_an_earlier_process() {
    // The exchange began before this process's clock.
    let days = Duration::from_secs(3 * 86_400);
    let since = Since::new(days, moment(5_000, 500_000));
    assert_eq!(since.age(moment(5_000, 500_000)), days);
    assert_eq!(since.age(moment(65_000, 560_000)), days + Duration::from_secs(60));
    assert_eq!(since.age(moment(0, 0)), days, "time that goes back makes nothing younger");
    assert_eq!(Since::new(Duration::MAX, moment(0, 0)).age(moment(1, 1)), Duration::MAX);
}

#[test]
fn suspension_makes_a_key_older() {
    let since = Since::new(Duration::from_secs(5), moment(0, 500_000));
    let knows = |now| knows_key(Duration::from_secs(360), since.age(now), Duration::from_secs(30));
    assert!(knows(moment(40_000, 540_000)));
    // The monotonic clock stands still for seven minutes.
    assert_eq!(since.age(moment(40_000, 960_000)), Duration::from_secs(465));
    assert!(!knows(moment(40_000, 960_000)));
    // The wall clock is set back, and then the monotonic clock counts.
    assert_eq!(since.age(moment(420_000, 100_000)), Duration::from_secs(425));
    assert!(!knows(moment(420_000, 100_000)));
}
