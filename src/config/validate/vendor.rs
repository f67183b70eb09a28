//! Validates vendors: addresses, authentication, headers, timeouts, endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::dialect::dialect;
use super::fields::{
    MAX_LIMITS, MAX_METHODS, check_header, check_id, check_method, choice, duration, fraction, integer,
};
use super::oauth::vendor_oauth;
use super::secret_headers::{secret_headers, taken_headers};
use super::{costs, idempotency, limit, retry};
use crate::config::Costs;
use crate::config::format::{AuthEntry, ConnectionEntry, EndpointEntry, VendorEntry};
use crate::config::limit::{Limit, LimitKind, Scope, Unit};
use crate::config::report::{Report, Step, at};
use crate::config::retry::{AtRest, Keep, Throttle};
use crate::config::vendor::{AuthScheme, Connection, Endpoint, Vendor};
use crate::config::{base_url, pattern, suggest};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time from an established connection until the vendor counts the request.
const TRANSIT_AFTER_CONNECT: Duration = Duration::from_secs(1);
const MAX_RESPONSE_BYTES: i64 = 8 * 1024 * 1024;
const SAFETY: f64 = 0.8;
const MAX_ENDPOINTS: usize = 1024;
const MAX_ALSO: usize = 16;
/// The shortest window whose usage is kept in the store: a shorter one ends before the next process sends.
const KEPT_WINDOW: Duration = Duration::from_secs(60);

/// The vendor that `entry` (all layers merged) describes; problems go to `report`. `resolvers` are the names that the
/// application registered.
pub(in crate::config) fn vendor(
    name: &str,
    environment: &str,
    entry: &VendorEntry,
    resolvers: &BTreeSet<String>,
    report: &mut Report,
) -> Option<Vendor> {
    let before = report.problems.len();
    if let Err(message) = check_id("a vendor's name", name) {
        report.problem(vec![], message);
    }
    if let Err(message) = check_id("an environment's name", environment) {
        report.problem(vec![], message);
    }
    let connection = connection(entry.connection.as_ref(), report);
    let base_url = match &entry.base_url {
        None => {
            let help = "a vendor needs `base_url`; to change a catalogue entry instead of replacing it, add `extends = \"catalogue\"`";
            report.problem(at(&[], "base_url"), help);
            String::new()
        }
        Some(url) => {
            match base_url::check(url, connection.allow_http) {
                Err(message) => report.problem(at(&[], "base_url"), message),
                Ok(()) if !entry.secret_headers.is_empty() && !base_url::host_is_the_vendors(url) => {
                    let message = "each tenant chooses the host of this base URL, and would get the secret of all \
                                   tenants there; state `secret_headers` in the tenants' entries instead";
                    report.problem(at(&[], "secret_headers"), message);
                }
                Ok(()) => {}
            }
            url.clone()
        }
    };
    let auth = auth(entry.auth.as_ref(), report);
    let headers = headers(entry, &auth, report);
    let safety = fraction(entry.safety, SAFETY, at(&[], "safety"), report);
    let connect_timeout =
        duration(entry.connect_timeout.as_deref(), at(&[], "connect_timeout"), report).unwrap_or(CONNECT_TIMEOUT);
    let attempt_timeout =
        duration(entry.attempt_timeout.as_deref(), at(&[], "attempt_timeout"), report).unwrap_or(ATTEMPT_TIMEOUT);
    let max_transit = duration(entry.max_transit.as_deref(), at(&[], "max_transit"), report)
        .unwrap_or(connect_timeout.saturating_add(TRANSIT_AFTER_CONNECT));
    if max_transit < connect_timeout {
        let message = format!(
            "max_transit {max_transit:?} is shorter than connect_timeout {connect_timeout:?}: a request that connects \
             slowly would be counted by the vendor later than here"
        );
        report.warn(at(&[], "max_transit"), message);
    }
    if attempt_timeout < connect_timeout && entry.attempt_timeout.is_some() {
        report.warn(at(&[], "attempt_timeout"), "attempt_timeout is shorter than connect_timeout and decides alone");
    }
    let bytes = entry.max_response_bytes.or(Some(MAX_RESPONSE_BYTES));
    let bytes = integer(bytes, 1..=1 << 40, "max_response_bytes", at(&[], "max_response_bytes"), report);

    let retry = retry::retry(entry, report);
    let idempotency = idempotency::idempotency(entry, &auth, report);
    let secret_headers = secret_headers(&entry.secret_headers, resolvers, report);
    taken_headers(&entry.secret_headers, (&auth, &idempotency, headers.as_slice()), report);
    vendor_oauth(entry.oauth.as_ref(), connection.allow_http, report);
    let throttle = entry.throttle.as_deref();
    let throttle = choice(throttle, "throttle", Throttle::NAMES, Throttle::parse, Throttle::default(), &[], report);
    let keep = entry.dead_letters.as_deref();
    let dead_letters = choice(keep, "dead_letters", Keep::NAMES, Keep::parse, Keep::default(), &[], report);
    let at_rest = entry.at_rest.as_deref();
    let at_rest = choice(at_rest, "at_rest", AtRest::NAMES, AtRest::parse, AtRest::default(), &[], report);
    if at_rest != AtRest::Plain && dead_letters == Keep::Whole {
        let message = "dead_letters = \"whole\" would show what at_rest hides; leave one of them out";
        report.problem(at(&[], "at_rest"), message);
    }

    let costs = costs::of_vendor(&entry.costs, report);
    let dialect = dialect(entry.dialect.as_ref(), &costs, &at(&[], "dialect"), report);

    let also = also(entry, report);
    let limits = limits(&entry.limits, &[], false, (safety, &costs), report);
    if entry.endpoints.len() > MAX_ENDPOINTS {
        report.problem(at(&[], "endpoints"), format!("more than {MAX_ENDPOINTS} endpoints; group their paths"));
    }
    // A BTreeMap iterates in the order of names, which is the order that `Vendor::endpoints` promises.
    let endpoints: Vec<Endpoint> =
        entry.endpoints.iter().map(|(name, entry)| endpoint(name, entry, (safety, &costs), report)).collect();
    ambiguous(&endpoints, report);
    costs::check(&costs, &limits, &endpoints, report);
    let unpublished = entry.unpublished.unwrap_or(false);
    if !unpublished && limits.is_empty() && endpoints.iter().all(|endpoint| endpoint.limits.is_empty()) {
        report.warn(
            at(&[], "limits"),
            "no limit is stated: requests to this vendor are slowed down only by what it answers; state one, or \
             `unpublished = true` if the vendor publishes none",
        );
    }
    if report.problems.len() > before {
        return None;
    }
    let all = limits.iter().chain(endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    let widest_scope = all.clone().map(|limit| limit.scope).fold(Scope::Tenant, Scope::max);
    let keeps_usage =
        all.clone().any(|limit| matches!(&limit.kind, LimitKind::Rate(rate) if rate.window >= KEPT_WINDOW));
    let counts_bytes = { all }.any(|limit| match &limit.kind {
        LimitKind::Rate(rate) => matches!(rate.unit, Unit::RequestBytes | Unit::ResponseBytes | Unit::Bytes),
        LimitKind::Concurrency { .. } => false,
    });
    Some(Vendor {
        name: name.into(),
        environment: environment.into(),
        base_url,
        auth,
        headers,
        secret_headers,
        costs,
        limits,
        endpoints,
        connect_timeout,
        attempt_timeout,
        max_transit,
        max_response_bytes: bytes?.unsigned_abs(),
        connection,
        propagate_trace: entry.propagate_trace.unwrap_or(false),
        also,
        quirks: entry.quirks.clone().unwrap_or_default(),
        unpublished,
        retry,
        idempotency,
        throttle,
        dead_letters,
        at_rest,
        dialect: dialect.into(),
        counts_bytes,
        keeps_usage,
        widest_scope,
    })
}

/// The vendor's other names. Each must be valid as a vendor's name, because people type it in place of one.
fn also(entry: &VendorEntry, report: &mut Report) -> Vec<String> {
    let also = entry.also.clone().unwrap_or_default();
    if also.len() > MAX_ALSO {
        report.problem(at(&[], "also"), format!("more than {MAX_ALSO} other names; keep those in common use"));
    }
    for (index, name) in also.iter().enumerate().take(MAX_ALSO) {
        if let Err(message) = check_id("another name of a vendor", name) {
            report.problem(at(&at(&[], "also"), Step::Index(index)), message);
        }
    }
    also
}

fn limits(
    entries: &[crate::config::entry::LimitEntry],
    path: &[Step],
    endpoint: bool,
    of_vendor: (f64, &Costs),
    report: &mut Report,
) -> Vec<Limit> {
    if entries.len() > MAX_LIMITS {
        report.problem(at(path, "limits"), format!("more than {MAX_LIMITS} limits; drop those that others imply"));
        return Vec::new();
    }
    entries.iter().filter_map(|entry| limit::limit(entry, path, endpoint, of_vendor, report)).collect()
}

fn endpoint(name: &str, entry: &EndpointEntry, of_vendor: (f64, &Costs), report: &mut Report) -> Endpoint {
    let path = at(&at(&[], "endpoints"), name);
    if let Err(message) = check_id("an endpoint's name", name) {
        report.problem(path.clone(), message);
    }
    let paths = entry.paths.clone().unwrap_or_default();
    if paths.len() > pattern::MAX_PATTERNS {
        report.problem(at(&path, "paths"), format!("more than {} patterns; use `*` and `**`", pattern::MAX_PATTERNS));
    }
    for (index, text) in paths.iter().enumerate().take(pattern::MAX_PATTERNS) {
        if let Err(message) = pattern::check(text) {
            report.problem(at(&at(&path, "paths"), Step::Index(index)), message);
        }
    }
    let methods = entry.methods.clone().unwrap_or_default();
    if methods.len() > MAX_METHODS {
        report.problem(at(&path, "methods"), format!("more than {MAX_METHODS} methods; leave them out to mean all"));
    }
    for (index, method) in methods.iter().enumerate().take(MAX_METHODS) {
        if let Err(message) = check_method(method) {
            report.problem(at(&at(&path, "methods"), Step::Index(index)), message);
        }
    }
    let costs = costs::of_endpoint(&entry.costs, of_vendor.1, &path, report);
    let limits = limits(&entry.limits, &path, true, of_vendor, report);
    Endpoint { name: name.into(), paths, methods, costs, limits }
}

/// Reports two endpoints with the same pattern and a common method, because neither pattern is more literal.
fn ambiguous(endpoints: &[Endpoint], report: &mut Report) {
    let overlap = |a: &Endpoint, b: &Endpoint| {
        // An endpoint that names its methods wins over one that takes all.
        a.methods.is_empty() == b.methods.is_empty()
            && (a.methods.is_empty() || a.methods.iter().any(|m| b.methods.contains(m)))
    };
    // Groups the endpoints by pattern first: comparing each with every other would take minutes for a malicious file.
    let mut by_pattern: BTreeMap<String, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in endpoints {
        for (index, path) in endpoint.paths.iter().enumerate() {
            let seen = by_pattern.entry(pattern::normal(path)).or_default();
            if let Some(earlier) = seen.iter().find(|earlier| overlap(earlier, endpoint)) {
                let place = vec!["endpoints".into(), (&*endpoint.name).into(), "paths".into(), Step::Index(index)];
                let message = if earlier.name == endpoint.name {
                    "this pattern is stated twice; remove one".to_owned()
                } else {
                    format!("endpoint `{}` has this pattern for the same methods; remove it from one", earlier.name)
                };
                report.problem(place, message);
            }
            seen.push(endpoint);
        }
    }
}

fn auth(entry: Option<&AuthEntry>, report: &mut Report) -> AuthScheme {
    const SCHEMES: [&str; 5] = ["none", "bearer", "header", "basic", "query"];
    let Some(entry) = entry else { return AuthScheme::None };
    let path = at(&[], "auth");
    let named = matches!(entry.scheme.as_str(), "header" | "query");
    if entry.name.is_some() && !named {
        report.problem(at(&path, "name"), "`name` belongs to the schemes `header` and `query`; remove it");
    }
    if entry.prefix.is_some() && entry.scheme != "header" {
        report.problem(at(&path, "prefix"), "`prefix` belongs to the scheme `header`; remove it");
    }
    if named && entry.name.as_deref().unwrap_or_default().is_empty() {
        report.problem(at(&path, "name"), format!("the scheme `{}` needs `name`", entry.scheme));
    }
    let name = entry.name.clone().unwrap_or_default();
    let prefix = entry.prefix.clone().unwrap_or_default();
    match entry.scheme.as_str() {
        "none" => AuthScheme::None,
        "bearer" => AuthScheme::Bearer,
        "basic" => AuthScheme::Basic,
        "header" => {
            if let Some(Err(message)) = (!name.is_empty()).then(|| check_header(&name)) {
                report.problem(at(&path, "name"), message);
            }
            if http::HeaderValue::from_str(&prefix).is_err() || prefix.len() > 64 {
                report.problem(at(&path, "prefix"), "the prefix cannot stand in a header; use for example \"Token \"");
            }
            AuthScheme::Header { name, prefix }
        }
        "query" => {
            let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'[' | b']');
            if !name.bytes().all(fine) {
                report.problem(at(&path, "name"), "a query parameter's name is letters, digits, `-`, `_` and `.`");
            }
            AuthScheme::Query { name }
        }
        other => {
            report.problem(at(&path, "scheme"), suggest::unknown("scheme", other, "schemes", SCHEMES));
            AuthScheme::None
        }
    }
}

fn headers(entry: &VendorEntry, auth: &AuthScheme, report: &mut Report) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for (name, value) in &entry.headers {
        let path = at(&at(&[], "headers"), name.as_str());
        let lower = name.to_ascii_lowercase();
        let taken = matches!(auth, AuthScheme::Header { name, .. } if name.eq_ignore_ascii_case(&lower));
        if let Err(message) = check_header(name) {
            report.problem(path, message);
        } else if lower == "authorization" || lower == "cookie" || taken {
            // The value is a secret, so this message must not repeat it.
            report.problem(path, format!("`{lower}` carries a secret; use `auth` here and `credential` in the tenant"));
        } else if http::HeaderValue::from_str(value).is_err() || value.len() > 8192 {
            report.problem(
                path,
                "the value cannot stand in a header: it holds a control character or is longer than 8192 bytes",
            );
        } else if out.iter().any(|(other, _)| *other == lower) {
            report.problem(path, "this header is stated twice (names have no case); remove one");
        } else {
            out.push((lower, value.clone()));
        }
    }
    out
}

fn connection(entry: Option<&ConnectionEntry>, report: &mut Report) -> Connection {
    let Some(entry) = entry else { return Connection::default() };
    let path = at(&[], "connection");
    if let Some(proxy) = &entry.proxy {
        let place = at(&path, "proxy");
        match url::Url::parse(proxy) {
            Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() => {
                report.problem(place, "a proxy is \"http://host:port\" or \"https://host:port\"");
            }
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                report.problem(
                    place,
                    "the proxy URL holds a user name or password (not repeated here); configuration holds no secrets",
                );
            }
            Ok(_) => {}
            Err(error) => report.problem(place, format!("this is not a URL ({error}); write \"http://host:port\"")),
        }
    }
    for (field, file) in [("extra_ca", &entry.extra_ca), ("client_certificate", &entry.client_certificate)] {
        if let Some(Err(message)) = file.as_deref().map(check_file) {
            report.problem(at(&path, field), message);
        }
    }
    Connection {
        proxy: entry.proxy.clone(),
        extra_ca: entry.extra_ca.clone(),
        client_certificate: entry.client_certificate.clone(),
        allow_http: entry.allow_http.unwrap_or(false),
        allow_private: entry.allow_private.unwrap_or(false),
    }
}

/// Checks the path of a PEM file. Whether the file exists is checked when it is read.
pub(in crate::config) fn check_file(path: &str) -> Result<(), &'static str> {
    if path.contains("-----BEGIN") {
        return Err("this is the content of a PEM file (not repeated here); write its path");
    }
    if path.is_empty() || path.len() > 4096 || path.chars().any(char::is_control) {
        return Err("this is not a file's path");
    }
    Ok(())
}
