//! The headers in which the vendor announces its limits.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::testing::{Notice, Stated};

/// The headers that announce limits.
///
/// Whole seconds are rounded up, so that a client that waits as announced never comes too early. Styles with three
/// figures on every answer announce the limit that refused, or else the rate limit with the smallest share left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// No headers at all, not even `retry-after` (but see [`Outage::RetryAfter`](crate::testing::Outage::RetryAfter)).
    Silent,
    /// `retry-after` in whole seconds on refusals, and nothing else.
    RetryAfter,
    /// `retry-after` as an HTTP date on refusals, with the `date` of the same clock, and nothing else.
    RetryAfterDate,
    /// `x-ratelimit-limit`, `-remaining` and `-reset` (seconds from now) on every answer, and `retry-after` on refusals.
    XRateLimit,
    /// As `XRateLimit`, with `x-ratelimit-reset` in seconds since 1970.
    XRateLimitEpoch,
    /// `ratelimit-limit`, `-remaining` and `-reset` (seconds from now) on every answer, and `retry-after` on refusals.
    RateLimit,
    /// `ratelimit` and `ratelimit-policy` as structured fields with every rate limit that applies to the request, on
    /// every answer, and `retry-after` on refusals. As in draft-ietf-httpapi-ratelimit-headers-10: `"name";r=9;t=60`
    /// and `"name";q=10;w=60`.
    Structured,
    /// `x-ratelimit-limit` and `-remaining` on every answer, and on refusals `x-ratelimit-retryafter`, which is not a
    /// duration but a time in seconds since 1970.
    XRateLimitRetryAfter,
}

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RETRY_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-retryafter");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
const STATE: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

const SECOND: u128 = 1_000_000_000;

impl HeaderStyle {
    /// The headers of an answer that leaves at the time of `notice`, which is `wall` on the vendor's wall clock.
    ///
    /// ```
    /// use integration_client::testing::{Call, HeaderStyle, ScriptedVendor, VendorLimit};
    /// use std::time::{Duration, UNIX_EPOCH};
    ///
    /// let mut vendor = ScriptedVendor::new([VendorLimit::fixed_window(10, Duration::from_secs(60)).named("burst")]);
    /// let call = Call { tenant: 1, account: 1, endpoint: 0, cost: 1 };
    /// let verdict = vendor.arrive(0, &call);
    /// let notice = vendor.notice(500_000_000, &call, &verdict);
    /// let headers = HeaderStyle::Structured.headers(&notice, UNIX_EPOCH);
    /// assert_eq!(headers["ratelimit"], r#""burst";r=9;t=60"#);
    /// assert_eq!(headers["ratelimit-policy"], r#""burst";q=10;w=60"#);
    /// ```
    pub fn headers(self, notice: &Notice, wall: SystemTime) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let times = Times { at_ns: notice.at_ns, wall_ns: wall.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos()) };
        if let Some(retry_at) = notice.retry_at_ns {
            self.write_retry(retry_at, notice.outage, &times, &mut headers);
        }
        let figures = match self {
            _ if notice.outage => None,
            HeaderStyle::Silent | HeaderStyle::RetryAfter | HeaderStyle::RetryAfterDate => None,
            HeaderStyle::XRateLimit | HeaderStyle::XRateLimitEpoch => Some((X_LIMIT, X_REMAINING, Some(X_RESET))),
            HeaderStyle::XRateLimitRetryAfter => Some((X_LIMIT, X_REMAINING, None)),
            HeaderStyle::RateLimit => Some((LIMIT, REMAINING, Some(RESET))),
            HeaderStyle::Structured => {
                write_structured(&notice.limits, &times, &mut headers);
                None
            }
        };
        if let (Some((limit, remaining, reset)), Some(reading)) = (figures, notice.foremost) {
            headers.insert(limit, reading.limit.into());
            headers.insert(remaining, reading.remaining.into());
            if let Some(reset) = reset {
                let epoch = self == HeaderStyle::XRateLimitEpoch;
                let at = reading.reset_at_ns;
                headers.insert(reset, if epoch { times.epoch(at) } else { times.delta(at) }.into());
            }
        }
        headers
    }

    /// Writes the time to retry. An outage is announced by the gateway in front of the vendor: in every style, and
    /// never in a header that belongs to the limits.
    fn write_retry(self, retry_at: u64, outage: bool, times: &Times, headers: &mut HeaderMap) {
        match self {
            HeaderStyle::Silent if !outage => {}
            HeaderStyle::XRateLimitRetryAfter if !outage => {
                headers.insert(X_RETRY_AFTER, times.epoch(retry_at).max(times.now() + 1).into());
            }
            HeaderStyle::RetryAfterDate => {
                if let (Some(now), Some(then)) = (date(times.now()), date(times.epoch(retry_at).max(times.now() + 1))) {
                    headers.insert(DATE, now);
                    headers.insert(RETRY_AFTER, then);
                }
            }
            _ => {
                headers.insert(RETRY_AFTER, times.delta(retry_at).max(1).into());
            }
        }
    }
}

/// The times of an answer, by the log's clock and by the wall clock.
struct Times {
    at_ns: u64,
    wall_ns: u128,
}

impl Times {
    fn delta(&self, time: u64) -> u64 {
        time.saturating_sub(self.at_ns).div_ceil(SECOND as u64)
    }

    fn epoch(&self, time: u64) -> u64 {
        let ahead = u128::from(time.saturating_sub(self.at_ns));
        u64::try_from(self.wall_ns.saturating_add(ahead).div_ceil(SECOND)).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.wall_ns / SECOND).unwrap_or(u64::MAX)
    }
}

/// An HTTP date; `None` after the year 9999.
fn date(epoch: u64) -> Option<HeaderValue> {
    let timestamp = jiff::Timestamp::from_second(i64::try_from(epoch).ok()?).ok()?;
    let text = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&timestamp).ok()?;
    HeaderValue::from_str(&text).ok()
}

fn write_structured(limits: &[Stated], times: &Times, headers: &mut HeaderMap) {
    let (mut state, mut policy) = (String::new(), String::new());
    for stated in limits {
        let between = if state.is_empty() { "" } else { ", " };
        let name = quoted(&stated.name);
        let reading = stated.reading;
        let _ = write!(state, "{between}{name};r={};t={}", reading.remaining, times.delta(reading.reset_at_ns));
        let window = stated.window_ns.div_ceil(SECOND as u64);
        let _ = write!(policy, "{between}{name};q={};w={window}", reading.limit);
    }
    for (header, text) in [(STATE, state), (POLICY, policy)] {
        if let (false, Ok(value)) = (text.is_empty(), HeaderValue::from_str(&text)) {
            headers.insert(header, value);
        }
    }
}

/// A string of a structured field, which may contain only ASCII.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            _ => out.push('?'),
        }
    }
    out.push('"');
    out
}
