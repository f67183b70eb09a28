//! Reads each lane's usage by other processes, and counts it against the lane's limits before a job of the lane is
//! claimed. Before that, pauses are restored that the vendor asked an earlier process for (`pauses.rs`).
//!
//! A lane is read when its tenant appears: with the configuration at the start, by a reload or by
//! [`Tenants::set`](crate::Tenants::set). One task reads the lanes in the background, a bounded number of lanes and of
//! rows at a time, so that neither memory nor the start of the program depends on the number of rows. Lanes with waiting
//! jobs are read first, also before the rest of a lane that has more rows. Where tenants share a limit, all lanes of the
//! account, or of the vendor, are read before a job of one of them is claimed.
//!
//! Each row is counted once, however often its tenant goes and comes back (`order.rs`).

pub(super) mod order;
mod parts;
mod pauses;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use self::order::{Lane, Left, Recall, Shares};
use self::parts::{BETWEEN_TRIES, Fault, Parts};
use super::OutboxState;
use super::pauses::{Looked, holders_of};
use super::usage_retention::{kept_for, remembered};
use crate::clock::{Time, nanos};
use crate::config::{LimitKind, MAX_COSTS, Scope, Tenant, Unit, Vendor};
use crate::core::{Core, OutboxHooks, Used};
use crate::dispatch::{LaneRef, plan};
use crate::engine::cost::Cost;
use crate::engine::limit::PriorUse;
use crate::engine::plan::{EndpointId, NO_ENDPOINT};
use crate::error::Error;
use crate::route::Route;
use crate::store::pauses as stored_pauses;
use crate::store::usage::{self, Table, Usage, Wanted};
use crate::store::{is_down, may_pass};
use crate::telemetry::metrics::OutboxFigures;

impl Recall {
    fn is_ready(&self, tenant: &Tenant) -> bool {
        let ready = self.lanes.lock().is_ready(&tenant.id, &tenant.vendor.name, shares(tenant));
        if !ready {
            self.wanted.notify_one();
        }
        ready
    }
}

impl OutboxHooks for OutboxState {
    fn tenant_appears(&self, tenant: &Tenant) {
        // A row that is no longer kept counts no longer either.
        let (_, kept_ms) = kept_for(tenant, self.store.limits.latest_start());
        let counts = Duration::from_millis(u64::try_from(kept_ms).unwrap_or(0));
        let counts = Some(counts).filter(|_| remembered(tenant) > 0);
        self.recall.appeared.fetch_add(1, Ordering::Release);
        let (id, vendor, account) = (&tenant.id, &tenant.vendor.name, &tenant.account);
        let is_back = self.recall.lanes.lock().add(id, vendor, account, counts, self.clock.now());
        // The lane's jobs need not wait for a read.
        if is_back { self.recalled() } else { self.recall.wanted.notify_one() }
    }

    fn tenant_goes(&self, tenant: &str, vendor: &str) {
        self.recall.lanes.lock().forget(tenant, vendor, self.clock.now());
    }

    fn used(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, used: &Used) {
        self.usage.add(route, endpoint, high, used);
    }

    fn not_sent(&self, route: &Arc<Route>, endpoint: EndpointId, high: bool, recorded: &Used, at: Time) {
        self.usage.take_out(route, (endpoint, high), recorded, at, self.store.limits.latest_start());
    }

    fn pause_changed(&self, tenant: &Tenant, place: LaneRef) {
        self.told.add(Looked::new(tenant, place));
    }

    fn resumes(&self, tenant: &Tenant) {
        let holders = holders_of(tenant);
        self.pauses.lock().resume(holders, self.clock.now());
    }

    fn figures(&self) -> OutboxFigures {
        self.figures()
    }
}

impl OutboxState {
    /// Whether the usage by other processes that concerns the tenant's limits has been counted.
    pub(super) fn is_recalled(&self, tenant: &Tenant) -> bool {
        self.recall.is_ready(tenant)
    }

    /// Tells the worker that lanes have become ready.
    fn recalled(&self) {
        self.recall.has_read.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether lanes have become ready since this was last called.
    pub(super) fn has_recalled(&self) -> bool {
        self.recall.has_read.swap(false, Ordering::AcqRel)
    }
}

fn fault_of(error: &Error) -> Fault {
    match (may_pass(error), is_down(error)) {
        (true, _) => Fault::Passes,
        (false, true) => Fault::Storage,
        (false, false) => Fault::Data,
    }
}

/// With whom the tenant shares limits that count earlier usage.
fn shares(tenant: &Tenant) -> Shares<'_> {
    let vendor = &tenant.vendor;
    let limits = vendor.limits.iter().chain(vendor.endpoints.iter().flat_map(|endpoint| &endpoint.limits));
    let rates = limits.filter(|limit| matches!(limit.kind, LimitKind::Rate(_)));
    match rates.map(|limit| limit.scope).max() {
        Some(Scope::Vendor) => Shares::Vendor,
        Some(Scope::Account) => Shares::Account(&tenant.account),
        _ => Shares::Nothing,
    }
}

/// Reads lanes until the outbox stops.
pub(super) async fn run(core: Weak<Core>, outbox: Arc<OutboxState>) {
    let mut stop = outbox.stop.subscribe();
    let mut none_stood = None;
    loop {
        let lanes = outbox.recall.lanes.lock().next(usage::LANES);
        outbox.pauses.lock().lanes_wait(!lanes.is_empty(), outbox.clock.now());
        let read = async {
            if lanes.is_empty() {
                outbox.recall.wanted.notified().await;
                Rest::new()
            } else {
                read(&core, &outbox, &lanes, &mut none_stood).await
            }
        };
        let mut rest = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            rest = read => rest,
        };
        if !lanes.is_empty() {
            let now = outbox.clock.now();
            let mut known = outbox.recall.lanes.lock();
            for (lane, _) in &lanes {
                known.read(lane, rest.remove(lane), now);
            }
            drop(known);
            outbox.recalled();
        }
    }
}

/// The lanes that have more rows, or whose tenants were gone, each with what of it is to be read.
type Rest = HashMap<Lane, Left>;

/// The lanes of which `table` is to be read.
fn wanted_of(lanes: &[(Lane, Left)], table: Table) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    for ((tenant, vendor), left) in lanes {
        wanted.extend(left.tables.iter().filter(|(of, _)| *of == table).map(|(_, after)| Wanted {
            tenant: tenant.as_ref().to_owned(),
            vendor: vendor.as_ref().to_owned(),
            after: after.clone(),
        }));
    }
    wanted
}

/// Restores the pauses of `lanes`, as far as their tenants are known. Returns these lanes, and those that are to be read
/// again. `none_stood` is how many tenants had appeared when the store was last found to hold no pause that stands: lanes
/// that were there then have none, and a start with many lanes asks the store once.
async fn restore(
    core: &Weak<Core>,
    outbox: &OutboxState,
    lanes: &[(Lane, Left)],
    none_stood: &mut Option<u64>,
) -> (Vec<(Lane, Left)>, Vec<(Lane, Left)>) {
    let route = |core: &Core, lane: &Lane| core.registry.route(&lane.0, &lane.1).ok();
    let (mut ready, unrestored): (Vec<_>, Vec<_>) = lanes.iter().cloned().partition(|(_, left)| left.is_restored);
    let (mut gone, mut parts) = (Vec::new(), Parts::new(unrestored));
    while let Some(part) = parts.take() {
        let Some(present) = core.upgrade() else { return (Vec::new(), Vec::new()) };
        let routes: Vec<Arc<Route>> = part.iter().filter_map(|(lane, _)| route(&present, lane)).collect();
        // A read may wait for the store, and the client must be able to end meanwhile.
        drop(present);
        let appeared = outbox.recall.appeared.load(Ordering::Acquire);
        let read = async {
            if *none_stood == Some(appeared) {
                return Ok(None);
            }
            // If this cannot be read, the lanes' own rows may still be.
            if matches!(outbox.store.read((), stored_pauses::any).await, Ok(false)) {
                *none_stood = Some(appeared);
                return Ok(None);
            }
            let wanted = pauses::wanted(&routes);
            let read = outbox.store.read(wanted.clone(), stored_pauses::read).await?;
            Ok(Some((wanted, read)))
        };
        let (part, read) = match read.await {
            Ok(read) => (part, read),
            Err(error) => {
                let (given_up, wait) = parts.failed(part, fault_of(&error));
                for ((tenant, vendor), _) in &given_up {
                    tracing::error!(%error, %tenant, %vendor, "earlier pauses of a lane cannot be read, and are not kept to");
                }
                tokio::time::sleep(wait).await;
                (given_up, None)
            }
        };
        let Some(core) = core.upgrade() else { return (Vec::new(), Vec::new()) };
        let now = outbox.clock.now();
        let restored = |route: Arc<Route>| {
            read.as_ref().is_none_or(|read| pauses::restore(&core, &outbox.pauses, &route, read, now))
        };
        let is_known = |(lane, _): &(Lane, Left)| route(&core, lane).is_some_and(restored);
        let (known, away): (Vec<_>, Vec<_>) = part.into_iter().partition(is_known);
        ready.extend(known);
        gone.extend(away);
    }
    (ready, gone)
}

/// Restores the pauses of `lanes`, and counts a page of the stored usage of each.
async fn read(core: &Weak<Core>, outbox: &OutboxState, lanes: &[(Lane, Left)], none_stood: &mut Option<u64>) -> Rest {
    let (lanes, gone) = restore(core, outbox, lanes, none_stood).await;
    let mut rest: Rest = gone.into_iter().collect();
    for table in [Table::Requests, Table::Units] {
        let mut parts = Parts::new(wanted_of(&lanes, table));
        while let Some(wanted) = parts.take() {
            match outbox.store.read((outbox.store.owner, table, wanted.clone()), usage::read).await {
                Ok(pages) => {
                    let Some(core) = core.upgrade() else { return rest };
                    for page in pages {
                        let Some(lane) = wanted.get(page.lane) else { continue };
                        let is_counted =
                            recall(&core, &lane.tenant, &lane.vendor, page.rows, outbox.store.limits.latest_start());
                        let after = if is_counted { page.more } else { Some(lane.after.clone()) };
                        let Some(after) = after else { continue };
                        let of_lane = rest.entry((lane.tenant.as_str().into(), lane.vendor.as_str().into()));
                        let of_lane = of_lane.or_insert(Left { is_restored: true, tables: Vec::new() });
                        of_lane.is_restored &= is_counted;
                        of_lane.tables.push((table, after));
                    }
                }
                Err(error) => {
                    let (given_up, wait) = parts.failed(wanted, fault_of(&error));
                    for Wanted { tenant, vendor, .. } in &given_up {
                        tracing::error!(%error, tenant, vendor, "earlier usage of a lane cannot be read, and is not counted");
                    }
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }
    if rest.values().any(|left| !left.is_restored) {
        // A tenant is gone a moment before this is reported. Until then its lane would be read again at once.
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    rest
}

/// A row is negative if units that were taken in an earlier slot were returned in this one, or if it was edited. It
/// then counts as nothing.
fn figure(figure: i64) -> u32 {
    u32::try_from(figure.max(0)).unwrap_or(u32::MAX)
}

/// The cost of a row: its amount of its unit, and nothing of other units; nothing if the vendor's entry no longer
/// counts the unit.
fn cost_of(vendor: &Vendor, row: &Usage) -> Cost {
    let units = figure(row.units);
    match &*row.unit {
        // If other units are not remembered, each request counts as one unit of each of them.
        "" => {
            let requests = figure(row.requests);
            let trace = if vendor.keeps_usage { 0 } else { requests };
            Cost::of([trace; MAX_COSTS]).with_points(units.max(requests)).with_bytes(trace, trace)
        }
        unit if unit == Unit::RequestBytes.name() => Cost::NOTHING.with_bytes(units, 0),
        unit if unit == Unit::ResponseBytes.name() => Cost::NOTHING.with_bytes(0, units),
        kind => plan::of_kind(vendor, kind, units),
    }
}

/// Counts the usage by other processes against a lane's limits. Returns whether it did: if the tenant is gone, it
/// cannot.
fn recall(core: &Core, tenant: &str, vendor: &str, mut rows: Vec<Usage>, latest_start: Duration) -> bool {
    let Ok(tenant) = core.registry.route(tenant, vendor) else { return false };
    let Ok(place) = core.registry.place(&tenant) else { return false };
    // Oldest first, so that a bucket's refill in between is counted.
    rows.sort_by_key(|row| std::cmp::Reverse(row.age_ms));
    place.shard.decide(|engine, now| {
        for row in &rows {
            let endpoints = &tenant.vendor.endpoints;
            let endpoint = endpoints.iter().position(|endpoint| *endpoint.name == *row.endpoint);
            let endpoint = endpoint.map_or(NO_ENDPOINT, EndpointId::at);
            // The record was written before the exchange left, and the exchange may have reached the vendor later by
            // up to this time.
            let age = Duration::from_millis(u64::try_from(row.age_ms).unwrap_or(0));
            let age = age.saturating_sub(tenant.vendor.max_transit).saturating_sub(latest_start);
            let past = PriorUse {
                requests: figure(row.requests),
                cost: cost_of(&tenant.vendor, row),
                high: row.high,
                at: now.minus_nanos(nanos(age)),
            };
            engine.replay(now, place.lane, endpoint, &past);
        }
    });
    true
}
