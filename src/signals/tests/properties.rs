//! Properties that hold for every response, whatever its sender.

use http::header::{AGE, DATE, HeaderName, HeaderValue};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use proptest::prelude::*;

use super::super::*;
use crate::signals::moment::{MAX_LENGTH, MAX_WAIT};
use std::time::Duration;

const NAMES: [&str; 25] = [
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-ratelimit-retryafter",
    "x-ratelimit-retry-after",
    "x-rate-limit-retry-after",
    "ratelimit-retry-after",
    "retryafter",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-limit",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "rate-limit-limit",
    "rate-limit-remaining",
    "rate-limit-reset",
    "date",
    "age",
    "content-type",
];

/// Arbitrary bytes that are allowed in a header.
fn header_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_map(|b| if b < b' ' || b == 0x7f { b'\t' } else { b });
    prop::collection::vec(byte, 0..80)
}

/// Values that resemble numbers, dates and structured fields.
fn resembling_values() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![
        "[-+]?[0-9]{0,25}(\\.[0-9]{0,12})?(e[0-9]{1,3})?(ms|s|m|h|ns| minutes)?",
        "17684[0-9]{5,14}",
        "(Thu|Mon)?,? ?[0-9]{1,2}[- ](Jan|Feb|Foo)[- ][0-9]{2,4} [0-9]{2}:[0-9]{2}(:[0-9]{2})? ?(GMT|UTC|[+-][0-9]{4})?",
        "(Thu )?Jan {1,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} (UTC )?[0-9]{1,5}",
        "-?[0-9]{4,6}-[0-9]{2}-[0-9]{2}[T ]?[0-9]{0,2}(:[0-9]{2}){0,2}(\\.[0-9]{1,12})?(Z|[+-][0-9:]{2,9})?",
        "(\"?[a-c]\"?(;[rtqw](=-?[0-9]{1,17})?){0,4},? ?){0,12}",
        "(limit|remaining|reset|l)=[0-9]{1,16}(\\.[0-9])?(, (limit|remaining|reset)=-?[0-9]{1,16}){0,3}",
        "[0-9]{1,9}(;w=[0-9]{1,16})?(, [0-9]{1,9}(;(w|window)=[0-9]{1,5})?){0,4}",
    ];
    text.prop_map(String::into_bytes)
}

fn responses(value: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = HeaderMap> {
    let line = (prop::sample::select(&NAMES[..]), value);
    prop::collection::vec(line, 0..12).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(&value).unwrap());
        }
        headers
    })
}

/// Any moment that the system can represent.
fn clocks() -> impl Strategy<Value = SystemTime> {
    let near = (0..4_000_000_000_000_u64).prop_map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms));
    let any = any::<(i64, u32)>().prop_map(|(seconds, nanos)| {
        let distance = Duration::new(seconds.unsigned_abs(), nanos % 1_000_000_000);
        let moved = if seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(distance)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(distance)
        };
        moved.unwrap_or(SystemTime::UNIX_EPOCH)
    });
    prop_oneof![near, any]
}

fn read_429(headers: &HeaderMap, received: SystemTime) -> Signals {
    read(&Dialect::default(), StatusCode::TOO_MANY_REQUESTS, headers, b"", received)
}

fn check_signals(headers: &HeaderMap, received: SystemTime) -> Result<(), TestCaseError> {
    let signals = read_429(headers, received);
    prop_assert!(signals.wait().is_none_or(|wait| wait <= MAX_WAIT), "{signals:?}");
    prop_assert!(signals.retry_after.is_none_or(|wait| signals.wait() >= Some(wait)), "{signals:?}");
    prop_assert!(signals.windows.len() <= 16);
    for window in &signals.windows {
        prop_assert!(window.says_something(), "{signals:?}");
        prop_assert!(window.reset_in.is_none_or(|reset| reset <= MAX_WAIT), "{signals:?}");
        let lengths = Duration::from_nanos(1)..=MAX_LENGTH;
        prop_assert!(window.window.is_none_or(|length| lengths.contains(&length)), "{signals:?}");
    }
    let full = |window: &&Window| window.limit.is_some() && window.remaining.is_some();
    prop_assert_eq!(signals.tightest().is_some(), signals.windows.iter().any(|window| full(&window)));
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(headers in responses(header_bytes()), received in clocks()) {
        check_signals(&headers, received)?;
    }

    #[test]
    fn mutated_values_never_panic(headers in responses(resembling_values()), received in clocks()) {
        check_signals(&headers, received)?;
    }

    #[test]
    fn value_without_a_digit_is_no_information(
        headers in responses(header_bytes().prop_map(|text| text.into_iter().filter(|b| !b.is_ascii_digit()).collect())),
        received in clocks(),
    ) {
        let signals = read_429(&headers, received);
        prop_assert!(signals.windows.is_empty() && signals.retry_after.is_none(), "{signals:?}");
    }

    /// The wait is the same in whichever form the vendor states it, and whatever the client's clock shows.
    #[test]
    fn wait_forms_are_read_alike(
        wait in 1..=31 * 86_400_u64,
        now in 1_000_000_000..4_000_000_000_i64,
        received in clocks(),
    ) {
        let moment = now + i64::try_from(wait).unwrap();
        let date = |seconds| {
            DateTimePrinter::new().timestamp_to_rfc9110_string(&Timestamp::from_second(seconds).unwrap()).unwrap()
        };
        let iso = Timestamp::from_second(moment).unwrap();
        let forms = [
            format!("{wait}"),
            format!("{wait}s"),
            format!("{wait}.0"),
            format!("{}m{}s", wait / 60, wait % 60),
            format!("{moment}"),
            format!("{moment}.000"),
            format!("{moment}000"),
            format!("{moment}000000"),
            format!("{moment}000000000"),
            format!("{iso}"),
            date(moment),
            date(moment).to_lowercase(),
        ];
        for form in forms {
            for (name, reads) in [("retry-after", true), ("x-ratelimit-reset", false)] {
                let mut headers = HeaderMap::new();
                headers.insert(DATE, date(now - 60).parse().unwrap());
                headers.insert(AGE, HeaderValue::from_static("60"));
                headers.insert("x-ratelimit-remaining", HeaderValue::from_static("0"));
                headers.insert(name, form.parse().unwrap());
                let signals = read_429(&headers, received);
                prop_assert_eq!(signals.wait(), Some(Duration::from_secs(wait)), "{}: {}", name, form);
                prop_assert_eq!(signals.wait_from == Some(WaitFrom::Header), reads);
            }
        }
    }
}
