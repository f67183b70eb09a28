//! The calls that concern no single lane: the overview, queues and workers of the store, vendors, and shared limits.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::reply::{self, Failed, Reply};
use super::shared::Shared;
use crate::capacity::status::{SharedLimit, SharingStatus};
use crate::config::{LimitKind, Vendor};

/// The most queues in an answer.
const QUEUES: usize = 1_000;
/// The most shared limits in an answer.
const MAX_SHARED: usize = 1_000;

pub(super) async fn overview(shared: &Shared) -> Result<Reply, Failed> {
    let snapshot = shared.snapshots.get(shared.client.core()).await;
    let answer = snapshot.answer("overview", || {
        let overview = shared.client.overview();
        json!({
            "overview": overview,
            "store_problem": shared.client.outbox().problem(),
            "waiting": shared.client.waiting(),
            "in_flight": shared.client.in_flight(),
        })
        .to_string()
        .into()
    });
    Ok(reply::bytes(answer))
}

pub(super) async fn queues(shared: &Shared) -> Result<Reply, Failed> {
    let queues = shared.client.outbox().queues(QUEUES).await.map_err(|error| Failed::of(&error))?;
    let sum = |of: fn(&crate::outbox::Queue) -> u64| queues.iter().map(of).sum::<u64>();
    let (waiting, under_way) = (sum(|queue| queue.waiting), sum(|queue| queue.under_way));
    Ok(reply::value(&json!({
        "queues": queues,
        "waiting": waiting,
        "under_way": under_way,
        "is_cut": queues.len() == QUEUES,
        "store_problem": shared.client.outbox().problem(),
    })))
}

pub(super) async fn workers(shared: &Shared) -> Result<Reply, Failed> {
    let workers = shared.client.outbox().workers().await.map_err(|error| Failed::of(&error))?;
    let shown = workers.iter().map(|worker| {
        json!({ "worker": worker.worker, "said_before_s": worker.age.as_secs_f64(), "lanes": worker.lanes.len() })
    });
    Ok(reply::value(&json!({ "workers": shown.collect::<Vec<_>>() })))
}

/// The vendors that have tenants: what their entries state, and what their responses have shown.
pub(super) async fn vendors(shared: &Shared) -> Reply {
    let core = shared.client.core();
    let snapshot = shared.snapshots.get(core).await;
    let answer = snapshot.answer("vendors", || {
        let mut seen = BTreeMap::new();
        for part in 0..core.registry.routes.parts() {
            core.registry.routes.each_of_part(part, |route| {
                let vendor = &route.vendor;
                let name = (vendor.name.clone(), vendor.environment.clone());
                seen.entry(name).or_insert_with(|| (vendor.clone(), 0u64)).1 += 1;
            });
        }
        let observed = shared.client.overview().vendors;
        let shown = seen.into_values().map(|(vendor, tenants)| {
            let seen = observed.iter().find(|status| status.vendor == vendor.name);
            json!({
                "vendor": vendor.name,
                "environment": vendor.environment,
                "base_url": vendor.base_url,
                "tenants": tenants,
                "unpublished": vendor.unpublished,
                "limits": limits(&vendor),
                "quirks": vendor.quirks,
                "observed": seen,
            })
        });
        json!({ "vendors": shown.collect::<Vec<_>>() }).to_string().into()
    });
    reply::bytes(answer)
}

fn limits(vendor: &Vendor) -> Vec<Value> {
    let own = vendor.limits.iter().map(|limit| (None, limit));
    let of_endpoints = vendor
        .endpoints
        .iter()
        .flat_map(|endpoint| endpoint.limits.iter().map(move |limit| (Some(&endpoint.name), limit)));
    own.chain(of_endpoints)
        .map(|(endpoint, limit)| {
            let (figure, window) = match &limit.kind {
                LimitKind::Rate(rate) => (rate.limit, Some(rate.window.as_secs_f64())),
                LimitKind::Concurrency { limit } => (*limit, None),
            };
            json!({
                "name": limit.name,
                "endpoint": endpoint,
                "scope": limit.scope.name(),
                "limit": figure,
                "window_s": window,
                "source": limit.source.as_ref().map(|source| json!({
                    "reference": source.reference,
                    "as_of": source.as_of,
                    "confidence": source.confidence,
                })),
            })
        })
        .collect()
}

/// The state of sharing limits with other processes.
pub(super) fn processes(shared: &Shared) -> Reply {
    reply::value(&sharing(shared.client.sharing(), shared.client.shared_limits()))
}

fn sharing(status: Option<SharingStatus>, mut limits: Vec<SharedLimit>) -> Value {
    let sharing = status.map(|sharing| {
        json!({
            "limits": sharing.limits,
            "limits_failing": sharing.limits_failing,
            "answered": sharing.answered,
            "failed": sharing.failed,
            "leases_lost": sharing.leases_lost,
            "away_for_s": sharing.away_for.map(|away| away.as_secs_f64()),
            "mode": sharing.mode,
            "lease_left_s": sharing.lease_left.as_secs_f64(),
            "floor_left_s": sharing.floor_left.as_secs_f64(),
            "is_learning": sharing.is_learning,
        })
    });
    let is_cut = limits.len() > MAX_SHARED;
    // The sort is stable: limits with a problem come first, each group by name.
    limits.sort_by_key(|limit| limit.problem.is_none());
    limits.truncate(MAX_SHARED);
    json!({ "sharing": sharing, "limits": limits, "is_cut": is_cut })
}

#[cfg(test)]
mod tests;
