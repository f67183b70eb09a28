//! What was found in a response.

use std::fmt;
use std::time::Duration;

use super::dialect::Scope;
use super::moment::MAX_WAIT;
use super::windows::{Window, Windows};

/// What a response says about limits. Made by [`read`](super::read).
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

impl Signals {
    /// How long to wait after a refusal: [`retry_after`](Signals::retry_after), or else
    /// [`default_wait`](Signals::default_wait).
    ///
    /// A wait in whole seconds and a wait until a date are at least one second, also where the vendor wrote 0 or the
    /// date has passed: it was rounded, perhaps down, and a wait of nothing is a hot loop. `None` where nothing states it.
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
