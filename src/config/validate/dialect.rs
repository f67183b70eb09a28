//! Validates `[vendors.NAME.dialect]`: responses must be able to have each place, and to match each rule.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fields::{choice, duration, integer};
use crate::config::format::{AnswerEntry, DialectEntry, FigureEntry, PlacesEntry, ValueEntry, WaitEntry, WindowEntry};
use crate::config::report::{Path, Report, Step, at};
use crate::config::{Costs, suggest};
use crate::signals::Dialect;
use crate::signals::dialect::{AnswerRule, CostRule, Figure, Form, ResetMeans, Scope, Source, WaitRule, WindowRule};
use crate::signals::json::MAX_POINTERS;

/// The most rules of one kind: each is applied to every response.
const MAX_RULES: usize = 64;
/// The most statuses, values or texts of one rule.
const MAX_VALUES: usize = 64;
const MAX_ITEMS: i64 = 31;
/// The most places of one cost, and the most parts of one sum. With four kinds of points they add up to the number of
/// values that one pass over a body can find.
const MAX_PLACES: usize = 4;
const MAX_PARTS: usize = 2;

/// The dialect that `entry` describes; problems go to `report`.
pub(in crate::config) fn dialect(
    entry: Option<&DialectEntry>,
    costs: &Costs,
    path: &Path,
    report: &mut Report,
) -> Dialect {
    let Some(entry) = entry else { return Dialect::default() };
    let means = entry.reset_means.as_deref();
    let (names, parse) = (ResetMeans::NAMES, ResetMeans::parse);
    let ignore = bounded(&entry.ignore, "ignore", MAX_VALUES, path, report);
    let ignore = ignore.iter().enumerate().filter_map(|(index, name)| {
        let header = http::HeaderName::from_bytes(name.as_bytes());
        if header.is_err() {
            let place = at(&at(path, "ignore"), Step::Index(index));
            report.problem(place, "this is not a header name; use letters, digits and `-`");
        }
        header.ok()
    });
    let ignore = ignore.collect();
    let dialect = Dialect {
        windows: rules(&entry.windows, "windows", path, report, window),
        answers: rules(&entry.answers, "answers", path, report, answer),
        waits: rules(&entry.waits, "waits", path, report, wait),
        costs: self::costs(entry.costs.as_ref(), costs, path, report),
        rate: source(&entry.rate, "rate", path, report),
        reset_means: choice(means, "reset_means", names, parse, ResetMeans::default(), path, report),
        ignore,
        nothing: bounded(&entry.nothing, "nothing", MAX_VALUES, path, report).to_vec(),
    };
    let pointers = dialect.pointer_count();
    if pointers > MAX_POINTERS {
        let message = format!(
            "this dialect reads {pointers} different places `body#/…`, and at most {MAX_POINTERS} are looked up; \
             leave out those that no answer needs, or write `*` where they differ in one key"
        );
        report.problem(path.clone(), message);
    }
    dialect
}

fn rules<E, R>(
    entries: &Option<Vec<E>>,
    field: &str,
    path: &Path,
    report: &mut Report,
    rule: impl Fn(&E, &Path, &mut Report) -> R,
) -> Vec<R> {
    let entries = bounded(entries, field, MAX_RULES, path, report);
    let place = at(path, field);
    entries.iter().enumerate().map(|(index, entry)| rule(entry, &at(&place, Step::Index(index)), report)).collect()
}

/// The list, or an empty one if it is too long to go through for every response, which is reported.
fn bounded<'e, T>(list: &'e Option<Vec<T>>, field: &str, most: usize, path: &Path, report: &mut Report) -> &'e [T] {
    let list = list.as_deref().unwrap_or_default();
    if list.len() <= most {
        return list;
    }
    report.problem(at(path, field), format!("more than {most} of them; keep those that answers are decided by"));
    &[]
}

fn source(text: &Option<String>, field: &str, path: &Path, report: &mut Report) -> Option<Source> {
    match Source::parse(text.as_deref()?) {
        Ok(source) if source.is_member() => {
            report.problem(at(path, field), "a place that begins with `/` is below an `each`; write \"body#/…\"");
            None
        }
        Ok(source) => Some(source),
        Err(message) => {
            report.problem(at(path, field), message);
            None
        }
    }
}

/// As [`source`], but with `each` also accepts a place that begins with `/`: a member of an item of `each`.
fn member(text: &Option<String>, each: bool, field: &str, path: &Path, report: &mut Report) -> Option<Source> {
    match text.as_deref().map(Source::parse) {
        Some(Ok(source)) if each && source.is_member() => Some(source),
        _ => source(text, field, path, report),
    }
}

/// The rules that read from a response what its request cost, by kind of points.
fn costs(
    entry: Option<&BTreeMap<String, PlacesEntry>>,
    known: &Costs,
    path: &Path,
    report: &mut Report,
) -> Vec<CostRule> {
    let path = at(path, "costs");
    let rules = entry.into_iter().flatten().filter_map(|(kind, places)| {
        let place = at(&path, &**kind);
        let Some(name) = known.name(kind) else {
            let hint = suggest::unknown("kind of points", kind, "kinds", known.iter().map(|(name, _)| name));
            report.problem(place, format!("{hint}; others are declared in the vendor's `costs`"));
            return None;
        };
        let places = match places {
            PlacesEntry::One(text) => std::slice::from_ref(text),
            PlacesEntry::Any(texts) => texts,
        };
        if places.is_empty() || places.len() > MAX_PLACES {
            report.problem(place, format!("state 1 to {MAX_PLACES} places"));
            return None;
        }
        let places = places.iter().map(|text| sum(text, kind, &path, report)).collect();
        Some(CostRule { kind: name, places })
    });
    rules.collect()
}

/// `A + B`: places whose numbers are added.
fn sum(text: &str, field: &str, path: &Path, report: &mut Report) -> Vec<Source> {
    let mut parts = text.split(" + ");
    let part = |part: &str| source(&Some(part.trim().to_owned()), field, path, report);
    let sources = parts.by_ref().take(MAX_PARTS).filter_map(part).collect();
    if parts.next().is_some() {
        report.problem(at(path, field), format!("more than {MAX_PARTS} places in one sum"));
    }
    sources
}

fn figure(entry: &Option<FigureEntry>, each: bool, field: &str, path: &Path, report: &mut Report) -> Option<Figure> {
    match entry.as_ref()? {
        FigureEntry::Is(count) => {
            let count = integer(Some(*count), 0..=i64::MAX, "a count", at(path, field), report)?;
            Some(Figure::Is(count.unsigned_abs()))
        }
        FigureEntry::At(text) => member(&Some(text.clone()), each, field, path, report).map(Figure::At),
    }
}

fn unit(text: &Option<String>, path: &Path, report: &mut Report) -> Option<u128> {
    const UNITS: [(&str, u128); 4] =
        [("ms", 1_000_000), ("s", 1_000_000_000), ("m", 60_000_000_000), ("h", 3_600_000_000_000)];
    let text = text.as_deref()?;
    let found = UNITS.iter().find(|(name, _)| *name == text).map(|(_, nanos)| *nanos);
    if found.is_none() {
        report.problem(at(path, "unit"), suggest::unknown("unit", text, "units", UNITS.iter().map(|(name, _)| *name)));
    }
    found
}

fn window(entry: &WindowEntry, path: &Path, report: &mut Report) -> WindowRule {
    let each = source(&entry.each, "each", path, report);
    let inside = entry.each.is_some();
    let form = entry.form.as_deref().and_then(|text| match Form::parse(text) {
        Ok(form) => Some(form),
        Err(message) => {
            report.problem(at(path, "form"), message);
            None
        }
    });
    let items = entry.items.as_deref().and_then(|name| match http::HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) => Some(name),
        Err(_) => {
            report.problem(at(path, "items"), "this is not a header name; use letters, digits and `-`");
            None
        }
    });
    if entry.items.is_some() != entry.form.is_some() {
        report.problem(path.clone(), "`items` (a header) and `form` (of each item in it) belong together; state both");
    }
    if inside && !matches!(each, None | Some(Source::InHeader(..) | Source::Body(_))) {
        report.problem(at(path, "each"), "`each` is JSON: write \"body#/…\" or \"header#/…\"");
    }
    if entry.name.as_ref().is_some_and(|name| name.is_empty() || name.len() > 64) {
        report.problem(at(path, "name"), "a window's name is 1 to 64 bytes; leave it out where there is but one");
    }
    let rule = WindowRule {
        name: entry.name.clone(),
        each,
        items: items.zip(form),
        limit: figure(&entry.limit, inside, "limit", path, report),
        remaining: figure(&entry.remaining, inside, "remaining", path, report),
        used: figure(&entry.used, inside, "used", path, report),
        reset: member(&entry.reset, inside, "reset", path, report),
        regain: member(&entry.regain, inside, "regain", path, report),
        length_from: member(&entry.length_from, inside, "length_from", path, report),
        length: duration(entry.length.as_deref(), at(path, "length"), report),
        item: integer(entry.item, 0..=MAX_ITEMS, "the number of an item", at(path, "item"), report)
            .and_then(|item| usize::try_from(item).ok()),
        unit: unit(&entry.unit, path, report),
    };
    let reads = entry.items.is_some()
        || [&entry.limit, &entry.remaining, &entry.used].iter().any(|f| matches!(f, Some(FigureEntry::At(_))))
        || [&entry.reset, &entry.regain, &entry.length_from].iter().any(|place| place.is_some());
    if !reads {
        report
            .problem(path.clone(), "this window reads nothing; state `limit`, `remaining`, `used`, `reset` or `items`");
    }
    rule
}

fn answer(entry: &AnswerEntry, path: &Path, report: &mut Report) -> AnswerRule {
    let status = bounded(&entry.status, "status", MAX_VALUES, path, report);
    let status = status.iter().enumerate().filter_map(|(index, status)| {
        let place = at(&at(path, "status"), Step::Index(index));
        let status = integer(Some(*status), 100..=999, "a status", place, report)?;
        u16::try_from(status).ok()
    });
    let status: Vec<u16> = status.collect();
    let is = bounded(&entry.is, "is", MAX_VALUES, path, report).iter().map(|value| match value {
        ValueEntry::Text(text) => text.clone(),
        ValueEntry::Number(number) => number.to_string(),
        ValueEntry::Is(is) => is.to_string(),
    });
    let is = is.collect();
    let contains = bounded(&entry.contains, "contains", MAX_VALUES, path, report).to_vec();
    if contains.iter().any(|text| text.is_empty() || text.len() > 128) {
        report.problem(at(path, "contains"), "a text to look for is 1 to 128 bytes");
    }
    let scope = entry.scope.as_deref();
    let scope = scope.and_then(|text| {
        let parse = |text: &str| Scope::parse(text).map(Some);
        choice(Some(text), "scope", Scope::NAMES, parse, None, path, report)
    });
    let asked = entry.from.is_some() || entry.is.is_some() || entry.contains.is_some();
    if !asked && status.is_empty() && !entry.exhausted.unwrap_or(false) && entry.throttled.is_some() {
        report.problem(path.clone(), "this rule fits every answer; state `status`, `from`, `is` or `contains`");
    }
    let says = entry.throttled.is_some() || scope.is_some() || entry.wait.is_some() || entry.wait_until_next.is_some();
    if !says && entry.scope.is_none() {
        report.problem(path.clone(), "this rule says nothing; state `throttled`, `scope`, `wait` or `wait_until_next`");
    }
    AnswerRule {
        status,
        from: source(&entry.from, "from", path, report),
        is,
        contains,
        exhausted: entry.exhausted.unwrap_or(false),
        throttled: entry.throttled,
        scope,
        wait: wait_of(&entry.wait, "wait", path, report),
        wait_until_next: wait_of(&entry.wait_until_next, "wait_until_next", path, report),
    }
}

fn wait_of(text: &Option<String>, field: &str, path: &Path, report: &mut Report) -> Option<Duration> {
    duration(text.as_deref(), at(path, field), report)
}

fn wait(entry: &WaitEntry, path: &Path, report: &mut Report) -> WaitRule {
    let needed = source(&entry.needed, "needed", path, report);
    let available = source(&entry.available, "available", path, report);
    let per_second = source(&entry.per_second, "per_second", path, report);
    let stated = [&entry.needed, &entry.available, &entry.per_second].iter().filter(|text| text.is_some()).count();
    if !(stated == 3 && entry.from.is_none() || stated == 0 && entry.from.is_some()) {
        let message = "a wait stands somewhere (`from`), or follows from `needed`, `available` and `per_second`";
        report.problem(path.clone(), message);
    }
    if entry.after.as_ref().is_some_and(|text| text.is_empty() || text.len() > 128) {
        report.problem(at(path, "after"), "the words before a wait are 1 to 128 bytes");
    }
    let bucket = match (needed, available, per_second) {
        (Some(needed), Some(available), Some(per_second)) => Some([needed, available, per_second]),
        _ => None,
    };
    WaitRule {
        from: source(&entry.from, "from", path, report),
        after: entry.after.clone(),
        unit: unit(&entry.unit, path, report),
        bucket,
    }
}

#[cfg(test)]
mod tests;
