//! What a vendor's response says about its limits.
//!
//! [`read`] takes a response and says whether it was refused for a limit, how long the vendor asks to wait, and what it
//! has told about each of its windows. It is pure and total: no clock, no runtime, no panic on any bytes, and time linear
//! in their length. A header that cannot be understood is no information, never a guess: the client then goes by the
//! limits that it was configured with.
//!
//! Most is read by shape alone, whatever the vendor's prefix and the order of the words:
//! - `Retry-After` in seconds or as a date, and the names that vendors use in its place, in seconds or milliseconds
//! - `RateLimit` and `RateLimit-Policy` of the IETF drafts
//! - limit, remaining, used, reset and length of a window, in a header each
//! - of a refusal's body: a member such as `retry_after`, a sentence such as "try again in 20s"
//!
//! What shape cannot tell is the vendor's [`Dialect`]: data, in its entry in `vendors.toml`.
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
pub(crate) mod json;
mod message;
mod moment;
mod number;
mod shape;
mod structured;
mod windows;

use std::fmt;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use dialect::Context;
pub(crate) use dialect::is_refusal;
pub use dialect::{Dialect, ResetMeans, Scope};
use moment::{MAX_WAIT, Now};
pub use windows::{Name, Window, Windows};

/// Of a body, at most so many bytes are looked at.
pub const MAX_BODY: usize = 64 * 1024;

/// What a response says about limits. Made by [`read`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Signals {
    /// The request was refused for a limit: of rate, quota or concurrency. The vendor did not act on it.
    pub throttled: bool,
    /// How long the vendor asks to wait, at most 31 days: in so many words, or else, where it refused, the latest reset
    /// among the windows with nothing left. As it was said: [`wait`](Signals::wait) is what to do about it.
    pub retry_after: Option<Duration>,
    /// How long to wait after a refusal that does not say it, as the vendor's documentation does.
    pub default_wait: Option<Duration>,
    /// The windows that the response describes, at most sixteen.
    pub windows: Windows,
    /// What this request cost, in the vendor's unit. For reporting: the vendor may count fractions.
    pub cost: Option<f64>,
    /// The time between two requests, where the vendor states a rate instead of a limit.
    pub interval: Option<Duration>,
    /// Whose limit it is, where the vendor says so.
    pub scope: Option<Scope>,
    /// What decided whether it was a refusal.
    pub rule: Rule,
    /// Where the wait was found.
    pub wait_from: Option<WaitFrom>,
}

/// What decided whether an answer is a refusal for limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// Nothing spoke for it.
    #[default]
    Nothing,
    /// The status alone.
    Status,
    /// It is forbidden, and nothing is left of a window.
    Exhausted,
    /// It is forbidden, and the vendor asks to wait.
    Asked,
    /// The rule of the vendor's dialect with this number, from 0, says that it is or is not.
    Dialect(usize),
}

/// Where a wait was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitFrom {
    /// `Retry-After`, or a header that stands for it.
    Header,
    /// The body.
    Body,
    /// The reset of a window with nothing left.
    Reset,
    /// Nothing said it; the vendor's dialect has a default.
    Default,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Nothing => f.write_str("nothing says that it is a refusal"),
            Rule::Status => f.write_str("the status"),
            Rule::Exhausted => f.write_str("forbidden, and nothing is left of a window"),
            Rule::Asked => f.write_str("forbidden, with a wait"),
            Rule::Dialect(number) => write!(f, "rule {number} of the vendor's dialect"),
        }
    }
}

/// Reads a response that came in at `now`, by the client's wall clock.
///
/// `body_prefix` is as much of the body as there is at hand, decoded; [`Dialect::wants_body`] says where that makes a
/// difference, and of more than [`MAX_BODY`] bytes the rest is not looked at. Dates and moments since 1970 are measured
/// from the response's own `Date` and `Age`, and from `now` where it has no `Date` that can be read. Never panics; what
/// breaks the rules is as good as absent.
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
    let said = shape::read(headers, dialect, now, &mut signals);
    if said.is_nothing && !by_status && is_plain {
        return signals;
    }
    let body = body_prefix.get(..MAX_BODY).unwrap_or(body_prefix);
    let response = &Context::new(dialect, status, headers, body, now);
    // Zero milliseconds beside a wait in seconds is a place that was filled.
    let (finer, coarser) = (said.wait_ms, said.wait);
    let mut asked = finer.filter(|wait| !wait.is_zero()).or(coarser).or(finer);
    if !is_plain {
        asked = asked.max(dialect::windows(response, &mut signals.windows));
        asked = asked.max(dialect::waits(response, false));
        signals.cost = dialect::cost(response).or(signals.cost);
        signals.interval = dialect::interval(response);
    }
    for window in signals.windows.iter_mut() {
        window.derive();
    }
    let forbidden = status == StatusCode::FORBIDDEN;
    (signals.throttled, signals.rule) = match dialect::throttled(response, &signals.windows) {
        Some((throttled, rule)) => (throttled, Rule::Dialect(rule)),
        None if by_status => (true, Rule::Status),
        None if forbidden && signals.windows.any_exhausted() => (true, Rule::Exhausted),
        None if forbidden && asked.is_some() => (true, Rule::Asked),
        None => (false, Rule::Nothing),
    };
    signals.windows.settle(signals.throttled);
    let is_refusal = signals.throttled;
    let in_body = || {
        let stated = is_refusal.then(|| dialect::waits(response, true)).flatten();
        stated.or_else(|| is_refusal.then(|| message::read(body, now)).flatten())
    };
    let reset = || is_refusal.then(|| signals.windows.latest_reset()).flatten();
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

impl Signals {
    /// How long to wait after a refusal: [`retry_after`](Signals::retry_after), or else
    /// [`default_wait`](Signals::default_wait).
    ///
    /// A wait in whole seconds and a wait until a date are at least one second, also where the vendor wrote 0 or the
    /// date has passed: it was rounded, perhaps down, and a wait of nothing is a hot loop. `None` if nobody says it.
    pub fn wait(&self) -> Option<Duration> {
        let wait = self.retry_after.or(self.default_wait)?;
        let least = if wait.subsec_nanos() == 0 { Duration::from_secs(1) } else { Duration::ZERO };
        Some(wait.clamp(least, MAX_WAIT))
    }

    /// The window with the smallest share left, of those that state their limit and what remains. Of several with the
    /// same share, the one that resets last.
    pub fn tightest(&self) -> Option<&Window> {
        self.windows.tightest()
    }

    /// Whether the response says nothing about limits.
    pub fn is_empty(&self) -> bool {
        *self == Signals::default()
    }
}

/// Whether these headers are worth reading for a vendor without a dialect. Most responses say nothing, and all of them
/// pass here.
#[inline(always)]
pub(crate) fn may_be_in(headers: &HeaderMap) -> bool {
    shape::may_be_in(headers)
}

/// Whether a window's name is that of a period: `daily`.
pub(crate) fn is_period(name: &str) -> bool {
    shape::period(&name.to_ascii_lowercase()).is_some()
}

#[cfg(test)]
mod tests;
