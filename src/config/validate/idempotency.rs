//! Validates `[vendors.NAME.idempotency]`: where the key goes, and which requests carry it.

use super::fields::{MAX_METHODS, check_header, check_method, choice, duration, integer};
use crate::config::format::{IdempotencyEntry, VendorEntry};
use crate::config::idempotency::{Idempotency, KeyCarrier, OnUnsendable};
use crate::config::pattern;
use crate::config::report::{Path, Report, Step, at};
use crate::config::vendor::AuthScheme;

/// The longest name of a query parameter or of a member of a body.
const LONGEST_NAME: usize = 64;

/// How `vendor` takes keys; problems go to `report`. `auth` says where the credential goes, which no key may overwrite.
pub(super) fn idempotency(vendor: &VendorEntry, auth: &AuthScheme, report: &mut Report) -> Idempotency {
    let mut out = Idempotency::default();
    let Some(entry) = &vendor.idempotency else { return out };
    let path = at(&[], "idempotency");
    out.carrier = carrier(entry, vendor, auth, &path, report);
    if let Some(methods) = &entry.methods {
        out.methods.clone_from(methods);
        if methods.is_empty() || methods.len() > MAX_METHODS {
            let message = format!("1 to {MAX_METHODS} methods; leave `methods` out to mean POST and PATCH");
            report.problem(at(&path, "methods"), message);
        }
        for (index, method) in methods.iter().enumerate().take(MAX_METHODS) {
            if let Err(message) = check_method(method) {
                report.problem(at(&at(&path, "methods"), Step::Index(index)), message);
            }
        }
    }
    if let Some(paths) = &entry.paths {
        out.paths.clone_from(paths);
        if paths.is_empty() || paths.len() > pattern::MAX_PATTERNS {
            let message = format!("1 to {} patterns; leave `paths` out to mean all", pattern::MAX_PATTERNS);
            report.problem(at(&path, "paths"), message);
        }
        for (index, text) in paths.iter().enumerate().take(pattern::MAX_PATTERNS) {
            if let Err(message) = pattern::check(text) {
                report.problem(at(&at(&path, "paths"), Step::Index(index)), message);
            }
        }
    }
    let length = integer(entry.max_length, 32..=255, "max_length", at(&path, "max_length"), report);
    if let Some(length) = length.and_then(|length| usize::try_from(length).ok()) {
        out.max_length = length;
    }
    if let Some(keeps) = duration(entry.keeps.as_deref(), at(&path, "keeps"), report) {
        out.keeps = keeps;
    }
    let action = entry.on_unsendable.as_deref();
    let (names, parse, default) = (OnUnsendable::NAMES, OnUnsendable::parse, OnUnsendable::default());
    out.on_unsendable = choice(action, "on_unsendable", names, parse, default, &path, report);
    let of_a_carrier = [
        ("methods", entry.methods.is_some()),
        ("paths", entry.paths.is_some()),
        ("max_length", entry.max_length.is_some()),
        ("keeps", entry.keeps.is_some()),
    ];
    let has_carrier = entry.header.is_some() || entry.query.is_some() || entry.body.is_some();
    for (field, _) in of_a_carrier.into_iter().filter(|(_, is_stated)| *is_stated && !has_carrier) {
        let message = "this says which keys and requests, but not where the key goes; add `header`, `query` or `body`";
        report.problem(at(&path, field), message);
    }
    out
}

fn carrier(
    entry: &IdempotencyEntry,
    vendor: &VendorEntry,
    auth: &AuthScheme,
    path: &Path,
    report: &mut Report,
) -> Option<KeyCarrier> {
    let stated = [("header", &entry.header), ("query", &entry.query), ("body", &entry.body)];
    let mut stated = stated.into_iter().filter_map(|(field, name)| Some((field, name.as_ref()?)));
    let (field, name) = stated.next()?;
    if let Some((second, _)) = stated.next() {
        report.problem(at(path, second), format!("the key goes to one place, and `{field}` states one; remove one"));
        return None;
    }
    let (problem, carrier) = match field {
        "header" => {
            let lower = name.to_ascii_lowercase();
            (header_problem(&lower, vendor, auth), KeyCarrier::Header(lower))
        }
        "query" => {
            let is_secret = matches!(auth, AuthScheme::Query { name: secret } if secret == name);
            let secret = is_secret.then(|| "this parameter carries the credential and cannot carry a key".to_owned());
            (name_problem(name).or(secret), KeyCarrier::Query(name.clone()))
        }
        _ => (name_problem(name), KeyCarrier::Body(name.clone())),
    };
    match problem {
        None => Some(carrier),
        Some(message) => {
            report.problem(at(path, field), message);
            None
        }
    }
}

/// The problem with the header `lower` as the place of keys, if any.
fn header_problem(lower: &str, vendor: &VendorEntry, auth: &AuthScheme) -> Option<String> {
    let secret = matches!(lower, "authorization" | "cookie")
        || matches!(auth, AuthScheme::Header { name, .. } if name.eq_ignore_ascii_case(lower));
    match check_header(lower) {
        Err(message) => Some(message),
        Ok(()) if secret => Some("this header carries a secret and cannot carry a key".to_owned()),
        Ok(()) if vendor.headers.keys().any(|name| name.eq_ignore_ascii_case(lower)) => {
            // With a constant in place of the key, the vendor would take all requests for one.
            Some("`headers` gives this header the same value in every request; remove it there".to_owned())
        }
        Ok(()) => None,
    }
}

fn name_problem(name: &str) -> Option<String> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_fine = (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(fine);
    (!is_fine).then(|| format!("a name is 1 to {LONGEST_NAME} letters, digits, `-`, `_` and `.`"))
}
