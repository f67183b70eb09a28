//! Formats a vendor of the catalogue as JSON.

use std::collections::BTreeMap;

use integration_client::config::{Limit, LimitKind, Vendor};
use serde_json::{Value, json};

use super::entry::Entry;
use crate::text;

pub(super) fn entry(entry: &Entry) -> Value {
    let live = &entry.live;
    let environments: serde_json::Map<String, Value> = std::iter::once(live)
        .chain(&entry.others)
        .map(|vendor| (vendor.environment.to_string(), environment(vendor)))
        .collect();
    json!({
        "name": &*live.name,
        "also": live.also,
        "unpublished": live.unpublished,
        "environments": environments,
        "quirks": live.quirks,
    })
}

fn environment(vendor: &Vendor) -> Value {
    let endpoints: serde_json::Map<String, Value> = vendor
        .endpoints
        .iter()
        .map(|endpoint| {
            let value = json!({
                "paths": endpoint.paths,
                "methods": endpoint.methods,
                "costs": endpoint.costs.iter().collect::<BTreeMap<&str, u32>>(),
                "limits": endpoint.limits.iter().map(limit).collect::<Vec<_>>(),
            });
            (endpoint.name.to_string(), value)
        })
        .collect();
    json!({
        "base_url": vendor.base_url,
        "costs": vendor.costs.iter().collect::<BTreeMap<&str, u32>>(),
        "auth": text::auth(&vendor.auth),
        "limits": vendor.limits.iter().map(limit).collect::<Vec<_>>(),
        "endpoints": endpoints,
    })
}

fn limit(limit: &Limit) -> Value {
    let mut value = json!({ "name": &*limit.name, "scope": limit.scope.name() });
    let more = match &limit.kind {
        LimitKind::Rate(rate) => json!({
            "limit": rate.limit,
            "window_s": rate.window.as_secs_f64(),
            "resets": rate.resets.as_ref().map(|resets| resets.to_string()),
            "algorithm": rate.algorithm.name(),
            "unit": rate.unit.name(),
            "burst": rate.burst,
            "largest_request": rate.largest_request,
        }),
        LimitKind::Concurrency { limit } => json!({ "concurrency": limit }),
        _ => json!({}),
    };
    let source = limit.source.as_ref().map_or_else(
        || json!({}),
        |source| json!({ "source": source.reference, "as_of": source.as_of, "confidence": source.confidence }),
    );
    for part in [more, source] {
        if let (Value::Object(value), Value::Object(part)) = (&mut value, part) {
            value.extend(part);
        }
    }
    value
}
