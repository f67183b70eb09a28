//! The calls about lanes: lists of lanes, one lane in full, pause and resume.

use http::StatusCode;
use serde_json::{Value, json};

use super::caller::{Who, audit};
use super::query;
use super::recent;
use super::reply::{self, Failed, Reply};
use super::shared::Shared;
use crate::Priority;
use crate::core::status::lanes::LaneQuery;
use crate::core::status::survey;

/// The most other tenants that are named among those that share a lane's limits.
const NAMED: usize = 20;
/// The number of requests for which an estimate is made.
const ESTIMATED: u64 = 100;

pub(super) async fn list(shared: &Shared, text: &str) -> Result<Reply, Failed> {
    let asked: LaneQuery = query::read(text)?;
    let core = shared.client.core();
    let snapshot = shared.snapshots.get(core).await;
    let answer = snapshot.answer(&format!("lanes?{text}"), || {
        let page = survey::page(core, &snapshot.lanes, &asked);
        let history = shared.history.lock();
        let lines: Vec<Vec<u8>> = page.lanes.iter().map(|lane| history.line(&lane.tenant, &lane.vendor)).collect();
        drop(history);
        // This cannot fail, because all maps in a page have strings as keys.
        let mut page = serde_json::to_value(&page).unwrap_or_default();
        if let Some(lanes) = page["lanes"].as_array_mut() {
            lanes.iter_mut().zip(lines).for_each(|(lane, line)| lane["history"] = line.into());
        }
        page.to_string().into()
    });
    Ok(reply::bytes(answer))
}

pub(super) async fn show(shared: &Shared, tenant: &str, vendor: &str) -> Result<Reply, Failed> {
    let client = &shared.client;
    let core = client.core();
    let status = client.status(tenant, vendor).map_err(|error| Failed::of(&error))?;
    let route = core.registry.route(tenant, vendor).map_err(|error| Failed::of(&error))?;
    let scopes: Vec<&str> = status.limits.iter().map(|limit| limit.scope).collect();
    let is_shared = |scope: &str| scopes.contains(&scope);
    let of_account = !is_shared("vendor");
    let (mut others, mut named) = (0, Vec::new());
    if is_shared("account") || is_shared("vendor") {
        for part in 0..core.registry.routes.parts() {
            core.registry.routes.each_of_part(part, |other| {
                let is_vendor =
                    other.vendor.name == route.vendor.name && other.vendor.environment == route.vendor.environment;
                if is_vendor && other.id != route.id && !(of_account && other.account != route.account) {
                    others += 1;
                    if named.len() < NAMED {
                        named.push(other.id.clone());
                    }
                }
            });
        }
    }
    let estimates: serde_json::Map<String, Value> = [Priority::High, Priority::Normal, Priority::Low]
        .into_iter()
        .filter_map(|priority| {
            let estimate = client.estimate(tenant, vendor, priority, ESTIMATED).ok()?;
            Some((priority.to_string(), serde_json::to_value(estimate).ok()?))
        })
        .collect();
    let name = (status.tenant.clone(), status.vendor.clone());
    let samples = shared.recent.lock().look(core.clock.now(), name, &status.limits);
    let check = client.check(tenant, vendor, None, Priority::Low).ok();
    Ok(reply::value(&json!({
        "status": status,
        "resets_in_s": check.and_then(|check| check.reset).map(|reset| reset.as_secs_f64()),
        "account": route.account,
        "environment": route.vendor.environment,
        "shared_with": { "count": others, "tenants": named },
        "estimate": { "requests": ESTIMATED, "by_priority": estimates },
        "history": shared.history.lock().line(&status.tenant, &status.vendor),
        "recent": { "every_s": recent::EVERY.as_secs(), "limits": samples },
    })))
}

pub(super) fn pause(shared: &Shared, who: &Who, tenant: &str, vendor: &str) -> Result<Reply, Failed> {
    shared.client.tenants().pause(tenant, vendor).map_err(|error| Failed::of(&error))?;
    done(shared, who, "pause", tenant, vendor)
}

pub(super) fn resume(shared: &Shared, who: &Who, tenant: &str, vendor: &str) -> Result<Reply, Failed> {
    shared.client.tenants().resume(tenant, vendor).map_err(|error| Failed::of(&error))?;
    done(shared, who, "resume", tenant, vendor)
}

fn done(shared: &Shared, who: &Who, action: &'static str, tenant: &str, vendor: &str) -> Result<Reply, Failed> {
    audit(who, action, &format!("{tenant}/{vendor}"), None);
    shared.snapshots.forget();
    let status = shared.client.status(tenant, vendor);
    status.map(|status| reply::value(&status)).map_err(|error| Failed::new(StatusCode::NOT_FOUND, error.to_string()))
}
