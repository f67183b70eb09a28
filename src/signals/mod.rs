//! What a vendor's response says about its limits.
//!
//! [`read`] takes a response and says whether it was refused for a limit, how long the vendor asks to wait, and what it
//! states about each of its windows. It is pure and total: no clock, no runtime, no panic on any bytes, and time linear
//! in their length. A header that cannot be parsed is ignored and never guessed at: the client then uses the limits
//! that it was configured with.
//!
//! Most headers are recognised by shape alone, whatever the vendor's prefix and the order of the words:
//! - `Retry-After` in seconds or as a date, and vendors' own names for it, in seconds or milliseconds
//! - `RateLimit` and `RateLimit-Policy` of the IETF drafts
//! - limit, remaining, used, reset and length of a window, each in a header of its own
//! - in the body of a refusal: a member such as `retry_after`, a sentence such as "try again in 20s"
//!
//! The rest is described by the vendor's [`Dialect`]: data in its entry in `vendors.toml`.
//!
//! ```
//! use std::time::{Duration, SystemTime};
//!
//! use http::{HeaderMap, HeaderValue, StatusCode};
//! use integration_client::signals::{self, Dialect};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert("ratelimit", HeaderValue::from_static("\"minute\";r=40;t=5, \"daily\";r=0;t=7200"));
//! let status = StatusCode::TOO_MANY_REQUESTS;
//! let signals = signals::read(&Dialect::default(), status, &headers, b"", SystemTime::now());
//! assert!(signals.throttled);
//! assert_eq!(signals.retry_after, Some(Duration::from_secs(7200)));
//! assert_eq!(signals.windows.len(), 2);
//! ```

mod date;
pub(crate) mod dialect;
mod found;
pub(crate) mod json;
mod message;
pub(crate) mod meter;
mod moment;
mod number;
mod problem;
mod shape;
mod structured;
mod windows;
mod word;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use dialect::Context;
pub use dialect::{Dialect, ResetMeans, Scope};
pub(crate) use dialect::{POINTS, is_refusal};
pub use found::{Rule, Signals, Stated, WaitFrom};
pub(crate) use moment::MAX_WAIT;
use moment::Now;
pub use windows::{Name, Window, Windows};

/// The longest prefix of a body that is read, in bytes.
pub const MAX_BODY: usize = 64 * 1024;

/// Reads a response that arrived at `now`, by the client's wall clock.
///
/// `body_prefix` is the decoded beginning of the body, as far as it has arrived; [`Dialect::wants_body`] says for which
/// responses it matters. Bytes beyond [`MAX_BODY`] are ignored. Dates and moments since 1970 are measured from the
/// response's own `Date` and `Age`, or from `now` if the response has no valid `Date`. Never panics; a malformed value
/// counts as absent.
pub fn read(
    dialect: &Dialect,
    status: StatusCode,
    headers: &HeaderMap,
    body_prefix: &[u8],
    now: SystemTime,
) -> Signals {
    let by_status = is_refusal(status);
    let is_plain = dialect.is_plain();
    let now = &Now::new(headers, now);
    let mut signals = Signals::default();
    let stated = shape::read(headers, dialect, now, &mut signals);
    if stated.is_nothing && !by_status && is_plain && !problem::may_be_in(status, headers) {
        return signals;
    }
    let body = body_prefix.get(..MAX_BODY).unwrap_or(body_prefix);
    let response = &Context::new(dialect, status, headers, body, now);
    let mut asked = of_both(stated.wait_ms, stated.wait);
    if !is_plain {
        asked = asked.max(dialect::windows(response, &mut signals.windows));
        asked = asked.max(dialect::waits(response, false));
        signals.costs = dialect::costs(response);
        let points = signals.costs.iter().find(|stated| &*stated.kind == POINTS);
        signals.cost = points.map(|stated| stated.units).or(signals.cost);
        signals.interval = dialect::interval(response);
    }
    for window in signals.windows.iter_mut() {
        window.derive();
        window.is_parallel |= window.window.is_none() && window.name.as_deref().is_some_and(word::names_parallel);
    }
    let problem = problem::read(status, headers, body);
    if let Some(problem) = &problem {
        signals.windows.exhaust(&problem.violated);
    }
    let forbidden = status == StatusCode::FORBIDDEN;
    let judged = dialect::throttled(response, &signals.windows);
    signals.refused_in_part = judged.as_ref().is_some_and(|judged| judged.in_part);
    (signals.throttled, signals.rule) = match judged {
        Some(judged) => (judged.throttled, Rule::Dialect(judged.rule)),
        None if by_status => (true, Rule::Status),
        None if problem.is_some() => (true, Rule::Problem(problem.map_or("", |problem| problem.name))),
        None if forbidden && signals.windows.any_exhausted() => (true, Rule::Exhausted),
        None if forbidden && asked.is_some() => (true, Rule::Asked),
        None => (false, Rule::Nothing),
    };
    signals.windows.settle(signals.throttled);
    let is_refusal = signals.throttled || signals.refused_in_part;
    let in_body = || {
        let stated = is_refusal.then(|| dialect::waits(response, true)).flatten();
        stated.or_else(|| is_refusal.then(|| message::read(body, now)).flatten())
    };
    let reset = || {
        let lone = || signals.windows.lone_reset().filter(|_| by_status);
        is_refusal.then(|| signals.windows.latest_reset().or_else(lone)).flatten()
    };
    let found = asked.map(|wait| (wait, WaitFrom::Header));
    let found = found.or_else(|| in_body().map(|wait| (wait, WaitFrom::Body)));
    let found = found.or_else(|| reset().map(|wait| (wait, WaitFrom::Reset)));
    (signals.retry_after, signals.wait_from) = found.map_or((None, None), |(wait, from)| (Some(wait), Some(from)));
    if is_refusal && !is_plain {
        signals.default_wait = dialect::default_wait(response, &signals.windows);
        if found.is_none() && signals.default_wait.is_some() {
            signals.wait_from = Some(WaitFrom::Default);
        }
    }
    signals.scope = dialect::scope(response, &signals.windows);
    signals
}

/// Chooses between a wait in milliseconds and one in seconds or as a date. The coarser value is usually the finer one
/// rounded up; if it is longer than that, it is another instruction, and the longer one counts. Servers also fill an
/// unused milliseconds header with zero.
fn of_both(finer: Option<Duration>, coarser: Option<Duration>) -> Option<Duration> {
    let Some(fine) = finer.filter(|wait| !wait.is_zero()) else { return coarser.or(finer) };
    let rounded = Duration::from_secs(fine.as_secs() + u64::from(fine.subsec_nanos() > 0));
    coarser.filter(|wait| *wait > rounded).or(Some(fine))
}

/// Whether the body of this response decides what [`read`] returns, so that it has to be read first.
pub(crate) fn wants_body(dialect: &Dialect, status: StatusCode, headers: &HeaderMap) -> bool {
    dialect.wants_body(status) || problem::may_be_in(status, headers)
}

/// Whether any of these headers may state a limit, for a vendor without a dialect. A quick check: every response passes
/// here, and most state nothing.
#[inline]
pub(crate) fn may_be_in(headers: &HeaderMap) -> bool {
    shape::may_be_in(headers)
}

/// Whether a window's name is that of a period: `daily`.
pub(crate) fn is_period(name: &str) -> bool {
    word::period(&name.to_ascii_lowercase()).is_some()
}

#[cfg(test)]
mod tests;
