//! Tests of calendars of quotas.

use super::*;

/// The first `count` window ends from `from` on, in UTC.
fn ends(text: &str, from: &str, count: usize) -> Vec<String> {
    let from: Timestamp = from.parse().unwrap();
    let (ends, every) = Resets::parse(text).unwrap().ends(from.into());
    assert_eq!(every.is_zero(), !text.starts_with("hourly"), "{text}");
    ends.into_iter().take(count).map(|end| Timestamp::try_from(end).unwrap().to_string()).collect()
}

#[test]
fn days_have_the_length_of_their_zone() {
    assert_eq!(
        ends("daily America/Los_Angeles", "2026-03-07T20:00:00Z", 4),
        ["2026-03-07T08:00:00Z", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z", "2026-03-10T07:00:00Z"],
        "the 8th has 23 hours"
    );
    assert_eq!(
        ends("daily America/Los_Angeles", "2026-11-01T07:00:00Z", 3),
        ["2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z", "2026-11-03T08:00:00Z"],
        "the 1st has 25 hours; an end is the beginning of the next"
    );
    // On the 29th of March the clocks skip 02:30.
    assert_eq!(
        ends("daily 02:30 Europe/Berlin", "2026-03-28T12:00:00Z", 3),
        ["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]
    );
}

#[test]
fn windows_begin_where_the_calendar_says() {
    assert_eq!(
        ends("monthly UTC", "2028-02-15T00:00:00Z", 3),
        ["2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"]
    );
    assert_eq!(ends("monthly", "2026-01-31T23:59:59Z", 2), ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]);
    assert_eq!(
        ends("weekly Asia/Kolkata", "2026-11-25T12:00:00Z", 2),
        ["2026-11-22T18:30:00Z", "2026-11-29T18:30:00Z"],
        "Monday in India"
    );
    assert_eq!(
        ends("hourly 00:15", "2026-11-25T12:14:59Z", 2),
        ["2026-11-25T11:15:00Z", "2026-11-25T12:15:00Z"],
        "one each hour from there"
    );
    assert_eq!(
        ends("hourly Asia/Kolkata", "2026-11-25T12:14:59Z", 3),
        ["2026-11-25T11:30:00Z", "2026-11-25T12:30:00Z"]
    );
}

#[test]
fn ends_are_multiples_of_the_grid() {
    for (text, grid_s) in [
        ("daily UTC", 86_400),
        ("daily America/Los_Angeles", 3_600),
        ("monthly Asia/Kolkata", 1_800),
        ("daily 07:10 UTC", 600),
        ("hourly", 3_600),
    ] {
        let resets = Resets::parse(text).unwrap();
        assert_eq!(resets.grid(), Duration::from_secs(grid_s), "{text}");
        let from: Timestamp = "2026-02-01T00:00:00Z".parse().unwrap();
        let (ends, _) = resets.ends(from.into());
        for end in ends.iter().take(800) {
            let seconds = end.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
            assert!(seconds.is_multiple_of(grid_s), "{text}");
        }
    }
}

#[test]
fn invalid_resets_are_refused_with_advice() {
    for (text, says) in [
        ("dayly UTC", "did you mean `daily`?"),
        ("", "write how often"),
        ("daily America/LosAngeles", "did you mean `America/Los_Angeles`?"),
        ("daily los_angeles", "did you mean `America/Los_Angeles`?"),
        ("daily midnight", "unknown time zone; write its name"),
        ("daily 7:00 UTC", "a time is written as \"07:00\""),
        ("daily 24:00", "a time is written as"),
        ("hourly 01:00", "a minute of each hour"),
        ("daily UTC please", "too many words"),
    ] {
        let error = Resets::parse(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    let written = |text: &str| Resets::parse(text).unwrap().to_string();
    assert_eq!(written("daily utc"), "daily UTC");
    assert_eq!(written("monthly 06:05 America/New_York"), "monthly 06:05 America/New_York");
    assert_eq!(written("weekly"), "weekly UTC");
}
