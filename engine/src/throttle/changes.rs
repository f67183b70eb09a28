//! Finds what is to be announced of a limit's pauses: the difference between the present pauses and the announced ones.

use super::announced::{Announcement, Change, Notice};
use super::pause::Pause;
use super::{Report, Throttle};
use crate::endpoint::EndpointHash;
use crate::pace::Pace;
use crate::time::Time;

impl Throttle {
    /// Notes until when no units remain, by a report that no later grant's report has overtaken.
    pub(super) fn note_emptiness(&mut self, now: Time, report: &Report, pace: &Pace) {
        let stops = self.quota.told.filter(|told| report.remaining == 0 && told.free(now, 1, pace) > now);
        self.announced.empty_until = stops.map_or(Time::ZERO, |told| told.until);
    }

    /// Marks the pauses that begin now as announced by another limit or lane.
    pub(crate) fn is_told_elsewhere(&mut self, now: Time) {
        if self.announced.whole == Announcement::Nothing {
            self.announced.whole = Announcement::Elsewhere;
        }
        for (endpoint, _) in self.new_endpoints(now) {
            self.announced.endpoints.push((endpoint, Announcement::Elsewhere));
        }
    }

    /// Notes whether the refusal left open which limit it is about; this limit then represents all that may be meant.
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

    /// Returns the changes since the last call, and marks them as announced.
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

    /// The changes to announce when this throttle is dropped: each announced pause is over.
    pub(crate) fn forgotten(&self) -> Vec<Change> {
        let over = |(endpoint, announced): (Option<EndpointHash>, Announcement)| match announced {
            Announcement::Pause { named, .. } => Some(Change { notice: Notice::Recovered, named, endpoint }),
            Announcement::Nothing | Announcement::Elsewhere => None,
        };
        let endpoints = self.announced.endpoints.iter().map(|(endpoint, announced)| (Some(*endpoint), *announced));
        endpoints.chain([(None, self.announced.whole)]).filter_map(over).collect()
    }
}
