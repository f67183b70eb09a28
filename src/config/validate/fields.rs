//! Validates single values: names, durations, shares, headers.

use std::time::Duration;

use crate::config::entry::LimitEntry;
use crate::config::report::{Path, Report, Step, at};
use crate::config::suggest;

/// The longest window and the longest timeout.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The most limits of one vendor or endpoint: a request takes from all its limits under one lock.
pub(in crate::config) const MAX_LIMITS: usize = 64;

/// The most methods of one endpoint or one rule.
pub(super) const MAX_METHODS: usize = 32;

/// Headers that only the connection may set. If an entry or a request set them, they would break framing, reach another
/// hop, or make a vendor and a proxy disagree on where a request ends. The same holds for `Proxy-*`.
pub(crate) const CONNECTION_HEADERS: [&str; 10] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "http2-settings",
];

/// Checks the name of a tenant, vendor, endpoint, limit or account; `what` says which, for the message.
pub(in crate::config) fn check_id(what: &str, id: &str) -> Result<(), String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if (1..=128).contains(&id.len()) && id.bytes().all(fine) {
        return Ok(());
    }
    Err(format!("{what} is 1 to 128 of A-Z a-z 0-9 `.` `_` `-`; this one has {} bytes or another character", id.len()))
}

/// Reports limits of one list that have no name or the same name, and a list that is too long. Returns `false` for a
/// list that is too long.
pub(in crate::config) fn duplicates(limits: &[LimitEntry], path: &[Step], report: &mut Report) -> bool {
    if limits.len() > MAX_LIMITS {
        report.problem(at(path, "limits"), format!("more than {MAX_LIMITS} limits; drop those that others imply"));
        return false;
    }
    let mut seen = std::collections::BTreeMap::new();
    for (index, limit) in limits.iter().enumerate() {
        let place = at(&at(path, "limits"), Step::Index(index));
        let Some(name) = &limit.name else {
            report.problem(place, "a limit needs a name: add `name = \"…\"`");
            continue;
        };
        if let Some(first) = seen.insert(name, index) {
            let message =
                format!("a limit of this name is stated already (number {}); rename or remove one", first + 1);
            report.problem(at(&place, "name"), message);
        }
    }
    true
}

/// Reads a duration such as "60s"; `None` if it is absent, or invalid, which is reported.
pub(super) fn duration(text: Option<&str>, path: Path, report: &mut Report) -> Option<Duration> {
    match parse_duration(text?) {
        Ok(duration) => Some(duration),
        Err(message) => {
            report.problem(path, message);
            None
        }
    }
}

/// Reads a duration such as "60s". The error says what to write.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const HELP: &str = "write for example \"500ms\", \"60s\", \"1h\", \"24h\" or \"30d\"";
    if text.len() > 64 {
        return Err(format!("this is not a duration; {HELP}"));
    }
    let span: jiff::Span = text.parse().map_err(|_| format!("this is not a duration; {HELP}"))?;
    let signed = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("this has no fixed length (months and years differ); {HELP}"))?;
    if signed.is_zero() {
        return Err(format!("the duration is zero; {HELP}"));
    }
    let duration = Duration::try_from(signed).map_err(|_| format!("the duration is negative; {HELP}"))?;
    if duration > LONGEST {
        return Err("the duration is longer than 366 days".to_owned());
    }
    Ok(duration)
}

/// Reads a share, which must be above 0 and at most 1; `default` if it is absent, or invalid, which is reported.
pub(in crate::config) fn fraction(value: Option<f64>, default: f64, path: Path, report: &mut Report) -> f64 {
    match value {
        None => default,
        // NaN compares as false, so it is refused below.
        Some(value) if value > 0.0 && value <= 1.0 => value,
        Some(_) => {
            report.problem(path, "this is not a share: it must be above 0 and at most 1, for example 0.8");
            default
        }
    }
}

/// Reads an integer in a range; `None` if it is absent, or out of range, which is reported.
pub(super) fn integer(
    value: Option<i64>,
    range: std::ops::RangeInclusive<i64>,
    what: &str,
    path: Path,
    report: &mut Report,
) -> Option<i64> {
    let value = value?;
    if range.contains(&value) {
        return Some(value);
    }
    report.problem(path, format!("this is out of range: {what} is {} to {}", range.start(), range.end()));
    None
}

/// Reads one of several names; `default` if it is absent, or unknown, which is reported.
pub(super) fn choice<T>(
    text: Option<&str>,
    field: &str,
    names: &[&str],
    parse: impl Fn(&str) -> Option<T>,
    default: T,
    path: &[Step],
    report: &mut Report,
) -> T {
    let Some(text) = text else { return default };
    parse(text).unwrap_or_else(|| {
        report.problem(at(path, field), suggest::unknown(field, text, "choices", names.iter().copied()));
        default
    })
}

/// Checks the name of a method.
pub(super) fn check_method(method: &str) -> Result<(), &'static str> {
    let valid = http::Method::from_bytes(method.as_bytes()).is_ok() && !method.bytes().any(|b| b.is_ascii_lowercase());
    if valid && method.len() <= 32 { Ok(()) } else { Err("a method is upper case, for example \"GET\"") }
}

/// Checks the name of a header that an entry sets.
pub(super) fn check_header(name: &str) -> Result<(), String> {
    if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err("this is not a header name; use letters, digits and `-`".into());
    }
    let lower = name.to_ascii_lowercase();
    if CONNECTION_HEADERS.contains(&lower.as_str()) || lower.starts_with("proxy-") {
        return Err(format!("`{lower}` belongs to the connection and cannot be set; remove it"));
    }
    Ok(())
}
