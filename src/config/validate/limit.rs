//! Validates limits: every figure must be in the range that the engine computes with, and no field may have no effect.

use std::time::Duration;

use super::fields::{check_id, choice, duration, fraction, integer, parse_duration};
use crate::config::costs::Costs;
use crate::config::entry::LimitEntry;
use crate::config::limit::{Algorithm, Limit, LimitKind, Rate, Scope, Source, Unit};
use crate::config::report::{Path, Report, Step, at};
use crate::config::resets::{ROLLING, Resets};
use crate::config::suggest;

/// The most units of a limit. The engine counts in `u32`; this round figure leaves room for sums.
pub(super) const MAX_UNITS: u32 = 4_000_000_000;

/// The limit that `entry` describes, in the list at `path`; problems go to `report`. `endpoint` says whether the list
/// is an endpoint's; `safety` and `costs` are the vendor's.
pub(super) fn limit(
    entry: &LimitEntry,
    path: &[Step],
    endpoint: bool,
    (safety, costs): (f64, &Costs),
    report: &mut Report,
) -> Option<Limit> {
    // `duplicates` has reported a missing name.
    let name = entry.name.as_deref()?;
    let before = report.problems.len();
    let path = at(&at(path, "limits"), Step::Named(name.to_owned()));
    if let Err(message) = check_id("a limit's name", name) {
        report.problem(at(&path, "name"), message);
    }
    let default = if endpoint { Scope::Endpoint } else { Scope::Tenant };
    let scope = choice(entry.scope.as_deref(), "scope", Scope::NAMES, Scope::parse, default, &path, report);
    if scope == Scope::Endpoint && !endpoint {
        let help = "scope `endpoint` needs an endpoint: move this to [[vendors.NAME.endpoints.ENDPOINT.limits]], or use `tenant`";
        report.problem(at(&path, "scope"), help);
    }
    let kind = if entry.concurrency.is_some() {
        concurrency(entry, &path, report)
    } else {
        rate(entry, &path, safety, costs, report).map(LimitKind::Rate)
    };
    let source = source(entry, &path, report);
    let kind = kind?;
    (report.problems.len() == before).then(|| Limit {
        name: name.into(),
        scope,
        kind,
        shared: entry.shared.unwrap_or(true),
        source,
    })
}

fn concurrency(entry: &LimitEntry, path: &Path, report: &mut Report) -> Option<LimitKind> {
    let not_here = [
        ("limit", entry.limit.is_some()),
        ("window", entry.window.is_some()),
        ("resets", entry.resets.is_some()),
        ("algorithm", entry.algorithm.is_some()),
        ("burst", entry.burst.is_some()),
        ("refill_interval", entry.refill_interval.is_some()),
        ("release_interval", entry.release_interval.is_some()),
        ("safety", entry.safety.is_some()),
        ("ceiling", entry.ceiling.is_some()),
        ("unit", entry.unit.is_some()),
        ("largest_request", entry.largest_request.is_some()),
        ("cold_start", entry.cold_start.is_some()),
    ];
    for (field, _) in not_here.iter().filter(|(_, stated)| *stated) {
        let message = format!(
            "`{field}` has no meaning beside `concurrency`, which counts requests at once; remove one, or state two limits"
        );
        report.problem(at(path, *field), message);
    }
    let limit = integer(entry.concurrency, 1..=MAX_UNITS.into(), "concurrency", at(path, "concurrency"), report)?;
    u32::try_from(limit).ok().map(|limit| LimitKind::Concurrency { limit })
}

fn rate(entry: &LimitEntry, path: &Path, vendor_safety: f64, costs: &Costs, report: &mut Report) -> Option<Rate> {
    let resets = resets(entry, path, report);
    let has_window = entry.window.is_some() || entry.resets.as_deref().is_some_and(|text| text != ROLLING);
    for (field, missing) in [("limit", entry.limit.is_none()), ("window", !has_window)] {
        if missing {
            let message = format!(
                "a limit needs `{field}`: state `limit` and `window` (or `resets`), or `concurrency`; \
                 to override a limit, use the name that it has below"
            );
            report.problem(at(path, field), message);
        }
    }
    let limit = integer(entry.limit, 1..=MAX_UNITS.into(), "a limit per window", at(path, "limit"), report);
    let window = duration(entry.window.as_deref(), at(path, "window"), report);
    let window = resets.as_ref().map_or(window, |resets| Some(resets.period.window()));
    let algorithm = entry.algorithm.as_deref();
    let usual = if resets.is_some() { Algorithm::Quota } else { Algorithm::Unknown };
    let algorithm = choice(algorithm, "algorithm", Algorithm::NAMES, Algorithm::parse, usual, path, report);
    let safety = fraction(entry.safety, vendor_safety, at(path, "safety"), report);
    let ceiling = fraction(entry.ceiling, 1.0, at(path, "ceiling"), report);
    let unit = unit(entry.unit.as_deref(), costs, path, report);
    let cold = ["full", "spent"];
    let parse = |name: &str| match name {
        "full" => Some(false),
        "spent" => Some(true),
        _ => None,
    };
    let cold_start_spent = choice(entry.cold_start.as_deref(), "cold_start", &cold, parse, false, path, report);
    let burst = integer(entry.burst, 1..=MAX_UNITS.into(), "burst", at(path, "burst"), report);
    let refill_interval = duration(entry.refill_interval.as_deref(), at(path, "refill_interval"), report);
    let release_interval = duration(entry.release_interval.as_deref(), at(path, "release_interval"), report);
    let place = at(path, "largest_request");
    let largest_request = integer(entry.largest_request, 1..=MAX_UNITS.into(), "a request", place, report);
    let (limit, window) = (u32::try_from(limit?).ok()?, window?);

    if u128::from(limit) > window.as_nanos() {
        let message =
            format!("{limit} per {window:?} is more than 1,000,000,000 a second; lower it or lengthen `window`");
        report.problem(at(path, "limit"), message);
    }
    if let Some(burst) = burst.filter(|burst| *burst > limit.into()) {
        let message = if matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            // One pair of figures states a bucket: one of 40 units that drains 2 a second is empty after 20 s.
            let nanos = window.as_nanos().saturating_mul(burst.unsigned_abs().into()) / u128::from(limit);
            let refill = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
            format!(
                "burst {burst} is above the limit {limit}: state a bucket by its size and the time it takes to fill, \
                 here `limit = {burst}` and `window = \"{}ms\"`",
                refill.as_millis()
            )
        } else {
            format!("burst {burst} is above the limit {limit}: no more than the limit can go at once; lower it")
        };
        report.problem(at(path, "burst"), message);
    }
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    if refill_interval.is_some() && !bucket {
        let message = format!(
            "`refill_interval` is how a bucket refills, but the algorithm is `{}`; remove it or use `token_bucket`",
            algorithm.name()
        );
        report.problem(at(path, "refill_interval"), message);
    }
    for (field, interval) in [("refill_interval", refill_interval), ("release_interval", release_interval)] {
        let Some(interval) = interval else { continue };
        if interval > window {
            let message = format!("the interval {interval:?} is longer than the window {window:?}; shorten it");
            report.problem(at(path, field), message);
        } else if interval == window && field == "refill_interval" {
            let message = "the whole bucket is refilled at once, each window: that is how a `fixed_window` counts; say so, \
                           or shorten the interval";
            report.problem(at(path, field), message);
        } else if window.as_nanos() % interval.as_nanos() != 0 {
            let message =
                format!("the interval {interval:?} does not divide the window {window:?}; choose one that does");
            report.problem(at(path, field), message);
        } else if window.as_nanos() / interval.as_nanos() > limit.into() {
            let message = format!(
                "{limit} per {window:?} leaves less than one unit for each interval of {interval:?}; lengthen it"
            );
            report.problem(at(path, field), message);
        }
    }
    if safety > ceiling {
        // Valid, but `safety` has no effect.
        report.warn(
            at(path, "ceiling"),
            format!("the ceiling {ceiling} is below the safety share {safety} and decides alone"),
        );
    }
    let burst = burst.and_then(|burst| u32::try_from(burst).ok());
    let rate = Rate {
        limit,
        window,
        resets,
        algorithm,
        safety,
        burst,
        refill_interval,
        release_interval,
        ceiling,
        unit,
        largest_request: largest_request.and_then(|units| u32::try_from(units).ok()),
        cold_start_spent,
    };
    if let Some(largest) = rate.largest_request {
        fits(&rate, largest, path, report);
    }
    Some(rate)
}

/// The calendar of a quota. Other fields must not contradict its windows, or pace it.
fn resets(entry: &LimitEntry, path: &Path, report: &mut Report) -> Option<Resets> {
    let text = entry.resets.as_deref().filter(|text| *text != ROLLING)?;
    let resets = match Resets::parse(text) {
        Ok(resets) => resets,
        Err(message) => {
            report.problem(at(path, "resets"), message);
            return None;
        }
    };
    let length = resets.period.window();
    // In one entry, the calendar's own length contradicts nothing. Above the calendar, a window is meant to replace it.
    let (is_above, whose) = if entry.window_over_calendar { (true, " of the entry below") } else { (false, "") };
    let window = entry.window.as_deref().and_then(|window| parse_duration(window).ok());
    if window.is_some_and(|window| is_above || window != length) {
        let message = format!(
            "`resets = \"{text}\"`{whose} says how long the window is: remove `window`, or write \
             `resets = \"{ROLLING}\"` beside it"
        );
        report.problem(at(path, "window"), message);
    }
    if entry.algorithm.as_deref().is_some_and(|algorithm| algorithm != Algorithm::Quota.name()) {
        let message = format!(
            "`resets` counts a quota by the calendar; remove `algorithm`, or write `{}`",
            Algorithm::Quota.name()
        );
        report.problem(at(path, "algorithm"), message);
    }
    let pacing = [
        ("burst", entry.burst.is_some()),
        ("refill_interval", entry.refill_interval.is_some()),
        ("release_interval", entry.release_interval.is_some()),
        ("cold_start", entry.cold_start.is_some()),
    ];
    for (field, _) in pacing.into_iter().filter(|(_, stated)| *stated) {
        report.problem(
            at(path, field),
            format!("`{field}` has no meaning beside `resets`: a quota is not paced; remove it"),
        );
    }
    Some(resets)
}

/// The unit of this name: a fixed one, or a kind of points that the vendor's entry declares.
fn unit(name: Option<&str>, costs: &Costs, path: &Path, report: &mut Report) -> Unit {
    let Some(name) = name else { return Unit::Requests };
    let fixed = Unit::FIXED.into_iter().find(|unit| unit.name() == name);
    fixed.or_else(|| costs.name(name).map(Unit::Cost)).unwrap_or_else(|| {
        let known = Unit::FIXED.each_ref().map(Unit::name);
        let known = known.into_iter().chain(costs.iter().map(|(name, _)| name));
        let hint = suggest::unknown("unit", name, "choices", known);
        report.problem(at(path, "unit"), format!("{hint}; another kind of points is declared in the vendor's `costs`"));
        Unit::Requests
    })
}

/// Warns if the vendor's largest request does not fit the bucket. This is no error, because smaller requests still fit.
fn fits(rate: &Rate, largest: u32, path: &Path, report: &mut Report) {
    let most = rate.shape().largest_cost(false);
    if largest > most {
        let message = format!(
            "the vendor takes a request of {largest}, but the bucket holds {most} of the limit's {}: such a request is \
             refused here; raise the limit, its `burst` or its `safety`",
            rate.limit
        );
        report.warn(at(path, "largest_request"), message);
    }
}

fn source(entry: &LimitEntry, path: &Path, report: &mut Report) -> Option<Source> {
    const CONFIDENCE: [&str; 3] = ["documented", "seen in code", "from memory"];
    if entry.source.is_none() && (entry.as_of.is_some() || entry.confidence.is_some()) {
        report.problem(at(path, "source"), "`as_of` and `confidence` describe a `source`; state it too");
    }
    let reference = entry.source.clone()?;
    let confidence = entry.confidence.clone().unwrap_or_else(|| "documented".to_owned());
    if !CONFIDENCE.contains(&confidence.as_str()) {
        let hint = suggest::hint(&confidence, "choices", CONFIDENCE);
        report.problem(at(path, "confidence"), format!("unknown confidence; {hint}"));
    }
    Some(Source { reference, as_of: entry.as_of.clone().unwrap_or_default(), confidence })
}

/// Reduces `limit` to this process's `share`, rounded down to whole units so that all shares together never exceed it.
pub(in crate::config) fn share(limit: &mut Limit, share: f64) -> Result<(), String> {
    let part = |units: u32| {
        // The product of a u32 and a share of at most 1 fits into a u32.
        let part = (f64::from(units) * share + 1e-9).floor() as u32;
        part.min(units)
    };
    let name = limit.name.clone();
    let none = |units: u32| {
        format!(
            "share {share} of the limit `{name}` ({units}) is less than one unit; raise the share, or run fewer processes"
        )
    };
    match &mut limit.kind {
        LimitKind::Concurrency { limit } => {
            let whole = *limit;
            *limit = part(whole);
            if *limit == 0 { Err(none(whole)) } else { Ok(()) }
        }
        LimitKind::Rate(rate) => {
            let whole = rate.limit;
            rate.limit = part(whole);
            rate.burst = rate.burst.map(|burst| part(burst).max(1).min(rate.limit.max(1)));
            if rate.limit == 0 { Err(none(whole)) } else { Ok(()) }
        }
    }
}
