//! A limit whose windows end by a calendar: passes the window's end to the guard, to reports and to views.

use super::calendar::since;
use super::guard::{Guard, GuardSpec};
use super::{Cell, LimitKind, LimitSpec, State, in_force};
use crate::throttle::Report;
use crate::time::Time;

impl LimitSpec {
    /// Whether units counted at `at` no longer count, by the calendar.
    pub(super) fn is_over(&self, at: Time, now: Time) -> bool {
        self.calendar.as_ref().is_some_and(|calendar| calendar.is_over(at, now))
    }

    /// The report, with the calendar's end of the window if the report does not state a reset.
    pub(super) fn with_reset(&self, report: &Report, now: Time) -> Report {
        let by_calendar = || Some(since(now, self.calendar.as_ref()?.next(now)?));
        Report { reset_ns: report.reset_ns.or_else(by_calendar), ..*report }
    }
}

impl Cell {
    /// Tells the guard when the present window ends, unless a response has stated it.
    #[cold]
    pub(super) fn mark_end(&mut self, spec: &LimitSpec, now: Time) {
        let spec = in_force(&self.beside, spec);
        let edge = spec.calendar.as_ref().and_then(|calendar| calendar.next_edge(now));
        if let (
            State::Rate { guard: Some(Guard::Log(log)), .. },
            LimitKind::Rate { guard: GuardSpec::Log(mirrored), .. },
            Some((from, to)),
        ) = (&mut self.state, &spec.kind, edge)
        {
            log.ends_by_calendar(mirrored, now, from, to);
        }
    }

    /// Applies a change of the calendar: the guard forgets the end of the window by the old one.
    pub(super) fn change_calendar(&mut self, old: &LimitSpec, new: &LimitSpec, now: Time) {
        if old.calendar == new.calendar {
            return;
        }
        if let State::Rate { guard: Some(Guard::Log(log)), .. } = &mut self.state {
            log.forget_calendar();
        }
        self.mark_end(new, now);
    }

    /// When the present window ends, if a response or the calendar says so.
    pub(crate) fn resets_at(&self, spec: &LimitSpec, now: Time) -> Option<Time> {
        let stated = match &self.state {
            State::Rate { guard: Some(Guard::Log(log)), .. } => log.stated_end(now),
            _ => None,
        };
        stated.or_else(|| spec.calendar.as_ref()?.next(now))
    }
}
