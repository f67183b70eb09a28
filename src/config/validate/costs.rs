//! Validates costs: kinds of points must be declared, some limit must count them, and the cost must fit its bucket.

use std::collections::BTreeMap;

use super::fields::{check_id, integer};
use super::limit::MAX_UNITS;
use crate::config::costs::{Costs, MAX_COSTS};
use crate::config::limit::{Limit, LimitKind, Rate, Unit};
use crate::config::report::{Path, Report, Step, at};
use crate::config::suggest;
use crate::config::vendor::{Endpoint, Vendor};
use crate::signals::POINTS;

/// Reads `[vendors.NAME.costs]`, which declares the kinds of points.
pub(in crate::config) fn of_vendor(entry: &BTreeMap<String, i64>, report: &mut Report) -> Costs {
    let path = at(&[], "costs");
    if entry.keys().filter(|name| *name != POINTS).count() >= MAX_COSTS {
        let most = MAX_COSTS - 1;
        report.problem(
            path.clone(),
            format!("more than {most} kinds of points beside `points`; keep those that bind first"),
        );
    }
    for name in entry.keys() {
        if let Err(message) = check_id("a kind of points", name) {
            report.problem(at(&path, &**name), message);
        }
        if Unit::FIXED.iter().any(|unit| unit.name() == name) {
            report.problem(at(&path, &**name), "this is a unit of its own, which no request states as its cost");
        }
    }
    Costs::declared(&units(entry, &path, report))
}

/// Reads `[vendors.NAME.endpoints.ENDPOINT.costs]`, whose kinds the vendor must declare.
pub(super) fn of_endpoint(entry: &BTreeMap<String, i64>, vendor: &Costs, path: &Path, report: &mut Report) -> Costs {
    let path = at(path, "costs");
    for name in entry.keys().filter(|name| vendor.place(name).is_none()) {
        let hint = suggest::unknown("kind of points", name, "kinds", vendor.iter().map(|(name, _)| name));
        report.problem(at(&path, &**name), format!("{hint}; others are declared in the vendor's `costs`"));
    }
    let mut costs = vendor.clone();
    costs.replace(&units(entry, &path, report));
    costs
}

fn units<'e>(entry: &'e BTreeMap<String, i64>, path: &Path, report: &mut Report) -> BTreeMap<&'e str, u32> {
    let units = entry.iter().filter_map(|(name, units)| {
        let units = integer(Some(*units), 1..=MAX_UNITS.into(), "a cost", at(path, &**name), report)?;
        Some((&**name, u32::try_from(units).ok()?))
    });
    units.collect()
}

/// Reports default costs that do not fit the buckets of `vendor`, whose limits have been reduced to a tenant's `share`.
pub(in crate::config) fn check_shared(vendor: &Vendor, share: f64, report: &mut Report) {
    let mut of_costs = Report::default();
    check(&vendor.costs, &vendor.limits, &vendor.endpoints, &mut of_costs);
    for problem in of_costs.problems {
        report.problem(at(&[], "share"), format!("share {share} is too small: {}", problem.message));
    }
}

/// Warns about a default cost that no limit counts, and refuses one that does not fit a limit's bucket.
pub(super) fn check(costs: &Costs, limits: &[Limit], endpoints: &[Endpoint], report: &mut Report) {
    let of_endpoints = || endpoints.iter().flat_map(|endpoint| &endpoint.limits);
    fit(costs, limits.iter(), &at(&[], "costs"), report);
    for (kind, _) in costs.iter().filter(|(kind, _)| *kind != POINTS) {
        if counting(kind, limits.iter().chain(of_endpoints())).next().is_none() {
            let message = format!("it is ignored, because no limit has `unit = \"{kind}\"`");
            report.warn(at(&at(&[], "costs"), kind), message);
        }
    }
    for endpoint in endpoints {
        let place = at(&at(&at(&[], "endpoints"), &*endpoint.name), "costs");
        // Costs that the endpoint does not change were checked above.
        let own = || endpoint.costs.iter().filter(|(kind, units)| costs.get(kind) != Some(*units));
        for (kind, _) in own() {
            if counting(kind, limits.iter().chain(&endpoint.limits)).next().is_none() {
                let message =
                    format!("the cost is ignored, because no limit of these requests has `unit = \"{kind}\"`");
                report.warn(at(&place, kind), message);
            }
        }
        let mut changed = costs.clone();
        changed.replace(&own().collect());
        if own().next().is_some() {
            fit(&changed, limits.iter(), &place, report);
        }
        fit(&endpoint.costs, endpoint.limits.iter(), &place, report);
    }
}

fn counting<'l>(kind: &str, limits: impl Iterator<Item = &'l Limit>) -> impl Iterator<Item = (&'l Limit, &'l Rate)> {
    limits.filter_map(move |limit| match &limit.kind {
        LimitKind::Rate(rate) if matches!(&rate.unit, Unit::Cost(own) if **own == *kind) => Some((limit, rate)),
        _ => None,
    })
}

/// Reports costs that exceed a bucket's capacity, because such a request could never be sent.
fn fit<'l>(costs: &Costs, limits: impl Iterator<Item = &'l Limit> + Clone, path: &Path, report: &mut Report) {
    for (kind, units) in costs.iter().filter(|(_, units)| *units > 1) {
        for (limit, rate) in counting(kind, limits.clone()) {
            let most = rate.shape().largest_cost(false);
            if units > most {
                let message = format!(
                    "a request costs {units}, but the bucket of `{}` holds {most} of its {} {kind}: lower the cost, or \
                     raise the limit, its `burst` or its `safety`",
                    limit.name, rate.limit
                );
                report.problem(at(path, Step::from(kind)), message);
            }
        }
    }
}
