//! What the vendor says about its limits in headers.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::testing::Verdict;

/// Which headers tell about limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// None at all, not even `retry-after`.
    Silent,
    /// `retry-after` in whole seconds on refusals, and nothing else.
    RetryAfter,
    /// `x-ratelimit-limit`, `-remaining` and `-reset` (whole seconds from now, rounded up) on every answer, and
    /// `retry-after` on refusals.
    XRateLimit,
}

const RETRY_AFTER: HeaderName = http::header::RETRY_AFTER;
const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Adds what `style` says about `verdict`, given at `at_ns`.
pub(super) fn write(style: HeaderStyle, verdict: &Verdict, at_ns: u64, headers: &mut HeaderMap) {
    let seconds_until = |time: u64| time.saturating_sub(at_ns).div_ceil(1_000_000_000);
    if style == HeaderStyle::Silent {
        return;
    }
    if !verdict.admitted
        && let Some(retry_at) = verdict.retry_at_ns
    {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds_until(retry_at).max(1)));
    }
    if style == HeaderStyle::XRateLimit
        && let Some(reading) = verdict.reading
    {
        headers.insert(LIMIT, HeaderValue::from(reading.limit));
        headers.insert(REMAINING, HeaderValue::from(reading.remaining));
        headers.insert(RESET, HeaderValue::from(seconds_until(reading.reset_at_ns)));
    }
}
