//! What the events have told of a limit's pauses: that one began, once, and that it is over, once. Whatever began it (a refusal,
//! nothing left, a wish to be left alone, failures) and whatever ended it, what is told follows from the state alone.

use super::pause::Pause;
use super::{Report, Throttle};
use crate::endpoint::EndpointHash;
use crate::pace::Pace;
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

impl Throttle {
    /// Notes until when nothing is left, by a report that was not overtaken.
    pub(super) fn note_emptiness(&mut self, now: Time, report: &Report, pace: &Pace) {
        let stops = self.quota.told.filter(|told| report.remaining == 0 && told.free(now, 1, pace) > now);
        self.announced.empty_until = stops.map_or(Time::ZERO, |told| told.until);
    }

    /// The pause that begins now is told of elsewhere.
    pub(crate) fn is_told_elsewhere(&mut self, now: Time) {
        if self.announced.whole == Announcement::Nothing {
            self.announced.whole = Announcement::Elsewhere;
        }
        for (endpoint, _) in self.new_endpoints(now) {
            self.announced.endpoints.push((endpoint, Announcement::Elsewhere));
        }
    }

    /// Which limit was refused for is not known, and this one stands for all that may be meant.
    pub(crate) fn is_unnamed(&mut self, unnamed: bool) {
        self.announced.unnamed = unnamed;
    }

    fn new_endpoints(&self, now: Time) -> Vec<(EndpointHash, Time)> {
        let is_known = |endpoint: EndpointHash| self.announced.endpoints.iter().any(|(known, _)| *known == endpoint);
        let pauses = self.endpoints.iter().filter_map(|(endpoint, pause, _)| match pause {
            Pause::Until(until) if *until > now && !is_known(*endpoint) => Some((*endpoint, *until)),
            _ => None,
        });
        pauses.collect()
    }

    /// What is new since the last call.
    pub(crate) fn changes(&mut self, now: Time, pace: &Pace) -> Vec<Change> {
        let mut changes = Vec::new();
        self.endpoint_changes(now, &mut changes);
        let is_empty = self.announced.empty_until > now;
        let free = self.quota.told.filter(|_| is_empty).map_or(Time::ZERO, |told| told.free(now, 1, pace));
        let until = self.pause.until().max(free);
        let stands = self.pause != Pause::Over || is_empty;
        let unnamed = std::mem::take(&mut self.announced.unnamed);
        let mut say = |notice, named| changes.push(Change { notice, named, endpoint: None });
        match self.announced.whole {
            Announcement::Nothing if until > now => {
                self.announced.whole = Announcement::Pause { until, named: !unnamed };
                say(Notice::Exhausted { until }, !unnamed);
            }
            Announcement::Pause { until: before, named } if stands => {
                if until > before {
                    self.announced.whole = Announcement::Pause { until, named };
                    say(Notice::Longer { until }, named);
                }
            }
            Announcement::Pause { named, .. } => {
                self.announced.whole = Announcement::Nothing;
                say(Notice::Recovered, named);
            }
            Announcement::Elsewhere if !stands => self.announced.whole = Announcement::Nothing,
            Announcement::Nothing | Announcement::Elsewhere => {}
        }
        changes
    }

    fn endpoint_changes(&mut self, now: Time, changes: &mut Vec<Change>) {
        let mut say = |notice, endpoint| changes.push(Change { notice, named: false, endpoint: Some(endpoint) });
        for (endpoint, until) in self.new_endpoints(now) {
            self.announced.endpoints.push((endpoint, Announcement::Pause { until, named: false }));
            say(Notice::Exhausted { until }, endpoint);
        }
        let standing = &self.endpoints;
        self.announced.endpoints.retain(|(endpoint, announced)| {
            let stands = standing.iter().any(|(id, ..)| id == endpoint);
            if !stands && *announced != Announcement::Elsewhere {
                say(Notice::Recovered, *endpoint);
            }
            stands
        });
    }

    /// It is forgotten: what was told to stand does not any more.
    pub(crate) fn forgotten(&self) -> Vec<Change> {
        let over = |(endpoint, announced): (Option<EndpointHash>, Announcement)| match announced {
            Announcement::Pause { named, .. } => Some(Change { notice: Notice::Recovered, named, endpoint }),
            Announcement::Nothing | Announcement::Elsewhere => None,
        };
        let endpoints = self.announced.endpoints.iter().map(|(endpoint, announced)| (Some(*endpoint), *announced));
        endpoints.chain([(None, self.announced.whole)]).filter_map(over).collect()
    }
}
