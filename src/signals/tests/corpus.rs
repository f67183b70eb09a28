//! Checks the responses that vendors are known to send (`fixtures/headers.json`), and others that are possible
//! (`fixtures/headers-own.json`), against the expected signals. The order of windows does not matter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::*;

#[derive(serde::Deserialize)]
struct Case {
    id: String,
    /// The vendor whose dialect applies.
    vendor: String,
    status: u16,
    now: String,
    headers: Vec<(String, String)>,
    #[serde(default)]
    body: Option<String>,
    expect: Expect,
    /// The rules by shape alone do not find all that is expected.
    needs_vendor_dialect: bool,
}

#[derive(serde::Deserialize)]
struct Expect {
    throttled: bool,
    retry_after_s: Option<f64>,
    windows: Vec<Expected>,
    cost: Option<f64>,
    /// The dialect's wait after a refusal that states none; checked only in the cases that have it.
    default_wait_s: Option<f64>,
    scope: Option<String>,
}

#[derive(serde::Deserialize)]
struct Expected {
    name: Option<String>,
    limit: Option<u64>,
    remaining: Option<u64>,
    used: Option<u64>,
    reset_in_s: Option<f64>,
    window_s: Option<u64>,
}

/// Rounds to the nanosecond, because the fixture's fractions are decimal.
fn duration(seconds: f64) -> Duration {
    Duration::from_nanos((seconds * 1e9).round() as u64)
}

fn mismatch(case: &Case, dialect: &Dialect) -> Option<String> {
    let lines = case.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let status = StatusCode::from_u16(case.status).unwrap();
    let body = case.body.as_deref().unwrap_or_default().as_bytes();
    let headers = headers(lines);
    let signals = super::super::read(dialect, status, &headers, body, at(&case.now));
    let mut expected: Vec<_> = (case.expect.windows.iter())
        .map(|w| (w.name.clone(), w.limit, w.remaining, w.used, w.reset_in_s.map(duration), w.window_s.and_then(secs)))
        .collect();
    let mut windows: Vec<_> = (signals.windows.iter())
        .map(|w| (w.name.as_ref().map(|name| name.to_string()), w.limit, w.remaining, w.used, w.reset_in, w.window))
        .collect();
    expected.sort();
    windows.sort();
    let expect = &case.expect;
    let scope = || expect.scope.is_none() || signals.scope.map(Scope::as_str) == expect.scope.as_deref();
    let default = || expect.default_wait_s.is_none() || signals.default_wait == expect.default_wait_s.map(duration);
    let right = signals.throttled == expect.throttled
        && signals.retry_after == expect.retry_after_s.map(duration)
        && windows == expected
        && signals.cost == expect.cost
        && scope()
        && default();
    // If `wants_body` says that the body does not matter, the result without a body must be the same.
    if right
        && !wants_body(dialect, status, &headers)
        && super::super::read(dialect, status, &headers, b"", at(&case.now)) != signals
    {
        return Some(format!("{}: its body decides, and is not asked for", case.id));
    }
    (!right).then(|| {
        let Expect { throttled, retry_after_s, cost, .. } = expect;
        format!(
            "{}:\n  found    {} {:?} {windows:?} {:?} {:?} {:?}\n  expected {throttled} {retry_after_s:?} {expected:?} {cost:?}",
            case.id, signals.throttled, signals.retry_after, signals.cost, signals.scope, signals.default_wait
        )
    })
}

fn check(cases: &[Case], dialects: &BTreeMap<String, Arc<Dialect>>) -> Vec<String> {
    let plain = Arc::default();
    let with = cases.iter().filter_map(|case| mismatch(case, dialects.get(&case.vendor).unwrap_or(&plain)));
    let by_shape = cases.iter().filter(|case| !case.needs_vendor_dialect);
    let without = by_shape.filter_map(|case| Some(format!("by shape alone: {}", mismatch(case, &plain)?)));
    with.chain(without).collect()
}

fn dialects() -> BTreeMap<String, Arc<Dialect>> {
    crate::config::dialects("dialects.toml", include_str!("../../../fixtures/dialects.toml")).unwrap()
}

#[test]
fn known_responses_are_read_as_documented() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../fixtures/headers.json")).unwrap();
    let wrong = check(&cases, &dialects());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert_eq!(cases.len(), 262);
}

#[test]
fn own_cases_are_read_as_documented() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../fixtures/headers-own.json")).unwrap();
    let wrong = check(&cases, &dialects());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(cases.len() >= 90, "{}", cases.len());
}
