//! What is new to tell of a limit's pauses, from what was told and what is.

use super::pause::Pause;
use super::spoken::{Change, Notice, Spoken};
use super::{Report, Throttle};
use crate::endpoint::EndpointHash;
use crate::pace::Pace;
use crate::time::Time;

impl Throttle {
    /// Notes until when nothing is left, by a report that was not overtaken.
    pub(super) fn note_emptiness(&mut self, now: Time, report: &Report, pace: &Pace) {
        let stops = self.reports.told.filter(|told| report.remaining == 0 && told.free(now, 1, pace) > now);
        self.spoken.empty_until = stops.map_or(Time::ZERO, |told| told.until);
    }

    /// The pause that begins now is told of elsewhere.
    pub(crate) fn is_told_elsewhere(&mut self, now: Time) {
        if self.spoken.whole == Spoken::Goes {
            self.spoken.whole = Spoken::Silent;
        }
        for (endpoint, _) in self.new_endpoints(now) {
            self.spoken.endpoints.push((endpoint, Spoken::Silent));
        }
    }

    /// Which limit was refused for is not known, and this one stands for all that may be meant.
    pub(crate) fn is_unnamed(&mut self, unnamed: bool) {
        self.spoken.unnamed = unnamed;
    }

    fn new_endpoints(&self, now: Time) -> Vec<(EndpointHash, Time)> {
        let is_known = |endpoint: EndpointHash| self.spoken.endpoints.iter().any(|(known, _)| *known == endpoint);
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
        let is_empty = self.spoken.empty_until > now;
        let free = self.reports.told.filter(|_| is_empty).map_or(Time::ZERO, |told| told.free(now, 1, pace));
        let until = self.pause.until().max(free);
        let stands = self.pause != Pause::Over || is_empty;
        let unnamed = std::mem::take(&mut self.spoken.unnamed);
        let mut say = |notice, named| changes.push(Change { notice, named, endpoint: None });
        match self.spoken.whole {
            Spoken::Goes if until > now => {
                self.spoken.whole = Spoken::Stands { until, named: !unnamed };
                say(Notice::Exhausted { until }, !unnamed);
            }
            Spoken::Stands { until: before, named } if stands => {
                if until > before {
                    self.spoken.whole = Spoken::Stands { until, named };
                    say(Notice::Longer { until }, named);
                }
            }
            Spoken::Stands { named, .. } => {
                self.spoken.whole = Spoken::Goes;
                say(Notice::Recovered, named);
            }
            Spoken::Silent if !stands => self.spoken.whole = Spoken::Goes,
            Spoken::Goes | Spoken::Silent => {}
        }
        changes
    }

    fn endpoint_changes(&mut self, now: Time, changes: &mut Vec<Change>) {
        let mut say = |notice, endpoint| changes.push(Change { notice, named: false, endpoint: Some(endpoint) });
        for (endpoint, until) in self.new_endpoints(now) {
            self.spoken.endpoints.push((endpoint, Spoken::Stands { until, named: false }));
            say(Notice::Exhausted { until }, endpoint);
        }
        let standing = &self.endpoints;
        self.spoken.endpoints.retain(|(endpoint, spoken)| {
            let stands = standing.iter().any(|(id, ..)| id == endpoint);
            if !stands && *spoken != Spoken::Silent {
                say(Notice::Recovered, *endpoint);
            }
            stands
        });
    }

    /// It is forgotten: what was told to stand does not any more.
    pub(crate) fn forgotten(&self) -> Vec<Change> {
        let over = |(endpoint, spoken): (Option<EndpointHash>, Spoken)| match spoken {
            Spoken::Stands { named, .. } => Some(Change { notice: Notice::Recovered, named, endpoint }),
            Spoken::Goes | Spoken::Silent => None,
        };
        let endpoints = self.spoken.endpoints.iter().map(|(endpoint, spoken)| (Some(*endpoint), *spoken));
        endpoints.chain([(None, self.spoken.whole)]).filter_map(over).collect()
    }
}
