//! Finds the limit that a vendor's report or refusal is about.
//!
//! A vendor names its limits as it likes, or not at all. A report is attributed to the limit of the request that fits
//! it best: by name, by limit and window, by limit, by window, or as the only candidate. A special name that came with
//! the figure of one limit alone is that limit's from then on, until it is idle, because the figure may change. A
//! report that fits none is about a limit that the configuration does not know; it is kept for the lane alone, because
//! no wider scope is proven. A refusal is attributed to the limit that it reports as empty; or to the limits of the
//! scope that the vendor names; or to those that may be full by our own count; or else to all limits that the request
//! counted in.

use super::Engine;
use super::endpoint::EndpointHash;
use super::limit::{Cell, LimitSpec};
use super::origin::{Origin, Target, Whose};
use super::throttle::{Fit, Report};

impl Engine {
    /// All limits that a request took from: rates and slots.
    pub(super) fn targets_of(&self, origin: &Origin) -> Vec<Target> {
        let mut limits = Vec::new();
        if let Some(lane) = self.lanes.get(origin.lane) {
            let own = (0..lane.plan.whole).chain(lane.plan.endpoint_own(origin.endpoint));
            limits.extend(own.map(Target::Own));
        }
        for (place, holder) in origin.holders.into_iter().enumerate() {
            let Some(holder) = self.lanes.holder(holder) else { continue };
            let specs = holder.specs.iter().enumerate();
            let taken = specs.filter(|(_, shared)| shared.applies(origin.endpoint_hash));
            limits.extend(taken.map(|(number, _)| Target::Shared(place, number)));
        }
        limits
    }

    /// The rates that a request took from.
    fn rates_of(&self, origin: &Origin) -> Vec<Target> {
        let mut limits = self.targets_of(origin);
        limits.retain(|target| self.is_rate(origin, *target));
        limits
    }

    /// The largest used share among these limits, by our own count.
    pub(super) fn fullest(&mut self, origin: &Origin, targets: &[Target]) -> f64 {
        let now = self.now;
        let fullness = |target: &Target| self.limit_at(origin, *target).map(|(cell, spec)| cell.fullness(spec, now));
        targets.iter().filter_map(fullness).fold(0.0, f64::max)
    }

    pub(super) fn is_rate(&self, origin: &Origin, target: Target) -> bool {
        self.spec_at(origin, target).is_some_and(LimitSpec::is_rate)
    }

    /// A limit's state and its specification.
    pub(super) fn limit_at(&mut self, origin: &Origin, target: Target) -> Option<(&mut Cell, &LimitSpec)> {
        match target {
            Target::Own(number) => {
                let lane = self.lanes.get_mut(origin.lane)?;
                Some((lane.own.as_mut().get_mut(number)?, lane.plan.own.get(number)?))
            }
            Target::Shared(place, number) => {
                let holder = self.lanes.holder_mut(*origin.holders.get(place)?)?;
                Some((holder.cells.get_mut(number)?, &holder.specs.get(number)?.spec))
            }
        }
    }

    fn cell_at(&self, origin: &Origin, target: Target) -> Option<&Cell> {
        match target {
            Target::Own(number) => self.lanes.get(origin.lane)?.own.as_slice().get(number),
            Target::Shared(place, number) => self.lanes.holder(*origin.holders.get(place)?)?.cells.get(number),
        }
    }

    pub(super) fn spec_at(&self, origin: &Origin, target: Target) -> Option<&LimitSpec> {
        match target {
            Target::Own(number) => self.lanes.get(origin.lane)?.plan.own.get(number),
            Target::Shared(place, number) => {
                let holder = self.lanes.holder(*origin.holders.get(place)?)?;
                holder.specs.get(number).map(|shared| &shared.spec)
            }
        }
    }

    /// Whether the limit counts requests to one endpoint only.
    pub(super) fn is_of_endpoint(&self, origin: &Origin, target: Target) -> bool {
        match target {
            Target::Own(number) => self.lanes.get(origin.lane).is_some_and(|lane| number >= lane.plan.whole),
            Target::Shared(place, number) => {
                let holder = origin.holders.get(place).and_then(|holder| self.lanes.holder(*holder));
                let shared = holder.and_then(|holder| holder.specs.get(number));
                shared.is_some_and(|shared| shared.endpoint.is_some_and(|only| only != EndpointHash::NONE))
            }
        }
    }

    /// The rate that a report is about; `None` if the configuration does not know it. Of configured slots our own count
    /// decides, so no report is about them.
    pub(super) fn limit_of(&self, origin: &Origin, report: &Report) -> Option<Target> {
        if report.about.is_parallel {
            return None;
        }
        let mut rates = self.rates_of(origin);
        let is_called =
            |target: &Target| self.cell_at(origin, *target).is_some_and(|cell| cell.is_called(&report.about));
        let is_named = |target: &Target| {
            self.spec_at(origin, *target).is_some_and(|spec| report.about.names(spec)) || is_called(target)
        };
        let is_equal =
            |target: &Target| self.spec_at(origin, *target).is_some_and(|spec| spec.pace.limit == report.limit);
        let named: Vec<Target> = rates.iter().copied().filter(is_named).collect();
        // Vendors may call a group of endpoints by a name that we use for a limit. If the figure in the report is that
        // of another limit, the figure decides.
        let is_meant = named.iter().any(is_equal) || !rates.iter().any(is_equal);
        if !named.is_empty() {
            rates.retain(|target| if is_meant { named.contains(target) } else { is_equal(target) });
        }
        let fit = |target: &Target| {
            let spec = self.spec_at(origin, *target)?;
            let by_name = is_called(target).then(|| report.fits_by_name(spec)).flatten();
            Some((by_name.or_else(|| report.fits(spec))?, *target))
        };
        let (best, found) = rates.iter().filter_map(fit).min_by_key(|(fit, _)| *fit)?;
        let is_only = rates.iter().filter_map(fit).filter(|(fit, _)| *fit == best).count() == 1;
        // Of several limits that fit equally well the first is taken, but only if the report has their name or figure.
        (is_only || best <= Fit::Units).then_some(found)
    }

    /// Whether a report calls this limit by a special name that is not known yet, and has the figure of this limit and
    /// no other.
    pub(super) fn names_alone(&self, origin: &Origin, target: Target, report: &Report) -> bool {
        let has_figure =
            |target: &Target| self.spec_at(origin, *target).is_some_and(|spec| spec.pace.limit == report.limit);
        report.about.is_special
            && self.cell_at(origin, target).is_some_and(|cell| !cell.is_called(&report.about))
            && has_figure(&target)
            && self.rates_of(origin).into_iter().filter(has_figure).count() == 1
    }

    /// The limits that are to pause because of a refusal; empty if no known limit explains it. `empty` is the limit
    /// that the refusal itself reports as having nothing left.
    pub(super) fn refused_limits(
        &mut self,
        origin: &Origin,
        whose: Option<Whose>,
        empty: Option<Target>,
    ) -> Vec<Target> {
        if let Some(empty) = empty {
            return vec![empty];
        }
        let mut limits = self.targets_of(origin);
        if let Some(whose) = whose {
            limits.retain(|target| match whose {
                Whose::Endpoint => self.is_of_endpoint(origin, *target),
                Whose::Lane => matches!(target, Target::Own(_)) && !self.is_of_endpoint(origin, *target),
                Whose::Account => matches!(target, Target::Shared(0, _)),
                Whose::Vendor => matches!(target, Target::Shared(1, _)),
            });
        }
        // A refusal for an account or a vendor is no reason to try another of its endpoints. The limit that is used up
        // may be one of this endpoint all the same, so that one pauses beside the wider limits, and learns.
        let mut of_endpoint = Vec::new();
        if whose.is_some_and(|whose| whose != Whose::Endpoint) {
            let parts: (Vec<Target>, Vec<Target>) =
                limits.iter().partition(|target| !self.is_of_endpoint(origin, **target));
            if !parts.0.is_empty() {
                (limits, of_endpoint) = parts;
            }
        }
        let now = self.now;
        let may_be_full = |engine: &mut Engine, target: Target| {
            engine.limit_at(origin, target).is_some_and(|(cell, spec)| cell.may_be_full(spec, now))
        };
        let (rates, slots): (Vec<Target>, Vec<Target>) =
            limits.iter().partition(|target| self.is_rate(origin, **target));
        let full = |engine: &mut Engine, limits: &[Target]| -> Vec<Target> {
            limits.iter().copied().filter(|target| may_be_full(engine, *target)).collect()
        };
        // The slots of a busy lane are full all the time, so full slots are blamed beside the rates and not instead of
        // them.
        let (full_rates, mut meant) = (full(self, &rates), full(self, &slots));
        of_endpoint.retain(|target| full_rates.is_empty() && self.is_rate(origin, *target));
        meant.extend(if full_rates.is_empty() { rates } else { full_rates });
        if meant.is_empty() {
            meant = limits;
        }
        // The narrower limits first: events name the last one.
        let mut limits = full(self, &of_endpoint);
        limits.extend(meant);
        limits
    }
}
