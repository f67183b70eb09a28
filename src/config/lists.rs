//! Checks the lists of a vendor's entry before the entry is merged with others.

use std::borrow::Cow;
use std::collections::HashSet;

use super::format::VendorEntry;
use super::report::{Report, Step, at};
use super::resolve::LIVE;
use super::validate;

/// The most default headers of one vendor.
const MAX_HEADERS: usize = 64;

/// Reports what merging would hide: repeated names, and fields that an environment must not state. Returns the entry to
/// merge, so that its other problems are found too: of limits with one name it has the first. `None` if a list is too
/// long, because merging it would take long.
pub(super) fn check_lists<'e>(entry: &'e VendorEntry, report: &mut Report) -> Option<Cow<'e, VendorEntry>> {
    let before = report.problems.len();
    let mut are_short = check_lengths_and_names(entry, &[], report);
    for (name, environment) in &entry.environments {
        let path = at(&at(&[], "environments"), name.as_str());
        are_short &= check_lengths_and_names(environment, &path, report);
        if name == LIVE {
            report.problem(path.clone(), "`live` is the vendor entry itself; move these fields there");
        }
        if environment.extends.is_some() {
            report.problem(at(&path, "extends"), "an environment always builds on its vendor; remove `extends`");
        }
        if !environment.environments.is_empty() {
            report.problem(at(&path, "environments"), "an environment has none of its own; move it to the vendor");
        }
    }
    if !are_short {
        return None;
    }
    if report.problems.len() == before {
        return Some(Cow::Borrowed(entry));
    }
    let mut entry = entry.clone();
    entry.environments.values_mut().for_each(drop_repeated);
    drop_repeated(&mut entry);
    Some(Cow::Owned(entry))
}

/// Checks the lists of a vendor or of one environment. Returns whether all are short enough to be merged.
fn check_lengths_and_names(entry: &VendorEntry, path: &[Step], report: &mut Report) -> bool {
    let mut are_short = validate::duplicates(&entry.limits, path, report);
    if entry.headers.len() > MAX_HEADERS {
        report.problem(at(path, "headers"), format!("more than {MAX_HEADERS} headers"));
        are_short = false;
    }
    are_short &= !validate::too_many_secret_headers(&entry.secret_headers, path, report);
    for (name, endpoint) in &entry.endpoints {
        let path = at(&at(path, "endpoints"), name.as_str());
        are_short &= validate::duplicates(&endpoint.limits, &path, report);
    }
    are_short
}

/// Of limits with one name leaves the first, to which the positions of further problems refer.
fn drop_repeated(entry: &mut VendorEntry) {
    let of_endpoints = entry.endpoints.values_mut().map(|endpoint| &mut endpoint.limits);
    for limits in std::iter::once(&mut entry.limits).chain(of_endpoints) {
        let mut seen = HashSet::new();
        limits.retain(|limit| limit.name.as_ref().is_none_or(|name| seen.insert(name.clone())));
    }
}
