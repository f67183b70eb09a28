//! One function for each parser of untrusted input: it takes any bytes, and panics if a property that must hold for all
//! bytes does not hold. Property tests and cargo-fuzz call the same functions.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use http::header::{DATE, HeaderName, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::config::{Config, Sources};
use crate::signals::{self, Dialect, Signals};

/// The upper bound of every wait and of every time until a reset.
const MONTH: Duration = Duration::from_secs(31 * 86_400);

/// A dialect that uses every feature of dialects.
const DIALECT: &str = r#"
[vendors.v.dialect]
costs = { points = "body#/cost" }
rate = "x-rate"
nothing = ["-1"]
ignore = ["x-ratelimit-ignored"]
reset_means = "full"
[[vendors.v.dialect.windows]]
name = "{1}/{type}"
each = "x-json#/*/*"
used = "/used"
limit = 100
regain = "/regain"
unit = "m"
[[vendors.v.dialect.windows]]
items = "x-items"
form = "{wait}:{name}:{name}"
remaining = 0
[[vendors.v.dialect.windows]]
items = "x-pairs"
form = "{limit}:{length}"
[[vendors.v.dialect.windows]]
name = "day"
limit = "x-limit"
used = "x-used"
item = 1
length_from = "x-length"
reset = "body#/reset"
[[vendors.v.dialect.windows]]
name = "w-{1}"
used = "x-mine-*"
[[vendors.v.dialect.answers]]
from = "body#/errors/*/code"
is = ["THROTTLED"]
throttled = true
wait_until_next = "15m"
[[vendors.v.dialect.answers]]
status = [200]
contains = ["slow down"]
throttled = true
scope = "account"
[[vendors.v.dialect.waits]]
from = "body#/message"
after = "again in "
[[vendors.v.dialect.waits]]
needed = "body#/needed"
available = "body#/available"
per_second = "body#/rate"
"#;

/// Header names that the dialect and the generic reader look for.
const NAMES: [&str; 24] = [
    "retry-after",
    "retry-after-ms",
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-used",
    "x-ratelimit-window",
    "x-ratelimit-name",
    "x-ratelimit-export",
    "x-acme-call-limit",
    "x-daily-requests-left",
    "x-request-cost",
    "date",
    "age",
    "x-json",
    "x-items",
    "x-pairs",
    "x-limit",
    "x-used",
    "x-length",
    "x-mine-1m",
    "x-rate",
];

fn dialect() -> Arc<Dialect> {
    static KNOWN: OnceLock<Arc<Dialect>> = OnceLock::new();
    let made = || {
        let known = super::dialects(DIALECT).map(|mut known| known.remove("v"));
        known.ok().flatten().expect("the dialect of this file is one")
    };
    KNOWN.get_or_init(made).clone()
}

/// Reads a response generically and by a dialect, at two times, and checks the properties of the result.
fn check(status: StatusCode, headers: &HeaderMap, body: &[u8]) {
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(1_768_471_200);
    for now in [SystemTime::UNIX_EPOCH, later] {
        for dialect in [&Dialect::default(), &*dialect()] {
            let said = signals::read(dialect, status, headers, body, now);
            holds(&said);
            assert_eq!(said, signals::read(dialect, status, headers, body, now), "it is a function");
        }
    }
}

fn holds(said: &Signals) {
    let within = |wait: Option<Duration>| wait.is_none_or(|wait| wait <= MONTH);
    assert!(within(said.retry_after) && within(said.wait()) && within(said.interval), "{said:?}");
    assert!(said.windows.len() <= 16, "{said:?}");
    assert!(said.cost.is_none_or(|cost| cost.is_finite() && cost >= 0.0), "{said:?}");
    assert!(said.retry_after.is_some() || said.wait_from.is_none() || said.default_wait.is_some(), "{said:?}");
    for window in &said.windows {
        assert!(within(window.reset_in), "{said:?}");
        assert!(window.window.is_none_or(|length| !length.is_zero()), "{said:?}");
        assert!(window.name.as_ref().is_none_or(|name| !name.is_empty() && name.len() <= 96), "{said:?}");
    }
}

/// Bytes as a header's value, if they are valid in one.
fn value(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes).ok()
}

/// Parses lines of `NAME: VALUE` as headers; a first byte below 24 stands for a name that the readers look for.
pub fn headers(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|b| *b == b'\n').take(64) {
        let known = line.first().and_then(|first| NAMES.get(usize::from(*first)));
        let (name, text) = match (known, line.iter().position(|b| *b == b':')) {
            (Some(name), _) => (HeaderName::from_static(name), line.get(1..).unwrap_or_default()),
            (None, Some(at)) => match HeaderName::from_bytes(line.get(..at).unwrap_or_default()) {
                Ok(name) => (name, line.get(at + 1..).unwrap_or_default()),
                Err(_) => continue,
            },
            (None, None) => continue,
        };
        if let Some(value) = value(text) {
            headers.append(name, value);
        }
    }
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        check(status, &headers, b"");
    }
}

/// Parses a date, a duration or a number: as a wait, as a reset, and as the server's clock.
pub fn dates(bytes: &[u8]) {
    let Some(value) = value(bytes) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(RETRY_AFTER, value.clone());
    headers.insert("x-ratelimit-reset", value.clone());
    headers.insert("x-ratelimit-window", value.clone());
    check(StatusCode::TOO_MANY_REQUESTS, &headers, b"");
    headers.insert(DATE, value);
    check(StatusCode::FORBIDDEN, &headers, b"");
}

/// Parses the structured fields of the IETF's drafts, and headers with a similar form.
pub fn structured(bytes: &[u8]) {
    let Some(value) = value(bytes) else { return };
    for name in ["ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-pairs", "x-items", "x-json"] {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), value.clone());
        headers.append(HeaderName::from_static(name), value.clone());
        check(StatusCode::OK, &headers, b"");
    }
}

/// Parses the first bytes of a body.
pub fn body(bytes: &[u8]) {
    let headers = HeaderMap::new();
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        check(status, &headers, bytes);
    }
}

/// Loads a configuration file: it is accepted, or refused with a message.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let sources = Sources::new().file("fuzz.toml", text);
    if let Err(error) = Config::load(&sources, 1) {
        assert!(!error.to_string().is_empty());
    }
    if let Err(error) = super::dialects(text) {
        assert!(!error.to_string().is_empty());
    }
}
