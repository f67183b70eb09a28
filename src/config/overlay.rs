//! Applies one entry over another: an environment over its vendor, a user's entry over the catalogue's, a tenant's
//! overrides over both.
//!
//! The rule is the same everywhere: a field that the upper entry states replaces that of the lower entry. Limits and
//! endpoints are matched by name, headers by name without case. Lists (`paths`, `methods`, `quirks`) are replaced
//! whole. An overlay cannot remove anything; to start from nothing, an entry must not extend another. The one exception:
//! an environment with a base URL of its own inherits no headers with secrets.

use super::entry::LimitEntry;
use super::format::{
    ConnectionEntry, DialectEntry, EndpointEntry, IdempotencyEntry, RetryEntry, VendorEntry, VendorOAuthEntry,
};
use super::resets;

/// Replaces `lower` with `upper` if `upper` is stated.
fn set<T: Clone>(lower: &mut Option<T>, upper: &Option<T>) {
    if upper.is_some() {
        lower.clone_from(upper);
    }
}

/// Applies `upper` over `lower`. Environments are merged by name; `extends` stays as in `lower`.
pub(super) fn vendor(lower: &VendorEntry, upper: &VendorEntry) -> VendorEntry {
    let mut out = lower.clone();
    set(&mut out.base_url, &upper.base_url);
    set(&mut out.auth, &upper.auth);
    set(&mut out.safety, &upper.safety);
    set(&mut out.connect_timeout, &upper.connect_timeout);
    set(&mut out.attempt_timeout, &upper.attempt_timeout);
    set(&mut out.max_transit, &upper.max_transit);
    set(&mut out.max_response_bytes, &upper.max_response_bytes);
    set(&mut out.propagate_trace, &upper.propagate_trace);
    set(&mut out.also, &upper.also);
    set(&mut out.quirks, &upper.quirks);
    set(&mut out.unpublished, &upper.unpublished);
    set(&mut out.throttle, &upper.throttle);
    set(&mut out.dead_letters, &upper.dead_letters);
    set(&mut out.at_rest, &upper.at_rest);
    for (name, value) in &upper.headers {
        out.headers.retain(|existing, _| !existing.eq_ignore_ascii_case(name));
        out.headers.insert(name.clone(), value.clone());
    }
    upper.secret_headers.iter().for_each(|(name, reference)| out.secret_headers.set(name, reference));
    if let Some(upper) = &upper.connection {
        connection(out.connection.get_or_insert_default(), upper);
    }
    if let Some(upper) = &upper.retry {
        retry(out.retry.get_or_insert_default(), upper);
    }
    if let Some(upper) = &upper.idempotency {
        idempotency(out.idempotency.get_or_insert_default(), upper);
    }
    if let Some(upper) = &upper.oauth {
        oauth(out.oauth.get_or_insert_default(), upper);
    }
    if let Some(upper) = &upper.dialect {
        dialect(out.dialect.get_or_insert_default(), upper);
    }
    out.costs.extend(upper.costs.clone());
    limits(&mut out.limits, &upper.limits);
    for (name, upper) in &upper.endpoints {
        endpoint(out.endpoints.entry(name.clone()).or_default(), upper);
    }
    for (name, upper) in &upper.environments {
        let lower = out.environments.remove(name).unwrap_or_default();
        out.environments.insert(name.clone(), vendor(&lower, upper));
    }
    out
}

/// Applies an environment over its vendor. One with a base URL of its own gets none of the vendor's headers with secrets:
/// they belong to another system, which others may see.
pub(super) fn environment(base: &VendorEntry, upper: &VendorEntry) -> VendorEntry {
    let mut out = vendor(base, upper);
    if upper.base_url.is_some() {
        out.secret_headers.clone_from(&upper.secret_headers);
    }
    out
}

fn connection(lower: &mut ConnectionEntry, upper: &ConnectionEntry) {
    set(&mut lower.proxy, &upper.proxy);
    set(&mut lower.extra_ca, &upper.extra_ca);
    set(&mut lower.client_certificate, &upper.client_certificate);
    set(&mut lower.allow_http, &upper.allow_http);
    set(&mut lower.allow_private, &upper.allow_private);
}

fn retry(lower: &mut RetryEntry, upper: &RetryEntry) {
    set(&mut lower.max_retries, &upper.max_retries);
    set(&mut lower.first_wait, &upper.first_wait);
    set(&mut lower.longest_wait, &upper.longest_wait);
    set(&mut lower.default_wait, &upper.default_wait);
    set(&mut lower.max_age, &upper.max_age);
    set(&mut lower.max_hold, &upper.max_hold);
    set(&mut lower.max_pause, &upper.max_pause);
    set(&mut lower.max_shared_pause, &upper.max_shared_pause);
    set(&mut lower.on_ambiguous, &upper.on_ambiguous);
    set(&mut lower.unavailable_is_safe, &upper.unavailable_is_safe);
    set(&mut lower.unprocessed_is_safe, &upper.unprocessed_is_safe);
    set(&mut lower.max_replay_bytes, &upper.max_replay_bytes);
}

/// Applies `upper` over `lower`. If `upper` states where the key goes, the place in `lower` is dropped.
fn idempotency(lower: &mut IdempotencyEntry, upper: &IdempotencyEntry) {
    if upper.header.is_some() || upper.query.is_some() || upper.body.is_some() {
        (lower.header, lower.query, lower.body) = (upper.header.clone(), upper.query.clone(), upper.body.clone());
    }
    set(&mut lower.methods, &upper.methods);
    set(&mut lower.paths, &upper.paths);
    set(&mut lower.max_length, &upper.max_length);
    set(&mut lower.keeps, &upper.keeps);
    set(&mut lower.on_unsendable, &upper.on_unsendable);
}

fn oauth(lower: &mut VendorOAuthEntry, upper: &VendorOAuthEntry) {
    set(&mut lower.grant, &upper.grant);
    set(&mut lower.token_url, &upper.token_url);
    set(&mut lower.client_auth, &upper.client_auth);
    set(&mut lower.scopes, &upper.scopes);
    set(&mut lower.params, &upper.params);
    set(&mut lower.rotates, &upper.rotates);
    set(&mut lower.client_id, &upper.client_id);
    set(&mut lower.client_secret, &upper.client_secret);
    set(&mut lower.private_key, &upper.private_key);
    set(&mut lower.key_id, &upper.key_id);
    set(&mut lower.algorithm, &upper.algorithm);
    set(&mut lower.audience, &upper.audience);
}

fn dialect(lower: &mut DialectEntry, upper: &DialectEntry) {
    set(&mut lower.windows, &upper.windows);
    set(&mut lower.answers, &upper.answers);
    set(&mut lower.waits, &upper.waits);
    if let Some(upper) = &upper.costs {
        lower.costs.get_or_insert_default().extend(upper.clone());
    }
    set(&mut lower.rate, &upper.rate);
    set(&mut lower.reset_means, &upper.reset_means);
    set(&mut lower.ignore, &upper.ignore);
    set(&mut lower.nothing, &upper.nothing);
}

fn endpoint(lower: &mut EndpointEntry, upper: &EndpointEntry) {
    set(&mut lower.paths, &upper.paths);
    set(&mut lower.methods, &upper.methods);
    lower.costs.extend(upper.costs.clone());
    limits(&mut lower.limits, &upper.limits);
}

fn limits(lower: &mut Vec<LimitEntry>, upper: &[LimitEntry]) {
    // Names repeated inside `upper` are reported, and removed, before this runs; here the last one would win.
    for upper in upper {
        match lower.iter_mut().find(|lower| lower.name.is_some() && lower.name == upper.name) {
            Some(lower) => limit(lower, upper),
            None => lower.push(upper.clone()),
        }
    }
}

/// Applies `upper` over `lower`. A rate becomes a concurrency limit, or the reverse, if `upper` states the other kind.
pub(super) fn limit(lower: &mut LimitEntry, upper: &LimitEntry) {
    if upper.concurrency.is_some() && upper.limit.is_none() && upper.window.is_none() {
        let (name, scope, shared) = (lower.name.take(), lower.scope.take(), lower.shared);
        *lower = LimitEntry { name, scope, shared, ..LimitEntry::default() };
    } else if lower.concurrency.is_some() && upper.limit.is_some() {
        lower.concurrency = None;
    }
    set(&mut lower.limit, &upper.limit);
    let has_calendar = |entry: &LimitEntry| entry.resets.as_ref().is_some_and(|resets| resets != resets::ROLLING);
    if upper.resets.is_some() {
        lower.window_over_calendar = upper.window_over_calendar;
    } else if upper.window.is_some() {
        lower.window_over_calendar = has_calendar(lower);
    }
    // A calendar implies the length of the window and the algorithm.
    if has_calendar(upper) {
        (lower.window, lower.algorithm) = (None, None);
    }
    set(&mut lower.window, &upper.window);
    set(&mut lower.resets, &upper.resets);
    set(&mut lower.algorithm, &upper.algorithm);
    set(&mut lower.scope, &upper.scope);
    set(&mut lower.concurrency, &upper.concurrency);
    set(&mut lower.burst, &upper.burst);
    set(&mut lower.refill_interval, &upper.refill_interval);
    set(&mut lower.release_interval, &upper.release_interval);
    set(&mut lower.safety, &upper.safety);
    set(&mut lower.ceiling, &upper.ceiling);
    set(&mut lower.unit, &upper.unit);
    set(&mut lower.largest_request, &upper.largest_request);
    set(&mut lower.cold_start, &upper.cold_start);
    set(&mut lower.shared, &upper.shared);
    // If the user changes a figure, the lower entry's source no longer documents it.
    let is_own =
        upper.limit.is_some() || upper.window.is_some() || upper.resets.is_some() || upper.concurrency.is_some();
    if is_own || upper.source.is_some() {
        lower.source = upper.source.clone();
        lower.as_of = upper.as_of.clone();
        lower.confidence = upper.confidence.clone();
    } else {
        set(&mut lower.as_of, &upper.as_of);
        set(&mut lower.confidence, &upper.confidence);
    }
}

#[cfg(test)]
mod tests;
