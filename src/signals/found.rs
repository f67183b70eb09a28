//! The types of the facts that a response states: limits, remaining units, waits, and the cost of the request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::dialect::Scope;
use super::moment::MAX_WAIT;
use super::windows::{Window, Windows};

/// What a response says about limits. Made by [`read`](super::read).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Signals {
    /// The request was refused because of a limit (rate, quota or concurrency), so the vendor did not act on it.
    pub throttled: bool,
    /// The vendor refused some parts of the request because of a limit, and may have acted on the others: a successful
    /// response to a batch says so for each part. The whole request must not be sent again.
    pub refused_in_part: bool,
    /// How long the vendor asks to wait, at most 31 days: as it states it, or else, for a refusal, the latest reset
    /// among exhausted windows. This is the vendor's figure; [`wait`](Signals::wait) is the wait to apply.
    pub retry_after: Option<Duration>,
    /// How long to wait after a refusal without a stated wait, by the vendor's documentation.
    pub default_wait: Option<Duration>,
    /// The windows that the response describes, at most sixteen.
    pub windows: Windows,
    /// The cost of this request in points; the vendor may count fractions.
    pub cost: Option<f64>,
    /// The cost of this request in each kind of points whose place the dialect names, `points` included.
    pub costs: Vec<Stated>,
    /// The time between two requests, if the vendor states a rate instead of a limit. No limit of a client follows it.
    pub interval: Option<Duration>,
    /// Whose limit refused, if the response says so.
    pub scope: Option<Scope>,
    /// Which rule decided whether the response is a refusal.
    pub rule: Rule,
    /// Where the wait was found.
    pub wait_from: Option<WaitFrom>,
}

/// The cost of a request in one kind of points.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stated {
    /// The kind, as the vendor's entry declares it.
    pub kind: Arc<str>,
    /// The number of points; the vendor may count fractions.
    pub units: f64,
}

/// The rule that decided whether a response is a refusal because of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// No rule applied: the response is no refusal.
    #[default]
    Nothing,
    /// The status alone: 429, 420 or 509.
    Status,
    /// The status is 403, and a window is exhausted.
    Exhausted,
    /// The status is 403, and the response states a wait.
    Asked,
    /// The body has the problem type of this name, which says that a limit refused the request.
    Problem(&'static str),
    /// The rule of the vendor's dialect with this number, from 0, says whether it is a refusal.
    Dialect(usize),
}

/// Where a wait was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitFrom {
    /// The wait is in `Retry-After`, or in a vendor's header of that meaning.
    Header,
    /// The wait is in the body.
    Body,
    /// The wait is the reset of an exhausted window.
    Reset,
    /// The response states no wait; this one is the default of the vendor's dialect.
    Default,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Nothing => f.write_str("no status, header or rule marks it as a refusal"),
            Rule::Status => f.write_str("the status alone marks a refusal"),
            Rule::Exhausted => f.write_str("the status is 403, and a window is exhausted"),
            Rule::Asked => f.write_str("the status is 403, and the response states a wait"),
            Rule::Problem(name) => write!(f, "body `type` is {name}"),
            Rule::Dialect(number) => write!(f, "rule {number} of the vendor's dialect"),
        }
    }
}

impl Signals {
    /// How long to wait after a refusal: [`retry_after`](Signals::retry_after), or else
    /// [`default_wait`](Signals::default_wait).
    ///
    /// A wait in whole seconds and a wait until a date are at least one second, even if the vendor wrote 0 or the date
    /// has passed: the value may have been rounded down, and a wait of zero is a hot loop. `None` if there is neither.
    pub fn wait(&self) -> Option<Duration> {
        let wait = self.retry_after.or(self.default_wait)?;
        let least = if wait.subsec_nanos() == 0 { Duration::from_secs(1) } else { Duration::ZERO };
        Some(wait.clamp(least, MAX_WAIT))
    }

    /// The window with the smallest share left, among those that state a limit and a remaining count. Between equal
    /// shares, the one that resets last.
    pub fn tightest(&self) -> Option<&Window> {
        self.windows.tightest()
    }

    /// Whether the response says nothing about limits.
    pub fn is_empty(&self) -> bool {
        *self == Signals::default()
    }
}
