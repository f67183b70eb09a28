//! What the events have told of a limit's pauses: that one began, once, and that it is over, once. Whatever began it (a refusal,
//! nothing left, a wish to be left alone, failures) and whatever ended it, what is told follows from the state alone.

use crate::endpoint::EndpointHash;
use crate::time::Time;

/// What events, logs and metrics are to tell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Notice {
    /// Grants are spaced out.
    Slower { remaining_pct: u64, delay_ns: u64 },
    /// Nothing goes before this moment.
    Exhausted { until: Time },
    /// What was told to stand stands longer: until then.
    Longer { until: Time },
    /// An operator lets nothing go.
    Held,
    /// Requests go again.
    Recovered,
    /// The vendor takes fewer than its limit says: another client uses the key, or the limit is another.
    Yielded { per_window: u64 },
}

/// What the events have told of a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Announcement {
    /// No pause.
    #[default]
    Nothing,
    /// An event told that nothing goes before this moment. `named`: it also told of which limit.
    Pause { until: Time, named: bool },
    /// There is a pause, and the event of another limit, or of another lane, told of it.
    Elsewhere,
}

/// The pauses of a limit that the events have told of.
#[derive(Clone, Debug, Default)]
pub(super) struct Announced {
    pub(super) whole: Announcement,
    /// It is not known whether this limit was meant.
    pub(super) unnamed: bool,
    /// By its last report nothing is left until then.
    pub(super) empty_until: Time,
    pub(super) endpoints: Vec<(EndpointHash, Announcement)>,
}

/// Something to tell of a limit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Change {
    pub(crate) notice: Notice,
    /// It is known that this limit is meant.
    pub(crate) named: bool,
    /// It concerns requests to this endpoint alone.
    pub(crate) endpoint: Option<EndpointHash>,
}
