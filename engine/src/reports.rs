//! Applies what responses report as remaining of limits.

use smallvec::SmallVec;

use super::Engine;
use super::origin::{Origin, Target};
use super::pause_notices::of_lane;
use super::pushback::Exchange;
use super::throttle::{About, Books, Change, Fit, Mode, Report, Says};
use crate::time::Time;

/// Which limit one of a response's reports is about.
struct Attributed {
    /// `None` if no configuration states the limit.
    target: Option<Target>,
    about: About,
    says: Says,
    /// Whether the report has the limit's name or figure.
    is_sure: bool,
}

impl Attributed {
    /// Whether a later report of the same response says nothing beside this one.
    fn replaces(&self, later: &Attributed) -> bool {
        let is_same = self.target == later.target && (self.target.is_some() || self.about == later.about);
        is_same
            && match later.says {
                // It says nothing of what is left.
                Says::Limit => self.says != Says::Remaining,
                Says::Both => self.is_sure || self.says == Says::Remaining || !later.is_sure,
                Says::Remaining => true,
            }
    }
}

impl Engine {
    /// The report with the figure of the limit that it is about, if it does not say which limit it means. A limit that
    /// no configuration states counts as one of a single unit.
    pub(super) fn with_figure(&self, origin: &Origin, about: Option<Target>, report: &Report) -> Report {
        let spec = about.and_then(|target| self.spec_at(origin, target));
        report.of_limit(spec.map_or(1, |spec| spec.pace.limit))
    }

    /// Those of the reports `besides` the first one that are not about the limit of an earlier one. The tightest comes
    /// first: a looser one would end the stop that it begins. But one that states the limit's own name or figure is taken
    /// if the earlier one states another figure, which is probably that of another limit.
    pub(super) fn one_of_each_limit(
        &self,
        origin: &Origin,
        first: Option<&Report>,
        besides: &[Report],
    ) -> SmallVec<[Report; 1]> {
        let mut taken = SmallVec::new();
        if besides.is_empty() {
            return taken;
        }
        let mut earlier: SmallVec<[Attributed; 2]> =
            first.into_iter().map(|report| self.attributed(origin, report)).collect();
        for report in besides {
            let this = self.attributed(origin, report);
            if !earlier.iter().any(|earlier| earlier.replaces(&this)) {
                taken.push(*report);
            }
            earlier.push(this);
        }
        taken
    }

    fn attributed(&self, origin: &Origin, report: &Report) -> Attributed {
        let target = self.limit_of(origin, report).filter(|target| self.is_believed(origin, *target));
        let fit = target.and_then(|target| report.fits(self.spec_at(origin, target)?));
        // A limit that is found although the report does not fit it was called by this name before.
        let is_sure = target.is_some() && fit.is_none_or(|fit| fit <= Fit::Units);
        Attributed { target, about: report.about, says: report.says, is_sure }
    }

    /// Applies a report of remaining units.
    pub(super) fn apply_report(&mut self, now: Time, exchange: &Exchange, report: &Report) {
        let Exchange { origin, granted, need, .. } = *exchange;
        let found = self.limit_of(&origin, report).filter(|target| self.is_believed(&origin, *target));
        let teaches = found.is_some_and(|target| self.names_alone(&origin, target, report));
        let report = &self.with_figure(&origin, found, report);
        if let Some(target) = found
            && let Some((cell, spec)) = self.limit_at(&origin, target)
        {
            let units = spec.units(need.cost);
            // Hardly any report slows a limit down that no report has slowed before, so most end here.
            let is_nothing = cell.is_at_ease()
                && report.limit >= spec.pace.limit
                && match spec.pace.mode {
                    Mode::Bands => report.is_comfortable(cell.books(spec, now).under_way.saturating_sub(units)),
                    Mode::Off => report.remaining > 0,
                    Mode::Pace | Mode::Adaptive => false,
                };
            if teaches && (!is_nothing || cell.is_throttled()) {
                cell.learn_name(&report.about);
            }
            if is_nothing {
                return cell.note_figure(spec, now, granted, units, report);
            }
            let notices = cell.report(spec, now, granted, units, report);
            self.bound_report(now, exchange.permit, &origin, target, report);
            notices.into_iter().flatten().for_each(|notice| self.note(&origin, target, notice));
            return;
        }
        let Some(lane) = self.lanes.get_mut(origin.lane) else { return };
        let mode = lane.plan.pace.mode;
        let books = Books { units: 0, under_way: lane.in_flight.saturating_sub(1), behind: 0 };
        let notices = lane.throttle.get_or_insert_default().discover(now, granted, books, report, mode);
        for notice in notices.into_iter().flatten() {
            let change = Change { notice, named: true, endpoint: None };
            self.notices.tell(of_lane(&lane.plan, None, Some(report.about.title().into()), &change));
        }
    }
}
