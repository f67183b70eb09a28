//! Each rule by shape, and malformed values.

use http::header::{HeaderName, HeaderValue};

use super::*;
use std::time::Duration;

mod corpus;
mod meter;
mod properties;

pub(super) fn at(text: &str) -> SystemTime {
    text.parse::<jiff::Timestamp>().unwrap().into()
}

fn noon() -> SystemTime {
    at("2026-01-15T12:00:00Z")
}

/// Makes a header map. Characters up to U+00FF stand for single bytes; others are encoded as UTF-8.
pub(super) fn headers<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let mut bytes = Vec::new();
        for c in value.chars() {
            match u8::try_from(c) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_bytes(&bytes).unwrap());
    }
    map
}

/// Reads the headers of a refusal, in which every stated wait counts.
fn read(lines: &[(&str, &str)]) -> Signals {
    read_as(429, lines)
}

fn read_as(status: u16, lines: &[(&str, &str)]) -> Signals {
    let status = StatusCode::from_u16(status).unwrap();
    super::read(&Dialect::default(), status, &headers(lines.iter().copied()), b"", noon())
}

fn secs(n: u64) -> Option<Duration> {
    Some(Duration::from_secs(n))
}

fn ms(n: u64) -> Option<Duration> {
    Some(Duration::from_millis(n))
}

/// Limit, remaining, reset and length of each window, in seconds.
type Row = (Option<u64>, Option<u64>, Option<Duration>, Option<Duration>);

fn rows(signals: &Signals) -> Vec<Row> {
    signals.windows.iter().map(|w| (w.limit, w.remaining, w.reset_in, w.window)).collect()
}

#[test]
fn headers_without_limits_say_nothing() {
    let silent = read(&[("content-type", "application/json"), ("date", "Thu, 15 Jan 2026 12:00:00 GMT"), ("age", "5")]);
    assert_eq!((silent.retry_after, silent.wait(), silent.tightest()), (None, None, None));
    assert!(silent.throttled && silent.windows.is_empty());
    // Names that only look like limits, and limits of something else.
    for line in [("retry-policy", "30"), ("x-ratelimited", "30"), ("rate", "30"), ("x-storage-limit", "0")] {
        assert!(read_as(200, &[line]).is_empty(), "{line:?}");
    }
}

#[test]
fn whole_second_waits_have_a_minimum() {
    for (name, value, said, wait) in [
        ("retry-after", "120", secs(120), secs(120)),
        ("retry-after", "0", secs(0), secs(1)),
        ("retry-after", "0.0", secs(0), secs(1)),
        ("retry-after", "0s", secs(0), secs(1)),
        ("retry-after", "0.2", ms(200), ms(200)),
        ("retry-after", "1m30s", secs(90), secs(90)),
        ("retry-after", "Thu, 15 Jan 2026 12:02:00 GMT", secs(120), secs(120)),
        ("retry-after", "Thu, 15 Jan 2026 11:00:00 GMT", secs(0), secs(1)),
        ("retry-after-ms", "350", ms(350), ms(350)),
        ("retry-after-ms", "0", ms(0), secs(1)),
        ("retry-after-ms", "Thu, 15 Jan 2026 12:02:00 GMT", None, None),
        ("x-ratelimit-retryafter", "7", secs(7), secs(7)),
        ("x-ratelimit-retry-after", "7", secs(7), secs(7)),
        ("acme-retry-after-seconds", "7", secs(7), secs(7)),
        ("x-retry-in-ms", "7", ms(7), ms(7)),
    ] {
        assert_eq!(read(&[(name, value)]).retry_after, said, "{name}: {value}");
        assert_eq!(read(&[(name, value)]).wait(), wait, "{name}: {value}");
    }
}

#[test]
fn retry_after_is_capped() {
    let month = 31 * 86_400;
    for text in ["2678400", "2678401", "18446744073709551615", "99999999999999999999", "Thu, 15 Jan 9999 12:00:00 GMT"]
    {
        assert_eq!(read(&[("retry-after", text)]).retry_after, secs(month), "{text}");
    }
    assert_eq!(read(&[("retry-after-ms", "99999999999999999999")]).retry_after, secs(month));
    let exhausted = |reset| read(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)]).wait();
    assert_eq!(exhausted("2678400"), secs(month));
    for text in ["2678401", "99999999999999999999", "Thu, 15 Jan 9999 12:00:00 GMT", "1", "0", "0s", "999h"] {
        assert_eq!(exhausted(text), if text == "1" { secs(1) } else { None }, "{text}");
    }
}

#[test]
fn numeric_reset_near_now_is_a_moment() {
    let crowd = read(&[("x-ratelimit-retryafter", "1768478405")]);
    assert_eq!(crowd.retry_after, secs(5));
    // A moment in the past is still a moment, and not a wait of 56 years.
    assert_eq!(read(&[("x-ratelimit-retryafter", "1768478395")]).wait(), secs(1));
    assert_eq!(read(&[("retry-after-ms", "1768478405250")]).retry_after, ms(5250));
}

#[test]
fn moment_of_the_past_is_no_long_wait() {
    // The first is 28 days before `noon`, the second 40 days, and the others are years.
    for text in ["1766000000", "1765000000", "1700000000", "1700000000.5", "900000000", "1700000000000"] {
        for name in ["retry-after", "x-ratelimit-retryafter"] {
            let signals = read(&[(name, text)]);
            assert_eq!((signals.retry_after, signals.wait()), (secs(0), secs(1)), "{name}: {text}");
        }
    }
    for text in ["1700000000000", "1700000000000000", "1700000000000000000"] {
        assert_eq!(read(&[("retry-after-ms", text)]).retry_after, secs(0), "{text}");
    }
    // Whatever is no moment of the past is cut to 31 days: the far future, and numbers that are no moment in any unit.
    for text in ["4000000000", "4000000000000", "20260115120000", "899999999"] {
        assert_eq!(read(&[("retry-after", text)]).retry_after, secs(31 * 86_400), "{text}");
    }
}

#[test]
fn reset_that_has_passed_is_left_out() {
    for (text, expected) in [
        ("1768478399", secs(0)),
        ("1768478398", secs(0)),
        ("1768478397", None),
        ("1768478397000", None),
        ("1766000000", None),
        ("Thu, 15 Jan 2026 11:59:59 GMT", secs(0)),
        ("Thu, 15 Jan 2026 11:30:00 GMT", None),
    ] {
        for name in ["x-ratelimit-reset", "x-ratelimit-reset-ms"] {
            let found = read_as(200, &[("x-ratelimit-remaining", "5"), (name, text)]);
            assert_eq!(found.windows.first().unwrap().reset_in, expected, "{name}: {text}");
        }
        // The wait after a refusal is then a guess that grows.
        let wait = read(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", text)]).wait();
        assert_eq!(wait, expected.and(secs(1)), "{text}");
    }
}

#[test]
fn largest_of_a_kind_and_milliseconds_first() {
    assert_eq!(read(&[("retry-after", "5"), ("retry-after", "60"), ("retry-after", "soon")]).retry_after, secs(60));
    assert_eq!(read(&[("retry-after", "5"), ("x-ratelimit-retry-after", "60")]).retry_after, secs(60));
    assert_eq!(read(&[("retry-after", "60"), ("retry-after-ms", "59100")]).retry_after, ms(59_100));
    assert_eq!(read(&[("retry-after", "60"), ("retry-after-ms", "0")]).retry_after, secs(60));
    assert_eq!(read(&[("retry-after", "60"), ("retry-after-ms", "NaN")]).retry_after, secs(60));
}

#[test]
fn moments_are_measured_by_the_servers_clock() {
    let retry = ("retry-after", "Thu, 15 Jan 2026 12:02:00 GMT");
    let date = |text| read(&[("date", text), retry]).retry_after;
    // The moment has passed by the client's clock; by the server's clock it is a minute ahead.
    let lines = headers([("date", "Thu, 15 Jan 2026 12:01:00 GMT"), retry]);
    let now = at("2030-01-01T00:00:00Z");
    let late = super::read(&Dialect::default(), StatusCode::TOO_MANY_REQUESTS, &lines, b"", now);
    assert_eq!(late.retry_after, secs(60));
    assert_eq!(date("Thu, 15 Jan 2026 11:00:00 GMT"), secs(3720));
    // Without a valid `Date`, the client's clock is used.
    assert_eq!(date("yesterday"), secs(120));
    assert_eq!(date("1768478400"), secs(120));
    let aged = |age| read(&[("date", "Thu, 15 Jan 2026 11:00:00 GMT"), ("age", age), retry]).retry_after;
    assert_eq!(aged("3600"), secs(120));
    assert_eq!(aged("-3600"), secs(3720));
    assert_eq!(aged("99999999999999999999"), secs(3720));
    // A wait in seconds does not depend on any clock.
    assert_eq!(read(&[("date", "Thu, 01 Jan 1970 00:00:10 GMT"), ("retry-after", "120")]).retry_after, secs(120));
}

#[test]
fn explicit_wait_goes_before_a_reset() {
    let exhausted = [("ratelimit-limit", "10"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "60")];
    assert_eq!(read(&exhausted).wait(), secs(60));
    assert_eq!(read(&exhausted).wait_from, Some(WaitFrom::Reset));
    // A successful response asks for no wait.
    assert_eq!(read_as(200, &exhausted).retry_after, None);
    let [limit, remaining, reset] = exhausted;
    assert_eq!(read(&[limit, remaining, reset, ("retry-after", "5")]).wait(), secs(5));
    // Units remain in this window, so another limit has refused.
    assert_eq!(read(&[limit, ("ratelimit-remaining", "1"), reset]).wait(), None);
    // An exhausted window without a reset says nothing about the wait.
    assert_eq!(read(&[limit, remaining]).wait(), None);
}

#[test]
fn latest_of_several_exhausted_windows() {
    let signals = read(&[("ratelimit", "\"a\";r=0;t=5, \"b\";r=0;t=7200, \"c\";r=1;t=9000")]);
    assert_eq!(signals.wait(), secs(7200));
}

#[test]
fn repeated_lines_are_paired_by_position() {
    let gateway = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-remaining", "50"),
        ("x-ratelimit-reset", "30"),
        ("x-ratelimit-reset", "300"),
    ];
    let both = [(Some(60), Some(0), secs(30), None), (Some(100), Some(50), secs(300), None)];
    assert_eq!(rows(&read(&gateway)), both);
    assert_eq!(rows(&read(&gateway[..5])), [(None, None, secs(30), None)]);
    // Headers with different prefixes describe different windows.
    let mixed = read(&[("x-ratelimit-limit", "60"), ("x-rate-limit-remaining", "5")]);
    assert_eq!(rows(&mixed), [(Some(60), None, None, None), (None, Some(5), None, None)]);
}

#[test]
fn window_under_two_names_is_one() {
    let first = [("ratelimit-limit", "60"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "59")];
    let [a, b, c] = first;
    let agree = [a, b, c, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1768478460")];
    assert_eq!(rows(&read(&agree)), [(Some(60), Some(0), secs(60), None)]);
    let differ = [a, b, c, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1768479460")];
    assert_eq!(read(&differ).windows.len(), 2);
    assert_eq!(read(&differ).wait(), secs(1060));
}

#[test]
fn limit_of_requests_at_once_is_marked() {
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [bool]);
    let slots = [("x-concurrency-limit-limit", "10"), ("x-concurrency-limit-used", "3")];
    let rate = [("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "7")];
    let cases: [Case; 7] = [
        (&slots, &[true]),
        (&[("x-concurrency-limit", "3/10")], &[true]),
        (&[("x-ratelimit-concurrent-limit", "10"), ("x-ratelimit-concurrent-remaining", "7")], &[true]),
        (&[("ratelimit", "\"concurrent-requests\";r=7")], &[true]),
        (&[("ratelimit-policy", "\"concurrent\";q=10;w=60")], &[false]),
        (&rate, &[false]),
        // Although they agree, they are two limits.
        (&[rate[0], rate[1], slots[0], slots[1]], &[false, true]),
    ];
    for (lines, expected) in cases {
        let mut found: Vec<bool> = read_as(200, lines).windows.iter().map(|window| window.is_parallel).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{lines:?}");
    }
}

#[test]
fn counts_are_plain_or_absent() {
    for (text, expected) in [
        ("42", Some(42)),
        ("19.99", Some(19)),
        ("\"42\"", Some(42)),
        ("76;w=21600", Some(76)),
        ("-1", None),
        ("1e3", None),
        ("unlimited", None),
        ("18446744073709551615", None),
        ("5,000", None),
        ("1,199.46", None),
        ("1 200, 5", None),
        ("-1;w=60", None),
    ] {
        let found = read_as(200, &[("x-ratelimit-remaining", text), ("x-ratelimit-reset", "9")]);
        assert_eq!(found.windows.first().and_then(|window| window.remaining), expected, "{text}");
    }
    // The value may be 5000, or a list of 5 and 0, so it is unknown to which window the reset belongs.
    assert!(read_as(200, &[("x-ratelimit-limit", "5,000"), ("x-ratelimit-reset", "9")]).is_empty());
    // A negative remaining count is zero in a refusal, and a placeholder in a success.
    assert_eq!(read(&[("x-ratelimit-remaining", "-1")]).windows.first().and_then(|w| w.remaining), Some(0));
    assert!(read_as(200, &[("x-ratelimit-remaining", "-1")]).is_empty());
}

#[test]
fn unnamed_quota_joins_its_limits_window() {
    let triple = [("ratelimit-limit", "100"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "5")];
    let expected = [(Some(100), Some(50), secs(5), secs(10)), (Some(1000), None, None, secs(3600))];
    let [a, b, c] = triple;
    assert_eq!(rows(&read(&[a, b, c, ("ratelimit-policy", "100;w=10, 1000;w=3600")])), expected);
    assert_eq!(rows(&read(&[("ratelimit-limit", "100, 100;w=10, 1000;window=3600"), b, c])), expected);
    let dictionary = ("ratelimit", "limit=100, remaining=50, reset=5");
    assert_eq!(rows(&read(&[dictionary, ("ratelimit-policy", "100;w=10, 1000;w=3600")])), expected);
}

#[test]
fn structured_fields_are_understood_or_ignored() {
    let one = [(None, Some(5), secs(30), None)];
    for text in ["\"a\";r=5;t=30", "a;r=5;t=30", "\"a\\\"b, c\";r=5;t=30;x=\"y, z;\"", "(1 2), 7;r=9, \"a\";r=5;t=30"] {
        assert_eq!(rows(&read(&[("ratelimit", text)])), one, "{text}");
    }
    for text in [
        "",
        "\"a\";t=30",
        "\"a\";r;t=30",
        "\"a\";r=-1;t=30",
        "\"a\";r=\"5\";t=30",
        "\"a\";r=5;t=@1768478460",
        "\"a\";r = 5;t=30",
        "\"a;r=5;t=30",
        "\"a\";r=5;t=30,",
        "\"a\";r=5;t=30, \u{e9}",
        "limit=100, remaining=50.5, reset=5",
        "limit=100, reset=5",
    ] {
        assert!(read_as(200, &[("ratelimit", text)]).is_empty(), "{text}");
    }
    let lines = [("ratelimit", "\"a\";r=5;t=30"), ("ratelimit", "\"b\";r=0"), ("ratelimit-policy", "\"b\";q=9;w=60")];
    assert_eq!(rows(&read(&lines)), [one[0], (Some(9), Some(0), None, secs(60))]);
    assert_eq!(rows(&read(&[("ratelimit", "\"a\";r=5;t=0")])), [(None, Some(5), None, None)]);
    // A malformed field does not invalidate the other field.
    assert_eq!(rows(&read(&[("ratelimit", "\"a\";r=5;t=30"), ("ratelimit-policy", "\"a")])), one);
    let long: Vec<String> = (0..33).map(|n| format!("\"{n}\";r=1")).collect();
    assert!(read_as(200, &[("ratelimit", &long.join(","))]).is_empty());
    assert_eq!(read(&[("ratelimit", &long[..32].join(","))]).windows.len(), 16);
}

#[test]
fn window_longer_than_a_year_is_ignored() {
    let year = 366 * 86_400;
    for (length, expected) in [(year, secs(year)), (year + 1, None), (999_999_999_999_999, None)] {
        let policy = format!("\"a\";q=9;w={length}");
        let signals = read(&[("ratelimit", "\"a\";r=5"), ("ratelimit-policy", &policy)]);
        assert_eq!(rows(&signals), [(Some(9), Some(5), None, expected)]);
        let amount = format!("9;w={length}");
        let triple = [("ratelimit-limit", amount.as_str()), ("ratelimit-remaining", "5"), ("ratelimit-reset", "3")];
        assert_eq!(rows(&read(&triple)), [(Some(9), Some(5), secs(3), expected)]);
    }
}

#[test]
fn windows_beyond_the_bound_keep_exhausted_ones() {
    let mut items: Vec<String> = (1..=17).map(|n| format!("\"{n}\";r=0;t={n}")).collect();
    items.extend((1..=15).map(|n| format!("\"full{n}\";r=9;t=99")));
    items.rotate_left(17);
    let signals = read(&[("ratelimit", &items.join(","))]);
    assert_eq!(signals.windows.len(), 16);
    assert_eq!(signals.wait(), secs(17));
    assert!(signals.windows.iter().all(|window| window.remaining == Some(0)));
}

#[test]
fn tightest_window_by_share() {
    let tightest = |text: &str, policy: &str| {
        let signals = read(&[("ratelimit", text), ("ratelimit-policy", policy)]);
        signals.tightest().map(|window| (window.remaining, window.limit, window.reset_in))
    };
    let policy = "\"a\";q=10, \"b\";q=1000, \"none\";q=0";
    assert_eq!(tightest("\"a\";r=2;t=1, \"b\";r=150;t=9", policy), Some((Some(150), Some(1000), secs(9))));
    // A remaining count above the limit counts as the limit. A limit of 0 counts as exhausted. Without a limit there is
    // no share.
    assert_eq!(tightest("\"a\";r=99;t=1, \"b\";r=999;t=9", policy), Some((Some(999), Some(1000), secs(9))));
    assert_eq!(tightest("\"none\";r=5;t=3, \"b\";r=1;t=9", policy), Some((Some(5), Some(0), secs(3))));
    assert_eq!(tightest("\"c\";r=0;t=3", policy), None);
    assert_eq!(tightest("\"a\";r=0, \"b\";r=0;t=9", policy), Some((Some(0), Some(1000), secs(9))));
    assert_eq!(tightest("\"b\";r=0;t=9, \"a\";r=0;t=3", policy), Some((Some(0), Some(1000), secs(9))));
}

/// Whether a successful response with this body is a refusal of the whole request, and of a part of it, by a rule that
/// reads the values at `place`.
fn refused(place: &str, body: &str) -> (bool, bool) {
    let rule = format!("{{ from = \"body#{place}\", is = [429, \"THROTTLED\"], throttled = true }}");
    let toml = format!("[vendors.v.dialect]\nanswers = [{rule}]\n");
    let dialect = crate::config::dialects("d.toml", &toml).unwrap().remove("v").unwrap();
    let signals = super::read(&dialect, StatusCode::OK, &HeaderMap::new(), body.as_bytes(), noon());
    (signals.throttled, signals.refused_in_part)
}

#[test]
fn batch_is_refused_in_part_where_a_part_may_be_done() {
    let (whole, part, none) = ((true, false), (false, true), (false, false));
    for (statuses, expected) in [
        ("429", whole),
        ("429,424,424", whole),
        ("404,429,403", whole),
        ("\"429\",\"412\"", whole),
        ("429,200", part),
        ("302,429", part),
        ("429,424,500", part),
        ("429,408", part),
        ("429,425", part),
        ("429,0", part),
        ("429,4", part),
        ("429,\"done\"", part),
        ("429,true", part),
        ("200,404", none),
        ("424", none),
    ] {
        let parts: Vec<String> = statuses.split(',').map(|status| format!("{{\"status\":{status}}}")).collect();
        let body = format!("{{\"responses\":[{}]}}", parts.join(","));
        assert_eq!(refused("/responses/*/status", &body), expected, "{statuses}");
        if expected == whole {
            assert_eq!(refused("/responses/*/status", &body[..body.len() - 1]), part, "{statuses}, cut");
        }
    }
}

#[test]
fn list_of_errors_is_no_batch() {
    let list = r#"[{"code":"THROTTLED"},{"code":"INVALID"},"#;
    for (place, key, expected) in [
        ("/errors/*/code", "errors", (true, false)),
        ("/error/*/code", "error", (true, false)),
        ("/Errors/*/code", "Errors", (true, false)),
        ("/*/code", "", (false, true)),
        ("/messages/*/code", "messages", (false, true)),
        ("/terrors/*/code", "terrors", (false, true)),
    ] {
        // Whether the text goes on or not.
        for end in [r#"{}]"#, ""] {
            let body = if key.is_empty() { format!("{list}{end}") } else { format!("{{\"{key}\":{list}{end}}}") };
            assert_eq!(refused(place, &body), expected, "{place} in {body}");
        }
    }
}
