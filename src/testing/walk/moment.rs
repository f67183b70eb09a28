//! Times of the walk in vendors' formats. The walk starts at midnight UTC.

/// The start of the walk in seconds since 1970: 2026-01-15.
const BEGAN: u64 = 1_768_435_200;
const SECOND: u64 = 1_000_000_000;

/// The start of the walk.
pub(super) fn began() -> std::time::SystemTime {
    std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(BEGAN)
}

/// Seconds since 1970, rounded up.
pub(super) fn epoch(at_ns: u64) -> u64 {
    BEGAN + at_ns.div_ceil(SECOND)
}

/// Milliseconds since 1970, rounded up.
pub(super) fn epoch_ms(at_ns: u64) -> u64 {
    BEGAN * 1_000 + at_ns.div_ceil(1_000_000)
}

/// The time until the next multiple of `period`, in nanoseconds.
pub(super) fn until_next(at_ns: u64, period: u64) -> u64 {
    period - at_ns % period.max(1)
}

/// The form `2026-01-15T10:00:30Z`.
pub(super) fn iso(at_ns: u64) -> String {
    timestamp(epoch(at_ns)).to_string()
}

/// The form `Thu, 15 Jan 2026 10:00:30 GMT`.
pub(super) fn http(at_ns: u64) -> String {
    written(epoch(at_ns), "%a, %d %b %Y %H:%M:%S GMT")
}

/// As [`http`], but rounded down, as a clock shows the time.
pub(super) fn http_floor(at_ns: u64) -> String {
    written(BEGAN + at_ns / SECOND, "%a, %d %b %Y %H:%M:%S GMT")
}

/// The form `Thu Jan 15 2026 10:00:30 GMT+0000 (Coordinated Universal Time)`.
pub(super) fn js(at_ns: u64) -> String {
    written(epoch(at_ns), "%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)")
}

/// A duration in the form that Go writes: `1m30.500s`.
pub(super) fn go(ns: u64) -> String {
    let ms = ns.div_ceil(1_000_000);
    let (minutes, rest) = (ms / 60_000, ms % 60_000);
    let seconds = format!("{}.{:03}s", rest / 1_000, rest % 1_000);
    if minutes > 0 { format!("{minutes}m{seconds}") } else { seconds }
}

fn timestamp(epoch: u64) -> jiff::Timestamp {
    i64::try_from(epoch).ok().and_then(|s| jiff::Timestamp::from_second(s).ok()).unwrap_or_default()
}

fn written(epoch: u64, form: &str) -> String {
    timestamp(epoch).strftime(form).to_string()
}
