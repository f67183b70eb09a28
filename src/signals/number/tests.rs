//! Tests of numbers in headers.

use super::*;

fn seconds(text: &str) -> Option<Duration> {
    Decimal::read(text.as_bytes()).map(|number| from_nanos(number.nanos(NANOS_PER_SECOND)))
}

#[test]
fn digits_and_fractions_alone_are_numbers() {
    for (text, expected) in [
        ("30", Some(Duration::from_secs(30))),
        ("0000030", Some(Duration::from_secs(30))),
        ("1.5", Some(Duration::from_millis(1500))),
        ("64.57", Some(Duration::from_millis(64_570))),
    ] {
        assert_eq!(seconds(text), expected, "{text}");
    }
    for text in ["", ".", "5.", ".5", "1.2.3", "-5", "+30", "1e9", "0x1E", "NaN", "inf", "٣٠", "３０", "1_000", "3 0"]
    {
        assert_eq!(Decimal::read(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn waits_are_rounded_up_and_counts_down() {
    assert_eq!(seconds("0.0000000001"), Some(Duration::from_nanos(1)));
    assert_eq!(seconds("1.9999999999"), Some(Duration::from_secs(2)));
    assert_eq!(Decimal::read(b"19.9999999999").and_then(Decimal::count), Some(19));
}

#[test]
fn large_numbers_saturate_and_are_no_count() {
    assert_eq!(seconds("99999999999999999999"), Some(Duration::from_secs(u64::MAX)));
    assert_eq!(Decimal::read(b"99999999999999999999").and_then(Decimal::count), None);
    assert_eq!(Decimal::read("1".repeat(10_000).as_bytes()), None);
}

#[test]
fn clock_durations_are_read() {
    for (text, expected) in [
        ("00:00:00.1234567", Some(123_456_700)),
        ("00:01:30", Some(90_000_000_000)),
        ("1.00:00:01", Some(86_401_000_000_000)),
        ("00:60:00", None),
        ("24:00:00", None),
        ("00:00:60", None),
        ("1:2", None),
        ("00:00:00:00", None),
        ("-00:00:05", None),
        ("", None),
    ] {
        assert_eq!(clock(text.as_bytes()), expected.map(Duration::from_nanos), "{text}");
    }
}

#[test]
fn go_durations_are_read() {
    for (text, expected) in [
        (&b"1m30s"[..], Some(90_000_000)),
        (b"2m59.56s", Some(179_560_000)),
        (b"1h2m3s", Some(3_723_000_000)),
        (b"9ms", Some(9_000)),
        (b"850\xc2\xb5s", Some(850)),
        (b"850\xb5s", Some(850)),
        (b"850us", Some(850)),
        (b"0s", Some(0)),
        (b"-5s", None),
        (b"5", None),
        (b"5s5", None),
        (b"s", None),
        (b"5x", None),
        (b"30 minutes", None),
        (b"1m 30s", None),
        (b"", None),
    ] {
        assert_eq!(duration(text), expected.map(Duration::from_micros), "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(duration(b"99999999999999999999h").map(|wait| wait.as_secs()), Some(u64::MAX));
}
