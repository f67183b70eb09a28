//! For how long a key keeps the vendor from acting twice.

use super::*;

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
    let since = Since::new(Duration::from_secs(3 * 86_400), ms(5_000));
    assert_eq!(since.age(ms(5_000)), Duration::from_secs(3 * 86_400));
    assert_eq!(since.age(ms(65_000)), Duration::from_secs(3 * 86_400 + 60));
    assert_eq!(since.age(ms(0)), Duration::from_secs(3 * 86_400), "time that goes back makes nothing younger");
    assert_eq!(Since::new(Duration::MAX, ms(0)).age(Time::MAX), Duration::MAX);
}
