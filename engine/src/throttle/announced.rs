//! The pauses of a limit that events have announced. A pause is announced once when it begins and once when it ends.
//! Both follow from the throttle's state alone, whatever began the pause (a refusal, a report of no remaining units, a
//! wait that the vendor asked for, failures) and whatever ended it.

use crate::endpoint::EndpointHash;
use crate::time::Time;

/// A change of a limit or lane that events, logs and metrics report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Notice {
    /// Grants are spaced out.
    Slower { remaining_pct: u64, delay_ns: u64 },
    /// No request is granted before this moment.
    Exhausted { until: Time },
    /// An announced pause is extended to this moment.
    Longer { until: Time },
    /// An operator has paused the lane.
    Held,
    /// The pause is over: requests are granted again.
    Recovered,
    /// The vendor accepts less than the limit's figure: another client uses the key, or the real limit is lower.
    Yielded { per_window: u64 },
}

/// What events have announced of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Announcement {
    /// No pause.
    #[default]
    Nothing,
    /// An event announced that no request is granted before `until`. `named`: the event also named the limit.
    Pause { until: Time, named: bool },
    /// There is a pause, and an event of another limit or another lane announced it.
    Elsewhere,
}

/// The pauses of a limit that events have announced.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced {
    pub(super) whole: Announcement,
    /// Whether the refusal did not say which limit it is about, so that this one may not be the one that is meant.
    pub(super) unnamed: bool,
    /// By the last report, no units remain until this moment.
    pub(super) empty_until: Time,
    pub(super) endpoints: Vec<(EndpointHash, Announcement)>,
}

/// A change of a limit's pauses that is to be announced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Change {
    pub(crate) notice: Notice,
    /// Whether this limit is known to be the one that is meant.
    pub(crate) named: bool,
    /// Set if the change concerns requests to this endpoint only.
    pub(crate) endpoint: Option<EndpointHash>,
}
