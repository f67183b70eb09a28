use super::*;

const NOON: i128 = 1_768_478_400;

fn seconds(text: &str) -> Option<i128> {
    read(text.as_bytes(), || 2026).map(|nanos| nanos / 1_000_000_000)
}

#[test]
fn date_forms_in_use_are_read() {
    for text in [
        "Thu, 15 Jan 2026 12:00:00 GMT",
        "Thursday, 15-Jan-26 12:00:00 GMT",
        "Thu Jan 15 12:00:00 2026",
        "thu, 15 jan 2026 12:00:00 gmt",
        "Mon, 15 Jan 2026 12:00:00 GMT", // it is a Thursday
        "15 Jan 2026 12:00:00",
        "Thu, 15 Jan 2026 13:00:00 +0100",
        "Thu Jan 15 2026 13:00:00 GMT+0100 (Central European Standard Time)",
        "Thu Jan 15 12:00:00 UTC 2026",
        "Thu, 15 Jan 2026 11:59:60 GMT",
        "2026-01-15T12:00:00Z",
        "2026-01-15T12:00Z",
        "2026-01-15T13:00:00+01:00",
        "2026-01-15T12:00:00",
        "2026-01-15 12:00:00",
        "2026-01-15T12:00:00.0000001Z",
    ] {
        assert_eq!(seconds(text), Some(NOON), "{text}");
    }
    assert_eq!(seconds("Sun Jan  4 12:00:00 2026"), Some(NOON - 11 * 86_400));
}

#[test]
fn invalid_dates_are_not_read() {
    for text in [
        "",
        "soon",
        "30 minutes",
        "Sat, 31 Feb 2026 10:00:00 GMT",
        "Thu, 15 Jan 2026 25:00:00 GMT",
        "Thu, 15 Jan 2026 12:00:00 EST",
        "Thu, 15 Jan 2026 12:00:00 GMT now",
        "Thu, 15 Jan 26 12:00:00 GMT",
        "Thu, 15 Foo 2026 12:00:00 GMT",
        "Xyz, 15 Jan 2026 12:00:00 GMT",
        "2026-02-31T12:00:00Z",
        "2026-01-15T12:00:00Zzz",
        "Thu, 15 Jan 2026 12:00:00 GMT, Thu, 15 Jan 2026 12:00:00 GMT",
    ] {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn two_digit_years_are_read() {
    for (digits, near, expected) in [
        ("26", 2026, 2026),
        ("75", 2026, 2075),
        ("76", 2026, 2076),
        ("77", 2026, 1977),
        ("94", 2026, 1994),
        ("10", 1990, 2010),
        ("00", 2099, 2100),
    ] {
        assert_eq!(nearest_year(digits, near), Some(expected), "{digits} near {near}");
    }
}
